package usercode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile is an error whose text cannot be read.
type hostile struct{}

func (hostile) Error() string { panic("no text") }

func TestGuard(t *testing.T) {
	t.Parallel()
	var none *session.Error
	for name, c := range map[string]struct {
		call func() error
		want string // the error's text, or nothing
	}{
		"no error":                      {func() error { return nil }, ""},
		"an error":                      {func() error { return errors.New("refused") }, "refused"},
		"a panic":                       {func() error { panic("boom") }, "panic: boom"},
		"a panic of the error's text":   {func() error { return hostile{} }, "panic: no text"},
		"a nil pointer in an error":     {func() error { return none }, "a nil *session.Error was returned as an error; return a plain nil instead"},
		"an error that wraps a nil one": {func() error { return fmt.Errorf("wrapped: %w", error(none)) }, "wrapped: %!w(*session.Error=<nil>)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := Guard(c.call); err != nil {
				got = err.Error()
			}
			if got != c.want && (c.want == "" || !strings.HasPrefix(got, strings.SplitN(c.want, "%", 2)[0])) {
				t.Errorf("the error is %q, want %q", got, c.want)
			}
		})
	}
}

func TestGuardKeepsTheStack(t *testing.T) {
	t.Parallel()
	p, ok := errors.AsType[*PanicError](Guard(func() error { panic("boom") }))
	if !ok || !strings.Contains(string(p.Stack), "TestGuardKeepsTheStack") {
		t.Errorf("the panic is %v, its stack %s", p, p.Stack)
	}
}

func TestCallOnce(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	for name, c := range map[string]struct {
		call func(context.Context) (int, error)
		stop bool // the context ends after a second; the limit is ten
		want error
		took time.Duration
	}{
		"an answer": {func(context.Context) (int, error) { return 7, nil }, false, nil, 0},
		"the time is up": {func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, false, ErrTimeout, 10 * time.Second},
		"the caller stops it": {func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, true, stopped, time.Second},
		"an answer that comes with the end stands": {func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 7, nil
		}, true, nil, time.Second},
		"code that ignores the end is left behind": {func(context.Context) (int, error) {
			time.Sleep(time.Minute) // waits: in the bubble below
			return 7, nil
		}, true, stopped, time.Second + grace},
		"code that ends its goroutine": {func(context.Context) (int, error) {
			runtime.Goexit()
			return 7, nil
		}, false, errExited, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.stop {
					time.AfterFunc(time.Second, func() { cancel(stopped) })
				}
				began := time.Now()
				got, err := CallOnce(ctx, 10*time.Second, c.call)
				if !errors.Is(err, c.want) || time.Since(began) != c.took {
					t.Errorf("it returned %v after %s, want %v after %s", err, time.Since(began), c.want, c.took)
				}
				if err == nil && got != 7 {
					t.Errorf("the value is %d", got)
				}
				time.Sleep(time.Minute) // of the bubble's clock: until code that was left behind has returned
			})
		})
	}
}

// A goroutine of a pool is used again, and ends with the pool.
func TestPoolReusesGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		pool := NewPool(done)
		id := func() (string, error) {
			buf := make([]byte, 64)
			first, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "[")
			return first, nil
		}
		first, _ := Call(t.Context(), pool, id)
		synctest.Wait() // until it is idle
		second, _ := Call(t.Context(), pool, id)
		if first != second {
			t.Errorf("the calls ran on %q and %q", first, second)
		}
		close(done)
	})
}
