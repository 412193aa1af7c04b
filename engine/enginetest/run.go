package enginetest

import "testing"

// Run runs all suites on a backend, those that interrupt turns with this share of the
// points.
func (p Part) Run(t *testing.T, open Open) {
	for name, suite := range map[string]func(*testing.T, Open){
		"CrashPoints":  p.CrashPoints,
		"Unavailable":  p.Unavailable,
		"Redelivery":   p.Redelivery,
		"WriteCounts":  WriteCounts,
		"StablePrefix": StablePrefix,
		"SeveralBlobs": SeveralBlobs,
		"CallOrder":    CallOrder,
		"InputReads":   InputReads,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, open)
		})
	}
}
