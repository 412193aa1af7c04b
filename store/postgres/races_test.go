package postgres

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// TestFirstRequestTwice has the request that creates a session arrive several times
// at once: all are told of the one run that was started.
func TestFirstRequestTwice(t *testing.T) {
	t.Parallel()
	const times, n = 150, 4
	b := openTest(t)
	for round := range times {
		id := fmt.Sprint("s", round)
		var (
			started [n]*session.Started
			errs    [n]error
			done    sync.WaitGroup
		)
		gate := make(chan struct{})
		for i := range n {
			done.Go(func() {
				<-gate
				<-time.After(time.Duration(i*round%40) * 50 * time.Microsecond) // so that they meet in different places
				started[i], errs[i] = b.Sessions().StartRun(t.Context(), &session.StartRun{
					SessionID: id, Create: &session.State{ID: id, Agent: "a", Status: session.Active},
					Run: session.Run{ID: "run", Kind: session.RunExecute, RequestID: "request"}, Owner: fmt.Sprint("owner", i), TTL: time.Hour,
				})
			})
		}
		close(gate)
		done.Wait()
		made := 0
		for i, s := range started {
			switch {
			case errs[i] != nil:
				t.Fatalf("round %d, request %d: %v", round, i, errs[i])
			case !s.Existing:
				made++
			case s.Run.ID != "run" || s.Version == 0:
				t.Fatalf("round %d, request %d: %+v", round, i, s)
			}
		}
		if made != 1 {
			t.Fatalf("round %d: %d runs were started", round, made)
		}
	}
}
