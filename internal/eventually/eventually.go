// Package eventually waits in tests for what happens in its own time.
package eventually

import (
	"context"
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

// PollContext waits until done reports true, or returns why ctx has ended. It is for goroutines and processes that have no
// test, and for waits that the test may end.
func PollContext(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Context returns a context that ends calls that would hang. In a cleanup, where the test's own has ended, it has not.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	parent := tb.Context()
	if parent.Err() != nil {
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithTimeout(parent, Patience)
	tb.Cleanup(cancel)
	return ctx
}
