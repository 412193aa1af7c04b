package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// crowd is how many at once submit or resume, half of them in each process.
const crowd = 32

// TestDoubleSubmit has 32 people in two processes approve the same call at once,
// and then resume the session at once: one is accepted and one runs it, the others
// are told so, and the tool runs once.
func TestDoubleSubmit(t *testing.T) { onStores(t, testDoubleSubmit) }

func testDoubleSubmit(t *testing.T, dir string) {
	rounds := 3
	if testshare.Soak() {
		rounds = 1000
	}
	desks := [2]*child{startChild(t, "desk", dir), startChild(t, "desk", dir)}
	refused := map[string]int{}
	for round := range rounds {
		id := fmt.Sprintf("double-%d", round)
		waiting := suspended(t, desks[round%2], "solo", id)
		if len(waiting) != 1 {
			t.Fatalf("%s waits for %+v", id, waiting)
		}
		submit := order{Op: "submit", Session: id, Call: waiting[0].CallID, Approval: waiting[0].ApprovalID, Times: crowd / 2}
		came := map[string]int{}
		for _, a := range both(desks, submit) {
			add(came, a.Codes)
		}
		if want := map[string]int{string(helix.SubmitAccepted): 1, string(helix.SubmitAlreadyCompleted): crowd - 1}; !maps.Equal(came, want) {
			t.Fatalf("%s: the submissions came to %v, want %v", id, came, want)
		}
		winner, winners := desks[0], 0
		for i, a := range both(desks, order{Op: "resume", Agent: "solo", Session: id, Times: crowd / 2}) {
			if a.Codes[""] > 0 {
				winner, winners = desks[i], winners+a.Codes[""]
				delete(a.Codes, "")
			}
			add(refused, a.Codes)
		}
		if winners != 1 {
			t.Fatalf("%s: %d resumes won", id, winners)
		}
		if got := winner.do(order{Op: "result"}); got.Status != string(session.RunCompleted) {
			t.Fatalf("%s ended %+v", id, got)
		}
	}
	for code := range refused {
		if code != string(session.CodeRunning) && code != string(session.CodeNotResumable) {
			t.Errorf("resumes were refused with %q", code)
		}
	}
	db, starts := openFor(t, dir), startedCalls(t, dir)
	for round := range rounds {
		if verifyDesk(t, db, fmt.Sprintf("double-%d", round), starts) > 0 {
			t.Errorf("round %d: the call was cut off, though nobody died", round)
		}
	}
	t.Logf("%d rounds of %d submissions and resumes; the resumes that lost failed with %v", rounds, crowd, refused)
}

// suspended executes a session and returns what it then waits for.
func suspended(t *testing.T, c *child, agent, id string) []session.Pending {
	t.Helper()
	a := run(t, c, agent, id)
	if !session.RunStatus(a.Status).Suspended() {
		t.Fatalf("%s ended %+v, and was to wait", id, a)
	}
	return a.Pending
}

// run executes a session and returns how its run ended.
func run(t *testing.T, c *child, agent, id string) answer {
	t.Helper()
	if a := c.do(order{Op: "execute", Agent: agent, Session: id}); a.Code != "" {
		t.Fatalf("%s was not executed: %s", id, a.Code)
	}
	return c.do(order{Op: "result"})
}

// both has two processes carry out an order at once.
func both(desks [2]*child, o order) [2]answer {
	desks[0].tell(o)
	desks[1].tell(o)
	return [2]answer{desks[0].hear(), desks[1].hear()}
}

func add(to, more map[string]int) {
	for key, n := range more {
		to[key] += n
	}
}

// TestAnswersToLiveRuns answers calls, of a session and of its sub-agent, at random
// moments of the run that makes them. If the submission says that the run uses the answer,
// the run does; with other answers the session can be resumed. None is lost.
func TestAnswersToLiveRuns(t *testing.T) { onStores(t, testAnswersToLiveRuns) }

func testAnswersToLiveRuns(t *testing.T, dir string) {
	rounds := 5
	if testshare.Soak() {
		rounds = 1000
	}
	worker := startChild(t, "desk", dir)
	people := map[string]*child{}
	for _, tool := range []string{"pay", "seal", "sign"} {
		people[tool] = startChild(t, "desk", dir)
	}
	said := map[string]int{}
	for round := range rounds {
		id := fmt.Sprintf("live-%d", round)
		for tool, person := range people {
			person.tell(order{Op: "answer", Session: id, Call: tool})
		}
		if a := worker.do(order{Op: "execute", Agent: "busy", Session: id}); a.Code != "" {
			t.Fatalf("%s was not executed: %s", id, a.Code)
		}
		resume := false
		for tool, person := range people {
			a := person.hear()
			if a.Status != string(helix.SubmitAccepted) {
				t.Fatalf("%s: the answer to %s came to %+v", id, tool, a)
			}
			said[a.Continuation]++
			resume = resume || a.Continuation == string(helix.CallerResumes)
		}
		status := worker.do(order{Op: "result"}).Status
		if waits := session.RunStatus(status).Suspended(); waits != resume {
			t.Fatalf("%s: all calls are answered, a resume is asked for: %t, and the run ended %s", id, resume, status)
		}
		if resume {
			if a := worker.do(order{Op: "resume", Agent: "busy", Session: id, Times: 1}); a.Codes[""] != 1 {
				t.Fatalf("%s cannot be resumed: %v", id, a.Codes)
			}
			status = worker.do(order{Op: "result"}).Status
		}
		if status != string(session.RunCompleted) {
			t.Fatalf("%s ended %s", id, status)
		}
	}
	db, starts := openFor(t, dir), startedCalls(t, dir)
	for round := range rounds {
		if verifyDesk(t, db, fmt.Sprintf("live-%d", round), starts) > 0 {
			t.Errorf("round %d: a call was cut off, though nobody died", round)
		}
	}
	t.Logf("%d rounds; of the answers were %v", rounds, said)
}

// TestKilledTrees kills the process of a session three levels deep, two of whose
// calls wait at the bottom, between their answers and the resume, and while the
// resumed tree runs. It completes, and no approved call runs twice.
func TestKilledTrees(t *testing.T) { onStores(t, testKilledTrees) }

func testKilledTrees(t *testing.T, dir string) {
	rounds := 3
	if testshare.Soak() {
		rounds = 100
	}
	db := openFor(t, dir)
	c, kills := startChild(t, "desk", dir), 0
	again := func() {
		c.kill()
		endLeases(t, db)
		kills++
		c = startChild(t, "desk", dir)
		c.do(order{}) // it is there
	}
	for round := range rounds {
		id := fmt.Sprintf("tree-%d", round)
		waiting := suspended(t, c, "boss", id)
		if len(waiting) != 2 {
			t.Fatalf("%s waits for %+v", id, waiting)
		}
		rand.Shuffle(2, func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		parts := round%2 == 1
		for i, p := range waiting {
			a := c.do(order{Op: "submit", Session: id, Call: p.CallID, Approval: p.ApprovalID, Times: 1})
			if a.Codes[string(helix.SubmitAccepted)] != 1 {
				t.Fatalf("%s: the answer to %s came to %+v", id, p.Tool, a)
			}
			if !parts && i == 0 {
				continue
			}
			again()
			if a := c.do(order{Op: "resume", Agent: "boss", Session: id, Times: 1}); a.Codes[""] != 1 {
				t.Fatalf("%s cannot be resumed: %v", id, a.Codes)
			}
			// Where the tree stands after a moment is anybody's guess. A run that is killed
			// three times without progress fails, which is not what is tested here.
			for range rand.IntN(3) {
				time.Sleep(rand.N(50 * time.Millisecond)) // waits: any moment will do, and others each time
				again()
			}
			settled(t, db, id)
		}
	}
	c.kill()
	starts, unknown := startedCalls(t, dir), 0
	for round := range rounds {
		unknown += verifyDesk(t, db, fmt.Sprintf("tree-%d", round), starts)
	}
	t.Logf("%d trees over %d kills; %d calls were cut off", rounds, kills, unknown)
}

// settled waits until nothing of a session runs or is left to be closed.
func settled(t *testing.T, db store.Backend, id string) *session.State {
	t.Helper()
	var state *session.State
	eventually.Poll(t, id+" comes to an end", func() bool {
		run, err := db.Sessions().CurrentRun(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if state, err = db.Sessions().Load(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return run.Status.Ended() && !state.ClosePending && state.CurrentRunID == run.ID
	})
	return state
}

// TestDeadlinesOutlast leaves sessions that wait, one of them for its sub-agent,
// with no process alive until their deadlines have passed. The next process continues
// with them by itself.
func TestDeadlinesOutlast(t *testing.T) { onStores(t, testDeadlinesOutlast) }

func testDeadlinesOutlast(t *testing.T, dir string) {
	ctx := t.Context()
	db := openFor(t, dir)
	owners, deadline := leaveWaiting(t, db, dir)
	eventually.Poll(t, "the deadline passes", func() bool {
		now, err := db.Sessions().Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return now.After(deadline)
	})
	startChild(t, "desk", dir)
	for id, owner := range owners {
		eventually.Poll(t, id+" completes", func() bool { return settled(t, db, id).Status == session.Completed })
		messages, err := db.Sessions().AllMessages(ctx, owner)
		if err != nil {
			t.Fatal(err)
		}
		if result := messages[2].Parts[0]; result.Error == nil || result.Error.Code != session.CodeClientTimeout {
			t.Errorf("%s: the result is %+v", owner, result)
		}
		verifyFoldOn(t, db, id, owner, messages)
	}
	if exists(dir, "effects") {
		t.Errorf("a call ran that nobody had approved: %v", startedCalls(t, dir))
	}
}

// leaveWaiting has a process begin sessions that wait for a person, and kills it before a
// deadline has passed. It returns the sessions whose calls wait, by those that were begun, and
// the last deadline. If the machine is too slow for the deadline, it begins others with a longer
// one.
func leaveWaiting(t *testing.T, db store.Backend, dir string) (owners map[string]string, last time.Time) {
	t.Helper()
	for limit := time.Second; limit < eventually.Patience; limit *= 4 {
		write(t, dir, "deadline", limit.String())
		c := startChild(t, "desk", dir)
		owners = map[string]string{}
		var first time.Time
		for _, agent := range []string{"hasty", "chief"} {
			id := agent + "-" + limit.String()
			for _, p := range run(t, c, agent, id).Pending { // none if the deadline has passed already
				owners[id], last = p.SessionID, p.Deadline
			}
			if first.IsZero() {
				first = last
			}
		}
		c.kill()
		now, err := db.Sessions().Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(owners) == 2 && now.Before(first) {
			return owners, last
		}
	}
	t.Fatal("sessions do not wait for their deadlines")
	return nil, time.Time{}
}
