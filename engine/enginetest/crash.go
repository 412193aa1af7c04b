package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// CrashPoints stops turns after every effect, and before and after every store
// write, takes them over with nothing but the store, and requires what an
// uninterrupted turn leaves. It prints how many points it covered.
func CrashPoints(t *testing.T, open Open) {
	points := 0
	for _, s := range modes() {
		t.Run(s.name, func(t *testing.T) {
			backend := open(t)
			want, effects, writes := uninterrupted(testContext(t), t, backend, s)
			for n := range effects {
				t.Run(fmt.Sprintf("after effect %d", n+1), func(t *testing.T) {
					crashAfterEffect(testContext(t), t, backend, s, want, n+1)
				})
			}
			for n := range writes {
				for _, when := range []storetest.When{storetest.Before, storetest.After} {
					t.Run(fmt.Sprintf("%s write %d", when, n+1), func(t *testing.T) {
						crashAtWrite(testContext(t), t, backend, s, want, n+1, when)
					})
				}
			}
			points += effects + 2*writes
		})
	}
	t.Logf("%d crash points covered", points)
	fmt.Printf("%s: %d crash points covered\n", t.Name(), points)
}

// uninterrupted runs a scenario once and counts its effects and store writes.
func uninterrupted(ctx context.Context, t *testing.T, backend store.Backend, s scenario) (want outcome, effects, writes int) {
	t.Helper()
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(backend)
	h := w.handler(faults)
	opened, err := h.Open(ctx, w.request())
	if err != nil {
		t.Fatal(err)
	}
	err = drive(ctx, h, opened, func(engine.Effect, engine.Result) bool { effects++; return true })
	if err != nil {
		t.Fatal(err)
	}
	return w.inspect(ctx), effects, faults.Count()
}

// errKilled is what a process that was killed gets from its store. Nobody would
// try again.
var errKilled = errors.New("killed")

func crashAfterEffect(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, n int) {
	t.Helper()
	w := newWorld(t, backend, s)
	h := w.handler(backend)
	opened, err := h.Open(ctx, w.request())
	if err != nil {
		t.Fatal(err)
	}
	if err := drive(ctx, h, opened, func(engine.Effect, engine.Result) bool { n--; return n > 0 }); err != nil {
		t.Fatal(err)
	}
	h.Drop(runID)
	w.compare(ctx, want)
}

func crashAtWrite(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, n int, when storetest.When) {
	t.Helper()
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(backend)
	faults.FailWith(errKilled)
	killed := false
	faults.Fail(func(op storetest.Op) storetest.When {
		if op.N != n {
			return storetest.Pass
		}
		killed = true
		faults.Cut()
		return when
	})
	h := w.handler(faults)
	opened, err := h.Open(ctx, w.request())
	if err == nil {
		err = drive(ctx, h, opened, nil)
	}
	if !killed {
		t.Fatalf("write %d did not happen (%v)", n, err)
	}
	h.Drop(runID)
	w.compare(ctx, want)
}

// compare lets fresh processes finish the turn and compares.
func (w *world) compare(ctx context.Context, want outcome) {
	w.t.Helper()
	unchanged := w.prefix(ctx)
	w.finish(ctx)
	unchanged()
	w.sameTurn(w.inspect(ctx), want)
}
