package testbackend

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// AbandonRuns starts runs of a process that is gone, with leases that end at once: count
// sessions called name-0, name-1 and so on, each with a run called like it, run-name-0.
func AbandonRuns(t testing.TB, db store.Backend, name, agent, runtime string, count int) {
	t.Helper()
	var starting sync.WaitGroup
	const starters = 8
	for first := range starters {
		starting.Go(func() {
			for i := first; i < count; i += starters {
				id := fmt.Sprintf("%s-%d", name, i)
				_, err := db.Sessions().StartRun(t.Context(), &session.StartRun{
					SessionID: id, Create: &session.State{ID: id, Agent: agent, Status: session.Active, StreamID: id}, Owner: "gone", TTL: time.Millisecond,
					Run:    session.Run{ID: "run-" + id, Kind: session.RunExecute, Agent: agent, Runtime: runtime},
					Change: session.Change{Messages: []session.Message{session.UserText("Hi!")}},
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	starting.Wait()
}
