//go:build race

package server_test

// largeBody is a body that a server under the race detector, which makes reading
// bytes slow, gets done with soon. largeHeap is how much twenty of them may take.
const (
	largeBody = 256 << 10
	largeHeap = 50_000_000
)
