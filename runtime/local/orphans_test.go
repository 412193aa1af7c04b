package local_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
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
		testbackend.AbandonRuns(t, db, "stranger", "stranger", local.Name, strangers)
		testbackend.AbandonRuns(t, db, "foreign", "clerk", "another", foreign)
		time.Sleep(time.Second)
		testbackend.AbandonRuns(t, db, "ours", "clerk", local.Name, 1)
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
		for id, want := range map[string]session.RunStatus{"ours-0": session.RunCompleted, "stranger-700": session.RunFailed, "stranger-1": session.RunRunning} {
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
