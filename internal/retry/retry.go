// Package retry repeats calls of a store that may be unavailable for a moment.
package retry

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// A call is made at most tries times. The pause before the n-th repeat is
// firstPause doubled n times.
const (
	tries      = 7
	firstPause = 5 * time.Millisecond
)

// Do calls a store, again while it is unavailable, a few times. The call must be
// safe to repeat: a call that failed may have been applied.
func Do[V any](ctx context.Context, call func() (V, error)) (V, error) {
	value, err := call()
	for try := 1; err != nil && session.IsRetryable(err) && try < tries; try++ {
		if err := Sleep(ctx, firstPause<<try); err != nil {
			var none V
			return none, err
		}
		value, err = call()
	}
	return value, err
}

// Sleep waits for d. If ctx ends first, it returns the reason.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
