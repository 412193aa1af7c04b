package runtimetest

import (
	"context"
	"errors"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func limitScenarios() []Scenario {
	return []Scenario{
		{"max steps", "an agent without output type fails with ErrMaxSteps at its limit, and the session continues", limitMaxSteps},
		{"default", "the default limit is 50 steps", limitDefault},
		{"unlimited", "Unlimited lifts the limit", limitUnlimited},
		{"reply at the limit", "an answer in the last allowed step completes", limitReply},
		{"forced completion", "at the limit an agent with an output type gets one last call in which it can only finish", limitForced},
		{"forced without effect", "an agent that does not finish in its last call fails with ErrNoOutput", limitForcedInVain},
		{"stop when", "StopWhen completes the turn after a step, and the run records that", limitStopWhen},
		{"stop when first", "StopWhen is asked before the limit is checked", limitStopWhenFirst},
		{"stop when sees hooks", "StopWhen sees state changes of calls and their hooks", limitStopWhenSees},
		{"stop when fails", "a StopWhen that fails or panics fails the run, and the session continues", limitStopWhenFails},
		{"session bytes", "a session that has become too large takes no new message, and its run fails before the next model call", limitBytes},
		{"session bytes below", "a sub-agent whose session grows too large, with the stream that it shares, is a tool error", limitBytesBelow},
		{"chunks", "a stream keeps as many chunks as it may, and those of the step in progress", limitChunks},
		{"finish before stop when", "a step that finishes is a finish, whatever StopWhen says", limitFinishFirst},
	}
}

// doubling is a model that calls double a number of times and then says ok.
func doubling(times int) *scripted.Model {
	var steps []scripted.Step
	for i := range times {
		steps = append(steps, scripted.Call("double", num{i}))
	}
	return scripted.New(append(steps, scripted.Text("ok"))...)
}

func limitMaxSteps(s *Stage) {
	model := doubling(3)
	agent := newAgent(model, double())
	agent.MaxSteps = 3
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.failed(res, helix.ErrMaxSteps, "agent", "3 steps")
	s.same(res.Steps, 3, "steps")
	s.same(res.CompletionReason, session.ReasonMaxSteps, "completion reason")
	s.same(len(model.Requests()), 3, "model calls")
	s.same(len(s.messages("s-1")), 7, "messages")
	s.ended(s.Say(x, agent, "s-1", "Enough?"), helix.Completed)
}

func limitDefault(s *Stage) {
	agent := newAgent(doubling(helix.DefaultMaxSteps), double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.failed(res, helix.ErrMaxSteps)
	s.same(res.Steps, 50, "steps")
}

func limitUnlimited(s *Stage) {
	agent := newAgent(doubling(60), double())
	agent.MaxSteps = helix.Unlimited
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 61, "steps")
}

func limitReply(s *Stage) {
	agent := newAgent(doubling(2), double())
	agent.MaxSteps = 3
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.CompletionReason, session.ReasonReply, "completion reason")
}

func limitForced(s *Stage) {
	agent, model := finisher(scripted.Call("double", num{1}), scripted.Call("double", num{2}), scripted.Finish(report{"so far"}))
	agent.MaxSteps = 2
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.sameJSON(string(res.Output), `{"summary":"so far"}`, "output")
	s.same(res.CompletionReason, session.ReasonMaxSteps, "completion reason")
	requests := model.Requests()
	s.same(len(requests), 3, "model calls")
	s.same(len(requests[1].Tools), 2, "tools offered in step 2")
	s.same(len(requests[2].Tools), 1, "tools offered in the last call")
	s.same(requests[2].ToolChoice.Name, session.FinishTool, "the tool that must be called")
}

func limitForcedInVain(s *Stage) {
	agent, _ := finisher(scripted.Call("double", num{1}), scripted.Text("I'd rather not."), scripted.Finish(report{"well"}))
	agent.MaxSteps = 1
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.failed(res, helix.ErrNoOutput, "agent")
	s.same(res.CompletionReason, session.ReasonMaxSteps, "completion reason")
	s.ended(s.Say(x, agent, "s-1", "Please!"), helix.Completed)
}

func limitStopWhen(s *Stage) {
	model := scripted.New(scripted.Call("note", num{1}), scripted.Call("note", num{7}))
	agent := newAgent(model, noteTool())
	agent.State = helix.StateOf(notes{})
	agent.StopWhen = func(_ context.Context, step *helix.Step) (bool, error) {
		if len(step.Results) != 1 || len(step.Reply.Calls()) != 1 {
			return false, errors.New("the step is not what was expected")
		}
		return helix.State[notes](step).Last == 7, nil
	}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.CompletionReason, session.ReasonStopWhen, "completion reason")
	s.same(res.Steps, 2, "steps")
	s.transcript("s-1", "user: Go!", `assistant: note({"n":1})`, "tool note: 1", `assistant: note({"n":7})`, "tool note: 2")
}

func limitStopWhenFirst(s *Stage) {
	agent := newAgent(doubling(2), double())
	agent.MaxSteps = 2
	agent.StopWhen = func(_ context.Context, step *helix.Step) (bool, error) { return step.Step == 2, nil }
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.CompletionReason, session.ReasonStopWhen, "completion reason")
}

func limitStopWhenFails(s *Stage) {
	agent := newAgent(doubling(3), double())
	var asked tally
	agent.StopWhen = func(context.Context, *helix.Step) (bool, error) {
		switch asked.add("") {
		case 1:
			return false, errors.New("cannot tell")
		case 2:
			panic("cannot tell at all")
		}
		return true, nil
	}
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Go!"), code(session.CodeInternal), "StopWhen", "cannot tell")
	s.failed(s.Say(x, agent, "s-1", "Go!"), code(session.CodeInternal), "StopWhen", "cannot tell at all")
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.same(len(s.messages("s-1")), 9, "messages")
}

func limitFinishFirst(s *Stage) {
	agent, _ := finisher(scripted.Finish(report{"done"}))
	agent.StopWhen = func(context.Context, *helix.Step) (bool, error) { return true, nil }
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.same(res.CompletionReason, session.ReasonFinish, "completion reason")
	s.sameJSON(string(res.Output), `{"summary":"done"}`, "output")
}

func limitStopWhenSees(s *Stage) {
	var seen journal
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Call("note", num{2})), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks.OnMessage = func(_ context.Context, h *helix.HookContext, e helix.MessageEvent) error {
		if e.Message.Role == session.RoleTool {
			helix.Append(h, "notes", 10)
		}
		return nil
	}
	agent.Hooks.AfterTool = func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
		helix.Append(h, "notes", 20)
		return nil
	}
	agent.StopWhen = func(_ context.Context, step *helix.Step) (bool, error) {
		state := helix.State[notes](step)
		seen.add("%v", state.Notes)
		return state.Last == 2, nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(seen.String(), "[1 10 20]\n[1 10 20 2 10 20]", "what StopWhen saw")
}

// verbose is a tool whose results are some kilobytes.
func verbose() helix.Tool {
	return newTool("tell", func(context.Context, *helix.Call, int) (string, error) { return strings.Repeat("x", 4_000), nil })
}

// telling is a model that calls tell a number of times and then says ok.
func telling(times int) *scripted.Model {
	var steps []scripted.Step
	for i := range times {
		steps = append(steps, scripted.Call("tell", num{i}))
	}
	return scripted.New(append(steps, scripted.Text("ok"))...).ByPosition()
}

func limitBytes(s *Stage) {
	const most = 100_000
	agent := newAgent(telling(40), verbose())
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: most})
	res := s.Say(x, agent, "s-1", "Go!")
	s.failed(res, session.ErrTooLarge, "100000")
	s.same(res.Error.Field, "sessionBytes", "the limit's name")
	if res.Steps < 5 || res.Steps > 25 {
		s.Fatalf("the run made %d steps", res.Steps)
	}
	before := len(s.messages("s-1"))
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("More!")})
	s.refused(err, session.ErrTooLarge, "begin a new one")
	s.same(len(s.messages("s-1")), before, "messages after the refusal")
	s.same(len(s.runs("s-1")), 1, "runs")
	// A process that takes it over, and one without a limit, see the same.
	s.refused(second(s.StartOther(Options{Agents: []*helix.Agent{agent}, MaxSession: most}).Execute(
		s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("More!")})), session.ErrTooLarge)
	s.ended(s.Say(s.StartOther(Options{Agents: []*helix.Agent{agent}, MaxSession: -1}), agent, "s-1", "More!"), helix.Completed)
}

func limitChunks(s *Stage) {
	const most = 30
	agent := newAgent(telling(12), verbose())
	s.loose["s-1"] = true
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxChunks: most})
	run := s.Begin(x, agent, "s-1", "Go!")
	s.ended(s.Result(run), helix.Completed)
	info, err := s.Backend.Streams().Info(s.ctx(), "s-1")
	s.ok(err, "info")
	kept := info.Last - info.Floor
	if step := int64(20); kept > most+most/10+step {
		s.Fatalf("the stream keeps %d chunks", kept)
	}
	points := s.checkpoints("s-1")
	committed := points[len(points)-1]
	if info.Floor == 0 || info.Floor > committed.StreamSequence-most {
		s.Fatalf("the stream begins after %d, the last checkpoint is at %d", info.Floor, committed.StreamSequence)
	}
	items := s.collect(run)
	last := items[len(items)-1]
	s.same([]any{last.Frame, last.Floor}, []any{stream.FrameTruncated, info.Floor}, "what a reader behind it gets")
	// A step in progress is kept, however many chunks it has.
	agent = newAgent(scripted.New(scripted.Text(strings.Repeat("word ", 200)).WithPieceSize(5)))
	x = s.StartOther(Options{Agents: []*helix.Agent{agent}, MaxChunks: 1})
	s.loose["s-2"] = true
	run = s.Begin(x, agent, "s-2", "Go!")
	s.ended(s.Result(run), helix.Completed)
	info, err = s.Backend.Streams().Info(s.ctx(), "s-2")
	s.ok(err, "info")
	points = s.checkpoints("s-2")
	if at := points[len(points)-1].StreamSequence; info.Floor > at {
		s.Fatalf("the stream begins after %d, the last checkpoint is at %d", info.Floor, at)
	}
	s.tenants = nil // the numbering is checked to begin at 1 otherwise
}

func second[A any](_ A, err error) error { return err }

func limitBytesBelow(s *Stage) {
	child := named("child", telling(40), verbose())
	agent := parent(child)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: 100_000})
	res := s.Say(x, agent, "s-1", "Go!")
	part := s.messages("s-1")[2].Parts[0]
	s.refused(part.Error, code(session.CodeSubAgent), string(session.CodeTooLarge))
	s.ended(res, helix.Completed)
	if steps := s.runs(s.child("s-1"))[0].StepCount; steps > 20 { // the stream, which is the caller's, has it all a second time
		s.Fatalf("the sub-agent made %d steps", steps)
	}
}
