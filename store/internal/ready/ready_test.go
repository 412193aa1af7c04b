package ready_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/store/internal/ready"
)

func TestWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, tried := ready.NewWrites(), 0
		var broken error
		check := func(want error, tries int) {
			t.Helper()
			err := w.Check(t.Context(), func(context.Context) error {
				tried++
				return broken
			})
			if !errors.Is(err, want) || tried != tries {
				t.Errorf("got %v after %d tries, want %v after %d", err, tried, want, tries)
			}
		}
		check(nil, 1)
		broken = errors.New("full")
		time.Sleep(ready.Every - time.Second)
		check(nil, 1)
		time.Sleep(time.Second)
		check(broken, 2)
		check(broken, 2)
		time.Sleep(ready.Again)
		check(broken, 3)
		broken = nil
		time.Sleep(ready.Again)
		check(nil, 4)
		check(nil, 4)
		w.Always()
		check(nil, 5)
		check(nil, 6)
	})
}

func TestWritesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, tried := ready.NewWrites(), 0
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				err := w.Check(t.Context(), func(context.Context) error {
					tried++
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if tried != 1 {
			t.Errorf("%d writes were tried", tried)
		}
		// A check whose context ends says nothing about the store, and does not wait.
		time.Sleep(ready.Every)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.Check(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write that took too long: %v", err)
		}
		if err := w.Check(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("after one that gave up: %v", err)
		}
	})
}
