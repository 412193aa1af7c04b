package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func abandonScenarios() []Scenario {
	return []Scenario{
		{"abandoned", "a turn that continues without answers tells the model so; answers that have arrived are kept", abandonOwn},
		{"abandoned down the tree", "abandoning reaches the calls of sub-agents at every depth", abandonTree},
		{"nothing to abandon", "abandoning where nothing waits is an ordinary turn", abandonNothing},
		{"abandoned or answered", "of an answer and an abandonment that race, the first one counts", abandonRace},
		{"abandoned past a deadline", "of abandoned calls, one past its deadline has timed out", abandonOverdue},
		{"failed run", "a run that fails drops calls that were not answered and keeps those that were, so that the next turn is valid", abandonFailed},
		{"interrupted", "an interrupt keeps answered calls; the others are stopped, and cannot be answered any more", abandonInterrupted},
		{"aborted while running", "an abort of a live run keeps answered calls", abandonAborted},
		{"aborted while waiting", "a waiting session is aborted: its run fails as framework_cancelled, and it takes a new turn", abandonAbortWaiting},
		{"aborted elsewhere", "a waiting session is aborted from another process", abandonAbortElsewhere},
		{"aborted down the tree", "aborting a waiting session ends the sub-agents that wait", abandonAbortTree},
		{"aborted as it suspends", "an abort that is accepted at the last moment before a suspension ends the session", abandonAbortLast},
		{"aborted at any moment", "an abort at any moment of a run that suspends ends the session", abandonAbortRace},
		{"interrupted while waiting", "a session that waits has nothing to interrupt", abandonInterruptWaiting},
		{"rewound", "a resume from a checkpoint supersedes the waits after it", abandonRewound},
		{"retried", "a retry of a turn that had waited does not repeat calls that were approved before its last good step", abandonRetried},
		{"branched", "a branch of a waiting session continues without the answers, and its source still waits", abandonBranched},
		{"deleted", "a deleted session's calls cannot be answered, and a new session with the same id does not have them", abandonDeleted},
		{"paused", "a paused session takes answers and handles no deadline until it is resumed", abandonPaused},
		{"expired session", "a waiting session that has expired fails, and takes a new turn", abandonExpired},
	}
}

// abandon executes a text on session s-1 without waiting for answers.
func (s *Stage) abandon(x helix.Executor, agent *helix.Agent, text string) *helix.Result {
	s.Helper()
	return s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText(text), AbandonPending: true}))
}

func abandonOwn(s *Stage) {
	var ran tally
	m := &meter{}
	agent := waitingAgent(noteTool(), onClient("pick"), guarded(&ran, "pay"), onClient("tell"), onClient("hush"), guarded(&ran, "burn"))
	agent.State = helix.StateOf(notes{})
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Usage: m})
	res := s.waitsOn(x, agent, "s-1")
	pick, pay, burn := s.waiting(res, "pick"), s.waiting(res, "pay"), s.waiting(res, "burn")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "tell").CallID, "t"), helix.SubmitAccepted)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "hush").CallID, nil), helix.SubmitAccepted)
	s.Submit(x, "s-1", deny(burn.CallID, burn.ApprovalID, "no"), helix.SubmitAccepted)
	s.ended(s.abandon(x, agent, "Never mind."), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1}), pick({"n":2}), pay({"n":3}), tell({"n":4}), hush({"n":5}), burn({"n":6})`,
		"tool note: 1", "tool pick failed: client_tool_abandoned", "tool pay failed: client_tool_abandoned", `tool tell: "t"`, "tool hush: null",
		"tool burn failed: tool_not_approved", "user: Never mind.", "assistant: Done.")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	s.same(ran.of("pay")+ran.of("burn"), 0, "calls that were carried out")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAlreadyCompleted)
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAlreadyCompleted)
	s.logged("client_tool.aborted", pick.CallID)
	s.logged("client_tool.aborted", pay.CallID)
	s.same(len(m.waits()), 3, "waits reported")
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(len(list), 0, "waiting calls")
}

// treeOf is an agent whose sub-agent's sub-agent uses the tools, all of them at
// once.
func treeOf(tools ...helix.Tool) *helix.Agent {
	leaf := waitingAgent(tools...)
	leaf.Name = "leaf"
	middle := newAgent(scripted.New(scripted.Call("subagent__leaf", map[string]string{"task": "t"}), scripted.Text("middle done")).ByPosition())
	middle.Name, middle.SubAgents = "middle", []helix.SubAgent{{Agent: leaf}}
	root := newAgent(scripted.New(scripted.Call("subagent__middle", map[string]string{"task": "t"}), scripted.Text("Done.")).ByPosition())
	root.SubAgents = []helix.SubAgent{{Agent: middle}}
	return root
}

func abandonTree(s *Stage) {
	var ran tally
	agent := treeOf(onClient("pick"), guarded(&ran, "pay"))
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ended(res, helix.SuspendedAwaitingChildren)
	pick, pay := s.waiting(res, "pick"), s.waiting(res, "pay")
	s.ended(s.abandon(x, agent, "Never mind."), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"t"})`, "tool subagent__middle failed: client_tool_abandoned", "user: Never mind.", "assistant: Done.")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAlreadyCompleted)
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAlreadyCompleted)
	s.same(ran.of("pay"), 0, "payments")
	s.same(s.load(pick.SessionID).Status, session.Failed, "status of the sub-agent's session")
	s.logged("client_tool.aborted", pick.CallID)
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(len(list), 0, "waiting calls")
}

func abandonNothing(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	x := s.Start(agent)
	s.ended(s.abandon(x, agent, "first"), helix.Completed)
	s.ended(s.abandon(x, agent, "second"), helix.Completed)
	s.transcript("s-1", "user: first", "assistant: one", "user: second", "assistant: two")
}

func abandonRace(s *Stage) {
	const rounds = 15
	agent := waitingAgent(onClient("pick"))
	x := s.Start(agent)
	y := s.StartOther(Options{})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		p := s.waiting(s.waitsOn(x, agent, id), "pick")
		var run helix.Run
		var out *helix.Submitted
		var executed, submitted error
		ctx := s.ctx()
		var wg sync.WaitGroup
		wg.Go(func() {
			soon()
			run, executed = x.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Never mind."), AbandonPending: true})
		})
		wg.Go(func() {
			soon()
			out, submitted = y.Submit(ctx, id, helix.ToolResult(p.CallID, "blue"))
		})
		wg.Wait()
		s.ok(errors.Join(executed, submitted), "execute and submit")
		s.ended(s.Result(run), helix.Completed)
		want := "tool pick failed: client_tool_abandoned"
		if out.Outcome == helix.SubmitAccepted {
			want = `tool pick: "blue"`
		}
		s.transcript(id, "user: Hi!", `assistant: pick({"n":1})`, want, "user: Never mind.", "assistant: Done.")
	}
}

func abandonOverdue(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)), onClient("tell"))
	x := s.startUnhurried(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.past(s.waiting(res, "pick"))
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Well?")})
	s.refused(err, helix.ErrAwaitingInput)
	s.ended(s.abandon(x, agent, "Never mind."), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), tell({"n":2})`, timedOut, "tool tell failed: client_tool_abandoned", "user: Never mind.", "assistant: Done.")
}

func abandonFailed(s *Stage) {
	var ran tally
	gates := []*gate{s.newGate(), s.newGate(), s.newGate(), s.newGate()}
	deadly := newTool("deadly", func(ctx context.Context, _ *helix.Call, _ int) (int, error) {
		gates[ran.add("deadly")-1].enter()
		<-ctx.Done()
		return 0, ctx.Err()
	})
	deadly.Idempotent = true
	agent := waitingAgent(deadly, onClient("pick"), onClient("tell"), guarded(&ran, "pay"))
	x := s.mortal(agent)
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sibling runs", gates[0].entered)
	pick, tell := s.open(x, "pick"), s.open(x, "tell")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	x.Kill()
	for i := 1; i <= 3; i++ {
		y, _ := s.heir(agent)
		s.receive("the run is taken over", gates[i].entered)
		y.Kill()
	}
	y, run := s.heir(agent)
	s.failed(s.Result(run), helix.ErrCrashLoop)
	list, err := y.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(len(list), 0, "waiting calls")
	s.Submit(y, "s-1", helix.ToolResult(tell.CallID, "t"), helix.SubmitAlreadyCompleted)
	s.ended(s.Say(y, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: deadly({"n":1}), pick({"n":2}), tell({"n":3}), pay({"n":4})`,
		"tool deadly failed: tool_outcome_unknown", `tool pick: "blue"`, "tool tell failed: tool_not_executed", "tool pay failed: tool_not_executed",
		"user: Again!", "assistant: Done.")
	s.logged("client_tool.aborted", tell.CallID)
}

// stoppedAmong stops a live run that has a sibling running, one call answered, one
// approved and one open.
func (s *Stage) stoppedAmong(stop func(run helix.Run) error) (Executor, *helix.Agent, *helix.Result) {
	s.Helper()
	var ran tally
	g := s.newGate()
	agent := waitingAgent(blocking(g), onClient("pick"), onClient("tell"), guarded(&ran, "pay"), guarded(&ran, "burn"))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sibling runs", g.entered)
	pick, tell, pay, burn := s.open(x, "pick"), s.open(x, "tell"), s.open(x, "pay"), s.open(x, "burn")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-1", deny(burn.CallID, burn.ApprovalID, ""), helix.SubmitAccepted)
	s.ok(stop(run), "stop")
	res := s.Result(run)
	s.same(ran.of("pay"), 0, "payments")
	s.Submit(x, "s-1", helix.ToolResult(tell.CallID, "t"), helix.SubmitAlreadyCompleted)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1}), pick({"n":2}), tell({"n":3}), pay({"n":4}), burn({"n":5})`,
		"tool wait failed: run_stopped", `tool pick: "blue"`, "tool tell failed: run_stopped", "tool pay failed: run_stopped", "tool burn failed: tool_not_approved")
	s.logged("client_tool.aborted", tell.CallID)
	return x, agent, res
}

func abandonInterrupted(s *Stage) {
	x, agent, res := s.stoppedAmong(func(run helix.Run) error { return run.Interrupt(s.ctx(), "enough") })
	s.ended(res, helix.Interrupted)
	s.same(len(res.Pending), 0, "calls that wait")
	s.completes(x, agent, "s-1")
}

func abandonAborted(s *Stage) {
	x, agent, res := s.stoppedAmong(func(run helix.Run) error { return run.Abort(s.ctx(), "enough") })
	s.failed(res, helix.ErrCancelled, "enough")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

// aborted checks that session s-1 has been aborted with a call of pick waiting.
func (s *Stage) aborted(x helix.Executor, agent *helix.Agent, p session.Pending) {
	s.Helper()
	s.until("the session has failed", func() bool { return s.load("s-1").Status == session.Failed })
	s.refused(s.load("s-1").Error, helix.ErrCancelled, "enough")
	s.failed(s.Result(s.Attach(x, "s-1")), helix.ErrCancelled, "enough")
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAlreadyCompleted)
	_, err := x.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrNotResumable)
	items := s.collect(s.Attach(x, "s-1"))
	s.same(items[len(items)-1].Frame, stream.FrameFail, "how the stream ends")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, "tool pick failed: run_stopped", "user: Again!", "assistant: Done.")
}

func abandonAbortWaiting(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	p := s.waiting(res, "pick")
	s.aborted(x, agent, p)
	s.logged("client_tool.aborted", p.CallID)
}

func abandonAbortElsewhere(s *Stage) {
	agent := waitingAgent(onClient("pick"))
	x := s.mortal(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ok(y.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.aborted(y, agent, p)
}

func abandonAbortTree(s *Stage) {
	agent := treeOf(onClient("pick"))
	x := s.Start(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.until("the session has failed", func() bool { return s.load("s-1").Status == session.Failed })
	s.until("the sub-agent's session has failed", func() bool { return s.load(p.SessionID).Status == session.Failed })
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAlreadyCompleted)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func abandonAbortLast(s *Stage) {
	var y Executor
	late := newTool("late", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		return n, y.Abort(ctx, "s-1", "enough") // its run hears of it with the commit that suspends
	})
	agent := waitingAgent(onClient("pick"), late)
	x := s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: unhurried})
	y = s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: unhurried})
	s.Begin(x, agent, "s-1", "Hi!")
	s.until("the session has failed", func() bool { return s.load("s-1").Status == session.Failed })
	s.refused(s.load("s-1").Error, helix.ErrCancelled, "enough")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), late({"n":2})`, "tool pick failed: run_stopped", "tool late: 2", "user: Again!", "assistant: Done.")
}

func abandonAbortRace(s *Stage) {
	const rounds = 15
	agent := waitingAgent(onClient("pick"), double())
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		s.Begin(x, agent, id, "Hi!")
		s.until("the call waits", func() bool {
			list, err := y.Waiting(s.ctx(), id)
			s.ok(err, "waiting calls")
			return len(list) > 0
		})
		soon()
		s.ok(y.Abort(s.ctx(), id, "enough"), "abort")
		s.until("the session has failed", func() bool { return s.load(id).Status == session.Failed })
		s.refused(s.load(id).Error, helix.ErrCancelled, "enough")
		list, err := y.Waiting(s.ctx(), id)
		s.ok(err, "waiting calls")
		s.same(len(list), 0, "waiting calls")
	}
}

func abandonInterruptWaiting(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	before := s.footprint()
	s.refused(x.Interrupt(s.ctx(), "s-1", ""), helix.ErrStale, "s-1")
	s.same(s.footprint(), before, "the session after the refusal")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, 1), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
}

func abandonRewound(s *Stage) {
	var ran tally
	model := scripted.New(scripted.Call("note", num{1}), scripted.Call("pay", num{2}), scripted.Call("pay", num{3}), scripted.Text("Done."))
	agent := newAgent(model, noteTool(), guarded(&ran, "pay"))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	old := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	checkpoints := s.checkpoints("s-1")
	res := s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: checkpoints[len(checkpoints)-1].ID}))
	s.ended(res, helix.SuspendedClientTool)
	s.Submit(x, "s-1", approve(old.CallID, old.ApprovalID), helix.SubmitAlreadyCompleted)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	p := s.waiting(res, "pay")
	if p.CallID == old.CallID {
		s.Fatal("the new call has the id of the one that was undone")
	}
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, "tool note: 1", `assistant: pay({"n":3})`, "tool pay: 6", "assistant: Done.")
	list, err := s.store().PendingCalls(s.ctx(), "s-1", true)
	s.ok(err, "pending calls")
	for i := range list {
		if list[i].CallID == old.CallID {
			s.same(list[i].State, session.PendingSuperseded, "state of the wait that was undone")
		}
	}
}

func abandonRetried(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{1}), fatal(), scripted.Text("Done.")), guarded(&ran, "pay"))
	x := s.Start(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.failed(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), code(session.CodeProvider))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay: 2", "assistant: Done.")
}

func abandonBranched(s *Stage) {
	var ran tally
	x, agent, res := s.suspended(onClient("pick"), guarded(&ran, "pay"))
	pick, pay := s.waiting(res, "pick"), s.waiting(res, "pay")
	before := s.footprint()
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "What if?")), helix.Completed)
	s.transcript("s-2", "user: Hi!", `assistant: pick({"n":1}), pay({"n":2})`, "tool pick failed: client_tool_abandoned", "tool pay failed: client_tool_abandoned", "user: What if?", "assistant: Done.")
	s.Submit(x, "s-2", helix.ToolResult(pick.CallID, "blue"), helix.SubmitUnknownCall)
	s.same(s.footprint(), before, "the source")
	s.Submit(x, "s-1", helix.ToolResult(pick.CallID, "blue"), helix.SubmitAccepted)
	s.Submit(x, "s-1", approve(pay.CallID, pay.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), pay({"n":2})`, `tool pick: "blue"`, "tool pay: 4", "assistant: Done.")
}

func abandonDeleted(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)))
	x := s.mortal(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pick")
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	_, err = x.Submit(s.ctx(), "s-1", helix.ToolResult(p.CallID, "blue"))
	s.refused(err, helix.ErrNotFound)
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotFound)
	s.refused(x.Abort(s.ctx(), "s-1", ""), helix.ErrNotFound)
	s.past(p)
	s.idle(lease) // a sweep or more
	exists, err := s.store().Exists(s.ctx(), "s-1")
	s.ok(err, "exists")
	s.same(exists, false, "the session came back")
	other := waitingAgent(onClient("pick"))
	y := s.StartOther(Options{})
	again := s.waiting(s.waitsOn(y, other, "s-1"), "pick")
	s.Submit(y, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitUnknownCall)
	s.Submit(y, "s-1", helix.ToolResult(again.CallID, "red"), helix.SubmitAccepted)
	s.completes(y, other, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, `tool pick: "red"`, "assistant: Done.")
}

func abandonPaused(s *Stage) {
	agent := waitingAgent(withDeadline(onClient("pick"), s.pace(brief)), onClient("tell"))
	x := s.mortal(agent)
	res := s.waitsOn(x, agent, "s-1")
	pick, tell := s.waiting(res, "pick"), s.waiting(res, "tell")
	set := func(from, to session.Status) {
		changed, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: []session.Status{from}, To: to})
		s.ok(err, "set the status")
		s.same(changed.OK, true, "the status was set")
	}
	set(session.Active, session.Paused)
	s.past(pick)
	s.idle(lease) // a sweep or more
	s.same([]any{s.load("s-1").Status, len(s.runs("s-1"))}, []any{session.Paused, 1}, "the session that is held")
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hey!"), AbandonPending: true})
	s.refused(err, helix.ErrPaused)
	s.same(s.Submit(x, "s-1", helix.ToolResult(tell.CallID, "t"), helix.SubmitAccepted).Continuation, helix.CallerResumes, "continuation")
	set(session.Paused, session.Active)
	s.until("the session has completed", func() bool { return s.load("s-1").Status == session.Completed })
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), tell({"n":2})`, timedOut, `tool tell: "t"`, "assistant: Done.")
}

func abandonExpired(s *Stage) {
	now, err := s.store().Now(s.ctx())
	s.ok(err, "now")
	agent := waitingAgent(onClient("pick"), onClient("tell"))
	agent.SessionExpiry = time.Hour
	x := s.mortal(agent)
	s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")}))
	if left := s.load("s-2").ExpiresAt.Sub(now); left < 50*time.Minute || left > 70*time.Minute {
		s.Errorf("a session of an agent whose sessions expire after an hour expires after %s", left)
	}
	res := s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), ExpiresAt: now.Add(s.pace(time.Second))}))
	tell := s.waiting(res, "tell")
	s.Submit(x, "s-1", helix.ToolResult(tell.CallID, "t"), helix.SubmitAccepted)
	s.until("the session has failed", func() bool { return s.load("s-1").Status == session.Failed })
	s.same(s.load("s-1").FailureReason, session.FailureExpired, "why it failed")
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting calls")
	s.same(len(list), 0, "waiting calls")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAlreadyCompleted)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(renderMessage(&messages[3]), `tool tell: "t"`, "what was answered before")
	if messages[2].Parts[0].Error == nil {
		s.Fatalf("a call that nobody answered has the result %s", renderMessage(&messages[2]))
	}
}
