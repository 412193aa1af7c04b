package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// Unavailable makes every store write of a turn fail once, without being made and
// after having been made, in a process that lives on. The turn must come out as
// if nothing had happened: nothing lost, nothing done twice.
func Unavailable(t *testing.T, open Open) {
	for _, s := range modes() {
		t.Run(s.name, func(t *testing.T) {
			backend := open(t)
			want, _, writes := uninterrupted(testContext(t), t, backend, s)
			for n := range writes {
				for _, when := range []storetest.When{storetest.Before, storetest.After} {
					t.Run(fmt.Sprintf("%s write %d", when, n+1), func(t *testing.T) {
						unavailable(testContext(t), t, backend, s, want, storetest.At(n+1, when))
					})
				}
			}
			// Longer than anybody is patient with a single write: the effect is delivered again.
			t.Run("every settle for a while", func(t *testing.T) {
				unavailable(testContext(t), t, backend, s, want, func(op storetest.Op) storetest.When {
					if op.Name == "Settle" && op.Nth <= patience {
						return storetest.Before
					}
					return storetest.Pass
				})
			})
		})
	}
}

// patience is more tries than the engine makes to write one thing.
const patience = 10

func unavailable(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, fail func(storetest.Op) storetest.When) {
	t.Helper()
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(backend)
	lost := false // chunks, and they were not sent again
	faults.Fail(func(op storetest.Op) storetest.When {
		when := fail(op)
		switch op.Name {
		case "Append":
			lost = when == storetest.Before
		case "Commit":
			if lost {
				t.Errorf("a commit overtook chunks that could not be written")
			}
		}
		return when
	})
	h := w.handler(faults)
	opened, err := h.Open(ctx, w.request())
	if session.IsRetryable(err) {
		opened, err = h.Open(ctx, w.request())
	}
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if opened.Existing { // the answer to the start was lost, and with it the turn
		w.finish(ctx)
	} else if err := drive(ctx, retrying{h}, opened, nil); err != nil {
		t.Fatalf("drive: %v", err)
	}
	got := w.inspect(ctx)
	w.sameTurn(got, want)
	for key, n := range w.starts {
		if n > 1 {
			t.Errorf("%s was started %d times", key, n)
		}
	}
}

// retrying is a driver that tries an effect again when it may help.
type retrying struct{ h *engine.Handler }

func (r retrying) Handle(ctx context.Context, e engine.Effect) (engine.Result, error) {
	result, err := r.h.Handle(ctx, e)
	for try := 1; err != nil && session.IsRetryable(err) && try < 5; try++ {
		result, err = r.h.Handle(ctx, e)
	}
	return result, err
}
