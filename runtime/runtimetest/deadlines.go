package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

func deadlineScenarios() []Scenario {
	return []Scenario{
		{"deadlines", "a call waits for 24 hours, or as long as its tool says, or forever", deadlineLengths},
		{"deadline at a resume", "a session whose deadline has passed is resumed with a timeout", deadlineResume},
		{"deadline at an execute", "a session whose deadline has passed takes a new message at once", deadlineExecute},
		{"deadline in a sweep", "a session whose deadline has passed continues without a request, also when its process has died", deadlineSweep},
		{"deadline of a tenant", "deadlines of every tenant are handled", deadlineTenant},
		{"deadline reported", "a timeout is streamed, reported as usage, logged, and passed to the hooks", deadlineTold},
		{"deadline in a live run", "a deadline that passes while a sibling runs is handled by the same run", deadlineLive},
		{"one of two deadlines", "one deadline that passes suspends the session again for the other call, once", deadlineOneOfTwo},
		{"answer past the deadline", "an answer that arrives before the timeout is recorded counts, however late", deadlineAnswered},
		{"answer at the deadline", "an answer that arrives just before the timeout is recorded counts", deadlineAnsweredLast},
		{"answer at the suspension", "an answer that arrives just before a timeout is kept at a suspension counts", deadlineAnsweredKept},
		{"late answer", "an answer after the timeout is recorded once, and the model is told once, in the next turn", lateNextTurn},
		{"late answer to a live run", "a late answer to a live run is told to the model at its next call", lateSameRun},
		{"late approval", "a late approval carries nothing out; the model is told", lateApproval},
		{"late answer by policy", "a tool's policy also decides who may answer late", latePolicy},
	}
}

// brief is a deadline that a scenario waits for. It is long enough for a run to
// suspend before, on a machine that is busy.
const brief = 400 * time.Millisecond

// withDeadline gives a tool a deadline.
func withDeadline(tool helix.Tool, d time.Duration) helix.Tool {
	tool.Deadline = d
	return tool
}

// past waits until a call's deadline has passed on the store's clock.
func (s *Stage) past(p session.Pending) {
	s.Helper()
	s.until("the deadline of "+p.Tool+" has passed", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now.After(p.Deadline)
	})
}

// expired leaves session s-1 with a call of pick past its deadline and no process
// that knows its agent, and returns an executor that does not know it yet.
func (s *Stage) expired(opts Options) (Executor, *helix.Agent, *helix.Result) {
	s.Helper()
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)))
	opts.LeaseTTL = unhurried
	y := s.StartOther(opts) // it does not know the agent until it is given it
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ok(x.Shutdown(s.ctx()), "close")
	s.past(s.waiting(res, "pick"))
	return y, agent, res
}

// unhurried is a lease with which an executor sweeps once, when it starts, and then
// not before the scenario is over.
const unhurried = 5 * time.Minute

// startUnhurried starts an executor that handles deadlines only when a request reaches the
// session.
func (s *Stage) startUnhurried(agent *helix.Agent) Executor {
	s.Helper()
	return s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: unhurried})
}

const timedOut = "tool pick failed: client_tool_timeout"

func deadlineLengths(s *Stage) {
	var ran tally
	_, _, res := s.suspended(onClient("a"), withDeadline(onClient("b"), time.Hour), withDeadline(onClient("c"), helix.NoDeadline), guarded(&ran, "d"),
		withDeadline(guarded(&ran, "e"), 90*time.Minute))
	var got []string
	for _, p := range res.Pending {
		if p.Deadline.IsZero() {
			got = append(got, p.Tool+" never")
			continue
		}
		got = append(got, fmt.Sprint(p.Tool, " ", p.Deadline.Sub(p.CreatedAt)))
	}
	s.same(strings.Join(got, ", "), "a 24h0m0s, b 1h0m0s, c never, d 24h0m0s, e 1h30m0s", "deadlines")
	now, err := s.store().Now(s.ctx())
	s.ok(err, "now")
	if age := now.Sub(res.Pending[0].CreatedAt); age < 0 || age > eventually.Patience {
		s.Fatalf("the wait began %s ago on the store's clock", age)
	}
}

func deadlineResume(s *Stage) {
	y, agent, _ := s.expired(Options{})
	s.completes(y, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, timedOut, "assistant: Done.")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeClientTimeout), "pick", s.pace(brief).String())
	s.same(s.entry("s-1", "pick").State, session.PendingTimedOut, "state of the wait")
}

func deadlineExecute(s *Stage) {
	m := &meter{}
	y, agent, res := s.expired(Options{Usage: m})
	s.ended(s.Say(y, agent, "s-1", "Hello?"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, timedOut, "user: Hello?", "assistant: Done.")
	p := s.entry("s-1", "pick")
	s.same(p.State, session.PendingTimedOut, "state of the wait")
	s.timeoutReported(m, p)
	s.Submit(y, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitLate)
}

// timeoutReported checks that a wait is reported, once, and logged.
func (s *Stage) timeoutReported(m *meter, p session.Pending) {
	s.Helper()
	waits := m.waits()
	s.same(len(waits), 1, "waits reported")
	e, want := waits[0], p.Deadline.Sub(p.CreatedAt)
	s.same([]any{e.Kind, e.Source, e.Success, e.Duration, e.Amount}, []any{
		usage.Kind("client_tool_wait_ms"), p.Tool, false, want, float64(want.Milliseconds()),
	}, "the wait that is reported")
	s.logged("client_tool.timeout", p.CallID, "s-1")
}

func deadlineSweep(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)))
	x := s.mortal(agent)
	first := s.waitsOn(x, agent, "s-1")
	x.Kill()
	s.past(s.waiting(first, "pick"))
	s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.until("the session has completed", func() bool { return s.load("s-1").Status == session.Completed })
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, timedOut, "assistant: Done.")
	runs := s.runs("s-1")
	s.same(len(runs), 2, "runs")
	s.same([]any{runs[1].Kind, runs[1].PreviousRunID}, []any{session.RunResume, first.RunID}, "the run that the sweep began")
}

func deadlineTenant(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)))
	x := s.mortal(agent)
	acme := s.within(x, "acme")
	s.waitsOn(acme, agent, "t-1")
	s.until("the session has completed", func() bool {
		state, err := s.Backend.Sessions().Tenant("acme").Load(s.ctx(), "t-1")
		s.ok(err, "load")
		return state.Status == session.Completed
	})
	s.same(s.tenantTranscript("acme", "t-1"), "user: Hi!\nassistant: pick({\"n\":1})\n"+timedOut+"\nassistant: Done.", "transcript")
}

func deadlineTold(s *Stage) {
	var ran tally
	var j journal
	m := &meter{}
	agent := waitingAgent(withDeadline(guarded(&ran, "pay"), s.pace(brief)))
	agent.Hooks = tracing(&j, "")
	agent.Hooks.AfterTool = func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
		j.add("after tool %s: %s", e.Tool, e.Error.Code)
		return nil
	}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	first := s.waitsOn(x, agent, "s-1")
	s.until("the session has completed", func() bool { return s.load("s-1").Status == session.Completed })
	run := s.Attach(x, "s-1")
	s.ended(s.Result(run), helix.Completed)
	s.same(ran.of("pay"), 0, "payments")
	s.timeoutReported(m, s.entry("s-1", "pay"))
	s.same(j.String(), strings.Join([]string{
		"start 1", "before model 1", "after model 1", "message assistant", "suspended suspended_client_tool",
		"resumed " + first.RunID, "message tool", "after tool pay: client_tool_timeout",
		"before model 1", "after model 1", "message assistant", "complete Done.",
	}, "\n"), "order of hooks")
	ends := ofKind(s.chunks("s-1"), stream.ToolEnd)
	s.same(len(ends), 1, "ends of the call")
	s.same([]any{ends[0].Success, ends[0].Error.Code}, []any{false, session.CodeClientTimeout}, "the end that is shown")
}

func deadlineLive(s *Stage) {
	g := s.newGate()
	agent := waitingAgent(blocking(g), withDeadline(onClient("pick"), time.Millisecond))
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sibling runs", g.entered)
	s.past(s.open(x, "pick"))
	s.idle(lease) // the sweeps in this time leave it to its run
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1}), pick({"n":2})`, "tool wait: 1", timedOut, "assistant: Done.")
	s.same(len(s.runs("s-1")), 1, "runs")
}

func deadlineOneOfTwo(s *Stage) {
	m := &meter{}
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)), onClient("tell"))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m, LeaseTTL: lease})
	res := s.waitsOn(x, agent, "s-1")
	s.until("the deadline was handled", func() bool {
		return s.entry("s-1", "pick").State == session.PendingTimedOut
	})
	s.idle(2 * lease) // in which nothing more is due
	s.same(len(s.runs("s-1")), 2, "runs")
	again := s.Result(s.Attach(x, "s-1"))
	s.ended(again, helix.SuspendedStepPartial)
	s.same(toolsOf(again.Pending), "tell", "calls that still wait")
	s.timeoutReported(m, s.entry("s-1", "pick"))
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "tell").CallID, "t"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), tell({"n":2})`, timedOut, `tool tell: "t"`, "assistant: Done.")
	s.same(len(m.waits()), 2, "waits reported")
}

func deadlineAnswered(s *Stage) {
	m := &meter{}
	y, agent, res := s.expired(Options{Usage: m})
	p := s.waiting(res, "pick")
	s.same(s.Submit(y, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted).Continuation, helix.CallerResumes, "continuation")
	s.completes(y, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "blue"`, "assistant: Done.")
	waits := m.waits()
	s.same([]any{len(waits), waits[0].Success}, []any{1, true}, "waits reported")
}

func deadlineAnsweredLast(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)), noteTool())
	agent.State = helix.StateOf(notes{})
	var y Executor
	var told journal
	agent.Hooks.OnMessage = func(ctx context.Context, _ *helix.HookContext, e helix.MessageEvent) error {
		if e.Message.Role != session.RoleTool || e.Message.Parts[0].Tool != "pick" {
			return nil
		}
		part := e.Message.Parts[0]
		told.add("%t", part.Error == nil)
		if part.Error == nil {
			return nil
		}
		out, err := y.Submit(ctx, "s-1", helix.ToolResult(part.CallID, "blue"))
		if err == nil {
			told.add("%s %s", out.Outcome, out.Continuation)
		}
		return err
	}
	x := s.startUnhurried(agent)
	res := s.waitsOn(x, agent, "s-1")
	y = s.StartOther(Options{})
	s.past(s.waiting(res, "pick"))
	res = s.completes(x, agent, "s-1")
	s.same(told.String(), "false\naccepted running\ntrue", "what the hook was told and did")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), note({"n":2})`, `tool pick: "blue"`, "tool note: 1", "assistant: Done.")
	s.same(res.Usage.ToolCalls, 2, "calls of the run")
	s.sameJSON(s.state("s-1"), `{"notes":[2],"last":2}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), `{"notes":[2],"last":2}`, "the folded state")
	s.same(s.entry("s-1", "pick").State, session.PendingConsumed, "state of the wait")
}

func deadlineAnsweredKept(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)), onClient("tell"))
	agent.State = helix.StateOf(notes{})
	agent.Hooks.OnAgentResumed = func(_ context.Context, h *helix.HookContext, _ helix.AgentResumedEvent) error {
		helix.Append(h, "notes", 1)
		return nil
	}
	var y Executor
	var p session.Pending
	var told journal
	sink := usage.SinkFunc(func(ctx context.Context, e usage.Entry) { // it hears of the timeout before the store does
		if e.Kind != usage.ClientToolWait {
			return
		}
		told.add("%t", e.Success)
		if !e.Success {
			out, err := y.Submit(ctx, "s-1", helix.ToolResult(p.CallID, "blue"))
			told.add("%s %v", out.Outcome, err)
		}
	})
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: sink, LeaseTTL: unhurried})
	res := s.waitsOn(x, agent, "s-1")
	p, y = s.waiting(res, "pick"), s.StartOther(Options{})
	s.past(p)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.SuspendedStepPartial)
	s.same(told.String(), "false\naccepted <nil>\ntrue", "what was reported and done")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "tell").CallID, "t"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), tell({"n":2})`, `tool pick: "blue"`, `tool tell: "t"`, "assistant: Done.")
	s.sameJSON(s.state("s-1"), `{"notes":[1,1],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), `{"notes":[1,1],"last":0}`, "the folded state")
}

// notices are the hidden messages that a request holds.
func notices(messages []session.Message) string {
	var out []string
	for i := range messages {
		if messages[i].Hidden() {
			out = append(out, messages[i].Content())
		}
	}
	return strings.Join(out, "\n")
}

func lateNextTurn(s *Stage) {
	model := scripted.New(scripted.Call("pick", num{1}), scripted.Text("Too late."), scripted.Text("I see."), scripted.Text("Fine."))
	agent := newAgent(model, withDeadline(onClient("pick"), s.pace(brief)))
	x := s.startUnhurried(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	s.past(p)
	s.completes(x, agent, "s-1")
	before := s.load("s-1")
	out := s.Submit(s.StartOther(Options{}), "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitLate)
	s.same(out.Continuation, "", "continuation")
	entry := s.entries("s-1")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "red"), helix.SubmitLate)
	s.Submit(x, "s-1", helix.ToolError(p.CallID, "no"), helix.SubmitLate)
	s.same(s.entries("s-1"), entry, "the waits after more late answers")
	s.same(string(s.entry("s-1", "pick").Late.Result), `"blue"`, "the late answer that is recorded")
	s.same([]any{s.load("s-1").Status, s.load("s-1").MessageCount}, []any{before.Status, before.MessageCount}, "the session")
	s.ended(s.Say(x, agent, "s-1", "And now?"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "And then?"), helix.Completed)
	notice := notices(s.messages("s-1"))
	if strings.Count(notice, "Notice") != 1 || !strings.Contains(notice, `"blue"`) || !strings.Contains(notice, "pick") {
		s.Fatalf("the model is told %q", notice)
	}
	requests := model.Requests()
	s.same(notices(requests[1].Messages), "", "notices before the late answer")
	s.same(notices(requests[2].Messages), notice, "notices at the next call")
	if !s.entry("s-1", "pick").LateNoticed {
		s.Fatal("the entry does not say that the model was told")
	}
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, timedOut, "assistant: Too late.",
		"user: And now?", "user: "+notice+" [hidden]", "assistant: I see.", "user: And then?", "assistant: Fine.")
}

func lateSameRun(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Call("pick", num{1}), scripted.Call("wait", num{2}), scripted.Text("I see."))
	agent := newAgent(model, withDeadline(onClient("pick"), s.pace(brief)), blocking(g))
	x := s.startUnhurried(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	s.past(p)
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the next step runs", g.entered)
	s.Submit(s.StartOther(Options{}), "s-1", helix.ToolError(p.CallID, "no camera"), helix.SubmitLate)
	g.release()
	s.ended(s.Result(run), helix.Completed)
	notice := notices(model.Requests()[2].Messages)
	if strings.Count(notice, "Notice") != 1 || !strings.Contains(notice, "no camera") {
		s.Fatalf("the model is told %q", notice)
	}
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, timedOut, `assistant: wait({"n":2})`, "tool wait: 2", "user: "+notice+" [hidden]", "assistant: I see.")
}

func lateApproval(s *Stage) {
	var ran tally
	agent := waitingAgent(withDeadline(guarded(&ran, "pay"), s.pace(brief)))
	x := s.startUnhurried(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	s.past(p)
	s.completes(x, agent, "s-1")
	_, err := x.Submit(s.ctx(), "s-1", approve(p.CallID, "another"))
	s.refused(err, helix.ErrSubmissionKind)
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitLate)
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitLate)
	s.ended(s.Say(x, agent, "s-1", "And now?"), helix.Completed)
	s.same(ran.of("pay"), 0, "payments")
	notice := notices(s.messages("s-1"))
	if strings.Count(notice, "Notice") != 1 || !strings.Contains(notice, "approved") || !strings.Contains(notice, "not carried out") {
		s.Fatalf("the model is told %q", notice)
	}
}

func latePolicy(s *Stage) {
	pick := withDeadline(onClient("pick"), s.pace(brief))
	pick.Approver = func(_ context.Context, a *helix.Answer) error {
		if a.By.ID != "alice" {
			return errors.New("only alice picks")
		}
		return nil
	}
	agent := waitingAgent(pick)
	x := s.startUnhurried(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	s.past(p)
	s.completes(x, agent, "s-1")
	before := s.entries("s-1")
	_, err := x.Submit(s.ctx(), "s-1", helix.ToolResult(p.CallID, "red").By(helix.User{ID: "bob"}))
	s.refused(err, helix.ErrNotAllowed, "only alice picks")
	_, err = s.StartOther(Options{}).Submit(s.ctx(), "s-1", helix.ToolResult(p.CallID, "red"))
	s.refused(err, helix.ErrUnknownAgent)
	s.same(s.entries("s-1"), before, "the waits after the refusals")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue").By(helix.User{ID: "alice"}), helix.SubmitLate)
	s.ended(s.Say(x, agent, "s-1", "And now?"), helix.Completed)
	if notice := notices(s.messages("s-1")); strings.Contains(notice, `"red"`) || !strings.Contains(notice, "blue") {
		s.Fatalf("the model is told %q", notice)
	}
}
