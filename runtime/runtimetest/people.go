package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// peopleScenarios are about calls that wait for people.
func peopleScenarios() []Scenario {
	return slices.Concat(
		clientScenarios(), approvalScenarios(), raceScenarios(), deadlineScenarios(), abandonScenarios(), forgeryScenarios(),
	)
}

func clientScenarios() []Scenario {
	return []Scenario{
		{"client tool", "a tool that runs on the client suspends the run until its result is submitted", peopleClientTool},
		{"client results", "a client's result is used unchanged, null and text included, and its error is a tool error", peopleResults},
		{"another process", "a call may be answered in a second process and its session resumed in a third", peopleElsewhere},
		{"announced", "a client that sees a client tool's call start can answer it", peopleAnnounced},
		{"answered while running", "an answer that arrives while a sibling still runs is used by the same run", peopleRunning},
		{"any order", "several calls may be answered one by one in any order; the results are in call order", peopleAnyOrder},
		{"in parts", "a resume uses the answers that have arrived and suspends again for the rest", peopleInParts},
		{"nothing answered", "a waiting session is neither resumed nor executed without an answer; it says which calls it waits for", peopleNothing},
		{"message to a waiting session", "a waiting session is not resumed with a message", peopleMessage},
		{"finished siblings are kept", "calls that finished before the suspension are kept, with their state, and do not run again", peopleKept},
		{"suspended", "a suspended run says what it waits for: in its result, its stream, its hooks and its session", peopleSuspended},
		{"resumed", "a resumed run is a new run that continues the step and counts no extra step", peopleResumed},
		{"resume repeated", "a repeated request id attaches to the run that the first resume started", peopleResumeRepeated},
		{"finish waits", "a step that finishes waits for its siblings' answers first", peopleFinish},
		{"phase 2 waits", "a FinishWith call runs when all answers have arrived", peopleFinishWith},
		{"phase 2 cut off", "a FinishWith call that was cut off after a wait is not run again", peopleFinishWithCutOff},
		{"input that does not fit", "a call of a client tool whose input does not fit does not wait", peopleBadCall},
		{"killed while waiting", "a process that dies with a call unanswered and a sibling running loses neither", peopleKilled},
		{"wait time", "how long a call waited is reported when its answer is used", peopleWaitTime},
		{"log", "suspensions, submissions and refused submissions are logged", peopleLog},
		{"mixture", "one step may hold calls of every kind; results are in call order whatever the order of answers", peopleMixture},
		{"nested", "a sub-agent's wait suspends every agent up to the root, and resuming the root continues the sub-agent", peopleNested},
	}
}

// onClient is a tool that runs on the client.
func onClient(name string) helix.Tool {
	return helix.Tool{Name: name, Description: name, Execute: helix.OnClient[num]()}
}

// guarded is a tool that needs approval and counts its calls.
func guarded(t *tally, name string) helix.Tool {
	tool := newTool(name, func(_ context.Context, _ *helix.Call, n int) (int, error) {
		t.add(name)
		return 2 * n, nil
	})
	tool.Approval = helix.RequireApproval
	return tool
}

// Submit answers a call and checks the outcome.
func (s *Stage) Submit(x helix.Executor, id string, answer helix.Submission, want session.SubmitOutcome) *helix.Submitted {
	s.Helper()
	out, err := x.Submit(s.ctx(), id, answer)
	s.ok(err, "submit")
	if out.Outcome != want {
		s.Fatalf("the answer to %s was %s, want %s", answer.CallID, out.Outcome, want)
	}
	return out
}

// waiting finds the waiting call of a tool.
func (s *Stage) waiting(res *helix.Result, tool string) session.Pending {
	s.Helper()
	for _, p := range res.Pending {
		if p.Tool == tool {
			return p
		}
	}
	s.Fatalf("no call of %s waits: %+v", tool, res.Pending)
	return session.Pending{}
}

func peopleClientTool(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("pick", num{1}), scripted.Text("Blue it is.")), onClient("pick"))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedClientTool)
	p := s.waiting(res, "pick")
	out := s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	s.same(out.Continuation, helix.CallerResumes, "continuation")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "red"), helix.SubmitAlreadyCompleted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Blue it is.")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "red"), helix.SubmitAlreadyCompleted)
}

func peopleMixture(s *Stage) {
	var ran tally
	child := &helix.Agent{Name: "child", Model: scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")), Tools: []helix.Tool{guarded(&ran, "sign")}}
	friend := &helix.Agent{Name: "friend", Model: scripted.New(scripted.Text("hello"))}
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Calling("double", num{1}), scripted.Calling("pick", num{2}), scripted.Calling("pay", num{3}),
		scripted.Calling("subagent__child", map[string]string{"task": "sign it"}),
		scripted.Calling("companion__spawnAgent", map[string]string{"agent": "friend", "initialMessage": "hi"}),
	), scripted.Text("All done.")), double(), onClient("pick"), guarded(&ran, "pay"))
	agent.SubAgents = []helix.SubAgent{{Agent: child}}
	agent.Companions = []helix.Companion{{Agent: friend}}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.same(len(res.Pending), 3, "waits")
	sign, pay, pick := s.waiting(res, "sign"), s.waiting(res, "pay"), s.waiting(res, "pick")
	s.Submit(x, "s-1", approve(sign.CallID, sign.ApprovalID), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	s.same(len(res.Pending), 2, "waits")
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.same(ran.of("pay")+ran.of("sign"), 2, "tools")
	s.transcript("s-1", "user: Hi!",
		`assistant: double({"n":1}), pick({"n":2}), pay({"n":3}), subagent__child({"task":"sign it"}), companion__spawnAgent({"agent":"friend","initialMessage":"hi"})`,
		"tool double: 2", `tool pick: "blue"`, "tool pay: 6", `tool subagent__child: "signed"`,
		`tool companion__spawnAgent: {"name":"friend-1","agent":"friend","status":"completed","output":"hello"}`, "assistant: All done.")
}

func peopleNested(s *Stage) {
	var ran tally
	leaf := &helix.Agent{Name: "leaf", Model: scripted.New(
		scripted.Reply(scripted.Calling("sign", num{3}), scripted.Calling("pick", num{4})), scripted.Text("leaf done"),
	), Tools: []helix.Tool{guarded(&ran, "sign"), onClient("pick")}}
	middle := &helix.Agent{Name: "middle", Model: scripted.New(
		scripted.Call("subagent__leaf", map[string]string{"task": "t"}), scripted.Text("middle done"),
	), SubAgents: []helix.SubAgent{{Agent: leaf}}}
	agent := newAgent(scripted.New(scripted.Call("subagent__middle", map[string]string{"task": "t"}), scripted.Text("All done.")))
	agent.SubAgents = []helix.SubAgent{{Agent: middle}}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	sign, pick := s.waiting(res, "sign"), s.waiting(res, "pick")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedAwaitingChildren)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", approve(sign.CallID, sign.ApprovalID), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"t"})`, `tool subagent__middle: "middle done"`, "assistant: All done.")
}

// suspended leaves session s-1 waiting for a call of each of the tools, in a step of
// its own, after which the model says Done. The results are those of the tools.
func (s *Stage) suspended(tools ...helix.Tool) (Executor, *helix.Agent, *helix.Result) {
	s.Helper()
	agent := waitingAgent(tools...)
	x := s.Start(agent)
	return x, agent, s.waitsOn(x, agent, "s-1")
}

// waitingAgent calls each of its tools at once, with 1, 2, 3 and so on, and then
// says Done, as often as it is asked.
func waitingAgent(tools ...helix.Tool) *helix.Agent {
	var calls []scripted.Part
	for i := range tools {
		calls = append(calls, scripted.Calling(tools[i].Name, num{i + 1}))
	}
	return newAgent(scripted.New(scripted.Reply(calls...), scripted.Text("Done."), scripted.Text("Done again.")).ByPosition(), tools...)
}

// waitsOn begins a session that is to wait.
func (s *Stage) waitsOn(x helix.Executor, agent *helix.Agent, id string) *helix.Result {
	s.Helper()
	res := s.Say(x, agent, id, "Hi!")
	if !res.Status.Suspended() {
		s.Fatalf("run %s is %s (%v), and should wait", res.RunID, res.Status, res.Error)
	}
	return res
}

// completes resumes a session and checks that its run completes.
func (s *Stage) completes(x helix.Executor, agent *helix.Agent, id string) *helix.Result {
	s.Helper()
	res := s.Result(s.Resume(x, id, helix.ResumeOptions{Agent: agent}))
	s.ended(res, helix.Completed)
	return res
}

// entries are a session's waits, with everything that is stored of them.
func (s *Stage) entries(id string) string {
	s.Helper()
	list, err := s.store().PendingCalls(s.ctx(), id, true)
	s.ok(err, "pending calls of %s", id)
	lines := make([]string, len(list))
	for i := range list {
		raw, err := json.Marshal(list[i])
		s.ok(err, "encode")
		lines[i] = string(raw)
	}
	return strings.Join(lines, "\n")
}

// entry is the wait of a tool's call.
func (s *Stage) entry(id, tool string) session.Pending {
	s.Helper()
	list, err := s.store().PendingCalls(s.ctx(), id, true)
	s.ok(err, "pending calls of %s", id)
	for i := range list {
		if list[i].Tool == tool {
			return list[i]
		}
	}
	s.Fatalf("session %s has no wait for %s", id, tool)
	return session.Pending{}
}

// open waits until a call of a tool waits in session s-1, also while the run continues.
func (s *Stage) open(x helix.Executor, tool string) (found session.Pending) {
	s.Helper()
	const id = "s-1"
	s.until("a call of "+tool+" waits", func() bool {
		list, err := x.Waiting(s.ctx(), id)
		s.ok(err, "waiting calls of %s", id)
		at := slices.IndexFunc(list, func(p session.Pending) bool { return p.Tool == tool })
		if at >= 0 {
			found = list[at]
		}
		return at >= 0
	})
	return found
}

// tools names the tools of calls, in their order.
func toolsOf(pending []session.Pending) string {
	names := make([]string, len(pending))
	for i := range pending {
		names[i] = pending[i].Tool
	}
	return strings.Join(names, " ")
}

// footprint is what of session s-1 must not change when something is refused.
func (s *Stage) footprint() string {
	s.Helper()
	const id = "s-1"
	state := s.load(id)
	return fmt.Sprintf("version %d turn %d status %s run %s messages %d chunks %d\n%s",
		state.Version, state.Turn, state.Status, state.CurrentRunID, state.MessageCount, len(s.chunks(id)), s.entries(id))
}

func peopleResults(s *Stage) {
	for i, c := range []struct {
		answer func(callID string) helix.Submission
		want   string
	}{
		{func(id string) helix.Submission { return helix.ToolResult(id, map[string]any{"a": []int{1}}) }, `tool pick: {"a":[1]}`},
		{func(id string) helix.Submission { return helix.ToolResult(id, nil) }, "tool pick: null"},
		{func(id string) helix.Submission { return helix.ToolResult(id, " <b>\"blue\" & ☃</b>\n") }, `tool pick: " <b>\"blue\" & ☃</b>\n"`},
		{func(id string) helix.Submission { return helix.ToolResult(id, "") }, `tool pick: ""`},
		{func(id string) helix.Submission { return helix.ToolResult(id, false) }, "tool pick: false"},
		{func(id string) helix.Submission { return helix.ToolResult(id, json.RawMessage("12345678901234567890")) }, "tool pick: 12345678901234567890"},
		{func(id string) helix.Submission { return helix.ToolError(id, "no camera") }, "tool pick failed: tool_execution_failed"},
	} {
		id := fmt.Sprintf("s-%d", i+1)
		agent := waitingAgent(onClient("pick"))
		x := s.Start(agent)
		p := s.waiting(s.waitsOn(x, agent, id), "pick")
		s.Submit(x, id, c.answer(p.CallID).By(helix.User{ID: "alice"}), helix.SubmitAccepted)
		s.same(s.entry(id, "pick").Response.By, "alice", "who answered")
		s.completes(x, agent, id)
		s.transcript(id, "user: Hi!", `assistant: pick({"n":1})`, c.want, "assistant: Done.")
		s.same(s.entry(id, "pick").State, session.PendingConsumed, "state of the wait")
		if part := s.messages(id)[2].Parts[0]; part.Error != nil {
			s.refused(part.Error, code(session.CodeToolFailed), "no camera")
		}
	}
}

func peopleElsewhere(s *Stage) {
	_, agent, res := s.suspended(onClient("pick"))
	p := s.waiting(res, "pick")
	y := s.StartOther(Options{}) // it knows no agent
	list, err := y.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(toolsOf(list), "pick", "waiting calls seen elsewhere")
	s.same(s.Submit(y, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted).Continuation, helix.CallerResumes, "continuation")
	z := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.completes(z, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Done.")
}

func peopleAnnounced(s *Stage) {
	const rounds = 10
	agent := waitingAgent(onClient("pick"))
	x := s.Start(agent)
	y := s.StartOther(Options{})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		run := s.Begin(x, agent, id, "Hi!")
		out := s.answerAtSight(run, y, id)
		res := s.Result(run)
		if out.Continuation == helix.CallerResumes {
			res = s.Result(s.Resume(x, id, helix.ResumeOptions{}))
		}
		s.ended(res, helix.Completed)
		s.transcript(id, "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Done.")
	}
}

// answerAtSight answers the first client tool's call as soon as a watcher sees it
// start.
func (s *Stage) answerAtSight(run helix.Run, x helix.Executor, id string) *helix.Submitted {
	s.Helper()
	for item, err := range run.Stream(s.ctx()) {
		s.ok(err, "stream")
		if c := item.Chunk; c != nil && c.Kind == stream.ToolStart && c.Tool == "pick" {
			return s.Submit(x, id, helix.ToolResult(c.CallID, "blue"), helix.SubmitAccepted)
		}
	}
	s.Fatal("no chunk shows a call of pick")
	return nil
}

func peopleRunning(s *Stage) {
	var ran tally
	g := s.newGate()
	agent := waitingAgent(blocking(g), onClient("pick"), guarded(&ran, "pay"))
	x := s.Start(agent)
	y := s.StartOther(Options{})
	run := s.Begin(x, agent, "s-1", "Hi!")
	out := s.answerAtSight(run, y, "s-1")
	s.same(out.Continuation, helix.ContinuesRunning, "continuation")
	pay := s.open(y, "pay")
	out = s.Submit(y, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.same(out.Continuation, helix.ContinuesRunning, "continuation")
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(len(list), 0, "waiting calls once answered")
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAlreadyRunning)
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.same(len(s.runs("s-1")), 1, "runs")
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1}), pick({"n":2}), pay({"n":3})`, "tool wait: 1", `tool pick: "blue"`, "tool pay: 6", "assistant: Done.")
}

func peopleAnyOrder(s *Stage) {
	agent := waitingAgent(onClient("a"), onClient("b"), onClient("c"))
	x := s.Start(agent)
	for i, order := range []string{"abc", "acb", "bac", "bca", "cab", "cba"} {
		id := fmt.Sprintf("s-%d", i)
		res := s.waitsOn(x, agent, id)
		s.ended(res, helix.SuspendedClientTool)
		for left, tool := range order {
			p := s.waiting(res, string(tool))
			s.Submit(x, id, helix.ToolResult(p.CallID, string(tool)), helix.SubmitAccepted)
			res = s.Result(s.Resume(x, id, helix.ResumeOptions{}))
			if left == len(order)-1 {
				break
			}
			s.ended(res, helix.SuspendedStepPartial)
			s.same(len(res.Pending), len(order)-1-left, "calls that still wait")
		}
		s.ended(res, helix.Completed)
		s.transcript(id, "user: Hi!", `assistant: a({"n":1}), b({"n":2}), c({"n":3})`, `tool a: "a"`, `tool b: "b"`, `tool c: "c"`, "assistant: Done.")
	}
}

func peopleInParts(s *Stage) {
	x, agent, res := s.suspended(onClient("a"), onClient("b"), onClient("c"))
	a, b, c := s.waiting(res, "a"), s.waiting(res, "b"), s.waiting(res, "c")
	s.Submit(x, "s-1", helix.ToolResult(c.CallID, "c"), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.ToolError(a.CallID, "no"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	s.same(toolsOf(res.Pending), "b", "calls that still wait")
	s.Submit(x, "s-1", helix.ToolResult(a.CallID, "again"), helix.SubmitAlreadyCompleted)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.ToolResult(b.CallID, "b"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: a({"n":1}), b({"n":2}), c({"n":3})`, "tool a failed: tool_execution_failed", `tool b: "b"`, `tool c: "c"`, "assistant: Done.")
	s.same(len(s.runs("s-1")), 3, "runs")
}

func peopleNothing(s *Stage) {
	var ran tally
	x, agent, res := s.suspended(onClient("pick"), guarded(&ran, "pay"))
	pick, pay := s.waiting(res, "pick"), s.waiting(res, "pay")
	before := s.footprint()
	_, resumed := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	_, executed := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Well?")})
	for _, err := range []error{resumed, executed} {
		s.refused(err, helix.ErrAwaitingInput, "2 answers")
		s.same(session.AsError(err).Calls, []string{pick.CallID, pay.CallID}, "the calls that it waits for")
	}
	s.same(s.footprint(), before, "the session after the refusals")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, 1), helix.SubmitAccepted)
	before = s.footprint()
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Well?")})
	s.refused(err, helix.ErrAwaitingInput, "is waiting for 1 answer, and has answers that no run has used")
	s.same(session.AsError(err).Calls, []string{pay.CallID}, "the call that it waits for")
	s.same(s.footprint(), before, "the session after the refusal")
	_, err = x.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", deny(pay.CallID, pay.ApprovalID, ""), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
}

func peopleMessage(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, 1), helix.SubmitAccepted)
	before := s.footprint()
	message := helix.UserText("And hurry!")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{Message: &message})
	s.refused(err, helix.ErrInvalid, "Message", "AbandonPending")
	s.same(s.footprint(), before, "the session after the refusal")
	s.completes(x, agent, "s-1")
}

func peopleKept(s *Stage) {
	var ran tally
	note := newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
		ran.add("note")
		helix.Append(call, "notes", n)
		return n, nil
	})
	boom := newTool("boom", func(context.Context, *helix.Call, int) (int, error) {
		ran.add("boom")
		return 0, errors.New("no")
	})
	agent := waitingAgent(note, onClient("pick"), boom, onClient("tell"))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ended(res, helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "tell").CallID, "t"), helix.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "p"), helix.SubmitAccepted)
	s.completes(s.StartOther(Options{}), agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1}), pick({"n":2}), boom({"n":3}), tell({"n":4})`,
		"tool note: 1", `tool pick: "p"`, "tool boom failed: tool_execution_failed", `tool tell: "t"`, "assistant: Done.")
	s.same([]int{ran.of("note"), ran.of("boom")}, []int{1, 1}, "how often the siblings ran")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), `{"notes":[1],"last":0}`, "the folded state")
}

func peopleSuspended(s *Stage) {
	var ran tally
	var told helix.AgentSuspendedEvent
	agent := waitingAgent(double(), onClient("pick"), guarded(&ran, "pay"))
	agent.Hooks.OnAgentSuspended = func(_ context.Context, _ *helix.HookContext, e helix.AgentSuspendedEvent) error {
		told = e
		return nil
	}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	items := s.collect(run)
	s.same(kinds(items[len(items)-3:]), "suspended run_paused <end>", "how the stream ends")
	s.same(items[len(items)-1].End.Status, stream.EndPaused, "the end of the stream")
	var shown struct {
		Status  helix.Status
		Pending []session.Pending
	}
	s.ok(json.Unmarshal(items[len(items)-3].Chunk.Data, &shown), "decode what the stream shows")
	res := s.Result(run)
	state := s.load("s-1")
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same([]any{res.Status, shown.Status, told.Status, state.Status}, []any{
		helix.SuspendedStepPartial, helix.SuspendedStepPartial, helix.SuspendedStepPartial, session.Active,
	}, "statuses")
	for _, pending := range [][]session.Pending{res.Pending, shown.Pending, told.Pending, list, state.Suspension().Pending} {
		s.same(toolsOf(pending), "pick pay", "calls that wait")
		for i := range pending {
			p := &pending[i]
			if p.CallID == "" || p.SessionID != "s-1" || p.RunID != run.ID() || p.CreatedAt.IsZero() || p.Fingerprint == "" ||
				p.State != session.PendingWaiting || (p.Kind == session.PendingApproval) != (p.ApprovalID != "") {
				s.Fatalf("an entry does not say what it is: %+v", *p)
			}
		}
	}
	pay, requests := s.waiting(res, "pay"), ofKind(s.chunks("s-1"), stream.ApprovalRequest)
	s.same(len(requests), 1, "requests for approval")
	request := &requests[0]
	s.same([]any{request.CallID, request.ApprovalID, string(request.Arguments)}, []any{pay.CallID, pay.ApprovalID, `{"n":3}`}, "the request for approval")
	s.same(res.Text, "", "text")
	if res.Error != nil || state.Error != nil {
		s.Fatalf("a suspended run has the error %v", res.Error)
	}
}

func peopleResumed(s *Stage) {
	agent := waitingAgent(onClient("pick"))
	agent.MaxSteps = 1
	var j journal
	agent.Hooks = tracing(&j, "")
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	res := s.Result(run)
	s.ended(res, helix.SuspendedClientTool)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	again := s.Resume(x, "s-1", helix.ResumeOptions{})
	res = s.Result(again)
	s.ended(res, helix.Completed)
	s.same(res.Steps, 1, "steps of the resumed run")
	record := s.run("s-1", again.ID())
	s.same([]any{record.Kind, record.PreviousRunID, record.Turn}, []any{session.RunResume, run.ID(), 2}, "the resumed run")
	if again.ID() == run.ID() {
		s.Fatal("a resume has the run id of the run before")
	}
	s.same(s.load("s-1").ResumeCount, 1, "resume count")
	s.same(kinds(s.collect(again)), "run_resumed tool_end step_committed step_started text_delta step_committed run_completed <end>", "the resumed stream")
	s.same(j.String(), strings.Join([]string{
		"start 1", "before model 1", "after model 1", `before tool pick{"n":1}`, "message assistant",
		"suspended suspended_client_tool",
		"resumed " + run.ID(), "message tool", `after tool pick{"n":1} = "blue"`,
		"before model 1", "after model 1", "message assistant", "complete Done.",
	}, "\n"), "order of hooks")
}

func peopleResumeRepeated(s *Stage) {
	x, _, res := s.suspended(onClient("pick"))
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, 1), helix.SubmitAccepted)
	opts := helix.ResumeOptions{RequestID: "r-1"}
	first := s.Resume(x, "s-1", opts)
	s.ended(s.Result(first), helix.Completed)
	s.same(s.Resume(x, "s-1", opts).ID(), first.ID(), "the run of the repeated request")
	s.same(len(s.runs("s-1")), 2, "runs")
}

func peopleFinish(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("pick", num{1}), scripted.Finishing(num{7}))), onClient("pick"))
	agent.Output = helix.OutputOf[num]()
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ended(res, helix.SuspendedClientTool)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	res = s.completes(x, agent, "s-1")
	s.sameJSON(string(res.Output), `{"n":7}`, "output")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), __finish__({"n":7})`, `tool pick: "blue"`, `tool __finish__: {"acknowledged":true}`)
}

func peopleFinishWith(s *Stage) {
	var ran tally
	last := newTool("last", func(_ context.Context, call *helix.Call, n int) (string, error) {
		ran.add("last")
		return fmt.Sprint(helix.State[notes](call).Notes, n), nil
	})
	last.FinishWith = true
	agent := waitingAgent(last, noteTool(), onClient("pick"))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.same(ran.of("last"), 0, "calls of phase 2 before the answer")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.same(string(s.completes(x, agent, "s-1").Output), `"[2] 1"`, "output")
	s.same(ran.of("last"), 1, "calls of phase 2")
}

func peopleFinishWithCutOff(s *Stage) {
	var ran tally
	g := s.newGate()
	last := countingTool(g, &ran, &journal{})
	last.FinishWith = true
	agent := waitingAgent(last, onClient("pick"))
	x := s.mortal(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the call of phase 2 runs", g.entered)
	x.Kill()
	_, again := s.heir(agent)
	s.ended(s.Result(again), helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), pick({"n":2})`, "tool pay failed: tool_outcome_unknown", `tool pick: "blue"`, "assistant: Done.")
}

func peopleBadCall(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Calling("pick", map[string]string{"n": "one"}), scripted.Calling("pay", map[string]string{"n": "one"})), scripted.Text("Oh.")),
		onClient("pick"), guarded(&ran, "pay"))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":"one"}), pay({"n":"one"})`, "tool pick failed: tool_invalid_input", "tool pay failed: tool_invalid_input", "assistant: Oh.")
	s.same(s.entries("s-1"), "", "waits")
}

func peopleKilled(s *Stage) {
	var ran tally
	g := s.newGate()
	slow := countingTool(g, &ran, &journal{})
	slow.Idempotent = true
	agent := waitingAgent(slow, onClient("pick"), onClient("tell"))
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sibling runs", g.entered)
	pick := s.open(x, "pick")
	x.Kill()
	y := s.StartOther(Options{})
	out := s.Submit(y, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	s.same(out.Continuation, helix.ContinuesRunning, "continuation")
	z, again := s.heir(agent)
	s.same(again.ID(), run.ID(), "the run after the takeover")
	res := s.Result(again)
	s.ended(res, helix.SuspendedStepPartial)
	s.same(toolsOf(res.Pending), "tell", "calls that still wait")
	s.Submit(y, "s-1", helix.ToolResult(s.waiting(res, "tell").CallID, "t"), helix.SubmitAccepted)
	s.completes(z, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), pick({"n":2}), tell({"n":3})`, "tool pay: 1", `tool pick: "blue"`, `tool tell: "t"`, "assistant: Done.")
}

func peopleWaitTime(s *Stage) {
	var ran tally
	m := &meter{}
	agent := waitingAgent(onClient("pick"), guarded(&ran, "pay"))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m})
	res := s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}}))
	pick, pay := s.waiting(res, "pick"), s.waiting(res, "pay")
	s.idle(30 * time.Millisecond)
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	s.idle(30 * time.Millisecond)
	s.Submit(x, "s-1", deny(pay.CallID, pay.ApprovalID, ""), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	waits := m.waits()
	s.same(len(waits), 2, "waits reported")
	for i, tool := range []string{"pick", "pay"} {
		e, p := waits[i], s.entry("s-1", tool)
		want := p.SubmittedAt.Sub(p.CreatedAt)
		s.same([]any{e.Source, e.Success, e.Duration, e.Amount}, []any{tool, true, want, float64(want.Milliseconds())}, "the wait of %s", tool)
		if want < 30*time.Millisecond || e.ID == "" || e.UserID != "alice" || e.SessionID != "s-1" {
			s.Fatalf("the wait of %s is %+v", tool, e)
		}
	}
}

func peopleLog(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	p := s.waiting(res, "pick")
	s.logged("client_tool.suspended", p.CallID, "s-1")
	_, err := x.Submit(s.ctx(), "s-1", approve(p.CallID, "a-1"))
	s.refused(err, helix.ErrSubmissionKind)
	s.logged("client_tool.validation_failed", p.CallID, "s-1")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "secret").By(helix.User{ID: "alice"}), helix.SubmitAccepted)
	s.logged("client_tool.submitted", p.CallID, "alice", "accepted")
	s.completes(x, agent, "s-1")
	if strings.Contains(s.Log.String(), "secret") {
		s.Fatal("the log holds what was answered")
	}
}
