package engine_test

import (
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// A process takes over a run that it was driving itself. Effects from before are not carried out
// in the turn that took the place of theirs, whether the handler holds it or has to read it,
// and the turn from before cannot release it.
func TestEffectsOfEarlierEpoch(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	agent := echo(&ran)
	db := memory.New(memory.Config{})
	h := engine.NewHandler(engine.Config{Backend: db, Runtime: "test"})
	before := openTurn(t, h, agent)
	load := func() *session.State { return loadSession(t, db) }
	after := takeOver(t, h, db, before)

	_, stale := machine.New(before.Key, before.Run.ID, before.Position)
	h.Release(t.Context(), before)
	for _, held := range []bool{true, false} {
		if !held {
			h.Drop(after.Run.ID)
		}
		version := load().Version
		if r, err := h.Handle(t.Context(), stale[0]); err != nil || r.Next != machine.NextLost {
			t.Fatalf("the turn is held: %v: an effect of the earlier epoch led to %+v, %v; want it to be lost", held, r, err)
		}
		if state := load(); state.Version != version || state.Lease.Epoch != after.Position.Epoch || state.Lease.Owner != h.Owner() {
			t.Fatalf("the turn is held: %v: an effect of the earlier epoch changed the session to %+v", held, state)
		}
	}
	drive(t, after, func(e machine.Effect) (machine.Result, error) { return h.Handle(t.Context(), e) })
	if ran.Load() != 2 || load().Status != session.Completed {
		t.Fatalf("the tool ran %d times and the session is %s; want 2 times and completed", ran.Load(), load().Status)
	}
}

// A process that takes over a run which it was driving itself also takes over the sub-agent, whose
// turn it holds: two drivers must not share it.
func TestSubAgentOfEarlierEpoch(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	child := echo(&ran)
	agent := &helix.Agent{
		Name:      "caller",
		Model:     scripted.New(scripted.Call(helix.SubAgentPrefix+child.Name, map[string]string{"task": "greet"})),
		SubAgents: []helix.SubAgent{{Agent: child}},
	}
	db := memory.New(memory.Config{})
	h := engine.NewHandler(engine.Config{Backend: db, Runtime: "test"})
	root := openTurn(t, h, agent)
	m, wave := machine.New(root.Key, root.Run.ID, root.Position)
	reply, err := h.Handle(t.Context(), wave[0])
	if err != nil {
		t.Fatal(err)
	}
	wave, _ = m.Next([]machine.Result{reply})
	before, err := h.OpenChild(t.Context(), wave[0])
	if err != nil || before == nil {
		t.Fatalf("the sub-agent was not opened: %v", err)
	}
	again, err := h.OpenChild(t.Context(), wave[0])
	if err != nil || again == nil || again.Position.Epoch != before.Position.Epoch {
		t.Fatalf("the same effect, delivered again, opened %+v, %v; want the turn of epoch %d", again, err, before.Position.Epoch)
	}

	taken := takeOver(t, h, db, root)
	_, late := machine.New(taken.Key, taken.Run.ID, taken.Position)
	after, err := h.OpenChild(t.Context(), late[0])
	if err != nil || after == nil || after.Position.Epoch == before.Position.Epoch {
		t.Fatalf("after the takeover the effect opened %+v, %v; want another epoch than %d", after, err, before.Position.Epoch)
	}
	if stale, err := h.OpenChild(t.Context(), wave[0]); err != nil || stale != nil {
		t.Fatalf("the effect from before the takeover opened %+v, %v; want nothing", stale, err)
	}
	_, ask := machine.New(before.Key, before.Run.ID, before.Position)
	if r, err := h.Handle(t.Context(), ask[0]); err != nil || r.Next != machine.NextLost {
		t.Fatalf("the first turn of the sub-agent goes on with %+v, %v; want it to be lost", r, err)
	}
}

// takeOver takes a turn over.
func takeOver(t *testing.T, h *engine.Handler, db store.Backend, from *engine.Opened) *engine.Opened {
	t.Helper()
	opened, err := h.TakeOver(t.Context(), session.Due{
		Key: from.Key, Agent: from.Run.Agent, RunID: from.Run.ID, Lease: loadSession(t, db).Lease,
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func loadSession(t *testing.T, db store.Backend) *session.State {
	t.Helper()
	state, err := db.Sessions().Load(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	return state
}
