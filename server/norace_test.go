//go:build !race

package server_test

// largeBody is the largest body that a server takes. largeHeap is how much twenty of them
// may take.
const (
	largeBody = 4 << 20
	largeHeap = 200_000_000
)
