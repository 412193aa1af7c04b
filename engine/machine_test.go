package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

var turnKey = session.Key{Tenant: session.DefaultTenant, ID: "s"}

func keys(wave []engine.Effect) string {
	var out []string
	for _, e := range wave {
		key := e.Key()
		if e.Finish {
			key += "!"
		}
		out = append(out, key)
	}
	return strings.Join(out, " ")
}

// TestMachine plays whole turns: what each wave holds follows from the results of
// the one before and nothing else.
func TestMachine(t *testing.T) {
	server := func(id string) engine.PlannedCall { return engine.PlannedCall{ID: id, Kind: session.CallServer} }
	last := func(id string) engine.PlannedCall {
		return engine.PlannedCall{ID: id, Kind: session.CallServer, Last: true}
	}
	finish := engine.PlannedCall{ID: "f", Kind: session.CallFinish}
	tools := func(calls ...engine.PlannedCall) []engine.Result {
		return []engine.Result{{Next: engine.NextTools, Calls: calls}}
	}
	one := func(next engine.Next) []engine.Result { return []engine.Result{{Next: next}} }
	none := func(n int) []engine.Result { return make([]engine.Result, n) }
	closed := []engine.Result{{Status: session.RunCompleted}}
	type wave struct {
		results []engine.Result
		want    string // the next wave, or "end" or "lost"
	}
	for _, c := range []struct {
		name  string
		pos   engine.Position
		first string
		waves []wave
	}{
		{"a reply", engine.Position{Step: 1}, "r/1/model", []wave{
			{one(engine.NextClose), "r/1/close"}, {closed, "end"},
		}},
		{"parallel calls, then another step", engine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"},
			{none(2), "r/1/commit"},
			{one(engine.NextModel), "r/2/model"},
			{one(engine.NextClose), "r/2/close"},
			{closed, "end"},
		}},
		{"phase 2 comes last, one by one", engine.Position{Step: 1}, "r/1/model", []wave{
			{tools(last("x"), server("a"), last("y")), "r/1/tool/a"},
			{none(1), "r/1/tool/x"},
			{none(1), "r/1/tool/y"},
			{none(1), "r/1/commit"},
			{one(engine.NextClose), "r/1/close"},
			{closed, "end"},
		}},
		{"a finish call is not carried out", engine.Position{Step: 1}, "r/1/model", []wave{
			{tools(finish), "r/1/commit"}, {one(engine.NextClose), "r/1/close"}, {closed, "end"},
		}},
		{"a step that can only finish", engine.Position{Step: 1}, "r/1/model", []wave{
			{one(engine.NextFinish), "r/2/model!"}, {tools(finish), "r/2/commit!"}, {one(engine.NextClose), "r/2/close"}, {closed, "end"},
		}},
		{"taken up in mid-step", engine.Position{Step: 3, Calls: []engine.PlannedCall{server("a"), last("x")}}, "r/3/tool/a", []wave{
			{none(1), "r/3/tool/x"}, {none(1), "r/3/commit"}, {one(engine.NextModel), "r/4/model"},
		}},
		{"taken up at the end", engine.Position{Step: 3, Ended: true}, "r/3/close", []wave{{closed, "end"}}},
		{"lost in a wave", engine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"}, {[]engine.Result{{}, {Next: engine.NextLost}}, "lost"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, effects := engine.NewMachine(turnKey, "r", c.pos)
			if got := keys(effects); got != c.first {
				t.Fatalf("the first wave is %q, want %q", got, c.first)
			}
			for i, w := range c.waves {
				next, end := m.Next(w.results)
				got := keys(next)
				if end != nil {
					got = "end"
					if end.Lost {
						got = "lost"
					}
				}
				if got != w.want {
					t.Fatalf("wave %d is %q, want %q", i+2, got, w.want)
				}
			}
		})
	}
}

// TestMachineIsDeterministic has two machines take the same random results, one
// of them stored and read back between waves: they ask for the same.
func TestMachineIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, wave := engine.NewMachine(turnKey, "r", engine.Position{Step: 1})
		b, _ := engine.NewMachine(turnKey, "r", engine.Position{Step: 1})
		for range rapid.IntRange(1, 40).Draw(t, "waves") {
			results := make([]engine.Result, len(wave))
			for i, e := range wave {
				results[i] = drawResult(t, e)
			}
			raw, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			b = new(engine.Machine)
			if err := json.Unmarshal(raw, b); err != nil {
				t.Fatal(err)
			}
			next, end := a.Next(results)
			again, endAgain := b.Next(slices.Clone(results))
			if fmt.Sprint(next) != fmt.Sprint(again) || (end == nil) != (endAgain == nil) {
				t.Fatalf("%v and %v", next, again)
			}
			if end != nil {
				return
			}
			if len(next) == 0 {
				t.Fatal("an empty wave: the turn would hang")
			}
			wave = next
		}
	})
}

func drawResult(t *rapid.T, e engine.Effect) engine.Result {
	switch e.Kind {
	case engine.CallModel:
		r := engine.Result{Next: rapid.SampledFrom([]engine.Next{engine.NextTools, engine.NextFinish, engine.NextClose}).Draw(t, "next")}
		if r.Next == engine.NextTools {
			for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
				r.Calls = append(r.Calls, engine.PlannedCall{
					ID: fmt.Sprint(i), Last: rapid.Bool().Draw(t, "last"),
					Kind: rapid.SampledFrom([]session.CallKind{session.CallServer, session.CallFinish}).Draw(t, "kind"),
				})
			}
		}
		return r
	case engine.CommitStep:
		return engine.Result{Next: rapid.SampledFrom([]engine.Next{engine.NextModel, engine.NextFinish, engine.NextClose}).Draw(t, "next")}
	case engine.CloseTurn:
		return engine.Result{Status: session.RunCompleted}
	}
	return engine.Result{}
}
