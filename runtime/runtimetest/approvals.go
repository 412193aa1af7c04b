package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func approvalScenarios() []Scenario {
	return []Scenario{
		{"approval", "an approved call is carried out once, with the input that was shown", peopleApproval},
		{"denial", "a call that is not approved is not carried out, and the model is told why", peopleDenial},
		{"denial without a reason", "a call may be denied without a reason", peopleDenialPlain},
		{"nobody can decide", "an approval may be answered with an error alone; the call is not carried out", peopleUndecided},
		{"approval when needed", "a gate that looks at the input asks for some calls only", approvalWhen},
		{"gate fails", "a gate that fails or panics asks for approval", approvalGateFails},
		{"gate asked once", "a gate is asked once per call, whichever process continues the step", approvalGateOnce},
		{"another input", "an answer to another input than the call's is refused, and the call stays open", approvalOtherInput},
		{"input as shown", "an answer may be bound to the input as a result or a listing shows it, whatever its spacing", approvalSpacing},
		{"approver", "a tool's policy decides who may answer; a refused answer leaves the call to others", approverPolicy},
		{"approver panics", "a policy that panics refuses the answer", approverPanics},
		{"approver elsewhere", "a process that cannot ask the policy returns an error, and stores nothing", approverElsewhere},
		{"approver added", "the policy that the tool has now decides, also for a call that was made before there was one", approverAdded},
		{"approver of a client tool", "a client tool's policy decides who may answer it", approverClient},
		{"approval hooks", "hooks see an approved call in the canonical order, and do not see a denied one as carried out", approvalHooks},
		{"approved call fails", "an approved call that fails, panics or takes too long is a tool error", approvalFails},
		{"approved call vetoed", "a hook may veto an approved call", approvalVetoed},
		{"approved one by one", "an approved call is carried out while others still wait, and not again", approvalOneByOne},
		{"approved call cut off", "an approved call that was cut off by a crash is not run again", approvalCutOff},
		{"approved call repeated", "an approved call that is idempotent runs again after a crash, without another approval", approvalRepeated},
		{"approved, tool removed", "an approved call whose tool no longer exists is a tool error", approvalToolGone},
		{"killed after the answer", "an answer outlives the process that should have used it", approvalKilled},
	}
}

// asked leaves session s-1 waiting for the approval of a call of each tool.
func (s *Stage) asked(tools ...helix.Tool) (Executor, *helix.Agent, []session.Pending) {
	s.Helper()
	x, agent, res := s.suspended(tools...)
	for i := range res.Pending {
		s.same(res.Pending[i].Kind, session.PendingApproval, "kind of the wait")
	}
	return x, agent, res.Pending
}

func peopleApproval(s *Stage) {
	var ran tally
	x, agent, asked := s.asked(guarded(&ran, "pay"))
	p := asked[0]
	s.sameJSON(string(p.Input), `{"n":1}`, "the input that is shown")
	s.Submit(x, "s-1", helix.Approve(p, helix.User{ID: "alice"}), helix.SubmitAccepted)
	s.same(ran.of("pay"), 0, "payments before the resume")
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay: 2", "assistant: Done.")
	s.same(s.entry("s-1", "pay").Response.By, "alice", "who approved")
	s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, "no!"), helix.SubmitAlreadyCompleted)
}

// denied answers the only approval of s-1 and checks that the call is not carried out.
func (s *Stage) denied(answer func(p session.Pending) helix.Submission, code session.Code, words ...string) {
	s.Helper()
	var ran tally
	x, agent, asked := s.asked(guarded(&ran, "pay"))
	s.Submit(x, "s-1", answer(asked[0]), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 0, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay failed: "+string(code), "assistant: Done.")
	s.refused(s.messages("s-1")[2].Parts[0].Error, &session.Error{Code: code}, words...)
}

func peopleDenial(s *Stage) {
	s.denied(func(p session.Pending) helix.Submission { return deny(p.CallID, p.ApprovalID, "too dear") },
		session.CodeToolDenied, "not approved by the user", "too dear")
}

func peopleDenialPlain(s *Stage) {
	s.denied(func(p session.Pending) helix.Submission { return deny(p.CallID, p.ApprovalID, "") },
		session.CodeToolDenied, "not approved by the user")
}

func peopleUndecided(s *Stage) {
	s.denied(func(p session.Pending) helix.Submission { return helix.ToolError(p.CallID, "nobody is in") },
		session.CodeToolNotRun, "nobody is in")
}

// gated is a tool whose gate is given, and which counts its calls.
func gated(t *tally, name string, gate helix.Approval) helix.Tool {
	tool := guarded(t, name)
	tool.Approval = gate
	return tool
}

func approvalWhen(s *Stage) {
	var ran tally
	pay := gated(&ran, "pay", helix.RequireApprovalWhen(func(_ context.Context, in num) (bool, error) { return in.N > 10, nil }))
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("pay", num{10}), scripted.Calling("pay", num{11})), scripted.Text("Done.")), pay)
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ended(res, helix.SuspendedStepPartial)
	s.same(ran.of("pay"), 1, "payments that need no approval")
	s.same(len(res.Pending), 1, "waits")
	p := s.waiting(res, "pay")
	s.sameJSON(string(p.Input), `{"n":11}`, "the input that is shown")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 2, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":10}), pay({"n":11})`, "tool pay: 20", "tool pay: 22", "assistant: Done.")
}

func approvalGateFails(s *Stage) {
	var ran tally
	x, agent, asked := s.asked(
		gated(&ran, "fails", func(context.Context, *helix.Call, json.RawMessage) (bool, error) { return false, errors.New("no idea") }),
		gated(&ran, "panics", func(context.Context, *helix.Call, json.RawMessage) (bool, error) { panic("boom") }),
		func() helix.Tool {
			t := gated(&ran, "hangs", func(ctx context.Context, _ *helix.Call, _ json.RawMessage) (bool, error) {
				<-ctx.Done()
				return false, nil
			})
			t.Timeout = 20 * time.Millisecond
			return t
		}(),
	)
	s.same(toolsOf(asked), "fails panics hangs", "calls that wait")
	s.logged("approval_gate.failed", "fails", "no idea")
	s.logged("approval_gate.failed", "panics", "boom")
	for _, p := range asked {
		s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, ""), helix.SubmitAccepted)
	}
	s.completes(x, agent, "s-1")
	s.same(ran.of("fails")+ran.of("panics")+ran.of("hangs"), 0, "calls that were carried out")
}

func approvalGateOnce(s *Stage) {
	var ran, asked tally
	g := s.newGate()
	gate := func(_ context.Context, call *helix.Call, _ json.RawMessage) (bool, error) {
		asked.add(call.ID)
		return call.Tool == "pay", nil
	}
	slow := countingTool(g, &tally{}, &journal{})
	slow.Name, slow.Idempotent = "slow", true
	agent := waitingAgent(slow, gated(&ran, "pay", gate), gated(&ran, "free", gate))
	x := s.mortal(agent)
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sibling runs", g.entered)
	s.until("the call that needs no approval is done", func() bool { return ran.of("free") == 1 })
	p := s.open(x, "pay")
	x.Kill()
	y, run := s.heir(agent)
	s.ended(s.Result(run), helix.SuspendedStepPartial)
	s.Submit(y, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(y, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
	s.same(asked.of(p.CallID), 1, "how often the gate was asked")
	for _, part := range s.messages("s-1")[1].Calls() {
		if n := asked.of(part.CallID); n > 1 {
			s.Fatalf("the gate of %s was asked %d times", part.Tool, n)
		}
	}
}

func approvalOtherInput(s *Stage) {
	var got journal
	pay := newTool("pay", func(_ context.Context, _ *helix.Call, n int) (int, error) {
		got.add("%d", n)
		return n, nil
	})
	pay.Approval = helix.RequireApproval
	x, agent, asked := s.asked(pay)
	p := asked[0]
	before := s.entries("s-1")
	for _, shown := range []struct{ tool, input string }{{"pay", `{"n":2}`}, {"pay", `{}`}, {"pray", `{"n":1}`}} {
		_, err := x.Submit(s.ctx(), "s-1", approveSeen(p.CallID, p.ApprovalID, shown.tool, json.RawMessage(shown.input)))
		s.refused(err, helix.ErrSubmissionKind, p.CallID, "input")
		s.same(s.entries("s-1"), before, "the waits after a refusal")
	}
	s.Submit(x, "s-1", helix.Approve(p, helix.User{}), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(got.String(), "1", "what was carried out")
}

func approverPolicy(s *Stage) {
	var ran tally
	var seen journal
	pay := guarded(&ran, "pay")
	pay.Approver = func(_ context.Context, a *helix.Answer) error {
		seen.add("%s of %s answers %s %s%s of %s's %s with %t", a.By.ID, a.By.Tenant, a.CallID, a.Tool, a.Input, a.Owner, a.SessionID, a.Response.Approved)
		if a.By.ID != "alice" {
			return errors.New("only alice pays")
		}
		return nil
	}
	agent := waitingAgent(pay)
	x := s.Start(agent)
	res := s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "carol"}}))
	p := s.waiting(res, "pay")
	if !p.Policy {
		s.Fatal("the entry does not say that a policy decides")
	}
	before := s.entries("s-1")
	for _, answer := range []helix.Submission{
		helix.Approve(p, helix.User{ID: "bob"}), helix.Deny(p, helix.User{ID: "bob"}, ""),
		helix.ToolError(p.CallID, "no").By(helix.User{ID: "bob"}), approve(p.CallID, p.ApprovalID),
	} {
		_, err := x.Submit(s.ctx(), "s-1", answer)
		s.refused(err, helix.ErrNotAllowed, "only alice pays")
		s.same(s.entries("s-1"), before, "the waits after a refusal")
	}
	s.logged("client_tool.validation_failed", p.CallID, "bob")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.Approve(p, helix.User{ID: "alice"}), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
	lines := strings.Split(seen.String(), "\n")
	s.same(lines[0], fmt.Sprintf(`bob of %s answers %s pay{"n":1} of carol's s-1 with true`, session.DefaultTenant, p.CallID), "what the policy saw")
	s.same(len(lines), 5, "how often the policy was asked")
}

func approverPanics(s *Stage) {
	var ran, asked tally
	pay := guarded(&ran, "pay")
	pay.Approver = func(context.Context, *helix.Answer) error {
		if asked.add("policy") == 1 {
			panic("boom")
		}
		return nil
	}
	x, agent, waits := s.asked(pay)
	p := waits[0]
	before := s.entries("s-1")
	_, err := x.Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
	s.refused(err, helix.ErrNotAllowed)
	s.same(s.entries("s-1"), before, "the waits after the refusal")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func approverElsewhere(s *Stage) {
	var ran tally
	pay := guarded(&ran, "pay")
	pay.Approver = func(context.Context, *helix.Answer) error { return nil }
	x, agent, waits := s.asked(pay)
	p := waits[0]
	before := s.entries("s-1")
	_, err := s.StartOther(Options{}).Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
	s.refused(err, helix.ErrUnknownAgent, "agent", "pay", "not registered here")
	lax := waitingAgent(guarded(&ran, "pay")) // a deploy that dropped the policy does not drop the call's
	_, err = s.StartOther(Options{Agents: []*helix.Agent{lax}}).Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
	s.refused(err, helix.ErrNotAllowed, "no longer has an Approver")
	s.same(s.entries("s-1"), before, "the waits after the refusals")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func approverAdded(s *Stage) {
	var ran tally
	x, agent, waits := s.asked(guarded(&ran, "pay"))
	p := waits[0]
	before := s.entries("s-1")
	pay := guarded(&ran, "pay")
	pay.Approver = func(_ context.Context, a *helix.Answer) error {
		if a.By.ID == "boss" {
			return nil
		}
		return errors.New("only the boss may")
	}
	y := s.StartOther(Options{Agents: []*helix.Agent{waitingAgent(pay)}})
	for _, answer := range []helix.Submission{approve(p.CallID, p.ApprovalID), deny(p.CallID, p.ApprovalID, "no"), helix.ToolError(p.CallID, "no")} {
		_, err := y.Submit(s.ctx(), "s-1", answer.By(helix.User{ID: "carol"}))
		s.refused(err, helix.ErrNotAllowed, "carol", "may not answer")
	}
	s.same(s.entries("s-1"), before, "the waits after the refusals")
	s.Submit(y, "s-1", helix.Approve(p, helix.User{ID: "boss"}), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func approverClient(s *Stage) {
	pick := onClient("pick")
	pick.Approver = func(_ context.Context, a *helix.Answer) error {
		if string(a.Response.Result) == `"red"` {
			return errors.New("not red")
		}
		return nil
	}
	x, agent, res := s.suspended(pick)
	p := s.waiting(res, "pick")
	before := s.entries("s-1")
	_, err := x.Submit(s.ctx(), "s-1", helix.ToolResult(p.CallID, "red"))
	s.refused(err, helix.ErrNotAllowed, "not red")
	s.same(s.entries("s-1"), before, "the waits after the refusal")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
}

func approvalSpacing(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", json.RawMessage("{ \"n\" :\t7 }")), scripted.Text("Paid.")), guarded(&ran, "pay"))
	x := s.Start(agent)
	told := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	listed := s.open(x, "pay")
	for _, p := range []session.Pending{told, listed} {
		_, err := x.Submit(s.ctx(), "s-1", approveSeen(p.CallID, p.ApprovalID, "pay", json.RawMessage(`{"n":8}`)))
		s.refused(err, helix.ErrSubmissionKind)
	}
	s.Submit(x, "s-1", helix.Approve(told, helix.User{}), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.Approve(listed, helix.User{}), helix.SubmitAlreadyCompleted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func approvalHooks(s *Stage) {
	var j journal
	keep := func(name string) helix.Tool {
		t := newTool(name, func(_ context.Context, call *helix.Call, n int) (int, error) {
			j.add("execute %s", name)
			helix.Append(call, "notes", n)
			return n, nil
		})
		t.Approval = helix.RequireApproval
		return t
	}
	agent := waitingAgent(keep("pay"), keep("burn"), onClient("pick"))
	agent.State = helix.StateOf(notes{})
	agent.Hooks = tracing(&j, "")
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	pay, burn := s.waiting(res, "pay"), s.waiting(res, "burn")
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-1", deny(burn.CallID, burn.ApprovalID, ""), helix.SubmitAccepted)
	first := res.RunID
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(j.String(), strings.Join([]string{
		"start 1", "before model 1", "after model 1", `before tool pick{"n":3}`, "message assistant", "suspended suspended_client_tool",
		"resumed " + first, `before tool pay{"n":1}`, "execute pay", "state pay notes", "suspended suspended_step_partial",
		"resumed " + res.RunID,
		"message tool", `after tool pay{"n":1} = 1`, "message tool", "message tool", `after tool pick{"n":3} = "blue"`,
		"before model 1", "after model 1", "message assistant", "complete Done.",
	}, "\n"), "order of hooks")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), `{"notes":[1],"last":0}`, "the folded state")
}

func approvalFails(s *Stage) {
	var ran tally
	failing := func(name string, fn func(ctx context.Context) error) helix.Tool {
		t := newTool(name, func(ctx context.Context, _ *helix.Call, n int) (int, error) {
			ran.add(name)
			return n, fn(ctx)
		})
		t.Approval = helix.RequireApproval
		return t
	}
	slow := failing("slow", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	slow.Timeout = 20 * time.Millisecond
	x, agent, asked := s.asked(
		failing("fail", func(context.Context) error { return errors.New("no money") }),
		failing("boom", func(context.Context) error { panic("boom") }), slow,
	)
	for _, p := range asked {
		s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	}
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: fail({"n":1}), boom({"n":2}), slow({"n":3})`,
		"tool fail failed: tool_execution_failed", "tool boom failed: tool_panicked", "tool slow failed: tool_timeout", "assistant: Done.")
	s.same([]int{ran.of("fail"), ran.of("boom"), ran.of("slow")}, []int{1, 1, 1}, "how often the tools ran")
}

func approvalVetoed(s *Stage) {
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	agent.Hooks.BeforeTool = func(context.Context, *helix.HookContext, helix.BeforeToolEvent) error {
		return errors.New("over budget")
	}
	x := s.Start(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 0, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay failed: tool_vetoed", "assistant: Done.")
}

func approvalOneByOne(s *Stage) {
	var ran tally
	x, _, asked := s.asked(guarded(&ran, "a"), guarded(&ran, "b"), guarded(&ran, "c"))
	for i, p := range asked {
		s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
		res := s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
		if i < 2 {
			s.ended(res, helix.SuspendedStepPartial)
		} else {
			s.ended(res, helix.Completed)
		}
		s.same(ran.of("a")+ran.of("b")+ran.of("c"), i+1, "calls carried out so far")
	}
	s.transcript("s-1", "user: Hi!", `assistant: a({"n":1}), b({"n":2}), c({"n":3})`, "tool a: 2", "tool b: 4", "tool c: 6", "assistant: Done.")
}

// cutOff kills a process in the middle of an approved call and lets another continue.
func (s *Stage) cutOff(idempotent bool) *tally {
	s.Helper()
	var ran tally
	g := s.newGate()
	pay := countingTool(g, &ran, &journal{})
	pay.Approval, pay.Idempotent = helix.RequireApproval, idempotent
	agent := waitingAgent(pay, onClient("pick"))
	x := s.mortal(agent)
	res := s.waitsOn(x, agent, "s-1")
	p := s.waiting(res, "pay")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the approved call runs", g.entered)
	x.Kill()
	y, again := s.heir(agent)
	s.same(again.ID(), run.ID(), "the run after the takeover")
	s.ended(s.Result(again), helix.SuspendedStepPartial)
	s.Submit(y, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.completes(y, agent, "s-1")
	return &ran
}

func approvalCutOff(s *Stage) {
	ran := s.cutOff(false)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), pick({"n":2})`, "tool pay failed: tool_outcome_unknown", `tool pick: "blue"`, "assistant: Done.")
}

func approvalRepeated(s *Stage) {
	ran := s.cutOff(true)
	s.same(ran.of("pay"), 2, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1}), pick({"n":2})`, "tool pay: 1", `tool pick: "blue"`, "assistant: Done.")
}

func approvalToolGone(s *Stage) {
	var ran tally
	x, _, asked := s.asked(guarded(&ran, "pay"))
	s.Submit(x, "s-1", approve(asked[0].CallID, asked[0].ApprovalID), helix.SubmitAccepted)
	bare := newAgent(scripted.New(scripted.Text(""), scripted.Text("Done.")).ByPosition())
	s.completes(s.StartOther(Options{}), bare, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay failed: tool_not_found", "assistant: Done.")
}

func approvalKilled(s *Stage) {
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	x := s.mortal(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.Submit(y, "s-1", deny(p.CallID, p.ApprovalID, ""), helix.SubmitAlreadyCompleted)
	s.completes(y, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

// approve and deny answer a call without saying what the person was shown, as a client
// that knows only the ids does.
func approve(callID, approvalID string) helix.Submission {
	return helix.Submission{Submission: session.Decide(callID, approvalID, true, "")}
}

func deny(callID, approvalID, reason string) helix.Submission {
	return helix.Submission{Submission: session.Decide(callID, approvalID, false, reason)}
}

// approveSeen approves a call after the person was shown the given tool and input.
func approveSeen(callID, approvalID, tool string, input json.RawMessage) helix.Submission {
	s := approve(callID, approvalID)
	s.Fingerprint = session.Fingerprint(tool, input)
	return s
}
