package engine_test

import (
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A session that was paused after it was found to be due does not expire, and one that
// has completed does not, whatever its status says.
func TestExpireLeavesAlone(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	h := engine.NewHandler(engine.Config{Backend: db, Runtime: "test"})
	agent := &helix.Agent{Name: "a", Model: scripted.New(scripted.Text("one"))}
	turn(t, h, agent, func(e machine.Effect) (machine.Result, error) { return h.Handle(t.Context(), e) })
	sessions, key := db.Sessions(), session.Key{Tenant: session.DefaultTenant, ID: "s"}
	set := func(from, to session.Status) {
		t.Helper()
		if done, err := sessions.SetStatus(t.Context(), "s", session.StatusChange{Expect: []session.Status{from}, To: to}); err != nil || !done.OK {
			t.Fatalf("%s after %s: %v, %v", to, from, done, err)
		}
	}
	state, err := sessions.Load(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	state.ExpiresAt = time.Now().Add(-time.Hour)
	if err := session.Save(t.Context(), sessions, state); err != nil {
		t.Fatal(err)
	}
	expire := func(want session.Status) {
		t.Helper()
		failed, err := h.Expire(t.Context(), session.Due{Key: key})
		state, lost := sessions.Load(t.Context(), "s")
		if err != nil || lost != nil || failed || state.Status != want {
			t.Errorf("it has failed: %v, %v; it is %s, want %s", failed, err, state.Status, want)
		}
	}
	set(session.Completed, session.Paused)
	expire(session.Paused)
	set(session.Paused, session.Active) // as a process does that dies before it says how the run ended
	expire(session.Completed)
}
