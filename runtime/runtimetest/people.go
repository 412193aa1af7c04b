package runtimetest

import (
	"context"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func peopleScenarios() []Scenario {
	return []Scenario{
		{"client tool", "a tool that runs on the client suspends the run until its result is submitted", peopleClientTool},
		{"approval", "an approved call is carried out once, with the input that was shown", peopleApproval},
		{"denial", "a call that is not approved is not carried out, and the model is told why", peopleDenial},
		{"mixture", "one step may hold calls of every kind; results are in call order whatever the order of answers", peopleMixture},
		{"nested", "a sub-agent's wait suspends everyone up to the root, and resuming the root goes on with it", peopleNested},
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
	tool.Approval = helix.ApproveAlways
	return tool
}

// Submit answers a call and wants a certain outcome.
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
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Blue it is.")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "red"), helix.SubmitAlreadyCompleted)
}

func peopleApproval(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{7}), scripted.Text("Paid.")), guarded(&ran, "pay"))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedClientTool)
	p := s.waiting(res, "pay")
	s.Submit(x, "s-1", helix.Approve(p.CallID, p.ApprovalID).By(helix.User{ID: "alice"}).Seen("pay", p.Input), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":7})`, "tool pay: 14", "assistant: Paid.")
}

func peopleDenial(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{7}), scripted.Text("Well then.")), guarded(&ran, "pay"))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "pay")
	s.Submit(x, "s-1", helix.Deny(p.CallID, p.ApprovalID, "too dear"), helix.SubmitAccepted)
	s.ended(s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.same(ran.of("pay"), 0, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":7})`, "tool pay failed: tool_not_approved", "assistant: Well then.")
	if text := s.messages("s-1")[2].Parts[0].Error.Message; !strings.Contains(text, "too dear") {
		s.Fatalf("the model is not told why: %q", text)
	}
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
	s.Submit(x, "s-1", helix.Approve(sign.CallID, sign.ApprovalID), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	s.same(len(res.Pending), 2, "waits")
	s.Submit(x, "s-1", helix.Approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
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
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedAwaitingChildren)
	_, err := x.Resume(s.ctx(), agent, "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.Approve(sign.CallID, sign.ApprovalID), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, agent, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"t"})`, `tool subagent__middle: "middle done"`, "assistant: All done.")
}
