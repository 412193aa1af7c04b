package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A process that takes no runs over still handles deadlines and expired sessions.
func TestNoRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testNoRecovery)
}

func testNoRecovery(t *testing.T) {
	db := memory.New(memory.Config{})
	defer db.Close()
	ask := helix.Tool{Name: "ask", Description: "Ask the user.", Deadline: 50 * time.Millisecond, Execute: helix.OnClient[struct{}]()}
	wait := helix.Tool{Name: "wait", Description: "Wait for the user.", Execute: helix.OnClient[struct{}]()}
	agent := &helix.Agent{
		Name: "clerk", Instructions: "Ask.", Tools: []helix.Tool{ask},
		Model: scripted.New(scripted.Call("ask", `{}`), scripted.Text("Nobody answers.")).ByPosition(),
	}
	waiter := &helix.Agent{
		Name: "waiter", Instructions: "Wait.", Tools: []helix.Tool{wait}, SessionExpiry: 50 * time.Millisecond,
		Model: scripted.New(scripted.Call("wait", `{}`)).ByPosition(),
	}
	rt, err := local.New(local.Config{Backend: db, NoRecovery: true, Sweep: 20 * time.Millisecond, LeaseTTL: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Shutdown(t.Context())
	// A run of a process that has died.
	lost := &session.State{ID: "lost", Agent: "clerk", Status: session.Active, StreamID: "lost"}
	_, err = db.Sessions().StartRun(t.Context(), &session.StartRun{
		SessionID: "lost", Create: lost, Owner: "gone", TTL: time.Millisecond,
		Run:    session.Run{ID: "run-1", Kind: session.RunExecute, Agent: "clerk", Runtime: local.Name},
		Change: session.Change{Messages: []session.Message{session.UserText("Hi!")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, agent := range map[string]*helix.Agent{"asks": agent, "waits": waiter} {
		run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: id, Message: helix.UserText("Hi!")})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := run.Result(t.Context()); err != nil || !res.Status.Suspended() {
			t.Fatalf("%s: %+v, %v", id, res, err)
		}
	}
	for id, want := range map[string]session.Status{"asks": session.Completed, "waits": session.Failed} {
		eventually.Poll(t, id+" is "+string(want), func() bool {
			state, err := db.Sessions().Load(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return state.Status == want
		})
	}
	state, err := db.Sessions().Load(t.Context(), "lost")
	if err != nil || state.Lease.Owner != "gone" {
		t.Errorf("the lost run was taken over: %+v, %v", state.Lease, err)
	}
}
