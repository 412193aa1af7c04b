// Package eventually waits in tests for what happens in its own time.
package eventually

import (
	"testing"
	"time"
)

// Patience is how long a test waits for something that must happen. It only ends tests that would hang: no machine is so
// slow, and what has to be fast is measured elsewhere.
const Patience = 5 * time.Minute

// pollInterval is how long [Poll] waits between two looks.
const pollInterval = 5 * time.Millisecond

// Poll waits until done reports true. It is for what sends no signal; where there is one, use [Receive].
func Poll(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-timeout.C:
			tb.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Receive waits for a value, or for the end of the channel.
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	select {
	case value := <-from:
		return value
	case <-timeout.C:
		tb.Fatalf("not within %s: %s", Patience, what)
		panic("unreachable")
	}
}
