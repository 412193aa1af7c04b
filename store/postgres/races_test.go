package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// TestFirstRequestTwice sends the request that creates a session several times at
// once: all calls return the one run that was started.
func TestFirstRequestTwice(t *testing.T) {
	t.Parallel()
	const times, n = 150, 4
	b := openTest(t)
	has := testshare.Has(t, 5)
	for round := range times {
		if !has(round) {
			continue
		}
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
				<-time.After(time.Duration(i*round%40) * 50 * time.Microsecond) // waits: so that they collide at different points
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

// TestAnsweredWhileWaiting answers a call of a tree while the root's commit, which
// requires it to be unanswered, waits for the row: what the commit's statement saw
// when it began is no longer true.
func TestAnsweredWhileWaiting(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	turn := newWireTurn(t, b)
	if err := turn.s.Own(t.Context(), "a", []session.Ownership{{CallID: "c", SessionID: "kid"}}); err != nil {
		t.Fatal(err)
	}
	unlock := lockSessions(t, b, "a")
	disowned, committed := make(chan error, 1), make(chan error, 1)
	go func() { disowned <- turn.s.Disown(t.Context(), "a", []string{"c"}) }()
	waitForLock(t, b, 1)
	go func() { committed <- turn.change(t.Context(), session.Change{Waits: []string{"c"}}) }()
	waitForLock(t, b, 2)
	unlock()
	if err := <-disowned; err != nil {
		t.Error(err)
	}
	if err := <-committed; !errors.Is(err, session.ErrAnswered) || len(session.AsError(err).Calls) != 1 {
		t.Errorf("the commit ends with %v", err)
	}
}
