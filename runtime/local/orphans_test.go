package local_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// However many runs there are that nobody here can take over, of agents that nobody here knows
// or of another runtime, one of ours is continued within 10 s. A run that is to be aborted is
// ended, though nobody knows its agent.
func TestOrphansOfOthers(t *testing.T) {
	t.Parallel()
	strangers, foreign := 1000, 200
	if testshare.Soak() {
		strangers, foreign = 10_000, 6000
	}
	synctest.Test(t, func(t *testing.T) {
		db := memory.New(memory.Config{})
		defer db.Close()
		sessions := db.Sessions()
		orphan := func(id, agent, runtime string) {
			_, err := sessions.StartRun(t.Context(), &session.StartRun{
				SessionID: id, Create: &session.State{ID: id, Agent: agent, Status: session.Active, StreamID: id}, Owner: "gone", TTL: time.Millisecond,
				Run:    session.Run{ID: "run-" + id, Kind: session.RunExecute, Agent: agent, Runtime: runtime},
				Change: session.Change{Messages: []session.Message{session.UserText("Hi!")}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range strangers {
			orphan(fmt.Sprint("stranger-", i), "stranger", local.Name)
		}
		for i := range foreign {
			orphan(fmt.Sprint("foreign-", i), "clerk", "another")
		}
		time.Sleep(time.Second)
		orphan("ours", "clerk", local.Name)
		if _, err := sessions.RequestStop(t.Context(), "stranger-700", session.Stop{RunID: "run-stranger-700", Kind: session.StopAbort}); err != nil {
			t.Fatal(err)
		}
		agent := &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Text("Hello."))}
		rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close()
		time.Sleep(10 * time.Second)
		for id, want := range map[string]session.RunStatus{"ours": session.RunCompleted, "stranger-700": session.RunFailed, "stranger-1": session.RunRunning} {
			run, err := sessions.CurrentRun(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if run.Status != want {
				t.Errorf("after 10 s the run of %s is %s, not %s", id, run.Status, want)
			}
		}
	})
}
