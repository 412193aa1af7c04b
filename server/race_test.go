//go:build race

package server_test

// largeBody is a body that a server under the race detector, which makes reading
// bytes slow and keeps a shadow of all memory, gets done with soon.
const largeBody = 256 << 10
