//go:build !race

package server_test

// largeBody is the largest body that a server takes.
const largeBody = 4 << 20
