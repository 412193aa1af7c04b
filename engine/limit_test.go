package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/engine/internal/usercode"
)

// Calls that do not return are left behind, and when too many of an agent still run, no more
// are made. Those of other agents are.
func TestHookLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newHookLimit(time.Second)
		over := make(chan struct{})
		call := func(agent string, work func(context.Context) (int, error)) error {
			_, err := callLimitedOnce(t.Context(), l, agent, work)
			return err
		}
		hang := func(context.Context) (int, error) { <-over; return 1, nil }
		done := make(chan error)
		for range maxLeft {
			go func() { done <- call("stuck", hang) }()
		}
		for range maxLeft {
			if err := <-done; !errors.Is(err, usercode.ErrTimeout) || !errors.Is(err, errLeft) {
				t.Fatalf("a call that hangs: %v", err)
			}
		}
		began := time.Now()
		if err := call("stuck", hang); !errors.Is(err, usercode.ErrTimeout) || errors.Is(err, errLeft) || time.Since(began) > 0 {
			t.Errorf("one more call, after %s: %v", time.Since(began), err)
		}
		answer := func(context.Context) (int, error) { return 1, nil }
		if err := call("cook", answer); err != nil {
			t.Errorf("a call of another agent: %v", err)
		}
		obey := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		if err := call("cook", obey); !errors.Is(err, usercode.ErrTimeout) || errors.Is(err, errLeft) || err.Error() != "it did not return within 1s: time is up" {
			t.Errorf("a call that ends with its context: %v", err)
		}
		close(over)
		synctest.Wait()
		if err := call("stuck", answer); err != nil || len(l.left) != 0 {
			t.Errorf("after all have returned: %v; %v", err, l.left)
		}
	})
}
