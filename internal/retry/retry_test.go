package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/session"
)

func TestDo(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		fails int   // how often the call fails before it succeeds
		with  error // its failure
		calls int
		want  error
		took  time.Duration
	}{
		"a call that succeeds is made once":           {0, nil, 1, nil, 0},
		"one that was unavailable is repeated":        {2, session.ErrUnavailable, 3, nil, 30 * time.Millisecond},
		"repeats are bounded":                         {100, session.ErrUnavailable, tries, session.ErrUnavailable, 630 * time.Millisecond},
		"an error that a repeat does not help stands": {100, refused, 1, refused, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, began := 0, time.Now()
				got, err := Do(t.Context(), func() (int, error) {
					if calls++; calls <= c.fails {
						return 0, c.with
					}
					return 7, nil
				})
				if !errors.Is(err, c.want) || calls != c.calls || time.Since(began) != c.took {
					t.Errorf("%d calls within %s ended with %v, want %d within %s and %v", calls, time.Since(began), err, c.calls, c.took, c.want)
				}
				if err == nil && got != 7 {
					t.Errorf("the value is %d", got)
				}
			})
		})
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	shutdown := errors.New("shutdown")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	_, err := Do(ctx, func() (int, error) {
		calls++
		cancel(shutdown)
		return 0, session.ErrUnavailable
	})
	if !errors.Is(err, shutdown) || calls != 1 {
		t.Errorf("%d calls ended with %v", calls, err)
	}
}
