package machine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

var turnKey = session.Key{Tenant: session.DefaultTenant, ID: "s"}

func keys(wave []machine.Effect) string {
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
	server := func(id string) machine.PlannedCall { return machine.PlannedCall{ID: id, Kind: session.CallServer} }
	last := func(id string) machine.PlannedCall {
		return machine.PlannedCall{ID: id, Kind: session.CallServer, Last: true}
	}
	serial := func(id string) machine.PlannedCall {
		return machine.PlannedCall{ID: id, Kind: session.CallServer, Serial: true}
	}
	approval := func(id string) machine.PlannedCall {
		return machine.PlannedCall{ID: id, Kind: session.CallApproval, Serial: true}
	}
	finish := machine.PlannedCall{ID: "f", Kind: session.CallFinish}
	tools := func(calls ...machine.PlannedCall) []machine.Result {
		return []machine.Result{{Next: machine.NextTools, Calls: calls}}
	}
	of := func(id string, kind session.CallKind) machine.PlannedCall {
		return machine.PlannedCall{ID: id, Kind: kind}
	}
	ready := func(id string, kind session.CallKind) machine.PlannedCall {
		return machine.PlannedCall{ID: id, Kind: kind, Ready: true}
	}
	one := func(next machine.Next) []machine.Result { return []machine.Result{{Next: next}} }
	none := func(n int) []machine.Result { return make([]machine.Result, n) }
	closed := []machine.Result{{Status: session.RunCompleted}}
	type wave struct {
		results []machine.Result
		want    string // the next wave, or "end" or "lost"
	}
	for _, c := range []struct {
		name  string
		pos   machine.Position
		first string
		waves []wave
	}{
		{"a reply", machine.Position{Step: 1}, "r/1/model", []wave{
			{one(machine.NextClose), "r/1/close"}, {closed, "end"},
		}},
		{"parallel calls, then another step", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"},
			{none(2), "r/1/commit"},
			{one(machine.NextModel), "r/2/model"},
			{one(machine.NextClose), "r/2/close"},
			{closed, "end"},
		}},
		{"phase 2 comes last, one by one", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(last("x"), server("a"), last("y")), "r/1/tool/a"},
			{none(1), "r/1/tool/x"},
			{none(1), "r/1/tool/y"},
			{none(1), "r/1/commit"},
			{one(machine.NextClose), "r/1/close"},
			{closed, "end"},
		}},
		{"serial calls run one after another, beside others", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(serial("a"), server("b"), serial("c"), last("x"), serial("d")), "r/1/tool/b r/1/tool/a"},
			{none(2), "r/1/tool/c"},
			{none(1), "r/1/tool/d"},
			{none(1), "r/1/tool/x"},
			{none(1), "r/1/commit"},
			{one(machine.NextModel), "r/2/model"},
			{tools(server("e")), "r/2/tool/e"},
		}},
		{"a serial call waits for an earlier one that waits for a person", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(serial("a"), approval("b"), serial("c"), server("d")), "r/1/tool/d r/1/tool/a"},
			{none(2), "r/1/gather/1"},
			{tools(ready("b", session.CallApproval)), "r/1/tool/b"},
			{none(1), "r/1/tool/c"},
			{none(1), "r/1/gather/2"},
			{none(1), "r/1/commit"},
		}},
		{"serial calls that were answered together run one after another", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(approval("a"), approval("b"), of("c", session.CallApproval)), "r/1/gather/1"},
			{tools(ready("a", session.CallApproval), ready("b", session.CallApproval), ready("c", session.CallApproval)), "r/1/tool/c r/1/tool/a"},
			{none(2), "r/1/tool/b"},
			{none(1), "r/1/gather/2"},
		}},
		{"a serial call that was answered first runs first", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(approval("a"), approval("b"), serial("c")), "r/1/gather/1"},
			{tools(ready("b", session.CallApproval)), "r/1/tool/b"},
			{none(1), "r/1/gather/2"},
			{tools(ready("a", session.CallApproval)), "r/1/tool/a"},
			{none(1), "r/1/tool/c"},
		}},
		{"serial calls run when nothing waits any more", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(approval("a"), serial("b")), "r/1/gather/1"},
			{none(1), "r/1/tool/a"},
			{none(1), "r/1/tool/b"},
			{none(1), "r/1/commit"},
		}},
		{"resumed behind a serial call that waits", machine.Position{
			Resumed: true, Calls: []machine.PlannedCall{server("z"), approval("a"), serial("b")},
		}, "r/0/gather/1", []wave{
			{tools(ready("a", session.CallApproval)), "r/0/tool/a"},
			{none(1), "r/0/tool/b"},
			{none(1), "r/0/gather/2"},
			{none(1), "r/0/commit"},
		}},
		{"resumed with a serial call that can run", machine.Position{
			Resumed: true, Calls: []machine.PlannedCall{server("z"), of("y", session.CallApproval), serial("b")},
		}, "r/0/tool/b", []wave{{none(1), "r/0/gather/1"}}},
		{"a finish call is not carried out", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(finish), "r/1/commit"}, {one(machine.NextClose), "r/1/close"}, {closed, "end"},
		}},
		{"a step that can only finish", machine.Position{Step: 1}, "r/1/model", []wave{
			{one(machine.NextFinish), "r/2/model!"}, {tools(finish), "r/2/commit!"}, {one(machine.NextClose), "r/2/close"}, {closed, "end"},
		}},
		{"taken up in mid-step", machine.Position{Step: 3, Calls: []machine.PlannedCall{server("a"), last("x")}}, "r/3/tool/a", []wave{
			{none(1), "r/3/tool/x"}, {none(1), "r/3/commit"}, {one(machine.NextModel), "r/4/model"},
		}},
		{"taken up at the end", machine.Position{Step: 3, Ended: true}, "r/3/close", []wave{{closed, "end"}}},
		{"lost in a wave", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"}, {[]machine.Result{{}, {Next: machine.NextLost}}, "lost"},
		}},
		{"a client tool is gathered, not dispatched", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(of("c", session.CallClient)), "r/1/gather/1"},
			{one(machine.NextClose), "r/1/close"},
			{[]machine.Result{{Status: session.RunSuspendedClientTool}}, "end"},
		}},
		{"an approved call is dispatched, then answers are gathered again", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), of("p", session.CallApproval)), "r/1/tool/a"},
			{none(1), "r/1/gather/1"},
			{tools(ready("p", session.CallApproval)), "r/1/tool/p"},
			{none(1), "r/1/gather/2"},
			{none(1), "r/1/commit"},
		}},
		{"another agent is called at once, and again each round", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(of("s", session.CallSubAgent), of("k", session.CallCompanion), of("q", session.CallRemote)), "r/1/child/s r/1/child/k r/1/child/q"},
			{none(3), "r/1/gather/1"},
			{tools(ready("s", session.CallSubAgent)), "r/1/child/s/1"},
			{none(1), "r/1/gather/2"},
			{none(1), "r/1/commit"},
		}},
		{"phase 2 comes after all waits", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(last("x"), of("c", session.CallClient)), "r/1/gather/1"},
			{none(1), "r/1/tool/x"},
			{none(1), "r/1/commit"},
		}},
		{"an answer that arrives with the commit is gathered", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(of("c", session.CallClient)), "r/1/gather/1"},
			{none(1), "r/1/commit"},
			{one(machine.NextGather), "r/1/gather/2"},
			{none(1), "r/1/commit"},
			{one(machine.NextModel), "r/2/model"},
		}},
		{"a call that asks is carried out again, each round", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"},
			{[]machine.Result{{Waits: true}, {}}, "r/1/gather/1"},
			{tools(ready("a", session.CallQuestion)), "r/1/tool/a/1"},
			{[]machine.Result{{Waits: true}}, "r/1/gather/2"},
			{tools(ready("a", session.CallQuestion)), "r/1/tool/a/2"},
			{none(1), "r/1/gather/3"},
			{none(1), "r/1/commit"},
		}},
		{"a call of phase 2 that asks keeps the others waiting", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(last("x"), last("y")), "r/1/tool/x"},
			{[]machine.Result{{Waits: true}}, "r/1/gather/1"},
			{tools(ready("x", session.CallQuestion)), "r/1/tool/x/1"},
			{none(1), "r/1/gather/2"},
			{none(1), "r/1/tool/y"},
			{none(1), "r/1/commit"},
		}},
		{"a recovered call of phase 2 that has asked is gathered, not dispatched", machine.Position{Step: 1, Calls: []machine.PlannedCall{
			{ID: "x", Kind: session.CallQuestion, Last: true}, last("y"),
		}}, "r/1/gather/1", []wave{
			{tools(ready("x", session.CallQuestion)), "r/1/tool/x/1"},
			{none(1), "r/1/gather/2"},
			{none(1), "r/1/tool/y"},
			{none(1), "r/1/commit"},
		}},
		{"a resume begins with answers, whatever the calls", machine.Position{Step: 0, Resumed: true, Calls: []machine.PlannedCall{
			server("a"), of("s", session.CallSubAgent), last("x"),
		}}, "r/0/gather/1", []wave{
			{none(1), "r/0/tool/x"},
			{none(1), "r/0/commit"},
			{one(machine.NextModel), "r/1/model"},
		}},
		{"a recovered step of calls that all wait begins with answers", machine.Position{Step: 2, Calls: []machine.PlannedCall{
			of("c", session.CallClient),
		}}, "r/2/gather/1", []wave{{one(machine.NextClose), "r/2/close"}}},
		{"a turn that must finish asks for that", machine.Position{Step: 4, Finish: true}, "r/4/model!", []wave{
			{tools(server("a"), finish), "r/4/tool/a"}, {none(1), "r/4/commit!"}, {one(machine.NextFinish), "r/5/model!"},
		}},
		{"one call of a wave may end the turn", machine.Position{Step: 1}, "r/1/model", []wave{
			{tools(server("a"), server("b")), "r/1/tool/a r/1/tool/b"},
			{[]machine.Result{{}, {Next: machine.NextClose}}, "r/1/close"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, effects := machine.New(turnKey, "r", c.pos)
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
		a, wave := machine.New(turnKey, "r", machine.Position{Step: 1})
		b, _ := machine.New(turnKey, "r", machine.Position{Step: 1})
		for range rapid.IntRange(1, 40).Draw(t, "waves") {
			results := make([]machine.Result, len(wave))
			for i, e := range wave {
				results[i] = drawResult(t, e)
			}
			raw, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			b = new(machine.Machine)
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

func drawResult(t *rapid.T, e machine.Effect) machine.Result {
	switch e.Kind {
	case machine.CallModel:
		r := machine.Result{Next: rapid.SampledFrom([]machine.Next{machine.NextTools, machine.NextFinish, machine.NextClose}).Draw(t, "next")}
		if r.Next == machine.NextTools {
			for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
				r.Calls = append(r.Calls, machine.PlannedCall{
					ID: fmt.Sprint(i), Last: rapid.Bool().Draw(t, "last"),
					Kind: rapid.SampledFrom([]session.CallKind{session.CallServer, session.CallFinish}).Draw(t, "kind"),
				})
			}
		}
		return r
	case machine.CommitStep:
		return machine.Result{Next: rapid.SampledFrom([]machine.Next{machine.NextModel, machine.NextFinish, machine.NextClose}).Draw(t, "next")}
	case machine.CloseTurn:
		return machine.Result{Status: session.RunCompleted}
	}
	return machine.Result{}
}

// The last result tells the driver what is left to be done.
func TestOutcome(t *testing.T) {
	stop := &session.Stop{Kind: session.StopAbort}
	m, _ := machine.New(turnKey, "r", machine.Position{Step: 1, Ended: true})
	_, end := m.Next([]machine.Result{{Status: session.RunCompleted, Abort: stop, Wake: true, StopUndelivered: true}})
	if end == nil || end.Status != session.RunCompleted || end.Abort != stop || !end.Wake || !end.StopUndelivered || end.Lost {
		t.Errorf("the outcome is %+v", end)
	}
}

// Workflow histories hold effects, results and outcomes: their JSON does not change.
func TestStoredForm(t *testing.T) {
	m, wave := machine.New(turnKey, "r", machine.Position{Step: 2, Finish: true})
	for _, c := range []struct {
		value any
		want  string
	}{
		{m, `{"tenant":"default","sessionId":"s","runId":"r","step":2,"phase":"model","finish":true}`},
		{wave, `[{"kind":"model","tenant":"default","sessionId":"s","runId":"r","step":2,"finish":true}]`},
		{
			machine.Effect{Kind: machine.Gather, SessionID: "s", RunID: "r", Step: 1, CallID: "c", Round: 3},
			`{"kind":"gather","sessionId":"s","runId":"r","step":1,"callId":"c","round":3}`,
		},
		{
			machine.Result{Next: machine.NextTools, Calls: []machine.PlannedCall{{ID: "c", Kind: session.CallServer, Last: true, Ready: true}}},
			`{"next":"tools","calls":[{"id":"c","kind":"server","last":true,"ready":true}]}`,
		},
		{machine.Result{Status: session.RunFailed, Wake: true, StopUndelivered: true}, `{"status":"failed","wake":true,"owes":true}`},
		{machine.Outcome{Lost: true, StopUndelivered: true}, `{"lost":true,"owes":true}`},
		{machine.Position{Step: 1, Resumed: true, Ended: true}, `{"step":1,"resumed":true,"ended":true}`},
	} {
		raw, err := json.Marshal(c.value)
		if err != nil || string(raw) != c.want {
			t.Errorf("%T is stored as\n%s\nwant\n%s", c.value, raw, c.want)
		}
	}
}

func TestWaits(t *testing.T) {
	for kind, want := range map[session.CallKind][2]bool{ // for a person, for an agent
		session.CallServer: {}, session.CallFinish: {},
		session.CallClient: {true, false}, session.CallApproval: {true, false},
		session.CallSubAgent: {false, true}, session.CallRemote: {false, true}, session.CallCompanion: {false, true},
	} {
		if machine.WaitsForPerson(kind) != want[0] || machine.WaitsForAgent(kind) != want[1] || machine.Waits(kind) != (want[0] || want[1]) {
			t.Errorf("%s waits for a person: %v, for an agent: %v", kind, machine.WaitsForPerson(kind), machine.WaitsForAgent(kind))
		}
	}
}
