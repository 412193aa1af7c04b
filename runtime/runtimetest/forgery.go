package runtimetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

func forgeryScenarios() []Scenario {
	return []Scenario{
		{"answer of another kind", "an approval takes no result, and a client tool no approval; nothing is stored", forgeKind},
		{"wrong approval id", "an approval must repeat the id of its request; nothing is stored otherwise", forgeApprovalID},
		{"unknown call", "an answer to an unknown call changes nothing", forgeUnknown},
		{"call of another session", "a call is answered at its own session only", forgeSession},
		{"call of another tenant", "calls of another tenant can be neither answered nor listed", forgeTenant},
		{"user of another tenant", "a user of another tenant cannot answer", forgeUserTenant},
		{"too large", "an answer at its limits is accepted; one over them is refused with the limit, and nothing is stored", forgeLimits},
		{"malformed", "an answer that contradicts itself or cannot be stored is refused, naming the field", forgeMalformed},
		{"forged, then answered", "the right answer is accepted after refused ones", forgeThenAnswer},
	}
}

// forged submits an answer to session s-1 that must be refused, leaving its waits
// as they are.
func (s *Stage) forged(x helix.Executor, answer helix.Submission, want error, words ...string) {
	s.Helper()
	before := s.entries("s-1")
	out, err := x.Submit(s.ctx(), "s-1", answer)
	if err == nil {
		s.Fatalf("the answer %+v was %s", answer, out.Outcome)
	}
	s.refused(err, want, words...)
	s.same(s.entries("s-1"), before, "the waits after a refusal")
}

func forgeKind(s *Stage) {
	var ran tally
	x, agent, res := s.suspended(onClient("pick"), guarded(&ran, "pay"))
	pick, pay := s.waiting(res, "pick"), s.waiting(res, "pay")
	s.forged(x, helix.ToolResult(pay.CallID, true), helix.ErrSubmissionKind, pay.CallID, "waiting for an approval", "client tool")
	withID := helix.ToolResult(pay.CallID, true)
	withID.ApprovalID = pay.ApprovalID
	s.forged(x, withID, helix.ErrSubmissionKind, pay.CallID)
	s.forged(x, helix.ToolResult(pay.CallID, nil), helix.ErrSubmissionKind, pay.CallID)
	s.forged(x, approve(pick.CallID, ""), helix.ErrSubmissionKind, pick.CallID, "client tool", "an approval")
	s.forged(x, approve(pick.CallID, pay.ApprovalID), helix.ErrSubmissionKind, pick.CallID)
	s.forged(x, deny(pick.CallID, "", "no"), helix.ErrSubmissionKind, pick.CallID)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func forgeApprovalID(s *Stage) {
	var ran tally
	x, agent, asked := s.asked(guarded(&ran, "a"), guarded(&ran, "b"))
	a, b := asked[0], asked[1]
	if a.ApprovalID == b.ApprovalID {
		s.Fatal("two requests have the same approval id")
	}
	for _, id := range []string{"", b.ApprovalID, a.ApprovalID + "x", strings.ToUpper(a.ApprovalID), a.CallID} {
		s.forged(x, approve(a.CallID, id), helix.ErrSubmissionKind, a.CallID, "approval id")
		s.forged(x, deny(a.CallID, id, "no"), helix.ErrSubmissionKind, a.CallID, "approval id")
	}
	s.Submit(x, "s-1", approve(a.CallID, a.ApprovalID), helix.SubmitAccepted)
	s.forged(x, approve(a.CallID, b.ApprovalID), helix.ErrSubmissionKind) // also when it is over
	s.Submit(x, "s-1", deny(b.CallID, b.ApprovalID, ""), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same([]int{ran.of("a"), ran.of("b")}, []int{1, 0}, "how often the tools ran")
}

func forgeUnknown(s *Stage) {
	x, agent, res := s.suspended(double(), onClient("pick"))
	finished := s.messages("s-1")[1].Calls()[0].CallID
	before := s.footprint()
	for _, id := range []string{"call_nobody", finished, session.FinishTool} {
		s.Submit(x, "s-1", helix.ToolResult(id, 1), helix.SubmitUnknownCall)
		s.Submit(x, "s-1", approve(id, "a-1"), helix.SubmitUnknownCall)
	}
	s.same(s.footprint(), before, "the session after unknown answers")
	_, err := x.Submit(s.ctx(), "s-nobody", helix.ToolResult("call_1", 1))
	s.refused(err, helix.ErrNotFound)
	_, err = x.Submit(s.ctx(), "../etc", helix.ToolResult("call_1", 1))
	s.refused(err, helix.ErrInvalid)
	_, err = x.Waiting(s.ctx(), "s-nobody")
	s.refused(err, helix.ErrNotFound)
	_, err = x.Waiting(s.ctx(), "../etc")
	s.refused(err, helix.ErrInvalid)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, 1), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
}

func forgeSession(s *Stage) {
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	x := s.Start(agent)
	one, two := s.waiting(s.waitsOn(x, agent, "s-1"), "pay"), s.waiting(s.waitsOn(x, agent, "s-2"), "pay")
	before := s.entries("s-1") + s.entries("s-2")
	s.Submit(x, "s-2", approve(one.CallID, one.ApprovalID), helix.SubmitUnknownCall)
	s.Submit(x, "s-1", approve(two.CallID, two.ApprovalID), helix.SubmitUnknownCall)
	s.same(s.entries("s-1")+s.entries("s-2"), before, "the waits of both sessions")
	s.Submit(x, "s-1", approve(one.CallID, one.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	_, err := x.Resume(s.ctx(), "s-2", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.same(ran.of("pay"), 1, "payments")
}

func forgeTenant(s *Stage) {
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	x := s.Start(agent)
	acme, umbrella := s.within(x, "acme"), s.within(x, "umbrella")
	p := s.waiting(s.waitsOn(acme, agent, "s-1"), "pay")
	for _, other := range []helix.Executor{x, umbrella} {
		_, err := other.Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
		s.refused(err, helix.ErrNotFound)
		_, err = other.Waiting(s.ctx(), "s-1")
		s.refused(err, helix.ErrNotFound)
	}
	same := s.waiting(s.waitsOn(umbrella, agent, "s-1"), "pay") // the same id, another session
	s.Submit(umbrella, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitUnknownCall)
	_, err := acme.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	s.Submit(acme, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(acme, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
	list, err := umbrella.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same([]any{len(list), list[0].CallID}, []any{1, same.CallID}, "umbrella's waiting calls")
}

func forgeUserTenant(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	p := s.waiting(res, "pick")
	s.forged(x, helix.ToolResult(p.CallID, 1).By(helix.User{ID: "mallory", Tenant: "acme"}), helix.ErrNotFound)
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, 1).By(helix.User{ID: "alice", Tenant: session.DefaultTenant}), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
}

func forgeLimits(s *Stage) {
	var ran tally
	x, agent, res := s.suspended(onClient("a"), onClient("b"), guarded(&ran, "pay"))
	a, b, pay := s.waiting(res, "a"), s.waiting(res, "b"), s.waiting(res, "pay")
	text := func(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("x", n%2) }
	const maxResult, maxError, maxID = 1 << 20, 8 << 10, 256
	s.forged(x, helix.ToolResult(a.CallID, text(maxResult-1)), helix.ErrTooLarge, "result", fmt.Sprint(maxResult+1), fmt.Sprint(maxResult))
	s.forged(x, helix.ToolError(b.CallID, text(maxError+1)), helix.ErrTooLarge, "error", fmt.Sprint(maxError))
	s.forged(x, deny(pay.CallID, pay.ApprovalID, text(maxError+1)), helix.ErrTooLarge, "reason", fmt.Sprint(maxError))
	s.forged(x, helix.ToolResult(text(maxID+1), 1), helix.ErrInvalid, "tool call id", fmt.Sprint(maxID))
	s.forged(x, approve(pay.CallID, text(maxID+1)), helix.ErrInvalid, "approval id", fmt.Sprint(maxID))
	s.forged(x, helix.ToolResult(a.CallID, 1).By(helix.User{ID: text(maxID + 1)}), helix.ErrInvalid, "submitter", fmt.Sprint(maxID))
	s.loose["s-1"] = true // the largest result is more than a chunk takes
	s.Submit(x, "s-1", helix.ToolResult(text(maxID), 1), helix.SubmitUnknownCall)
	s.Submit(x, "s-1", helix.ToolResult(a.CallID, text(maxResult-2)).By(helix.User{ID: text(maxID)}), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.ToolError(b.CallID, text(maxError)), helix.SubmitAccepted)
	s.Submit(x, "s-1", deny(pay.CallID, pay.ApprovalID, text(maxError)), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	messages := s.messages("s-1")
	s.same(len(messages[2].Parts[0].ResultJSON()), maxResult, "bytes of the result")
	for i, want := range []string{text(maxError), text(maxError)} {
		if got := messages[3+i].Parts[0].Error.Message; !strings.HasSuffix(got, want) {
			s.Fatalf("an error of %d bytes became one of %d", len(want), len(got))
		}
	}
}

func forgeMalformed(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	p := s.waiting(res, "pick")
	both := helix.ToolResult(p.CallID, 1)
	both.Error = "no"
	s.forged(x, both, helix.ErrInvalid, "both a result and an error")
	for _, raw := range []string{"{", "", "nope", `"` + "\xff" + `"`, `{"a":1} {"b":2}`} {
		broken := helix.ToolResult(p.CallID, 1)
		broken.Result = json.RawMessage(raw)
		s.forged(x, broken, helix.ErrInvalid, "result")
	}
	s.forged(x, helix.ToolResult(p.CallID, make(chan int)), helix.ErrInvalid, "result")
	s.forged(x, helix.ToolResult("", 1), helix.ErrInvalid, "tool call id")
	s.forged(x, helix.ToolResult("a\nb", 1), helix.ErrInvalid, "tool call id")
	s.forged(x, helix.ToolError(p.CallID, "a\x00b"), helix.ErrInvalid, "error")
	s.forged(x, helix.ToolError(p.CallID, "a\xffb"), helix.ErrInvalid, "error")
	s.forged(x, helix.ToolResult(p.CallID, 1).By(helix.User{ID: "a\x00b"}), helix.ErrInvalid, "submitter")
	kind := helix.ToolResult(p.CallID, 1)
	kind.Kind = "rumour"
	s.forged(x, kind, helix.ErrInvalid, "submission kind", "rumour")
	s.forged(x, helix.Submission{}, helix.ErrInvalid)
	s.logged("client_tool.validation_failed", "both a result and an error")
	s.Submit(x, "s-1", helix.ToolError(p.CallID, ""), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, "tool pick failed: tool_execution_failed", "assistant: Done.")
}

func forgeThenAnswer(s *Stage) {
	var ran tally
	g := s.newGate()
	agent := waitingAgent(blocking(g), guarded(&ran, "pay"))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	p := s.open(x, "pay") // the run is live
	s.forged(x, helix.ToolResult(p.CallID, 1), helix.ErrSubmissionKind)
	s.forged(x, approve(p.CallID, "x"), helix.ErrSubmissionKind)
	s.forged(x, approveSeen(p.CallID, p.ApprovalID, "pay", json.RawMessage(`{"n":1000}`)), helix.ErrSubmissionKind)
	s.same(s.Submit(x, "s-1", approveSeen(p.CallID, p.ApprovalID, "pay", json.RawMessage(`{"n":2}`)), helix.SubmitAccepted).Continuation,
		helix.ContinuesRunning, "continuation")
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
}
