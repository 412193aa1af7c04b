package runtimetest

import (
	"context"
	"errors"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func finishScenarios() []Scenario {
	return []Scenario{
		{"not shown", "a run's stream has the output, and not the call that gives it", finishNotShown},
		{"finish", "__finish__ completes the turn with its arguments and is paired with an acknowledgement", finishPlain},
		{"siblings", "the siblings of __finish__ run first; then it completes", finishSiblings},
		{"failing sibling", "a sibling that fails does not keep __finish__ from completing", finishFailingSibling},
		{"invalid arguments", "arguments of __finish__ that do not fit come back as a tool error that names the field and counts as a step", finishInvalid},
		{"continued", "a finished session continues; the model sees the paired call", finishContinued},
		{"text instead", "an agent with an output type that answers with text gets a model call in which it can only finish", finishForced},
		{"forced refuses tools", "in a call that can only finish, other tools are refused", finishForcedTools},
		{"no output type", "__finish__ is an unknown tool to an agent without an output type", finishUnknown},
		{"streamed", "the output is streamed and part of the end frame", finishStreamed},
		{"typed", "the output decodes into its type, and one that is missing is ErrNoOutput", finishTyped},
		{"finish with", "a FinishWith tool's output becomes the session's and completes the turn", finishWith},
		{"finish with sees phase 1", "FinishWith calls run after all others and see their state", finishWithSees},
		{"finish with in sequence", "several FinishWith calls run one after another, in order; the first that succeeds gives the output", finishWithSequence},
		{"finish with fails", "a FinishWith tool that fails does not complete the turn", finishWithFails},
		{"finish with text", "a FinishWith tool may return plain text", finishWithText},
		{"both", "with __finish__ and a FinishWith call in one reply both run, and __finish__ gives the output", finishBoth},
	}
}

func finisher(steps ...scripted.Step) (*helix.Agent, *scripted.Model) {
	model := scripted.New(steps...)
	agent := newAgent(model, double())
	agent.Output = helix.OutputOf[report]()
	return agent, model
}

func finishNotShown(s *Stage) {
	agent, _ := finisher(scripted.Call(session.FinishTool, `{"summary":7}`),
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Finishing(report{"done"})))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Go!")
	s.ended(s.Result(run), helix.Completed)
	var tools []string
	outputs := 0
	for _, item := range s.collect(run) {
		if c := item.Chunk; c != nil {
			switch c.Kind {
			case stream.ToolStart, stream.ToolEnd:
				tools = append(tools, string(c.Kind)+" "+c.Tool)
			case stream.ToolArgsStart, stream.ToolArgsDelta, stream.ToolArgsEnd:
				if c.Tool == session.FinishTool {
					s.Fatalf("the stream shows %+v", c)
				}
			case stream.Output:
				outputs++
			}
		}
	}
	s.same(tools, []string{"tool_start double", "tool_end double"}, "the calls that are shown")
	s.same(outputs, 1, "outputs")
	stored := 0
	for _, c := range s.chunks("s-1") {
		if c.Kind == stream.ToolStart && c.Tool == session.FinishTool {
			stored++
		}
	}
	s.same(stored, 2, "calls to finish that are stored, for the transcript has them")
}

func finishPlain(s *Stage) {
	agent, model := finisher(scripted.Call("double", num{1}), scripted.Finish(report{"all done"}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.sameJSON(string(res.Output), `{"summary":"all done"}`, "output")
	s.same(res.CompletionReason, session.ReasonFinish, "completion reason")
	s.sameJSON(string(s.load("s-1").Output), `{"summary":"all done"}`, "the session's output")
	s.transcript("s-1", "user: Go!", `assistant: double({"n":1})`, "tool double: 2",
		`assistant: __finish__({"summary":"all done"})`, `tool __finish__: {"acknowledged":true}`)
	tools := model.Requests()[0].Tools
	s.same(tools[len(tools)-1].Name, session.FinishTool, "the tool that is added")
}

func finishSiblings(s *Stage) {
	agent, _ := finisher(scripted.Reply(
		scripted.Calling("double", num{1}), scripted.Finishing(report{"done"}), scripted.Calling("note", num{2})))
	agent.Tools = append(agent.Tools, noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 1, "steps")
	s.transcript("s-1", "user: Go!", `assistant: double({"n":1}), __finish__({"summary":"done"}), note({"n":2})`,
		"tool double: 2", `tool __finish__: {"acknowledged":true}`, "tool note: 1")
	s.sameJSON(s.state("s-1"), `{"notes":[2],"last":2}`, "state")
}

func finishFailingSibling(s *Stage) {
	agent, _ := finisher(scripted.Reply(scripted.Finishing(report{"done"}), scripted.Calling("broken", num{})))
	agent.Tools = append(agent.Tools, newTool("broken", func(context.Context, *helix.Call, int) (int, error) { return 0, errors.New("no") }))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: __finish__({"summary":"done"}), broken({"n":0})`,
		`tool __finish__: {"acknowledged":true}`, "tool broken failed: tool_execution_failed")
}

func finishInvalid(s *Stage) {
	agent, _ := finisher(scripted.Call(session.FinishTool, `{"summary":7}`), scripted.Call(session.FinishTool, `{"sum`), scripted.Finish(report{"right"}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 3, "steps")
	s.sameJSON(string(res.Output), `{"summary":"right"}`, "output")
	messages := s.messages("s-1")
	s.refused(messages[2].Parts[0].Error, code(session.CodeToolInput), "summary")
	s.refused(messages[4].Parts[0].Error, code(session.CodeToolInput), "JSON")
}

func finishContinued(s *Stage) {
	agent, model := finisher(scripted.Finish(report{"one"}), scripted.Finish(report{"two"}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	res := s.Say(x, agent, "s-1", "second")
	s.sameJSON(string(res.Output), `{"summary":"two"}`, "output")
	s.same(render(model.Requests()[1].Messages),
		"user: first\nassistant: __finish__({\"summary\":\"one\"})\ntool __finish__: {\"acknowledged\":true}\nuser: second", "what the model sees")
}

func finishForced(s *Stage) {
	agent, model := finisher(scripted.Text("It is done."), scripted.Finish(report{"done"}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.sameJSON(string(res.Output), `{"summary":"done"}`, "output")
	s.same(res.Steps, 2, "steps")
	request := model.Requests()[1]
	s.same(len(request.Tools), 1, "tools offered")
	s.same(request.Tools[0].Name, session.FinishTool, "the tool offered")
	s.same(request.ToolChoice, llm.ToolChoice{Mode: llm.ToolNamed, Name: session.FinishTool}, "tool choice")
	s.transcript("s-1", "user: Go!", "assistant: It is done.", `assistant: __finish__({"summary":"done"})`, `tool __finish__: {"acknowledged":true}`)
}

func finishForcedTools(s *Stage) {
	agent, _ := finisher(scripted.Text("Hm."), scripted.Call("double", num{1}), scripted.Finish(report{"done"}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.transcript("s-1", "user: Go!", "assistant: Hm.", `assistant: double({"n":1})`, "tool double failed: tool_not_executed",
		`assistant: __finish__({"summary":"done"})`, `tool __finish__: {"acknowledged":true}`)
}

func finishUnknown(s *Stage) {
	agent := newAgent(scripted.New(scripted.Finish(report{"done"}), scripted.Text("ok")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: __finish__({"summary":"done"})`, "tool __finish__ failed: tool_not_found", "assistant: ok")
}

func finishStreamed(s *Stage) {
	agent, _ := finisher(scripted.Finish(report{"done"}))
	x := s.Start(agent)
	items := s.collect(s.Begin(x, agent, "s-1", "Go!"))
	outputs := ofKind(s.chunks("s-1"), stream.Output)
	s.same(len(outputs), 1, "output chunks")
	s.sameJSON(string(outputs[0].Data), `{"summary":"done"}`, "the output chunk")
	last := items[len(items)-1]
	s.same(last.Frame, stream.FrameEnd, "the last item")
	s.same(last.End.Status, stream.EndCompleted, "how it ended")
	s.sameJSON(string(last.End.Output), `{"summary":"done"}`, "the output of the end frame")
	info, err := s.Backend.Streams().Info(s.ctx(), "s-1")
	s.ok(err, "stream info")
	s.until("the stream ends", func() bool {
		info, err = s.Backend.Streams().Info(s.ctx(), "s-1")
		s.ok(err, "stream info")
		return info.End != nil
	})
	s.sameJSON(string(info.End.Output), `{"summary":"done"}`, "the output of the stream's end")
}

func finishTyped(s *Stage) {
	agent, _ := finisher(scripted.Finish(report{"done"}), scripted.Fail(session.CodeProvider, false, "no"))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	out, err := helix.Output[report](res)
	s.ok(err, "output")
	s.same(out.Summary, "done", "summary")
	_, err = helix.Output[report](s.Say(x, agent, "s-1", "Again!"))
	s.refused(err, helix.ErrNoOutput)
}

func publish(j *journal) helix.Tool {
	tool := newTool("publish", func(_ context.Context, call *helix.Call, n int) (map[string]int, error) {
		j.add("publish %d", n)
		seen := len(helix.State[notes](call).Notes)
		if n < 0 {
			return nil, errors.New("nothing to publish")
		}
		helix.Append(call, "notes", n)
		helix.Update(call, func(v *notes) { v.Last = n })
		return map[string]int{"published": n, "notes": seen}, nil
	})
	tool.FinishWith = true
	return tool
}

func finishWith(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("Here it goes. "), scripted.Calling("publish", num{5}))), publish(&journal{}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.CompletionReason, session.ReasonFinish, "completion reason")
	s.sameJSON(string(res.Output), `{"published":5,"notes":0}`, "output")
	s.sameJSON(string(s.load("s-1").Output), `{"published":5,"notes":0}`, "the session's output")
	s.transcript("s-1", "user: Go!", `assistant: Here it goes. , publish({"n":5})`, `tool publish: {"notes":0,"published":5}`)
}

func finishWithSees(s *Stage) {
	var j journal
	note := newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
		j.add("note %d", n)
		helix.Update(call, func(v *notes) {
			v.Notes = append(v.Notes, n)
			v.Last = n
		})
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Calling("publish", num{9}), scripted.Calling("note", num{1}))), note, publish(&j))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.sameJSON(string(res.Output), `{"published":9,"notes":1}`, "output")
	s.same(j.String(), "note 1\npublish 9", "order")
	s.transcript("s-1", "user: Go!", `assistant: publish({"n":9}), note({"n":1})`, `tool publish: {"notes":1,"published":9}`, "tool note: 1")
	// What phase 2 wrote, knowing of phase 1, comes after it.
	s.sameJSON(s.state("s-1"), `{"notes":[1,9],"last":9}`, "state")
}

func finishWithSequence(s *Stage) {
	var j journal
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Calling("publish", num{-1}), scripted.Calling("publish", num{2}), scripted.Calling("publish", num{3}))), publish(&j))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(j.String(), "publish -1\npublish 2\npublish 3", "order")
	s.sameJSON(string(res.Output), `{"published":2,"notes":0}`, "output")
	s.transcript("s-1", "user: Go!", `assistant: publish({"n":-1}), publish({"n":2}), publish({"n":3})`,
		"tool publish failed: tool_execution_failed", `tool publish: {"notes":0,"published":2}`, `tool publish: {"notes":1,"published":3}`)
}

func finishWithFails(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("publish", num{-1}), scripted.Call("publish", num{4})), publish(&journal{}))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 2, "steps")
	s.sameJSON(string(res.Output), `{"published":4,"notes":0}`, "output")
}

func finishWithText(s *Stage) {
	tool := newTool("say", func(context.Context, *helix.Call, int) (string, error) { return "The \"end\".", nil })
	tool.FinishWith = true
	agent := newAgent(scripted.New(scripted.Call("say", num{})), tool)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	out, err := helix.Output[string](res)
	s.ok(err, "output")
	s.same(out, "The \"end\".", "output")
}

func finishBoth(s *Stage) {
	var j journal
	agent, _ := finisher(scripted.Reply(scripted.Calling("publish", num{1}), scripted.Finishing(report{"done"})))
	agent.Tools = append(agent.Tools, publish(&j))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(j.String(), "publish 1", "what ran")
	s.sameJSON(string(res.Output), `{"summary":"done"}`, "output")
}
