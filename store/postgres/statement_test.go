package postgres

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// TestShapes builds statements of random changes again and compares each text with
// the first one of the same shape: a text that depended on anything else would be
// used with the wrong parameters.
func TestShapes(t *testing.T) {
	t.Parallel()
	s := &sessions{&Backend{}, "tenant"}
	rounds, seed := 2000, uint64(testshare.Part(t, 1<<16)) // other changes with each commit
	if testshare.Soak() {
		rounds *= 20
	}
	random := rand.New(rand.NewPCG(seed, 2))
	type built struct {
		text string
		args int
	}
	seen := map[shape]built{}
	for range rounds {
		change := randomChange(random)
		commit := &session.Commit{SessionID: "a", RunID: "run", Key: "key", Change: change}
		d, err := newDraft(&commit.Change, "a", "run", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		on := guard{Commit: commit}
		switch random.IntN(5) {
		case 0:
			on.Commit = nil
		case 1:
			on.batch = &batchGuard{}
		case 2:
			on.number = 1
		case 3:
			on.chunks = &chunksPart{}
		}
		q := newStatement(d, on, random.IntN(4) > 0)
		s.build(q, d, on)
		got := built{q.text.String(), len(q.args)}
		first, known := seen[q.shape]
		if !known {
			seen[q.shape] = got
		} else if first != got {
			t.Fatalf("two statements of the shape %+v:\n%s\n%s", q.shape, first.text, got.text)
		}
		again := &statement{shape: q.shape} // with the known text
		s.build(again, d, on)
		if len(again.args) != len(q.args) {
			t.Fatalf("%d parameters with the text, %d without", len(q.args), len(again.args))
		}
	}
	t.Logf("%d shapes", len(seen))
}

// randomChange has each part of a change with some probability, with up to three
// rows, some of them with the same ids.
func randomChange(random *rand.Rand) session.Change {
	all := changes()
	change := all["several of everything"]
	if random.IntN(2) == 0 {
		change = all["everything"]
	}
	drop := func() bool { return random.IntN(3) > 0 }
	for _, part := range []func(){
		func() { change.Status = "" }, func() { change.Messages = nil }, func() { change.StepCount = nil },
		func() { change.Writes.Ops = change.Writes.Ops[:1] }, func() { change.Writes = session.Writes{} },
		func() { change.Writes.Ops = nil }, func() { change.Calls = nil }, func() { change.Promote = nil },
		func() { change.Pending = nil }, func() { change.Resolve = nil }, func() { change.Waits = nil }, func() { change.Own = nil },
		func() { change.Disown = nil }, func() { change.Children = nil }, func() { change.Consume = nil }, func() { change.Wake = nil },
		func() { change.Checkpoint = nil }, func() { change.Run = nil }, func() { change.Run = &session.RunChange{CompletionReason: "x"} },
		func() { change.Run = &session.RunChange{Usage: session.Usage{ToolCalls: 1}} }, func() { change.Outcome = nil },
		func() { change.Outcome = &session.Outcome{Status: session.RunInterrupted} },
		func() { change.Resolve = []session.Resolution{{CallID: "x"}, {CallID: "x", Noticed: true}} },
		func() { change.Own = []session.Ownership{{CallID: "b"}, {CallID: "b"}} },
		func() { change.Children = []session.ChildRef{{SessionID: "b"}, {SessionID: "b"}} },
		func() {
			inline := session.Message{ID: "inline", Role: session.RoleTool}
			change.Promote = &session.Promotion{MessageID: "n", Results: []session.Promoted{{CallID: "q", Message: &inline}}}
		},
	} {
		if drop() {
			part()
		}
	}
	return change
}
