package enginetest

import (
	"fmt"
	"testing"

	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/store/storetest"
)

// sessionWrites are the writes to a session that a step may make.
var sessionWrites = []string{"Commit", "Claim", "Settle", "StartRun", "CloseRun", "SettleClose", "RenewLeases"}

// WriteCounts counts the store writes of single steps: one where all calls are
// read-only, two with a single other call, and at most one more for each further
// call.
func WriteCounts(t *testing.T, open Open) {
	backend := open(t)
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
	} {
		t.Run(fmt.Sprint(c.tools), func(t *testing.T) {
			ctx := testContext(t)
			w := newWorld(t, backend, scenario{steps: []scripted.Step{call(c.tools...), scripted.Text("done")}})
			faults := storetest.NewFaults(backend)
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
			want := c.want + 1
			if c.tools[len(c.tools)-1] != "book" {
				want++
			}
			if got := faults.Count(sessionWrites...); got != want {
				t.Errorf("the step and the end of the turn made %d writes, want %d: %v", got, want, faults.Log())
			}
		})
	}
}
