package enginetest

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/store"
)

// Redelivery delivers every effect twice, and all earlier effects again after each
// commit, to the process that handled them and to one that did not. Nothing may run
// again and nothing may change.
func Redelivery(t *testing.T, open Open) { Part{}.Redelivery(t, open) }

// Redelivery is [Redelivery] for a share of the turns that take many courses.
func (p Part) Redelivery(t *testing.T, open Open) {
	for _, a := range p.acts() {
		t.Run(a.name, func(t *testing.T) {
			backend := open(t)
			a := a.few()
			if len(a.courses) == 1 {
				a.part = Part{} // it is short
			}
			r := rehearse(t, backend, a)
			// Where people answer while the turn runs, an effect that is delivered
			// again rightly uses what they said.
			calm := func(course int) bool { return a.courses[course].people.when != live }
			twice := a.pick(0, calm)
			if len(twice) == 0 {
				twice = a.pick(2, calm)
			}
			for _, s := range twice {
				t.Run(strings.TrimSpace("twice "+s.people.String()), func(t *testing.T) {
					redeliver(testContext(t), t, backend, s, r.want, func(_ *world, p *process, done []machine.Effect) []redelivery {
						return []redelivery{{p, done[len(done)-1:]}}
					})
				})
			}
			for _, s := range a.pick(4, calm) {
				t.Run(strings.TrimSpace("all again "+s.people.String()), func(t *testing.T) {
					redeliver(testContext(t), t, backend, s, r.want, func(w *world, p *process, done []machine.Effect) []redelivery {
						return []redelivery{{p, done}, {w.process(w.backend), done}}
					})
				})
			}
		})
	}
}

// redelivery is a list of effects for a process to handle again.
type redelivery struct {
	p       *process
	effects []machine.Effect
}

func redeliver(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome,
	again func(w *world, p *process, done []machine.Effect) []redelivery,
) {
	t.Helper()
	w := newWorld(t, backend, s)
	p := w.process(w.backend)
	var done []machine.Effect
	answers := map[string]machine.Next{}
	err := w.play(ctx, p, p, func(e machine.Effect, r machine.Result) bool {
		done = append(done, e)
		answers[e.Key()] = r.Next
		before := w.versions(ctx)
		for _, r := range again(w, p, done) {
			for i, e := range r.effects {
				result, err := handle(ctx, r.p, e, nil)
				if err != nil {
					t.Errorf("%s again: %v", e.Key(), err)
				}
				// The newest effect returns the same again; earlier effects are past.
				if r.p == p && i == len(r.effects)-1 && e.Kind != machine.CloseTurn && result.Next != answers[e.Key()] {
					t.Errorf("%s answered %q, and %q when it was delivered again", e.Key(), answers[e.Key()], result.Next)
				}
			}
		}
		if after := w.versions(ctx); !maps.Equal(after, before) {
			t.Errorf("after %s, effects delivered again moved the sessions from versions %v to %v", e.Key(), before, after)
		}
		return true
	})
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
	// One reply took two attempts in one scenario.
	if asked := len(w.model.Requests()); asked > want.replies+1 {
		t.Errorf("the model was asked %d times for %d replies", asked, want.replies)
	}
}

// versions are those of the session and of the agents below it.
func (w *world) versions(ctx context.Context) map[string]int64 {
	w.t.Helper()
	found := map[string]int64{}
	for _, id := range w.family(ctx) {
		state, err := w.sessions().Load(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		found[id] = state.Version
	}
	return found
}
