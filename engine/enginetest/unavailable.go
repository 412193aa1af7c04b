package enginetest

import (
	"context"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// Unavailable makes every store write of a turn fail once, before it is made and
// after it was made, in a process that lives on. The outcome must be as if nothing
// had happened: nothing lost, nothing done twice.
func Unavailable(t *testing.T, open Open) { Part{}.Unavailable(t, open) }

// Unavailable is [Unavailable] for a share of the points.
func (p Part) Unavailable(t *testing.T, open Open) {
	for _, a := range p.acts() {
		t.Run(a.name, func(t *testing.T) {
			backend := open(t)
			r := rehearse(t, backend, a.few())
			r.eachWrite(t, func(t *testing.T, s scenario, n int, when storetest.When) {
				unavailable(testContext(t), t, backend, s, r.want, storetest.At(n, when))
			})
			// Longer than one write is retried: the effect is delivered again.
			for _, write := range []string{"Settle", "PutBlob"} {
				if write == "PutBlob" && !a.courses[0].evicts {
					continue // where a tool puts it, the tool fails
				}
				t.Run("every "+write+" for a while", func(t *testing.T) {
					unavailable(testContext(t), t, backend, a.courses[0], r.want, func(op storetest.Op) storetest.When {
						if op.Name == write && op.Nth <= patience {
							return storetest.Before
						}
						return storetest.Pass
					})
				})
			}
		})
	}
}

// patience is more attempts than the engine makes for one write.
const patience = 10

func unavailable(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, fail func(storetest.Op) storetest.When) {
	t.Helper()
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(w.backend)
	lost := false // chunks were not written, and not sent again
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
	p := w.process(faults)
	err := w.play(ctx, p, retrying{p}, nil)
	for try := 1; session.IsRetryable(err) && try < retries; try++ { // the turn could not be opened
		err = w.play(ctx, p, retrying{p}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := w.inspect(ctx)
	w.sameTurn(got, want)
	w.askedOnce()
	for key, n := range w.starts {
		if n > 1 {
			t.Errorf("%s was started %d times", key, n)
		}
	}
}

// retrying is a driver that retries an effect when that may help.
type retrying struct{ p *process }

const retries = 5

func (r retrying) Handle(ctx context.Context, e machine.Effect) (machine.Result, error) {
	return again(ctx, e, r.p.Handle)
}

func (r retrying) OpenChild(ctx context.Context, e machine.Effect) (*engine.Opened, error) {
	return again(ctx, e, r.p.OpenChild)
}

func again[V any](ctx context.Context, e machine.Effect, do func(context.Context, machine.Effect) (V, error)) (V, error) {
	result, err := do(ctx, e)
	for try := 1; err != nil && session.IsRetryable(err) && try < retries; try++ {
		result, err = do(ctx, e)
	}
	return result, err
}
