package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/storetest"
)

// badExtensionScenarios are about extensions whose methods do not return, whichever method
// it is, and about those that cannot be registered.
func badExtensionScenarios() []Scenario {
	return []Scenario{
		{"panics anywhere", "an extension that panics is named, whichever method it is, and once it is mended the session has it", extensionPanicsAnywhere},
		{"hangs anywhere", "an extension that hangs is named, whichever method it is, and once it is mended the session has it", extensionHangsAnywhere},
		{"bad names", "an agent with an extension whose name is empty, odd or taken is refused and changes nothing; mended, it runs", extensionBadNames},
	}
}

// faulty is an extension with a tool, which misbehaves in one of its methods until it is
// mended.
type faulty struct {
	name, method string
	tool         helix.Tool
	misbehave    func()
	mended       atomic.Bool
}

func (f *faulty) reach(method string) {
	if f.method == method && !f.mended.Load() {
		f.misbehave()
	}
}

func (f *faulty) Name() string { return f.name }

func (f *faulty) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	f.reach("Attach")
	return &helix.Attachment{Tools: []helix.Tool{f.tool}}, nil
}

func (f *faulty) Prepare(context.Context, *helix.Turn) ([]session.Message, error) {
	f.reach("Prepare")
	return []session.Message{session.UserText("prepared")}, nil
}

func (f *faulty) AfterStep(context.Context, *helix.Turn, *helix.Step) ([]session.Task, error) {
	f.reach("AfterStep")
	return []session.Task{{Kind: "step"}}, nil
}

func (f *faulty) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	f.reach("Finish")
	return []session.Task{{Kind: "run"}}, nil
}

func (f *faulty) Check(context.Context, *helix.Call) error {
	f.reach("Check")
	return nil
}

func (f *faulty) Filter(_ context.Context, _ *helix.Call, result helix.CallResult) (helix.CallResult, error) {
	f.reach("Filter")
	return result, nil
}

func (f *faulty) FindTool(_ context.Context, name string) (*helix.Tool, bool) {
	f.reach("FindTool")
	return &f.tool, name == f.tool.Name
}

func extensionPanicsAnywhere(s *Stage) {
	s.misbehaves(func() { panic("out of order") }, "out of order")
}

func extensionHangsAnywhere(s *Stage) {
	g := s.newGate()
	s.misbehaves(func() { <-g.open }, "within") // whatever becomes of the context
}

// misbehaves runs one session for each method in which an extension may misbehave. The log
// says why, in these words.
func (s *Stage) misbehaves(misbehave func(), why string) {
	s.Helper()
	cases := []struct {
		method, event string
		fault         session.Code // of the call of the extension's tool
		added         string       // whether the extension's message, and its tasks after two steps and the run, are there
	}{
		{"Attach", "extension.not_attached", session.CodeToolUnknown, "true 2 1"},
		{"Prepare", "extension.prepare_failed", "", "false 2 1"},
		{"AfterStep", "extension.tasks_failed", "", "true 0 1"},
		{"Finish", "extension.tasks_failed", "", "true 2 0"},
		{"Check", "extension.gate_failed", session.CodeToolVetoed, "true 2 1"},
		{"Filter", "extension.filter_failed", session.CodeToolOutput, "true 2 1"},
	}
	backend := &storetest.TaskBook{Backend: s.Backend}
	var ran tally
	var agents []*helix.Agent
	for _, c := range cases {
		agents = append(agents, misbehaving(c.method, double(), misbehave))
	}
	finding := misbehaving("FindTool", guarded(&ran, "double"), misbehave)
	x := s.startOn(backend, Options{Agents: append(agents, finding)})
	waits := s.Begin(x, finding, "s-FindTool", "Hi!")
	runs := make([]helix.Run, len(cases))
	for i, c := range cases {
		runs[i] = s.Begin(x, agents[i], "s-"+c.method, "Hi!")
	}

	res := s.Result(waits)
	s.ended(res, helix.SuspendedClientTool)
	_, err := x.Submit(s.ctx(), "s-FindTool", helix.Approve(s.waiting(res, "double"), helix.User{}))
	s.refused(err, session.ErrUnavailable, "extension bad-FindTool", "tool double")
	s.mend(finding)
	s.Submit(x, "s-FindTool", helix.Approve(s.waiting(res, "double"), helix.User{}), session.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-FindTool", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("double"), 1, "runs of the approved call")

	for i, c := range cases {
		id := "s-" + c.method
		s.ended(s.Result(runs[i]), helix.Completed)
		s.logged(c.event, "extension=bad-"+c.method, why)
		s.same(s.added(backend, id, runs[i]), c.added, "what an extension that misbehaves in %s has added", c.method)
		part := lastResult(s.messages(id))
		if c.fault == "" {
			s.same(string(part.ResultJSON()), "4", "the result of the call where %s misbehaves", c.method)
		} else {
			s.refused(part.Error, code(c.fault), "bad-"+c.method)
		}
		s.mend(agents[i])
		run := s.Begin(x, agents[i], id, "Again!")
		s.ended(s.Result(run), helix.Completed)
		s.same(s.added(backend, id, run), "true 2 1", "what the extension adds, once %s is mended", c.method)
		part = lastResult(s.messages(id))
		s.same(string(part.ResultJSON()), "4", "the result of the call, once %s is mended", c.method)
	}
}

// misbehaving is an agent whose model calls the tool of such an extension in each turn.
func misbehaving(method string, tool helix.Tool, misbehave func()) *helix.Agent {
	agent := named("of-"+method, scripted.New(scripted.Call("double", num{2}), scripted.Text("Done."), scripted.Call("double", num{2}), scripted.Text("Again.")))
	return extending(agent, &faulty{name: "bad-" + method, method: method, tool: tool, misbehave: misbehave})
}

func (s *Stage) mend(agent *helix.Agent) {
	agent.Extensions[0].(*faulty).mended.Store(true) //nolint:forcetypeassert // as misbehaving made it
}

// added says whether a run has the extension's message, and how many tasks it left after
// steps and after its end.
func (s *Stage) added(book *storetest.TaskBook, id string, run helix.Run) string {
	s.Helper()
	message := slices.ContainsFunc(s.messages(id), func(m session.Message) bool { return m.RunID == run.ID() && m.Content() == "prepared" })
	counts := map[string]int{}
	for _, task := range book.Tasks() {
		if task.RunID == run.ID() {
			counts[task.Kind]++
		}
	}
	return fmt.Sprint(message, " ", counts["step"], " ", counts["run"])
}

func lastResult(messages []session.Message) session.Part {
	for _, m := range slices.Backward(messages) {
		if m.Role == session.RoleTool {
			return m.Parts[0]
		}
	}
	return session.Part{}
}

func extensionBadNames(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Done.")))
	x := s.StartWith(Options{})
	for _, names := range [][]string{{""}, {"fine", ""}, {"two words"}, {"path/name"}, {"../name"}, {"1st"}, {"naïve"}, {strings.Repeat("x", 65)}, {"twin", "other", "twin"}} {
		agent.Extensions = nil
		for _, name := range names {
			agent.Extensions = append(agent.Extensions, &extension{name: name})
		}
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrInvalid, "agent agent", "Extensions", names[len(names)-1])
		s.same(len(s.sessions()), 0, "sessions")
	}
	agent.Extensions = []helix.Extension{adding("fine", "Fine.")}
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}
