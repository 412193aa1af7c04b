package enginetest

import (
	"context"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// Redelivery delivers every effect twice, and all earlier effects again after
// each commit, to the process that handled them and to one that knows nothing of
// them. Nothing may run again and nothing may change.
func Redelivery(t *testing.T, open Open) {
	for _, s := range modes() {
		t.Run(s.name, func(t *testing.T) {
			ctx := testContext(t)
			backend := open(t)
			w := newWorld(t, backend, s)
			h := w.handler(w.backend)
			if err := drive(ctx, h, w.open(ctx, h), nil); err != nil {
				t.Fatal(err)
			}
			want := w.inspect(ctx)

			t.Run("twice", func(t *testing.T) {
				redeliver(testContext(t), t, backend, s, want, func(w *world, h *engine.Handler, done []engine.Effect) []redelivery {
					return []redelivery{{h, done[len(done)-1:]}}
				})
			})
			t.Run("all again", func(t *testing.T) {
				redeliver(testContext(t), t, backend, s, want, func(w *world, h *engine.Handler, done []engine.Effect) []redelivery {
					return []redelivery{{h, done}, {w.handler(w.backend), done}}
				})
			})
		})
	}
}

// redelivery is a list of effects for a handler to handle again.
type redelivery struct {
	h       *engine.Handler
	effects []engine.Effect
}

func redeliver(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome,
	again func(w *world, h *engine.Handler, done []engine.Effect) []redelivery,
) {
	t.Helper()
	w := newWorld(t, backend, s)
	h := w.handler(backend)
	var done []engine.Effect
	answers := map[string]engine.Next{}
	err := drive(ctx, h, w.open(ctx, h), func(e engine.Effect, r engine.Result) bool {
		done = append(done, e)
		answers[e.Key()] = r.Next
		before := w.version(ctx)
		for _, r := range again(w, h, done) {
			for i, e := range r.effects {
				result, err := r.h.Handle(ctx, e)
				if err != nil {
					t.Errorf("%s again: %v", e.Key(), err)
				}
				// The newest effect answers as it did; what came before is past.
				if r.h == h && i == len(r.effects)-1 && e.Kind != engine.CloseTurn && result.Next != answers[e.Key()] {
					t.Errorf("%s answered %q, and %q when it was delivered again", e.Key(), answers[e.Key()], result.Next)
				}
			}
		}
		if after := w.version(ctx); after != before {
			t.Errorf("after %s, effects delivered again moved the session from version %d to %d", e.Key(), before, after)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	got := w.inspect(ctx)
	w.sameTurn(got, want)
	for key, n := range w.starts {
		if n > 1 {
			t.Errorf("%s was started %d times", key, n)
		}
	}
	if asked := len(w.model.Requests()); asked > len(want.replies())+1 {
		t.Errorf("the model was asked %d times for %d replies", asked, len(want.replies()))
	}
}

// replies is the number of replies, one of which took two attempts in one
// scenario.
func (o outcome) replies() []session.Message {
	var out []session.Message
	for i := range o.messages {
		if o.messages[i].Role == session.RoleAssistant {
			out = append(out, o.messages[i])
		}
	}
	return out
}

func (w *world) open(ctx context.Context, h *engine.Handler) *engine.Opened {
	w.t.Helper()
	opened, err := h.Open(ctx, w.request())
	if err != nil {
		w.t.Fatal(err)
	}
	return opened
}

func (w *world) version(ctx context.Context) int64 {
	w.t.Helper()
	state, err := w.sessions().Load(ctx, sessionID)
	if err != nil {
		w.t.Fatal(err)
	}
	return state.Version
}
