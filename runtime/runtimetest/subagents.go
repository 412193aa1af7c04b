package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

func subagentScenarios() []Scenario {
	return []Scenario{
		{"text", "a sub-agent's reply is the call's result", subText},
		{"output", "the output of a sub-agent that has one is the call's result", subOutput},
		{"tool", "a sub-agent is offered as a tool that takes a task", subTool},
		{"own input", "a sub-agent may declare its input, which arrives as JSON", subOwnInput},
		{"prompt", "a sub-agent may build its first message from the input", subPrompt},
		{"bad input", "input that does not fit is a tool error, and no session is made", subBadInput},
		{"isolated", "a sub-agent has a transcript and a state of its own", subIsolated},
		{"links", "a sub-agent's session knows parent, root and user, and its id says where it comes from", subLinks},
		{"chunks", "a sub-agent's chunks come between subagent_start and subagent_end, and tool_end at once", subChunks},
		{"parallel", "sub-agents of one reply run at the same time, and results are in call order", subParallel},
		{"parallel chunks", "each of many siblings has its chunks between its own start and end", subParallelChunks},
		{"stream continues", "the end of a sub-agent's run does not end the stream of the root", subStreamContinues},
		{"model error", "a sub-agent that fails is a tool error, and the parent continues", subModelError},
		{"max steps", "a sub-agent that reaches its limit is a tool error, and the parent continues", subMaxSteps},
		{"prompt fails", "a call that cannot be dispatched is a tool error; siblings continue", subPromptFails},
		{"prompt panics", "a panic while a call is dispatched is a tool error; siblings continue", subPromptPanics},
		{"large result", "a result over the limit is a tool error", subLargeResult},
		{"veto", "a failing BeforeSubAgent vetoes the call, and no session is made", subVeto},
		{"hook order", "hooks of runtime, parent and sub-agent are called in order", subHookOrder},
		{"hook state", "state changes by hooks around a sub-agent are kept", subHookState},
		{"hook state waits", "state changes by BeforeSubAgent are kept while the sub-agent waits", subHookStateWaits},
		{"hook state recovers", "state changes by BeforeSubAgent are kept through a takeover", subHookStateRecovers},
		{"usage", "a sub-agent's usage names parent and root, and the call is an entry of its own", subUsage},
		{"interrupt", "interrupting the parent stops the sub-agent at once; both can continue", subInterrupt},
		{"abort", "aborting the parent ends the sub-agent at once", subAbort},
		{"abort deep", "aborting the root ends every level at once", subAbortDeep},
		{"interrupt child", "interrupting the sub-agent alone is a tool error to its parent", subInterruptChild},
		{"abort child", "aborting the sub-agent alone is a tool error to its parent", subAbortChild},
		{"abort a child that waits", "aborting a sub-agent that waits is a tool error to its parent, which continues", subAbortWaiting},
		{"abort a child that waits elsewhere", "a process that does not know the agents can abort a sub-agent that waits", subAbortWaitingElsewhere},
		{"abort a child that waits beside another", "a sub-agent that waits can be aborted while its parent is busy with another", subAbortWaitingBeside},
		{"abort a grandchild that waits", "aborting a sub-agent that waits is a tool error to its own caller, at any depth", subAbortGrandchild},
		{"abort a companion that waits", "aborting a blocking companion that waits is a tool error to its parent", subAbortCompanion},
		{"abort a remote that waits", "aborting the stand-in of a remote that waits is a tool error to its parent, and aborts the remote", subAbortRemote},
		{"killed in a tool", "a parent killed while its sub-agent runs continues with the same sub-agent, whose tool does not run twice", subKilledTool},
		{"killed in a model call", "a sub-agent killed in a model call continues in the same run", subKilledModel},
		{"killed deep", "three levels killed at the bottom continue, each in the same run", subKilledDeep},
		{"killed twice", "a sub-agent may be taken over again and again", subKilledTwice},
		{"killed siblings", "of siblings killed together, the result of a finished one is kept, and the other continues", subKilledSiblings},
		{"killed after the end", "a sub-agent that had ended when the parent died is not called again", subKilledAfterEnd},
		{"killed and aborted", "an abort that arrives while no process is alive ends parent and sub-agent", subKilledAborted},
		{"shutdown", "a parent that is shut down leaves its sub-agent to the next process at once", subShutdown},
		{"parent suspended", "a sub-agent found failed as parent_suspended is started again", subParentSuspended},
		{"delete", "deleting the parent deletes the whole tree", subDelete},
		{"recursion", "an agent may be its own sub-agent", subRecursion},
		{"unknown agent", "a sub-agent that a deployment removed is a tool error, and its session ends", subUnknownAgent},
		{"grandchild", "a sub-agent may have sub-agents; root and stream are the root's", subGrandchild},
		{"finish", "sub-agents of a reply that finishes run first", subFinish},
		{"retry", "retrying the parent does not call a sub-agent again that had finished", subRetry},
		{"next turn", "each call is a session of its own, in later turns too", subNextTurn},
		{"second process", "a sub-agent's session can be watched and stopped from another process", subSecondProcess},
	}
}

// assignment is the input of a sub-agent that declares none.
type assignment struct {
	Task string `json:"task"`
}

// handing is a call of a sub-agent.
func handing(agent, text string) scripted.Part {
	return scripted.Calling(helix.SubAgentPrefix+agent, assignment{text})
}

// hand is a reply that calls one sub-agent.
func hand(agent, text string) scripted.Step { return scripted.Reply(handing(agent, text)) }

// named is an agent with a name of its own.
func named(name string, model llm.Model, tools ...helix.Tool) *helix.Agent {
	agent := newAgent(model, tools...)
	agent.Name = name
	return agent
}

// with returns the agent with sub-agents.
func with(agent *helix.Agent, subs ...*helix.Agent) *helix.Agent {
	for _, sub := range subs {
		agent.SubAgents = append(agent.SubAgents, helix.SubAgent{Agent: sub})
	}
	return agent
}

// parent is an agent that hands one task to a sub-agent.
func parent(child *helix.Agent) *helix.Agent { return parentOf(helix.SubAgent{Agent: child}) }

func parentOf(sub helix.SubAgent) *helix.Agent {
	agent := newAgent(scripted.New(hand(sub.AgentName(), "do it"), scripted.Text("Thanks.")).ByPosition())
	agent.SubAgents = []helix.SubAgent{sub}
	return agent
}

// children lists a session's references.
func (s *Stage) children(id string) []session.ChildRef {
	s.Helper()
	refs, err := s.store().Children(s.ctx(), id)
	s.ok(err, "children of %s", id)
	return refs
}

// child is the id of a session's only child.
func (s *Stage) child(id string) string {
	s.Helper()
	refs := s.children(id)
	s.same(len(refs), 1, "children of %s", id)
	return refs[0].SessionID
}

// sessions lists the ids of all sessions.
func (s *Stage) sessions() (ids []string) {
	s.Helper()
	page, err := s.store().List(s.ctx(), session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}})
	s.ok(err, "list")
	for i := range page.Items {
		ids = append(ids, page.Items[i].ID)
	}
	slices.Sort(ids)
	return ids
}

// nothingRuns checks that every run is over.
func (s *Stage) nothingRuns() {
	s.Helper()
	for _, id := range s.sessions() {
		runs := s.runs(id)
		if last := runs[len(runs)-1]; last.Status == session.RunRunning {
			s.Fatalf("run %s of session %s still runs", last.ID, id)
		}
	}
}

// result returns the latest result of a tool in session s-1.
func (s *Stage) result(tool string) session.Part {
	s.Helper()
	for _, m := range slices.Backward(s.messages("s-1")) {
		if m.Role == session.RoleTool && m.Parts[0].Tool == tool {
			return m.Parts[0]
		}
	}
	s.Fatalf("there is no result of %s", tool)
	return session.Part{}
}

// bracketed checks that the chunks of every sub-agent in a stream come between the caller's
// subagent_start and subagent_end, and that the call's tool_end follows in the caller's
// chunks.
func (s *Stage) bracketed(id string) {
	s.Helper()
	chunks := s.chunks(id)
	open := map[string]bool{}    // children
	began := map[string]string{} // children, by call
	ending := map[string]stream.Chunk{}
	caller := map[string]string{} // of children
	for i := range chunks {
		c := &chunks[i]
		if c.Kind == stream.StepDiscarded { // what came after the last commit may come again
			delete(ending, c.AgentID)
			for child, by := range caller {
				open[child] = open[child] || by == c.AgentID
			}
		}
		if end, ok := ending[c.AgentID]; ok {
			if c.Kind != stream.ToolEnd || c.CallID != end.CallID || c.Success != end.Success {
				s.Fatalf("chunk %d, %s %s, follows the subagent_end of %s", i+1, c.Kind, c.CallID, end.CallID)
			}
			delete(ending, c.AgentID)
			delete(began, c.CallID)
			continue
		}
		switch {
		case c.Kind == stream.SubAgentStart:
			open[c.Child], began[c.CallID], caller[c.Child] = true, c.Child, c.AgentID
		case c.Kind == stream.SubAgentEnd:
			if !open[c.Child] {
				s.Fatalf("chunk %d ends the sub-agent %s, which did not begin", i+1, c.Child)
			}
			open[c.Child], ending[c.AgentID] = false, *c
		case c.Kind == stream.ToolEnd && began[c.CallID] != "":
			s.Fatalf("chunk %d is the result of %s, whose sub-agent was not shown to end", i+1, c.CallID)
		case c.AgentID != id && !open[c.AgentID]:
			s.Fatalf("chunk %d, %s of %s, comes when that sub-agent does not run", i+1, c.Kind, c.AgentID)
		}
	}
}

func subText(s *Stage) {
	child := named("child", scripted.New(scripted.Call("double", num{4}), scripted.Text("It is 8.")), double())
	agent := parent(child)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.same(res.Text, "Thanks.", "the reply")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, `tool subagent__child: "It is 8."`, "assistant: Thanks.")
	s.transcript(s.child("s-1"), "user: do it", `assistant: double({"n":4})`, "tool double: 8", "assistant: It is 8.")
	s.same(s.children("s-1")[0].Status, session.ChildCompleted, "the reference")
	s.bracketed("s-1")
}

func subOutput(s *Stage) {
	child, _ := finisher(scripted.Finish(report{"all done"}))
	child.Name = "child"
	agent := parent(child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(string(new(s.result("subagent__child")).ResultJSON()), `{"summary":"all done"}`, "the result")
	s.sameJSON(string(s.load(s.child("s-1")).Output), `{"summary":"all done"}`, "the sub-agent's output")
}

func subTool(s *Stage) {
	child := named("child", scripted.New(scripted.Text("ok")))
	child.Description = "Knows things."
	other := named("other", scripted.New())
	model := scripted.New(hand("child", "do it"), scripted.Text("Thanks."))
	agent := with(newAgent(model, double()), child, other)
	agent.SubAgents[1].Description = "Knows other things."
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	var got []string
	for _, tool := range model.Requests()[0].Tools {
		got = append(got, tool.Name+": "+tool.Description)
	}
	s.same(strings.Join(got, ", "), "double: double, subagent__child: Knows things., subagent__other: Knows other things.", "tools")
	var schema struct {
		Required   []string
		Properties map[string]struct{ Type string }
	}
	s.ok(json.Unmarshal(model.Requests()[0].Tools[1].Schema, &schema), "schema")
	s.same(fmt.Sprint(schema.Required, schema.Properties["task"].Type), "[task]string", "schema")
}

// place is a typed input.
type place struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

func subOwnInput(s *Stage) {
	child := named("child", scripted.New(scripted.Text("Rain.")))
	agent := with(newAgent(scripted.New(scripted.Call("subagent__child", place{"Bern", 3}), scripted.Text("Thanks."))), child)
	agent.SubAgents[0].Input = helix.InputOf[place]()
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript(s.child("s-1"), `user: {"city":"Bern","days":3}`, "assistant: Rain.")
}

func subPrompt(s *Stage) {
	child := named("child", scripted.New(scripted.Text("Rain.")))
	agent := with(newAgent(scripted.New(scripted.Call("subagent__child", place{"Bern", 3}), scripted.Text("Thanks."))), child)
	agent.SubAgents[0].Input = helix.InputOf[place]()
	agent.SubAgents[0].Prompt = func(input json.RawMessage) (string, error) {
		var in place
		err := json.Unmarshal(input, &in)
		return fmt.Sprintf("The weather in %s for %d days, please.", in.City, in.Days), err
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript(s.child("s-1"), "user: The weather in Bern for 3 days, please.", "assistant: Rain.")
}

func subBadInput(s *Stage) {
	child := named("child", scripted.New())
	agent := with(newAgent(scripted.New(scripted.Reply(
		scripted.Calling("subagent__child", `{}`), scripted.Calling("subagent__child", `{"task":`), scripted.Calling("subagent__nobody", assignment{"x"}),
	), scripted.Text("Oh."))), child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	var codes []string
	for _, m := range s.messages("s-1")[2:5] {
		codes = append(codes, string(m.Parts[0].Error.Code))
	}
	s.same(strings.Join(codes, " "), "tool_invalid_input tool_invalid_input tool_not_found", "errors")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeToolInput), "subagent__child", "task")
	s.same(s.sessions(), []string{"s-1"}, "sessions")
	s.same(len(s.children("s-1")), 0, "references")
	s.bracketed("s-1")
}

func subIsolated(s *Stage) {
	child := named("child", scripted.New(scripted.Call("note", num{7}), scripted.Text("Noted.")), noteTool())
	child.State = helix.StateOf(notes{Notes: []int{1}})
	agent := with(newAgent(scripted.New(scripted.Call("note", num{5}), hand("child", "note"), scripted.Text("Thanks.")), noteTool()), child)
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "a secret"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[5],"last":5}`, "the parent's state")
	s.sameJSON(s.state(s.child("s-1")), `{"notes":[1,7],"last":7}`, "the sub-agent's state")
	s.transcript(s.child("s-1"), "user: note", `assistant: note({"n":7})`, "tool note: 2", "assistant: Noted.")
	s.same(len(s.messages("s-1")), 6, "messages of the parent")
}

func subLinks(s *Stage) {
	child := named("child", scripted.New(scripted.Text("ok")))
	agent := parent(child)
	x := s.Start(agent)
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	callID := s.messages("s-1")[1].Calls()[0].CallID
	ref := s.children("s-1")[0]
	s.same(plainID(ref.SessionID), "s-1-sub-"+callID, "the sub-agent's id")
	s.same(fmt.Sprint(ref.Agent, ref.CallID, ref.Mode, ref.RunID), fmt.Sprint("child", callID, session.ChildEphemeral, run.ID()), "the reference")
	state := s.load(ref.SessionID)
	s.same(fmt.Sprint(state.ParentID, state.RootID, state.UserID, state.StreamID, state.Agent), "s-1s-1alices-1child", "links")
	s.same(s.load("s-1").RootID, "", "the root's root")
}

func subChunks(s *Stage) {
	child := named("child", scripted.New(scripted.Call("double", num{4}), scripted.Text("It is 8.")), double())
	agent := parent(child)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	s.bracketed("s-1")
	id := s.child("s-1")
	var order []string
	for _, c := range s.chunks("s-1") {
		switch c.Kind {
		case stream.TextDelta, stream.ToolArgsStart, stream.ToolArgsDelta, stream.ToolArgsEnd, stream.StepStarted, stream.InputReceived:
			continue
		}
		who := map[string]string{"s-1": "parent", id: "child"}[c.AgentID]
		order = append(order, who+" "+string(c.Kind))
		if c.AgentID == id {
			s.same(c.AgentType, "child", "the agent of a chunk")
			s.same(c.RunID, s.runs(id)[0].ID, "the run of a chunk")
		}
	}
	s.same(strings.Join(order, "\n"), strings.Join([]string{
		"parent run_started", "parent tool_start", "parent subagent_start",
		"child run_started", "child tool_start", "child tool_end", "child step_committed", "child step_committed", "child run_completed",
		"parent subagent_end", "parent tool_end", "parent step_committed", "parent step_committed", "parent run_completed",
	}, "\n"), "chunks")
	start := ofKind(s.chunks("s-1"), stream.SubAgentStart)[0]
	s.same(fmt.Sprint(start.Child, start.Tool, string(start.Arguments)), fmt.Sprint(id, "subagent__child", `{"task":"do it"}`), "subagent_start")
}

func subParallel(s *Stage) {
	gates := []*gate{s.newGate(), s.newGate(), s.newGate()}
	model := scripted.New(scripted.Reply(handing("a", "1"), handing("b", "2"), handing("c", "3")), scripted.Text("Thanks."))
	agent := newAgent(model)
	for i, name := range []string{"a", "b", "c"} {
		with(agent, named(name, scripted.New(scripted.Call("wait", num{i}), scripted.Text(name+" is done")), blocking(gates[i])))
	}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	for _, g := range gates {
		s.receive("all of them run", g.entered)
	}
	for i := range gates { // they end in another order
		gates[len(gates)-1-i].release()
	}
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__a({"task":"1"}), subagent__b({"task":"2"}), subagent__c({"task":"3"})`,
		`tool subagent__a: "a is done"`, `tool subagent__b: "b is done"`, `tool subagent__c: "c is done"`, "assistant: Thanks.")
	s.same(len(s.children("s-1")), 3, "children")
	s.bracketed("s-1")
}

func subParallelChunks(s *Stage) {
	const siblings, turns = 12, 4
	child := named("child", scripted.New(scripted.Call("double", num{1}), scripted.Text("two, it seems to me")).ByPosition(), double())
	calls := make([]scripted.Part, siblings)
	for i := range calls {
		calls[i] = handing("child", fmt.Sprint(i))
	}
	var steps []scripted.Step
	for range turns {
		steps = append(steps, scripted.Reply(calls...), scripted.Text("Thanks."))
	}
	agent := with(newAgent(scripted.New(steps...)), child)
	x := s.Start(agent)
	for range turns {
		s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	}
	s.bracketed("s-1")
	s.same(len(ofKind(s.chunks("s-1"), stream.SubAgentEnd)), siblings*turns, "sub-agents that ended")
}

func subStreamContinues(s *Stage) {
	agent := parent(named("child", scripted.New(scripted.Text("ok"))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	items := s.collect(run)
	ends := 0
	for _, item := range items {
		if item.Chunk != nil && item.Chunk.Kind == stream.RunCompleted {
			ends++
		}
	}
	s.same(ends, 2, "runs that ended")
	last := items[len(items)-1]
	s.same(fmt.Sprint(last.Frame, last.End.Status), fmt.Sprint(stream.FrameEnd, stream.EndCompleted), "the last item")
	s.same(items[len(items)-2].Chunk.AgentID, "s-1", "the agent of the last chunk")
}

func subModelError(s *Stage) {
	child := named("child", scripted.New(scripted.Fail(session.CodeProvider, false, "no such model")))
	agent := parent(child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: tool_subagent_failed", "assistant: Thanks.")
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "its model could not answer", "provider_error")
	s.same(s.load(s.child("s-1")).Status, session.Failed, "the sub-agent")
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "the reference")
	s.same(ofKind(s.chunks("s-1"), stream.SubAgentEnd)[0].Success, false, "success, as watchers see it")
	s.bracketed("s-1")
}

func subMaxSteps(s *Stage) {
	child := named("child", scripted.New(scripted.Call("double", num{1}), scripted.Call("double", num{2})), double())
	child.MaxSteps = 2
	agent := parent(child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "limit of 2 steps")
	s.same(s.load(s.child("s-1")).StepCount, 2, "the sub-agent's steps")
}

// undispatched calls a sub-agent that cannot be dispatched between two that can.
func undispatched(s *Stage, prompt func(json.RawMessage) (string, error)) {
	child, other := named("child", scripted.New()), named("other", scripted.New(scripted.Text("ok"), scripted.Text("ok")))
	agent := with(newAgent(scripted.New(scripted.Reply(handing("other", "1"), handing("child", "2"), handing("other", "3")), scripted.Text("Thanks."))), child, other)
	agent.SubAgents[0].Prompt = prompt
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__other({"task":"1"}), subagent__child({"task":"2"}), subagent__other({"task":"3"})`,
		`tool subagent__other: "ok"`, "tool subagent__child failed: tool_subagent_failed", `tool subagent__other: "ok"`, "assistant: Thanks.")
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "out of ink")
	s.logged("subagent.dispatch_failed", "subagent__child", "out of ink")
	s.same(len(s.sessions()), 3, "sessions")
	s.bracketed("s-1")
}

func subPromptFails(s *Stage) {
	undispatched(s, func(json.RawMessage) (string, error) { return "", errors.New("out of ink") })
}

func subPromptPanics(s *Stage) {
	undispatched(s, func(json.RawMessage) (string, error) { panic("out of ink") })
}

func subLargeResult(s *Stage) {
	child := named("child", scripted.New(scripted.Text(strings.Repeat("x", 1_000_001))))
	agent := parent(child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeToolOutput), "1000003 bytes")
}

func subVeto(s *Stage) {
	child := named("child", scripted.New(scripted.Text("ok")))
	agent := with(newAgent(scripted.New(scripted.Reply(handing("child", "bad"), handing("child", "good")), scripted.Text("Thanks."))), child)
	agent.Hooks.BeforeSubAgent = func(_ context.Context, _ *helix.HookContext, e helix.BeforeToolEvent) error {
		if strings.Contains(string(e.Input), "bad") {
			return errors.New("not on my watch")
		}
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"bad"}), subagent__child({"task":"good"})`,
		"tool subagent__child failed: tool_vetoed", `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeToolVetoed), "not on my watch")
	s.same(len(s.sessions()), 2, "sessions")
	s.bracketed("s-1")
}

// listening notes what hooks are told of runs, sub-agents and tools.
func listening(j *journal, who string) helix.Hooks {
	return helix.Hooks{
		OnAgentStart:     heard(j, who, func(helix.AgentStartEvent) string { return "starts" }),
		OnAgentComplete:  heard(j, who, func(helix.AgentCompleteEvent) string { return "completes" }),
		OnAgentFail:      heard(j, who, func(helix.AgentFailEvent) string { return "fails" }),
		OnAgentSuspended: heard(j, who, func(e helix.AgentSuspendedEvent) string { return "suspends " + string(e.Status) }),
		OnAgentResumed:   heard(j, who, func(helix.AgentResumedEvent) string { return "resumes" }),
		BeforeTool:       heard(j, who, func(e helix.BeforeToolEvent) string { return "before " + e.Tool }),
		AfterTool:        heard(j, who, func(e helix.AfterToolEvent) string { return "after " + e.Tool }),
		BeforeSubAgent:   heard(j, who, func(e helix.BeforeToolEvent) string { return "before " + e.Tool + " " + string(e.Input) }),
		AfterSubAgent: heard(j, who, func(e helix.AfterToolEvent) string {
			return "after " + e.Tool + " " + string(e.Result.Parts[0].ResultJSON())
		}),
	}
}

// heard is a hook that notes what it is told.
func heard[E any](j *journal, who string, what func(E) string) func(context.Context, *helix.HookContext, E) error {
	return func(_ context.Context, h *helix.HookContext, e E) error {
		j.add("%s: %s %s", who, h.Agent, what(e))
		return nil
	}
}

func subHookOrder(s *Stage) {
	var j journal
	child := named("child", scripted.New(scripted.Call("double", num{1}), scripted.Text("ok")), double())
	child.Hooks = listening(&j, "child")
	agent := parent(child)
	agent.Hooks = listening(&j, "parent")
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Hooks: new(listening(&j, "runtime"))})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.until("the last hook is told", func() bool { return strings.Contains(j.String(), "parent: agent completes") })
	s.same(j.String(), strings.Join([]string{
		"runtime: agent starts", "parent: agent starts",
		`runtime: agent before subagent__child {"task":"do it"}`, `parent: agent before subagent__child {"task":"do it"}`,
		"runtime: child starts", "child: child starts",
		"runtime: child before double", "child: child before double", "runtime: child after double", "child: child after double",
		"runtime: child completes", "child: child completes",
		`runtime: agent after subagent__child "ok"`, `parent: agent after subagent__child "ok"`,
		"runtime: agent completes", "parent: agent completes",
	}, "\n"), "hooks")
}

// noting makes the hooks around sub-agents write to the state.
func noting(agent *helix.Agent) *helix.Agent {
	agent.State = helix.StateOf(notes{})
	agent.Hooks.BeforeSubAgent = func(_ context.Context, h *helix.HookContext, _ helix.BeforeToolEvent) error {
		helix.Append(h, "notes", 1)
		return nil
	}
	agent.Hooks.AfterSubAgent = func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
		helix.Append(h, "notes", 2)
		return nil
	}
	return agent
}

func subHookState(s *Stage) {
	agent := noting(parent(named("child", scripted.New(scripted.Text("ok")))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, own(s.chunks("s-1"), "s-1")), s.state("s-1"), "the folded patches")
}

// own picks an agent's chunks.
func own(chunks []stream.Chunk, id string) (out []stream.Chunk) {
	for i := range chunks {
		if chunks[i].AgentID == id {
			out = append(out, chunks[i])
		}
	}
	return out
}

func subHookStateWaits(s *Stage) {
	agent := noting(parent(named("child", scripted.New(scripted.Call("pick", num{1}), scripted.Text("ok")), onClient("pick"))))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "pick")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, 1), helix.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, own(s.chunks("s-1"), "s-1")), s.state("s-1"), "the folded patches")
}

func subHookStateRecovers(s *Stage) {
	g := s.newGate()
	agent := noting(parent(dying(g)))
	s.takenOver(s.orphan(agent, g), agent)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":0}`, "state")
}

// dying is a sub-agent whose model does not answer the first time.
func dying(g *gate) *helix.Agent {
	return named("child", scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I was"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("ok"))))
}

func subUsage(s *Stage) {
	m := &meter{}
	child := named("child", scripted.New(scripted.Call("double", num{1}), scripted.Text("ok")), double())
	agent := parent(child)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m})
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	id := s.child("s-1")
	count := map[string]int{}
	ids := map[string]bool{}
	for _, e := range m.all() {
		ids[e.ID] = true
		s.same(e.UserID, "alice", "user of an entry")
		if e.SessionID == id {
			s.same(fmt.Sprint(e.ParentID, e.RootID, e.Agent), "s-1s-1child", "links of an entry")
		} else {
			s.same(fmt.Sprint(e.SessionID, e.ParentID, e.RootID, e.Agent), "s-1agent", "links of an entry")
		}
		count[e.Agent+" "+string(e.Kind)]++
		if e.Kind == usage.SubAgent {
			s.same(fmt.Sprint(e.Source, e.Success, e.RunID), fmt.Sprint("subagent__child", true, run.ID()), "the entry of the call")
		}
	}
	s.same(count, map[string]int{"agent tokens": 2, "agent subagent": 1, "child tokens": 2, "child tool": 1}, "entries")
	s.same(len(ids), len(m.all()), "ids")
	s.same(s.run("s-1", run.ID()).Usage.ModelCalls, 2, "the parent's model calls")
}

// inTool is a sub-agent that is in a tool.
func inTool(g *gate) *helix.Agent {
	return named("child", scripted.New(scripted.Call("wait", num{1}), scripted.Text("ok")).ByPosition(), blocking(g))
}

func subInterrupt(s *Stage) {
	g := s.newGate()
	agent := parent(inTool(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent is at work", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", "lunch"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: run_stopped")
	s.refused(s.result("subagent__child").Error, code(session.CodeRunStopped), "lunch")
	id := s.child("s-1")
	s.same(s.load(id).Status, session.Interrupted, "the sub-agent")
	s.transcript(id, "user: do it", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	s.bracketed("s-1")
	s.nothingRuns()
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
}

func subAbort(s *Stage) {
	g := s.newGate()
	child := named("child", scripted.New(scripted.Reply(scripted.Say("Well, "), scripted.Do(g.enter), scripted.Until(nil))))
	agent := parent(child)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent is at work", g.entered)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.failed(s.Result(run), helix.ErrCancelled, "enough")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: run_stopped")
	id := s.child("s-1")
	s.same(s.load(id).Status, session.Failed, "the sub-agent")
	s.refused(s.load(id).Error, helix.ErrCancelled)
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "the reference")
	s.bracketed("s-1")
	s.nothingRuns()
}

func subAbortDeep(s *Stage) {
	g := s.newGate()
	agent := tower(4, inTool(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the lowest agent is at work", g.entered)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.failed(s.Result(run), helix.ErrCancelled, "enough")
	s.same(len(s.sessions()), 5, "sessions")
	for _, id := range s.sessions() {
		s.same(s.load(id).Status, session.Failed, "status of %s", id)
	}
	s.bracketed("s-1")
}

// tower returns an agent above another, with the given number of levels between: each passes
// its task down.
func tower(levels int, lowest *helix.Agent) *helix.Agent {
	agent := lowest
	for i := levels; i > 0; i-- {
		above := parent(agent)
		if i > 1 {
			above.Name = fmt.Sprintf("level-%d", i)
		}
		agent = above
	}
	return agent
}

// lineage lists the ids of a session and of the only child of each below it.
func (s *Stage) lineage(id string) []string {
	s.Helper()
	ids := []string{id}
	for len(s.children(id)) > 0 {
		id = s.child(id)
		ids = append(ids, id)
	}
	return ids
}

// stopChild stops the sub-agent alone.
func stopChild(s *Stage, stop func(x helix.Executor, id string) error) string {
	g := s.newGate()
	agent := parent(inTool(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent is at work", g.entered)
	id := s.child("s-1")
	s.ok(stop(x, id), "stop")
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: tool_subagent_failed", "assistant: Thanks.")
	s.transcript(id, "user: do it", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	s.bracketed("s-1")
	return id
}

func subInterruptChild(s *Stage) {
	id := stopChild(s, func(x helix.Executor, id string) error { return x.Interrupt(s.ctx(), id, "lunch") })
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "interrupted")
	s.same(s.load(id).Status, session.Interrupted, "the sub-agent")
}

func subAbortChild(s *Stage) {
	id := stopChild(s, func(x helix.Executor, id string) error { return x.Abort(s.ctx(), id, "enough") })
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "enough")
	s.same(s.load(id).Status, session.Failed, "the sub-agent")
}

// sameChild checks that session s-1 has one child, with one run that was taken over
// again.
func (s *Stage) sameChild(runID string) {
	s.Helper()
	runs := s.runs(s.child("s-1"))
	s.same(len(runs), 1, "runs of the sub-agent")
	s.same(runs[0].ID, runID, "the sub-agent's run")
	s.same(len(s.sessions()), 2, "sessions")
	s.bracketed("s-1")
	s.nothingRuns()
}

func subKilledTool(s *Stage) {
	g := s.newGate()
	var ran tally
	child := named("child", scripted.New(scripted.Call("pay", num{5}), scripted.Text("I cannot tell.")).ByPosition(), countingTool(g, &ran, &journal{}))
	agent := parent(child)
	run := s.orphan(agent, g)
	below := s.runs(s.child("s-1"))[0].ID
	s.takenOver(run, agent)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, `tool subagent__child: "I cannot tell."`, "assistant: Thanks.")
	s.transcript(s.child("s-1"), "user: do it", `assistant: pay({"n":5})`, "tool pay failed: tool_outcome_unknown", "assistant: I cannot tell.")
	s.sameChild(below)
}

func subKilledModel(s *Stage) {
	g := s.newGate()
	agent := parent(dying(g))
	run := s.orphan(agent, g)
	below := s.runs(s.child("s-1"))[0].ID
	s.takenOver(run, agent)
	s.transcript(s.child("s-1"), "user: do it", "assistant: ok")
	s.sameChild(below)
}

func subKilledDeep(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	agent := tower(2, named("child", scripted.New(scripted.Call("pay", num{5}), scripted.Text("Paid.")).ByPosition(), tool))
	run := s.orphan(agent, g)
	ids := s.lineage("s-1")
	s.takenOver(run, agent)
	s.same(s.lineage("s-1"), ids, "sessions")
	s.same(len(ids), 3, "levels")
	for _, id := range ids {
		s.same(len(s.runs(id)), 1, "runs of %s", id)
		s.same(s.load(id).Status, session.Completed, "status of %s", id)
	}
	s.same(ran.of("pay"), 2, "payments")
	s.bracketed("s-1")
}

func subKilledTwice(s *Stage) {
	gates := []*gate{s.newGate(), s.newGate(), s.newGate()}
	var asked tally
	steps := []scripted.Step{scripted.Call("double", num{1}), scripted.Call("double", num{2}), scripted.Call("double", num{3}), scripted.Text("ok")}
	child := named("child", scripted.New(steps...).ByPosition(), double())
	child.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if h.Step > 1 && asked.add(h.Key) == 1 {
			gates[h.Step-2].enter()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	agent := parent(child)
	run := s.orphan(agent, gates[0])
	below := s.runs(s.child("s-1"))[0].ID
	for _, g := range gates[1:] {
		y, _ := s.heir(agent)
		s.receive("the sub-agent continues", g.entered)
		y.Kill()
	}
	s.takenOver(run, agent)
	s.same(len(s.messages(s.child("s-1"))), 8, "messages of the sub-agent")
	s.sameChild(below)
}

func subKilledSiblings(s *Stage) {
	g := s.newGate()
	var asked tally
	child := dying(g)
	quick := named("quick", scripted.New(scripted.Text("done")))
	quick.Hooks.OnAgentStart = func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { asked.add("quick"); return nil }
	agent := with(newAgent(scripted.New(scripted.Reply(handing("quick", "1"), handing("child", "2")), scripted.Text("Thanks.")).ByPosition()), quick, child)
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("one waits", g.entered)
	s.settled(1)
	x.Kill()
	s.takenOver(run, agent)
	s.same(asked.of("quick"), 1, "calls of the one that was done")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__quick({"task":"1"}), subagent__child({"task":"2"})`,
		`tool subagent__quick: "done"`, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.same(len(s.sessions()), 3, "sessions")
	s.bracketed("s-1")
}

func subKilledAfterEnd(s *Stage) {
	var asked tally
	child := named("child", scripted.New(scripted.Text("ok")))
	child.Hooks.OnAgentStart = func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { asked.add("child"); return nil }
	agent := parent(child)
	backend := s.newFrail(s.Backend)
	died := make(chan struct{})
	once := sync.OnceFunc(func() { close(died) })
	backend.faults.committed = func(commit *session.Commit) {
		if commit.SessionID != "s-1" && commit.Outcome != nil {
			backend.kill()
			once()
		}
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the process dies", died)
	x.Kill()
	s.same(s.load(s.child("s-1")).Status, session.Completed, "the sub-agent")
	s.takenOver(run, agent)
	s.same(asked.of("child"), 1, "times that the sub-agent began")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.same(len(s.runs(s.child("s-1"))), 1, "runs of the sub-agent")
	s.bracketed("s-1")
}

func subKilledAborted(s *Stage) {
	g := s.newGate()
	agent := tower(2, dying(g))
	run := s.orphan(agent, g)
	other := s.StartOther(Options{})
	s.ok(other.Abort(s.ctx(), "s-1", "enough"), "abort")
	_, again := s.heir(agent)
	s.failed(s.Result(again), helix.ErrCancelled, "enough")
	s.same(again.ID(), run.ID(), "run")
	for _, id := range s.lineage("s-1") {
		s.same(s.load(id).Status, session.Failed, "status of %s", id)
	}
	s.nothingRuns()
	s.bracketed("s-1")
}

func subShutdown(s *Stage) {
	g := s.newGate()
	agent := tower(2, dying(g))
	res, _ := s.handOver(agent, g)
	s.ended(res, helix.Completed)
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 1, "runs of %s", id)
		s.same(s.runs(id)[0].Attempts, 0, "crashes of %s", id)
	}
	s.bracketed("s-1")
}

func subParentSuspended(s *Stage) {
	var ran tally
	child := named("child", scripted.New(scripted.Reply(scripted.Calling("double", num{2}), scripted.Calling("sign", num{3})), scripted.Text("signed")).ByPosition(),
		double(), guarded(&ran, "sign"))
	agent := with(newAgent(scripted.New(scripted.Reply(handing("child", "do it"), scripted.Calling("pick", num{1})), scripted.Text("Thanks.")).ByPosition(), onClient("pick")), child)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	id := s.child("s-1")
	done, err := s.store().SetStatus(s.ctx(), id, session.StatusChange{
		Expect: []session.Status{session.Active}, To: session.Failed, FailureReason: session.FailureParentSuspended,
	})
	s.ok(err, "set the status")
	s.same(done.OK, true, "the status is set")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	sign := s.waiting(res, "sign")
	s.same(sign.SessionID, id, "the session that waits")
	s.Submit(x, "s-1", approve(sign.CallID, sign.ApprovalID), helix.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"}), pick({"n":1})`,
		`tool subagent__child: "signed"`, `tool pick: "blue"`, "assistant: Thanks.")
	s.same(s.sessions(), []string{"s-1", id}, "sessions")
	s.same(s.load(id).Status, session.Completed, "the sub-agent")
}

func subDelete(s *Stage) {
	var ran tally
	agent := tower(2, named("child", scripted.New(scripted.Call("sign", num{3})), guarded(&ran, "sign")))
	other := parent(named("kid", scripted.New(scripted.Text("ok"))))
	other.Name = "other"
	x := s.Start(agent, other)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ended(s.Say(x, other, "s-2", "Hi!"), helix.Completed)
	ids := s.lineage("s-1")
	for _, id := range ids[1:] { // the call that waits for it would begin it anew
		_, err := x.Sessions().Delete(s.ctx(), id)
		s.refused(err, helix.ErrAlreadyRunning, id, "s-1")
	}
	gone, err := x.Sessions().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	slices.Sort(gone)
	slices.Sort(ids)
	s.same(gone, ids, "what was deleted")
	s.same(s.sessions(), s.lineage("s-2"), "what is left")
	_, err = x.Waiting(s.ctx(), "s-1")
	s.refused(err, session.ErrNotFound)
}

func subRecursion(s *Stage) {
	const depth = 6
	agent := newAgent(scripted.New(scripted.Func(func(r *llm.Request) scripted.Step {
		text := r.Messages[0].Content()
		if len(text) == depth {
			return scripted.Text("the bottom")
		}
		return hand("agent", text+"x")
	}), scripted.Func(func(r *llm.Request) scripted.Step {
		return scripted.Text(string(r.Messages[len(r.Messages)-1].Parts[0].ResultJSON()))
	})).ByPosition())
	with(agent, agent)
	x := s.Start(agent)
	root := "s-" + strings.Repeat("1", 180) // so that ids below have to be cut
	s.ended(s.Say(x, agent, root, "x"), helix.Completed)
	ids := s.lineage(root)
	s.same(len(ids), depth, "levels")
	for i, id := range ids[1:] {
		state := s.load(id)
		s.same(fmt.Sprint(state.ParentID, state.RootID, state.StreamID), fmt.Sprint(ids[i], root, root), "links of level %d", i+2)
		if len(id) > 200 {
			s.Fatalf("the id of level %d has %d bytes", i+2, len(id))
		}
	}
	s.bracketed(root)
}

func subUnknownAgent(s *Stage) {
	g := s.newGate()
	model := scripted.New(hand("child", "do it"), scripted.Text("Thanks.")).ByPosition()
	run := s.orphan(with(newAgent(model), dying(g)), g)
	id := s.child("s-1")
	s.takenOver(run, newAgent(model, double()))
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: tool_subagent_failed", "assistant: Thanks.")
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "subagent__child")
	s.logged("subagent.dispatch_failed", "subagent__child")
	s.same(s.load(id).Status, session.Failed, "the sub-agent")
	s.nothingRuns()
}

func subGrandchild(s *Stage) {
	agent := tower(2, named("child", scripted.New(scripted.Text("the bottom"))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	ids := s.lineage("s-1")
	s.same(len(ids), 3, "levels")
	lowest := s.load(ids[2])
	s.same(fmt.Sprint(lowest.ParentID, " ", lowest.RootID, " ", lowest.StreamID), fmt.Sprint(ids[1], " ", "s-1", " ", "s-1"), "links")
	s.transcript(ids[1], "user: do it", `assistant: subagent__child({"task":"do it"})`, `tool subagent__child: "the bottom"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func subFinish(s *Stage) {
	agent, _ := finisher(scripted.Reply(scripted.Finishing(report{"done"}), handing("child", "do it")))
	with(agent, named("child", scripted.New(scripted.Text("ok"))))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.sameJSON(string(res.Output), `{"summary":"done"}`, "output")
	s.transcript("s-1", "user: Hi!", `assistant: __finish__({"summary":"done"}), subagent__child({"task":"do it"})`,
		`tool __finish__: {"acknowledged":true}`, `tool subagent__child: "ok"`)
	s.bracketed("s-1")
}

func subRetry(s *Stage) {
	child := named("child", scripted.New(scripted.Text("ok")))
	agent := with(newAgent(scripted.New(hand("child", "do it"),
		scripted.Takes(scripted.Fail(session.CodeProvider, false, "broken"), scripted.Text("Thanks.")))), child)
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeProvider))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, `tool subagent__child: "ok"`, "assistant: Thanks.")
	s.same(len(s.runs(s.child("s-1"))), 1, "runs of the sub-agent")
}

func subNextTurn(s *Stage) {
	child := named("child", scripted.New(scripted.Text("one"), scripted.Text("two")))
	agent := with(newAgent(scripted.New(hand("child", "1"), scripted.Text("ok"), hand("child", "2"), scripted.Text("ok"))), child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	refs := s.children("s-1")
	s.same(len(refs), 2, "children")
	s.transcript(refs[0].SessionID, "user: 1", "assistant: one")
	s.transcript(refs[1].SessionID, "user: 2", "assistant: two")
	s.bracketed("s-1")
}

func subSecondProcess(s *Stage) {
	g := s.newGate()
	child := named("child", scripted.New(scripted.Call("wait", num{1}), scripted.Call("double", num{1}), scripted.Text("ok")).ByPosition(),
		newTool("wait", func(_ context.Context, _ *helix.Call, n int) (int, error) { g.enter(); <-g.open; return n, nil }), double())
	agent := parent(child)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent is at work", g.entered)
	id := s.child("s-1")
	y := s.StartOther(Options{})
	handle := s.Attach(y, id)
	s.ok(handle.Interrupt(s.ctx(), "lunch"), "interrupt")
	g.release()
	s.ended(s.Result(handle), helix.Interrupted)
	s.ended(s.Result(run), helix.Completed)
	s.refused(s.result("subagent__child").Error, code(session.CodeSubAgent), "interrupted")
}

func subAbortWaiting(s *Stage) {
	var ran tally
	agent := parent(signing(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ok(x.Abort(s.ctx(), s.child("s-1"), "enough"), "abort")
	s.abortedBelow(x)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: tool_subagent_failed", "assistant: Thanks.")
	s.refused(x.Abort(s.ctx(), s.child("s-1"), "again"), helix.ErrNotResumable)
	s.same(ran.of("sign"), 0, "signatures")
}

// abortedBelow waits until session s-1 has completed, and wants its only child to have
// been aborted.
func (s *Stage) abortedBelow(x helix.Executor) {
	s.Helper()
	s.becomes("s-1", session.Completed)
	s.until("the run is closed", func() bool { return s.load("s-1").Lease.Owner == "" })
	child := s.load(s.child("s-1"))
	s.same(child.Status, session.Failed, "status of the child")
	s.refused(child.Error, helix.ErrCancelled, "enough")
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "status of the reference")
	messages := s.messages("s-1")
	for i := range messages {
		if messages[i].Role == session.RoleTool {
			s.refused(messages[i].Parts[0].Error, code(session.CodeSubAgent), "enough", string(session.CodeCancelled))
		}
	}
	s.nobodyWaits(x)
	s.nothingRuns()
	s.bracketed("s-1")
}

func subAbortWaitingElsewhere(s *Stage) {
	var ran tally
	agent := parent(signing(&ran))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.until("the run is closed", func() bool { return s.load(s.child("s-1")).Lease.Owner == "" })
	y := s.StartOther(Options{})
	s.ok(y.Abort(s.ctx(), s.child("s-1"), "enough"), "abort")
	s.abortedBelow(x)
}

func subAbortWaitingBeside(s *Stage) {
	var ran tally
	g := s.newGate()
	other := named("other", scripted.New(scripted.Call("wait", num{1}), scripted.Text("done")), blocking(g))
	agent := with(newAgent(scripted.New(scripted.Reply(handing("child", "1"), handing("other", "2")), scripted.Text("Thanks.")).ByPosition()), signing(&ran), other)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the other is at work", g.entered)
	waits := s.open(x, "sign").SessionID
	s.until("the first waits", func() bool { return s.load(waits).SuspendedStep != "" && s.load(waits).Lease.Owner == "" })
	s.ok(x.Abort(s.ctx(), waits, "enough"), "abort")
	s.same(s.load(waits).Status, session.Failed, "status of the one that waited")
	s.same(s.load("s-1").Status, session.Active, "status of the parent")
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__child({"task":"1"}), subagent__other({"task":"2"})`,
		"tool subagent__child failed: tool_subagent_failed", `tool subagent__other: "done"`, "assistant: Thanks.")
	s.same(len(s.runs("s-1")), 1, "runs")
	s.nobodyWaits(x)
	s.bracketed("s-1")
}

func subAbortGrandchild(s *Stage) {
	var ran tally
	middle := parent(signing(&ran))
	middle.Name = "middle"
	agent := parent(middle)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	lowest := s.open(x, "sign").SessionID
	s.ok(x.Abort(s.ctx(), lowest, "enough"), "abort")
	s.becomes("s-1", session.Completed)
	s.same(s.load(lowest).Status, session.Failed, "status of the one that waited")
	s.transcript(s.child("s-1"), "user: do it", `assistant: subagent__child({"task":"do it"})`, "tool subagent__child failed: tool_subagent_failed", "assistant: Thanks.")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"})`, `tool subagent__middle: "Thanks."`, "assistant: Thanks.")
	s.nobodyWaits(x)
}

func subAbortCompanion(s *Stage) {
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Thanks."))), helix.Blocking, asking(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ok(x.Abort(s.ctx(), s.companion("bob"), "enough"), "abort")
	s.abortedBelow(x)
}

func subAbortRemote(s *Stage) {
	var ran tally
	n := s.signer(&ran)
	agent := n.remotely()
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ok(x.Abort(s.ctx(), s.child("s-1"), "enough"), "abort")
	s.abortedBelow(x)
	n.gaveUp(s, n.there(s))
}
