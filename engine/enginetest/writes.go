package enginetest

import (
	"fmt"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// sessionWrites are the writes to a session that a step may make.
var sessionWrites = []string{"Commit", "Claim", "Settle", "StartRun", "CloseRun", "SettleClose", "RenewLeases"}

// WriteCounts counts the store writes of single steps: one where all calls are
// read-only, two with a single other call, and at most one more for each further
// call. An extension that adds messages and tasks costs no write, and so does a policy for
// the context that has nothing to do; a marker is one commit, and a large result that is
// evicted is one blob.
//
// It also counts those of runs that wait for people.
func WriteCounts(t *testing.T, open Open) {
	waitingCosts(t, open)
	backend := open(t)
	contextCosts(t, backend)
	call := func(tools ...string) scripted.Step {
		var parts []scripted.Part
		for _, tool := range tools {
			parts = append(parts, scripted.Calling(tool, subject{"x"}))
		}
		return scripted.Reply(parts...)
	}
	for _, c := range []struct {
		tools []string
		want  int
	}{
		{[]string{"look"}, 1},
		{[]string{"look", "look", "look"}, 1},
		{[]string{"pay"}, 2},
		{[]string{"send"}, 2},
		{[]string{"book"}, 2},
		{[]string{"look", "pay"}, 2},
		{[]string{"pay", "pay"}, 3},
		{[]string{"pay", "send", "pay", "send"}, 5},
		{[]string{"pay", "book"}, 3},
		{[]string{"pay", "look", "send"}, 3},
		{[]string{"stack"}, 2},
		{[]string{"stack", "pay"}, 3},
		{[]string{"stack", "stack"}, 4}, // a serial call is claimed when those before it have ended
		{[]string{"print"}, 1},
		{[]string{"dump"}, 2},
		{[]string{"print", "dump", "pay"}, 3},
		{[]string{"pay", "issue"}, 3},
	} {
		for _, extended := range []bool{false, true} {
			for _, evicts := range []bool{false, true} {
				t.Run(fmt.Sprint(c.tools, extended, evicts), func(t *testing.T) {
					s := scenario{steps: []scripted.Step{call(c.tools...), scripted.Text("done")}, ledger: extended, evicts: evicts}
					countWrites(t, backend, s, c.tools, c.want)
				})
			}
		}
	}
}

// contextCosts counts the writes of a run with and without markers.
func contextCosts(t *testing.T, backend store.Backend) {
	var steps []scripted.Step
	for range 7 {
		steps = append(steps, scripted.Call("look", subject{"x"}))
	}
	steps = append(steps, scripted.Text("done"))
	for name, c := range map[string]struct {
		scenario
		markers int
		idle    bool // the agent has a policy that does nothing
	}{
		"no policy": {scenario{steps: steps}, 0, false},
		"idle":      {scenario{steps: steps}, 0, true},
		"markers":   {scenario{steps: steps, markers: 2}, 3, false},
		"extended":  {scenario{steps: steps, markers: 2, ledger: true}, 3, false},
	} {
		t.Run("context "+name, func(t *testing.T) {
			ctx := testContext(t)
			w := newWorld(t, backend, c.scenario)
			if c.idle {
				w.agent.Context = &helix.ContextPolicy{}
			}
			faults := storetest.NewFaults(w.backend)
			p := w.process(faults)
			opened, err := p.Open(ctx, w.request())
			if err != nil {
				t.Fatal(err)
			}
			faults.Reset()
			if err := drive(ctx, p, opened, nil); err != nil {
				t.Fatal(err)
			}
			if got, want := faults.Count(sessionWrites...), len(steps)+1+c.markers; got != want {
				t.Errorf("the run made %d writes, want %d: %v", got, want, faults.Log())
			}
			if got := int(w.summaries.Load()); got != c.markers {
				t.Errorf("%d summaries were asked for, want %d", got, c.markers)
			}
		})
	}
}

func countWrites(t *testing.T, backend store.Backend, s scenario, tools []string, want int) {
	t.Helper()
	ctx := testContext(t)
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(w.backend)
	p := w.process(faults)
	opened, err := p.Open(ctx, w.request())
	if err != nil {
		t.Fatal(err)
	}
	faults.Reset()
	if err := drive(ctx, p, opened, nil); err != nil {
		t.Fatal(err)
	}
	// The turn's end closes the run; the step after it, if any, commits once.
	want++
	if last := tools[len(tools)-1]; last != "book" && last != "issue" {
		want++
	}
	puts := 0
	for _, tool := range tools {
		if s.evicts && large[tool] {
			puts++
		}
	}
	if got := faults.Count("PutBlob"); got != puts {
		t.Errorf("%d results were evicted, want %d: %v", got, puts, faults.Log())
	}
	if got := faults.Count(sessionWrites...); got != want {
		t.Errorf("the step and the end of the turn made %d writes, want %d: %v", got, want, faults.Log())
	}
}
