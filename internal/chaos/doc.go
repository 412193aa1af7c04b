// Package chaos tests Helix with real processes that are killed and real races
// between them. It holds tests only: short in "make test", long in "make soak".
package chaos
