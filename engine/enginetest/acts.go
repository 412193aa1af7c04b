package enginetest

import (
	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

// scenario is a turn that the suites interrupt.
type scenario struct {
	name  string
	steps []scripted.Step
	// output gives the agent an output type.
	output bool
	// people says who answers calls, and when. It is zero in a turn that waits for
	// nobody.
	people schedule
	// helper is what the sub-agent's model replies. It is nil for its usual replies.
	helper []scripted.Step
	// markers, unless it is 0, has the conversation compacted as soon as the model is sent
	// more than as many steps.
	markers int
	// compaction is how that is done. Defaults to a summary because of a trigger.
	compaction compactionWay
	// companion is the mode of the agent's companion.
	companion helix.CompanionMode
	// ledger gives the agent an extension that adds a message to each turn, another one each
	// time, and a task to each run.
	ledger bool
	// evicts gives the agent a policy that evicts large results.
	evicts bool
}

// act is a turn that the suites interrupt, in all the courses that it may take. Its
// outcome is the same in each.
type act struct {
	name    string
	courses []scenario
	// part is the share of the points to try, unless the run is long.
	part Part
}

// Part is a share of the points of turns that take many courses: the At-th of Of.
// Backends that each run another share cover all points together. The zero value is
// all of them, and so is every part in a long run.
type Part struct {
	At, Of int
	// Acts, unless it is 0, leaves all turns out but each Acts-th, beginning with the At-th;
	// of the points of those it is the share at At/Acts.
	Acts int
}

// hasAct reports whether the n-th turn belongs to the part.
func (p Part) hasAct(n int) bool { return p.Acts < 2 || n%p.Acts == p.At%p.Acts || testshare.Soak() }

// points returns the share of the points of a turn, as one of so many.
func (p Part) points(of int) Part { return Part{At: p.At / max(p.Acts, 1), Of: of} }

// has reports whether the n-th point belongs to the part.
func (p Part) has(n int) bool { return p.Of < 2 || n%p.Of == p.At%p.Of || testshare.Soak() }

// ofShort is the share of the points of turns that take one course, which have fewer
// points.
func (p Part) ofShort() Part { return p.points(p.Of / 8) }

// acts are all turns.
func (p Part) acts() []act {
	var out []act
	for _, s := range scenarios() {
		out = append(out, act{name: s.name, courses: []scenario{s}, part: p.ofShort()})
	}
	for _, mode := range []helix.CompanionMode{helix.Blocking, helix.NonBlocking} {
		mixed := act{name: "mixture", part: p.points(p.Of)}
		if mode == helix.NonBlocking {
			mixed.name, mixed.part = "mixture, companion by itself", p.points(4*max(p.Of, 1))
		}
		for _, people := range schedules() {
			s := mixture()
			s.people, s.companion, s.ledger = people, mode, true
			mixed.courses = append(mixed.courses, s)
		}
		out = append(out, mixed)
	}
	for _, a := range inquiries() {
		a.part = p.ofShort()
		out = append(out, a)
	}
	marked := act{name: "mixture, markers", part: p.points(4 * max(p.Of, 1))}
	for _, people := range schedules() {
		s := mixture()
		s.people, s.companion, s.markers = people, helix.Blocking, 1
		marked.courses = append(marked.courses, s)
	}
	out = append(out, marked)
	far := act{name: "remote", part: p.points(p.Of / 2)}
	for _, when := range []moment{atOnce, live} {
		s := distant()
		s.people = schedule{[]string{"stamp"}, when}
		far.courses = append(far.courses, s)
	}
	out = append(out, far)
	var mine []act
	for i, a := range out {
		if !p.hasAct(i) {
			continue
		}
		if a.part.Of > 1 {
			a = a.few()
		}
		mine = append(mine, a)
	}
	return mine
}

// few removes most of the courses, unless the run is long: it keeps one for each
// moment of answering.
func (a act) few() act {
	if testshare.Soak() {
		return a
	}
	seen := map[moment]bool{}
	var few []scenario
	for i := range a.courses {
		if s := a.courses[(5*i)%len(a.courses)]; !seen[s.people.when] {
			seen[s.people.when] = true
			few = append(few, s)
		}
	}
	a.courses = few
	return a
}

// pick chooses the courses in which the n-th point of an act is tried: in a long run
// all that have such a point, else one, a different one each time.
func (a act) pick(n int, has func(course int) bool) []scenario {
	var out []scenario
	if !a.part.has(n) {
		return nil
	}
	for i := range a.courses {
		if at := (n + i) % len(a.courses); has(at) && (testshare.Soak() || len(out) == 0) {
			out = append(out, a.courses[at])
		}
	}
	return out
}

// scenarios cover parallel calls of every kind, a step that commits once, a model
// error in mid-stream that is retried, a finish call beside another call, a FinishWith
// tool after a regular one, serial calls, an
// extension, tools that put blobs, and large results.
func scenarios() []scenario {
	failing := scripted.Reply(scripted.Say("half a tho"),
		scripted.Failing(llm.Error("provider_overloaded", true, "the model is overloaded")))
	return []scenario{
		{name: "finish", output: true, steps: []scripted.Step{
			scripted.Reply(scripted.Say("First I look, pay and send."), scripted.Calling("look", subject{"a"}),
				scripted.Calling("pay", subject{"b"}), scripted.Calling("send", subject{"c"})),
			scripted.Reply(scripted.Calling("look", subject{"d"}), scripted.Calling("look", subject{"e"})),
			scripted.Takes(failing, scripted.Reply(scripted.Say("Then I pay."), scripted.Calling("pay", subject{"f"}))),
			scripted.Reply(scripted.Say("Done."), scripted.Calling("pay", subject{"g"}), scripted.Finishing(receipt{3})),
		}},
		{name: "finish with", steps: []scripted.Step{
			scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("send", subject{"b"}),
				scripted.Calling("book", subject{"c"})),
			scripted.Text("Whether it is booked I cannot say."), // only where the booking was cut off
		}},
		{name: "blobs", steps: []scripted.Step{
			scripted.Reply(scripted.Calling("keep", subject{"a"}), scripted.Calling("pay", subject{"b"}), scripted.Calling("keep", subject{"c"})),
			scripted.Reply(scripted.Calling("file", subject{"d"}), scripted.Calling("keep", subject{"a"})),
			scripted.Text("All is kept."),
		}},
		{name: "evictions", evicts: true, steps: []scripted.Step{
			scripted.Reply(scripted.Calling("dump", subject{"a"}), scripted.Calling("print", subject{"b"}), scripted.Calling("pay", subject{"c"}),
				scripted.Calling("dump", subject{"a"})),
			scripted.Reply(scripted.Calling("print", subject{"d"}), scripted.Calling("look", subject{"e"}), scripted.Calling("print", subject{"d"})),
			scripted.Reply(scripted.Calling(helix.ReadResultTool, reading("print", "b", "from", 40)),
				scripted.Calling(helix.ReadResultTool, reading("print", "d", "offset", 1500))),
			scripted.Reply(scripted.Calling("pay", subject{"f"}), scripted.Calling("print", subject{"b"}), scripted.Calling("issue", subject{"g"})),
			scripted.Text("Whether it is issued I cannot say."), // only where that was cut off
		}},
		{name: "markers", markers: 3, output: true, steps: []scripted.Step{
			scripted.Reply(scripted.Say("I look."), scripted.Calling("look", subject{"a"})),
			scripted.Reply(scripted.Calling("pay", subject{"b"}), scripted.Calling("send", subject{"c"})),
			scripted.Reply(scripted.Calling("look", subject{"d"})),
			scripted.Takes(failing, scripted.Reply(scripted.Say("Then I pay."), scripted.Calling("pay", subject{"e"}))),
			scripted.Reply(scripted.Calling("send", subject{"f"})),
			scripted.Reply(scripted.Calling("pay", subject{"g"})),
			scripted.Text("That is all."), // so that the next step, before which there is a marker, can only finish
			scripted.Reply(scripted.Finishing(receipt{3})),
		}},
		// Without calls whose outcome may be unknown, on whose size the trims would depend.
		{name: "markers, trims", markers: 3, compaction: byTrim, steps: []scripted.Step{
			scripted.Reply(scripted.Calling("send", subject{"a"}), scripted.Calling("look", subject{"b"})),
			scripted.Reply(scripted.Calling("look", subject{"c"})),
			scripted.Takes(failing, scripted.Reply(scripted.Calling("send", subject{"d"}))),
			scripted.Reply(scripted.Calling("send", subject{"e"})),
			scripted.Reply(scripted.Calling("look", subject{"f"})),
			scripted.Reply(scripted.Calling("look", subject{"g"}), scripted.Calling("send", subject{"h"})),
			scripted.Text("That is all."),
		}},
		{name: "markers, overflow", markers: 3, compaction: byOverflow, ledger: true, steps: []scripted.Step{
			scripted.Reply(scripted.Calling("pay", subject{"a"})),
			scripted.Reply(scripted.Calling("look", subject{"b"})),
			scripted.Reply(scripted.Calling("send", subject{"c"})),
			scripted.Reply(scripted.Calling("look", subject{"d"})),
			scripted.Takes(failing, scripted.Reply(scripted.Calling("pay", subject{"e"}))), // behind the overflow
			scripted.Reply(scripted.Calling("look", subject{"f"})),
			scripted.Text("That is all."),
		}},
		{name: "reply", steps: []scripted.Step{
			scripted.Reply(scripted.Think("hm"), scripted.Calling("pay", subject{"a"})),
			scripted.Text("That is all."),
		}},
		{name: "serial", steps: []scripted.Step{
			scripted.Reply(scripted.Calling("stack", subject{"a"}), scripted.Calling("look", subject{"b"}),
				scripted.Calling("stack", subject{"c"}), scripted.Calling("stack", subject{"d"})),
			scripted.Text("That is all."),
		}},
		{name: "extended", ledger: true, steps: []scripted.Step{
			scripted.Takes(failing, scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("look", subject{"b"}))),
			scripted.Call("look", subject{"c"}),
			scripted.Text("That is all."),
		}},
		{name: "extended, markers", markers: 2, ledger: true, output: true, steps: []scripted.Step{
			scripted.Reply(scripted.Calling("pay", subject{"a"})),
			scripted.Reply(scripted.Calling("look", subject{"b"})),
			scripted.Takes(failing, scripted.Reply(scripted.Calling("send", subject{"c"}))),
			scripted.Reply(scripted.Calling("look", subject{"d"}), scripted.Calling("look", subject{"e"})),
			scripted.Text("That is all."), // so that the next step, before which there is a summary, can only finish
			scripted.Reply(scripted.Finishing(receipt{3})),
		}},
		{name: "extended, only looking", ledger: true, steps: []scripted.Step{
			scripted.Reply(scripted.Calling("look", subject{"a"}), scripted.Calling("look", subject{"b"})),
			scripted.Text("That is all."),
		}},
	}
}
