package local_test

import (
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// TestOrphansOfOthers is the test of the same name of the local runtime, on servers: however many
// lost runs there are that nobody here can take over, one of ours is continued. With nothing
// beside it, within 10 s.
func TestOrphansOfOthers(t *testing.T) {
	t.Parallel()
	strangers, foreign := 300, 100
	if testshare.Soak() {
		strangers, foreign = 10_000, 6000
	}
	kinds := testbackend.Servers()
	for i, kind := range kinds {
		if !testshare.HasTurn(t, i, len(kinds)) {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			if !testshare.Soak() {
				t.Parallel()
			}
			db := kind.Open(t)
			testbackend.AbandonRuns(t, db, "stranger", "stranger", local.Name, strangers)
			testbackend.AbandonRuns(t, db, "foreign", "clerk", "another", foreign)
			time.Sleep(100 * time.Millisecond) // waits: the leases of those end before the one of ours
			testbackend.AbandonRuns(t, db, "ours", "clerk", local.Name, 1)
			sessions := db.Sessions()
			if _, err := sessions.RequestStop(t.Context(), "stranger-70", session.Stop{RunID: "run-stranger-70", Kind: session.StopAbort}); err != nil {
				t.Fatal(err)
			}
			agent := &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Text("Hello."))}
			began := time.Now()
			rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			wantStatus := func(id string, want session.RunStatus) bool {
				run, err := sessions.CurrentRun(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return run.Status == want
			}
			eventually.Poll(t, "our run is completed and the aborted one ended", func() bool {
				return wantStatus("ours-0", session.RunCompleted) && wantStatus("stranger-70", session.RunFailed)
			})
			took := time.Since(began) // waits: in a long run nothing is beside it
			t.Logf("ours was completed, and the aborted one ended, after %s", took)
			if testshare.Soak() && took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if !wantStatus("stranger-1", session.RunRunning) || !wantStatus("foreign-1", session.RunRunning) {
				t.Error("a run was continued that nobody here can continue")
			}
		})
	}
}
