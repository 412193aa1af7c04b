package eventually_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/internal/eventually"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}

// failsAfter returns whether a wait fails, and after which time.
func failsAfter(wait func(testing.TB)) (failed bool, after time.Duration) {
	tb, done, began := &recorder{}, make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		wait(tb)
	}()
	<-done
	return tb.failed, time.Since(began)
}

func TestWaits(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]time.Duration{"at once": 0, "late": eventually.Patience - time.Second, "too late": eventually.Patience + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			happened := func() bool { return time.Since(began) >= happen }
			want, late := min(happen, eventually.Patience), happen > eventually.Patience
			if failed, after := failsAfter(func(tb testing.TB) { eventually.Poll(tb, "it", happened) }); failed != late || after != want {
				t.Errorf("%s: a poll ended after %s, failed: %t", name, after, failed)
			}
			event := make(chan int, 1)
			time.AfterFunc(happen, func() { event <- 7 })
			got := 0
			if failed, after := failsAfter(func(tb testing.TB) { got = eventually.Receive(tb, "it", event) }); failed != late || after != want || (got == 7) == late {
				t.Errorf("%s: a receive ended after %s with %d, failed: %t", name, after, got, failed)
			}
			time.Sleep(time.Minute) // the event of the last case has come
		})
	}
}

func TestPollContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if err := eventually.PollContext(ctx, func() bool { return true }); err != nil {
			t.Error(err)
		}
		enough := errors.New("enough")
		began := time.Now()
		time.AfterFunc(time.Hour, func() { cancel(enough) })
		if err := eventually.PollContext(ctx, func() bool { return false }); !errors.Is(err, enough) || time.Since(began) != time.Hour {
			t.Errorf("a poll ended after %s with %v", time.Since(began), err)
		}
	})
}

func TestContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inTest := eventually.Context(t)
		t.Cleanup(func() {
			if inTest.Err() == nil {
				t.Error("the context outlives its test")
			}
			ctx, began := eventually.Context(t), time.Now()
			if <-ctx.Done(); time.Since(began) != eventually.Patience {
				t.Errorf("the context of a cleanup ended after %s", time.Since(began))
			}
		})
		if deadline, ok := inTest.Deadline(); !ok || time.Until(deadline) != eventually.Patience {
			t.Errorf("the context ends at %s", deadline)
		}
	})
}
