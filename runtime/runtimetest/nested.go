package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func nestedScenarios() []Scenario {
	return []Scenario{
		{"two levels", "a sub-agent's wait suspends its parent", func(s *Stage) { nestedLevels(s, 1) }},
		{"three levels", "a wait at the third level suspends every level, and resuming the root continues every level", func(s *Stage) { nestedLevels(s, 2) }},
		{"five levels", "a wait at the fifth level suspends every level, and resuming the root continues every level", func(s *Stage) { nestedLevels(s, 4) }},
		{"denial", "a denial reaches the tool call at the bottom", nestedDenial},
		{"client tool", "a result submitted at the root is the result of the call at the bottom", nestedClientTool},
		{"at the child", "an answer may also be submitted at the session that made the call", nestedAtChild},
		{"another root", "a call of a tree is unknown at another root", nestedAnotherRoot},
		{"approver", "a policy below the root sees who answers, whose session it is, and where the call was made", nestedApprover},
		{"two children", "of two children that wait, exactly the one that was answered continues", nestedTwoChildren},
		{"two calls", "a child with two calls continues with each as it is answered", nestedTwoCalls},
		{"same provider id", "two children whose provider repeats a call id are answered each for itself", nestedSameID},
		{"partial", "answers at several depths may come in parts and in any order", nestedPartial},
		{"wide", "of many children that wait, each resume continues one of them", nestedWide},
		{"waits again", "an agent at the bottom may wait again and again", nestedAgain},
		{"nothing answered", "resuming without an answer is refused and names the calls of every depth", nestedNothing},
		{"slow sibling", "an answer that comes while the root is busy elsewhere is picked up by the same run", nestedSlowSibling},
		{"every moment", "an answer that comes just before or after a commit of any level is not lost", nestedMoments},
		{"race", "an answer that races with the suspension of its ancestors is not lost", nestedRace},
		{"two resumes", "of concurrent resumes from two processes one continues the session, and the tool runs once", nestedTwoResumes},
		{"deadline at a resume", "a deadline at the bottom that passed is a timeout when the root is resumed", nestedDeadlineTouch},
		{"deadline swept", "a deadline at the bottom that passed resumes the tree without a request", nestedDeadlineSwept},
		{"abandoned", "a message that abandons pending calls ends the waits of every level", nestedAbandoned},
		{"abort", "aborting a root that waits ends every level", nestedAbort},
		{"rewind", "resuming from a checkpoint ends the children that were called after it", nestedRewind},
		{"killed before the resume", "an answer submitted before the process died is used by the next one", nestedKilledBefore},
		{"killed in the resumed tree", "a tree whose process dies while it continues is taken over, and the approved call does not run twice", nestedKilledAmid},
		{"killed while suspending", "a tree whose process dies while its levels suspend, one by one, waits as if it had not died", nestedKilledSuspending},
		{"suspended late", "a sub-agent whose former process suspends it at the moment of the takeover waits as if nothing had happened", nestedSuspendedLate},
		{"woken late", "a process that wakes after its run was taken over leaves the sub-agent to the other process", nestedWokenLate},
		{"not by itself", "the session of a sub-agent is resumed only through its root", nestedNotByItself},
		{"paused child", "the root waits for a paused sub-agent until an operator resumes it", nestedPaused},
		{"hooks", "hooks see suspension and resumption at every level, with the run that suspended", nestedHooks},
		{"stream", "children that pause do not end the root's stream, which pauses once", nestedStream},
	}
}

// signing is an agent that needs a signature.
func signing(ran *tally) *helix.Agent {
	return named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")).ByPosition(), guarded(ran, "sign"))
}

func nestedNotByItself(s *Stage) {
	var ran tally
	child := signing(&ran)
	agent := tower(1, child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	below := s.lineage("s-1")[1]
	s.approve(x, "sign")
	_, err := x.Resume(s.ctx(), below, helix.ResumeOptions{})
	s.refused(err, helix.ErrInvalid, "s-1")
	_, err = x.Execute(s.ctx(), child, helix.Input{SessionID: below, Message: helix.UserText("Hi!"), AbandonPending: true})
	s.refused(err, helix.ErrInvalid, "s-1")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func nestedSuspendedLate(s *Stage) {
	var ran tally
	var taken sync.Once
	var refused atomic.Bool // a runtime that has cancelled the turn cancels its writes, too
	agent, late := tower(1, signing(&ran)), s.newGate()
	backend, other := s.newFrail(s.Backend), s.newFrail(s.Backend)
	backend.faults.committing = func(commit *session.Commit) {
		if commit.SessionID != "s-1" && commit.Outcome != nil {
			late.enter()
			<-late.open // it is on its way to the store for so long
		}
	}
	backend.faults.notCommitted = func(*session.Commit) { refused.Store(true) }
	other.faults.taking = func(take *session.TakeOver) {
		if take.SessionID == "s-1" {
			return
		}
		taken.Do(func() {
			late.release()
			s.until("the sub-agent waits", func() bool { return refused.Load() || s.run(take.SessionID, take.RunID).Status.Suspended() })
		})
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent suspends", late.entered)
	backend.faults.noRenew.Store(true)
	y := s.startOn(other, Options{Agents: []*helix.Agent{agent}, LeaseTTL: 10 * lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.SuspendedAwaitingChildren)
	s.approve(y, "sign")
	s.ended(s.resumed(y), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func nestedWokenLate(s *Stage) {
	var ran tally
	agent, late, gone := tower(1, signing(&ran)), s.newGate(), s.newGate()
	backend := s.newFrail(s.Backend)
	backend.faults.committing = func(commit *session.Commit) {
		if commit.SessionID != "s-1" && commit.Outcome != nil {
			late.enter()
			<-late.open // for so long the process is stopped
		}
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, Observers: []helix.Observer{lossOf{gone.enter}}})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the sub-agent suspends", late.entered)
	backend.faults.noRenew.Store(true)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: 10 * lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.SuspendedAwaitingChildren)
	s.approve(y, "sign")
	late.release()
	backend.faults.noRenew.Store(false)
	s.receive("the first process gives the run up", gone.entered)
	s.same(s.load(s.lineage("s-1")[1]).Turn, 1, "turns of the sub-agent")
	s.ended(s.resumed(y), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

// lossOf is an observer that tells when its process has lost the run of session s-1.
type lossOf struct{ tell func() }

// Begin implements [helix.Observer].
func (l lossOf) Begin(ctx context.Context, a *helix.Activity) (context.Context, func(*helix.Ending)) {
	if a.Kind != helix.ActivityRun || a.SessionID != "s-1" {
		return ctx, nil
	}
	return ctx, func(end *helix.Ending) {
		if end.Lost {
			l.tell()
		}
	}
}

func nestedPaused(s *Stage) {
	var ran tally
	agent := tower(1, signing(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	below := s.lineage("s-1")[1]
	hold := func(from, to session.Status) {
		done, err := s.store().SetStatus(s.ctx(), below, session.StatusChange{Expect: []session.Status{from}, To: to})
		s.ok(err, "set the status")
		s.same(done.OK, true, "whether it was %s", from)
	}
	hold(session.Active, session.Paused)
	s.approve(x, "sign")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	hold(session.Paused, session.Active)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

// approve approves the only call of session s-1 that waits for a tool.
func (s *Stage) approve(x helix.Executor, tool string) *helix.Submitted {
	s.Helper()
	p := s.open(x, tool)
	return s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
}

// resumed resumes session s-1 and waits for the end of the run.
func (s *Stage) resumed(x helix.Executor) *helix.Result {
	s.Helper()
	return s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
}

// nobodyWaits checks that no call below session s-1 waits.
func (s *Stage) nobodyWaits(x helix.Executor) {
	s.Helper()
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting")
	s.same(len(list), 0, "calls that wait")
}

func nestedLevels(s *Stage, above int) {
	var ran tally
	agent := tower(above, signing(&ran))
	x := s.Start(agent)
	first := s.Say(x, agent, "s-1", "Hi!")
	s.ended(first, helix.SuspendedAwaitingChildren)
	ids := s.lineage("s-1")
	s.same(len(ids), above+1, "levels")
	lowest := ids[above]
	for i, id := range ids {
		want := helix.SuspendedAwaitingChildren
		if id == lowest {
			want = helix.SuspendedClientTool
		}
		res := s.Result(s.Attach(x, id))
		s.ended(res, want)
		s.same(fmt.Sprint(len(res.Pending), res.Pending[0].Tool, res.Pending[0].SessionID), fmt.Sprint(1, "sign", lowest), "what level %d waits for", i+1)
		state := s.load(id)
		s.same(state.Status, session.Active, "status of level %d", i+1)
		s.same(res.SuspendedStep, s.messages(id)[1].ID, "the step in which level %d waits", i+1)
		var awaited []string
		for _, ref := range res.Children {
			awaited = append(awaited, ref.SessionID)
		}
		s.same(awaited, ids[i+1:min(i+2, len(ids))], "the agents that level %d waits for", i+1)
		list, err := x.Waiting(s.ctx(), id)
		s.ok(err, "waiting")
		s.same(len(list), 1, "calls below level %d", i+1)
		if id != lowest {
			ref := s.children(id)[0]
			s.same(fmt.Sprint(ref.Status, ref.Awaited, len(state.AwaitingChildren)), fmt.Sprint(session.ChildWaiting, true, 1), "the reference of level %d", i+1)
		}
	}
	s.same(ran.of("sign"), 0, "signatures")
	out := s.approve(x, "sign")
	s.same(fmt.Sprint(out.Continuation, out.SessionID, out.RootID), fmt.Sprint(helix.CallerResumes, lowest, "s-1"), "the answer")
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.transcript(lowest, "user: do it", `assistant: sign({"n":3})`, "tool sign: 6", "assistant: signed")
	for i, id := range ids {
		runs := s.runs(id)
		s.same(fmt.Sprint(len(runs), runs[1].Kind, runs[1].PreviousRunID), fmt.Sprint(2, session.RunResume, runs[0].ID), "runs of level %d", i+1)
		s.same(s.load(id).Status, session.Completed, "status of level %d", i+1)
		s.same(len(s.load(id).AwaitingChildren), 0, "children that level %d awaits", i+1)
	}
	s.nobodyWaits(x)
	s.bracketed("s-1")
	s.Submit(x, "s-1", approve(first.Pending[0].CallID, first.Pending[0].ApprovalID), helix.SubmitAlreadyCompleted)
}

func nestedDenial(s *Stage) {
	var ran tally
	agent := tower(2, signing(&ran))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "sign")
	s.Submit(x, "s-1", deny(p.CallID, p.ApprovalID, "too dear"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 0, "signatures")
	s.transcript(p.SessionID, "user: do it", `assistant: sign({"n":3})`, "tool sign failed: tool_not_approved", "assistant: signed")
}

func nestedClientTool(s *Stage) {
	agent := tower(2, named("child", scripted.New(scripted.Call("choose", num{3}), scripted.Text("blue")).ByPosition(), onClient("choose")))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "choose")
	_, err := x.Submit(s.ctx(), "s-1", approve(p.CallID, "apr_1"))
	s.refused(err, helix.ErrSubmissionKind)
	s.Submit(x, "s-1", helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.transcript(p.SessionID, "user: do it", `assistant: choose({"n":3})`, `tool choose: "blue"`, "assistant: blue")
}

func nestedAtChild(s *Stage) {
	var ran tally
	agent := tower(2, signing(&ran))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "sign")
	out := s.Submit(x, p.SessionID, approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.same(fmt.Sprint(out.Continuation, out.RootID), fmt.Sprint(helix.CallerResumes, "s-1"), "the answer")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAlreadyCompleted)
	s.nobodyWaits(x)
	s.ended(s.resumed(x), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func nestedAnotherRoot(s *Stage) {
	var ran tally
	agent := tower(2, signing(&ran))
	x := s.Start(agent)
	p := s.waiting(s.Say(x, agent, "s-1", "Hi!"), "sign")
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.SuspendedAwaitingChildren)
	s.Submit(x, "s-2", approve(p.CallID, p.ApprovalID), helix.SubmitUnknownCall)
	_, err := x.Tenant("acme").Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
	s.refused(err, session.ErrNotFound)
	s.same(s.open(x, "sign").State, session.PendingWaiting, "the wait")
	s.same(ran.of("sign"), 0, "signatures")
}

func nestedApprover(s *Stage) {
	var ran tally
	var j journal
	child := signing(&ran)
	child.Tools[0].Approver = func(_ context.Context, a *helix.Answer) error {
		j.add("%s for %s: %s of %s", a.By.ID, a.Owner, a.Tool, a.RootID)
		if a.By.ID != "boss" {
			return errors.New("only the boss signs")
		}
		return nil
	}
	agent := tower(2, child)
	x := s.Start(agent)
	res := s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}}))
	p := s.waiting(res, "sign")
	_, err := x.Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "alice"}))
	s.refused(err, session.ErrNotAllowed, "only the boss signs")
	_, err = s.StartOther(Options{}).Submit(s.ctx(), "s-1", helix.Approve(p, helix.User{ID: "boss"}))
	s.refused(err, session.ErrUnknownAgent, "child", "sign")
	s.Submit(x, "s-1", helix.Approve(p, helix.User{ID: "boss"}), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(j.String(), "alice for alice: sign of s-1\nboss for alice: sign of s-1", "what the policy was asked")
	s.same(ran.of("sign"), 1, "signatures")
}

// pair is an agent with two children that wait.
func pair(ran *tally, calls ...scripted.Part) *helix.Agent {
	agent := newAgent(scripted.New(scripted.Reply(handing("left", "do it"), handing("right", "do it")), scripted.Text("Thanks.")).ByPosition())
	for i, name := range []string{"left", "right"} {
		call := scripted.Calling(name+"-sign", num{i})
		if len(calls) > 0 {
			call = call.WithID("call-1")
		}
		with(agent, named(name, scripted.New(scripted.Reply(call), scripted.Text(name+" signed")).ByPosition(), guarded(ran, name+"-sign")))
	}
	return agent
}

func nestedTwoChildren(s *Stage) {
	var ran tally
	agent := pair(&ran)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	left, right := s.waiting(res, "left-sign"), s.waiting(res, "right-sign")
	s.approve(x, "right-sign")
	res = s.resumed(x)
	s.ended(res, helix.SuspendedStepPartial)
	s.same(len(res.Pending), 1, "calls that wait")
	s.same([]int{len(s.runs(left.SessionID)), len(s.runs(right.SessionID))}, []int{1, 2}, "runs of the children")
	s.same([]int{ran.of("left-sign"), ran.of("right-sign")}, []int{0, 1}, "signatures")
	s.approve(x, "left-sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same([]int{len(s.runs(left.SessionID)), len(s.runs(right.SessionID))}, []int{2, 2}, "runs of the children")
	s.same([]int{ran.of("left-sign"), ran.of("right-sign")}, []int{1, 1}, "signatures")
	s.transcript("s-1", "user: Hi!", `assistant: subagent__left({"task":"do it"}), subagent__right({"task":"do it"})`,
		`tool subagent__left: "left signed"`, `tool subagent__right: "right signed"`, "assistant: Thanks.")
	s.bracketed("s-1")
}

func nestedTwoCalls(s *Stage) {
	var ran tally
	agent := tower(2, named("child", scripted.New(
		scripted.Reply(scripted.Calling("sign", num{1}), scripted.Calling("choose", num{2}), scripted.Calling("double", num{3})), scripted.Text("done"),
	).ByPosition(), guarded(&ran, "sign"), onClient("choose"), double()))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.same(len(res.Pending), 2, "calls that wait")
	id := res.Pending[0].SessionID
	s.ended(s.Result(s.Attach(x, id)), helix.SuspendedStepPartial)
	s.Submit(x, "s-1", helix.ToolResult(s.open(x, "choose").CallID, "blue"), helix.SubmitAccepted)
	res = s.resumed(x)
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.same(len(res.Pending), 1, "calls that wait")
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.transcript(id, "user: do it", `assistant: sign({"n":1}), choose({"n":2}), double({"n":3})`,
		"tool sign: 2", `tool choose: "blue"`, "tool double: 6", "assistant: done")
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 3, "runs of %s", id)
	}
	s.same(ran.of("sign"), 1, "signatures")
}

func nestedSameID(s *Stage) {
	var ran tally
	agent := pair(&ran, scripted.Part{})
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	left, right := s.waiting(res, "left-sign"), s.waiting(res, "right-sign")
	if left.CallID == right.CallID || left.SessionID == right.SessionID {
		s.Fatalf("both children wait for call %s of session %s", left.CallID, left.SessionID)
	}
	for _, p := range res.Pending {
		s.same(s.messages(p.SessionID)[1].Calls()[0].ProviderCallID, "call-1", "the provider's id")
	}
	s.Submit(x, "s-1", deny(left.CallID, left.ApprovalID, "no"), helix.SubmitAccepted)
	_, err := x.Submit(s.ctx(), "s-1", approve(right.CallID, left.ApprovalID))
	s.refused(err, helix.ErrSubmissionKind, "approval id")
	s.Submit(x, "s-1", approve(right.CallID, right.ApprovalID), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same([]int{ran.of("left-sign"), ran.of("right-sign")}, []int{0, 1}, "signatures")
	s.transcript(left.SessionID, "user: do it", `assistant: left-sign({"n":0})`, "tool left-sign failed: tool_not_approved", "assistant: left signed")
	s.transcript(right.SessionID, "user: do it", `assistant: right-sign({"n":1})`, "tool right-sign: 2", "assistant: right signed")
}

// deep waits at each of three levels: for pick at the root, for pay below, for sign
// and choose at the bottom.
func deep(ran *tally) *helix.Agent {
	lowest := named("lowest", scripted.New(scripted.Reply(scripted.Calling("sign", num{1}), scripted.Calling("choose", num{2})), scripted.Text("low")).ByPosition(),
		guarded(ran, "sign"), onClient("choose"))
	middle := with(named("middle", scripted.New(scripted.Reply(scripted.Calling("pay", num{3}), handing("lowest", "do it")), scripted.Text("mid")).ByPosition(),
		guarded(ran, "pay")), lowest)
	return with(newAgent(scripted.New(scripted.Reply(handing("middle", "do it"), scripted.Calling("pick", num{4})), scripted.Text("Thanks.")).ByPosition(),
		onClient("pick")), middle)
}

// answer answers a call of deep.
func (s *Stage) answer(x helix.Executor, tool string) {
	s.Helper()
	if p := s.open(x, tool); p.Kind == session.PendingApproval {
		s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	} else {
		s.Submit(x, "s-1", helix.ToolResult(p.CallID, tool), helix.SubmitAccepted)
	}
}

// wentDeep checks that deep has completed.
func (s *Stage) wentDeep(ran *tally) {
	s.Helper()
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"}), pick({"n":4})`,
		`tool subagent__middle: "mid"`, `tool pick: "pick"`, "assistant: Thanks.")
	ids := s.lineage("s-1")
	s.transcript(ids[1], "user: do it", `assistant: pay({"n":3}), subagent__lowest({"task":"do it"})`, "tool pay: 6", `tool subagent__lowest: "low"`, "assistant: mid")
	s.transcript(ids[2], "user: do it", `assistant: sign({"n":1}), choose({"n":2})`, "tool sign: 2", `tool choose: "choose"`, "assistant: low")
	s.same([]int{ran.of("pay"), ran.of("sign")}, []int{1, 1}, "calls carried out")
	s.bracketed("s-1")
}

func nestedPartial(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.same(len(res.Pending), 4, "calls that wait")
	ids := s.lineage("s-1")
	runs := func() (n []int) {
		for _, id := range ids {
			n = append(n, len(s.runs(id)))
		}
		return n
	}
	for _, step := range []struct {
		tool string
		runs []int
	}{{"pay", []int{2, 2, 1}}, {"choose", []int{3, 3, 2}}, {"pick", []int{4, 3, 2}}} {
		s.answer(x, step.tool)
		s.ended(s.resumed(x), helix.SuspendedStepPartial)
		s.same(runs(), step.runs, "runs of each level after %s", step.tool)
	}
	s.answer(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(runs(), []int{5, 4, 3}, "runs of each level")
	s.wentDeep(&ran)
}

func nestedWide(s *Stage) {
	const width = 6
	child := named("child", scripted.New(scripted.Call("choose", num{3}), scripted.Text("done")).ByPosition(), onClient("choose"))
	calls := make([]scripted.Part, width)
	for i := range calls {
		calls[i] = handing("child", fmt.Sprint(i))
	}
	agent := with(newAgent(scripted.New(scripted.Reply(calls...), scripted.Text("Thanks.")).ByPosition()), child)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.same(len(res.Pending), width, "calls that wait")
	all := res.Pending
	for i := range all {
		p := all[(i*5+2)%width] // in an order of its own
		s.Submit(x, "s-1", helix.ToolResult(p.CallID, i), helix.SubmitAccepted)
		res = s.resumed(x)
		s.same(len(res.Pending), width-1-i, "calls that wait")
		for j := range all {
			want := 2
			if slices.ContainsFunc(res.Pending, func(q session.Pending) bool { return q.CallID == all[j].CallID }) {
				want = 1
			}
			s.same(len(s.runs(all[j].SessionID)), want, "runs of child %d after answer %d", j, i+1)
		}
	}
	s.ended(res, helix.Completed)
	s.same(len(s.runs("s-1")), width+1, "runs of the root")
	s.bracketed("s-1")
}

func nestedAgain(s *Stage) {
	var ran tally
	agent := tower(2, named("child", scripted.New(
		scripted.Call("sign", num{1}), scripted.Call("sign", num{2}), scripted.Call("sign", num{3}), scripted.Text("signed"),
	).ByPosition(), guarded(&ran, "sign")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	for i := range 3 {
		s.approve(x, "sign")
		want := helix.SuspendedAwaitingChildren
		if i == 2 {
			want = helix.Completed
		}
		s.ended(s.resumed(x), want)
	}
	s.same(ran.of("sign"), 3, "signatures")
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 4, "runs of %s", id)
	}
	s.bracketed("s-1")
}

func nestedNothing(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	for _, try := range []func() error{
		func() error { _, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{}); return err },
		func() error {
			_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hello?")})
			return err
		},
	} {
		err := try()
		s.refused(err, helix.ErrAwaitingInput)
		refusal, _ := errors.AsType[*session.Error](err)
		var calls []string
		for _, p := range res.Pending {
			calls = append(calls, p.CallID)
		}
		slices.Sort(calls)
		slices.Sort(refusal.Calls)
		s.same(refusal.Calls, calls, "the calls that are named")
	}
	s.same(len(s.runs("s-1")), 1, "runs")
}

func nestedSlowSibling(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := with(newAgent(scripted.New(scripted.Reply(handing("middle", "do it"), scripted.Calling("wait", num{1})), scripted.Text("Thanks.")).ByPosition(), blocking(g)))
	middle := parent(signing(&ran))
	middle.Name = "middle"
	with(agent, middle)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the slow tool runs", g.entered)
	s.until("the child waits", func() bool {
		list, err := x.Waiting(s.ctx(), "s-1")
		s.ok(err, "waiting")
		return len(list) == 1
	})
	out := s.approve(x, "sign")
	s.same(out.Continuation, helix.ContinuesRunning, "continuation")
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.same(len(s.runs("s-1")), 1, "runs of the root")
	s.same(ran.of("sign"), 1, "signatures")
	s.bracketed("s-1")
}

// moment is a commit of a tree of three levels.
type moment struct {
	level  int
	ends   bool // it suspends the run; else it is the reply's
	before bool // just before it is made
}

func nestedMoments(s *Stage) {
	var moments []moment
	for level := range 3 {
		for _, before := range []bool{true, false} {
			moments = append(moments, moment{level, true, before})
		}
	}
	moments = append(moments, moment{2, false, false}) // the call is known from here on
	for _, m := range moments {
		s.answeredAt(fmt.Sprintf("%+v", m), m)
	}
}

// answeredAt runs three levels and answers the call at the bottom at a moment.
func (s *Stage) answeredAt(what string, at moment) {
	s.Helper()
	t := s.withNewBackend()
	var ran tally
	agent := tower(2, signing(&ran))
	backend := t.newFrail(t.Backend)
	x := t.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	y := t.StartOther(Options{Agents: []*helix.Agent{agent}})
	outcome := make(chan *helix.Submitted, 1)
	var once sync.Once
	hook := func(commit *session.Commit) {
		level := strings.Count(commit.SessionID, "-sub-")
		ends := commit.Outcome != nil && commit.Outcome.Status.Suspended()
		if level != at.level || ends != at.ends || (!ends && len(commit.Pending) == 0) {
			return
		}
		once.Do(func() {
			list, err := y.Waiting(t.ctx(), "s-1")
			if err != nil || len(list) != 1 {
				s.Errorf("%s: %d calls wait, %v", what, len(list), err)
				close(outcome)
				return
			}
			out, err := y.Submit(t.ctx(), "s-1", approve(list[0].CallID, list[0].ApprovalID))
			if err != nil {
				s.Errorf("%s: submit: %v", what, err)
			}
			outcome <- out
		})
	}
	if at.before {
		backend.faults.committing = hook
	} else {
		backend.faults.committed = hook
	}
	res := t.Say(x, agent, "s-1", "Hi!")
	out := <-outcome
	if out == nil {
		s.FailNow()
	}
	s.same(out.Outcome, helix.SubmitAccepted, "%s: outcome", what)
	if out.Continuation == helix.CallerResumes {
		t.ended(res, helix.SuspendedAwaitingChildren)
		res = t.resumed(y)
	}
	if res.Status != helix.Completed {
		s.Fatalf("%s: the answer was %s, but the run ended %s", what, out.Continuation, res.Status)
	}
	s.same(ran.of("sign"), 1, "%s: signatures", what)
	t.bracketed("s-1")
	t.checkSessions()
}

func nestedRace(s *Stage) {
	const rounds = 12
	var ran tally
	agent := tower(2, signing(&ran))
	x, y := s.Start(agent), s.StartOther(Options{Agents: []*helix.Agent{agent}})
	for i := range rounds {
		id := fmt.Sprintf("s-%d", i)
		run := s.Begin(x, agent, id, "Hi!")
		var out *helix.Submitted
		s.until("the answer is taken", func() bool {
			list, err := y.Waiting(s.ctx(), id)
			s.ok(err, "waiting")
			if len(list) == 0 {
				return false
			}
			s.idle(time.Duration(i) * 300 * time.Microsecond) // to meet another commit each time
			out = s.Submit(y, id, approve(list[0].CallID, list[0].ApprovalID), helix.SubmitAccepted)
			return true
		})
		res := s.Result(run)
		if out.Continuation == helix.CallerResumes {
			res = s.Result(s.Resume(y, id, helix.ResumeOptions{}))
		}
		s.ended(res, helix.Completed)
		s.same(ran.of("sign"), i+1, "signatures")
	}
}

func nestedTwoResumes(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := tower(2, named("child", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed")).ByPosition(),
		newTool("sign", func(ctx context.Context, _ *helix.Call, n int) (int, error) { ran.add("sign"); return n, g.pass(ctx) })))
	lowest := agent.Reaches()[2]
	lowest.Tools[0].Approval = helix.RequireApproval
	x, y := s.Start(agent), s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(y, "sign")
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			_, err := []Executor{x, y}[i%2].Resume(s.ctx(), "s-1", helix.ResumeOptions{})
			errs <- err
		}()
	}
	won := 0
	for range cap(errs) {
		err := <-errs
		if err == nil {
			won++
		} else if !errors.Is(err, helix.ErrAlreadyRunning) && !errors.Is(err, session.ErrStale) {
			s.Fatalf("a resume was refused with %v", err)
		}
	}
	s.same(won, 1, "resumes that continued the session")
	g.release()
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 2, "runs of %s", id)
	}
}

// hastyTower is three levels whose lowest does not wait for long, but for as long as a
// busy machine may take to suspend them all.
func (s *Stage) hastyTower() *helix.Agent {
	agent := tower(2, named("child", scripted.New(scripted.Call("choose", num{3}), scripted.Text("nobody there")).ByPosition(), onClient("choose")))
	agent.Reaches()[2].Tools[0].Deadline = s.pace(4 * time.Second)
	return agent
}

// timedOut checks that hastyTower has continued without an answer.
func (s *Stage) timedOut(p session.Pending) {
	s.Helper()
	s.transcript(p.SessionID, "user: do it", `assistant: choose({"n":3})`, "tool choose failed: client_tool_timeout", "assistant: nobody there")
	s.logged("client_tool.timeout", p.CallID)
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 2, "runs of %s", id)
		s.same(s.load(id).Status, session.Completed, "status of %s", id)
	}
}

func nestedDeadlineTouch(s *Stage) {
	agent := s.hastyTower()
	x := s.Start(agent) // it sweeps at its start, and then too seldom
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.ok(x.Shutdown(s.ctx()), "close")
	s.until("the deadline has passed", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now.After(res.Pending[0].Deadline)
	})
	backend := s.newFrail(s.config.Reopen(s.T, s.Backend))
	backend.faults.noSweep.Store(true)
	y := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	s.ended(s.resumed(y), helix.Completed)
	s.timedOut(res.Pending[0])
	s.Submit(y, "s-1", helix.ToolResult(res.Pending[0].CallID, "blue"), helix.SubmitLate)
}

func nestedDeadlineSwept(s *Stage) {
	agent := s.hastyTower()
	x := s.mortal(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.until("the tree continues by itself", func() bool { return s.load("s-1").Status == session.Completed })
	s.timedOut(res.Pending[0])
}

func nestedAbandoned(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.answer(x, "choose")
	again := s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Never mind."), AbandonPending: true}))
	s.ended(again, helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: subagent__middle({"task":"do it"}), pick({"n":4})`,
		"tool subagent__middle failed: client_tool_abandoned", "tool pick failed: client_tool_abandoned", "user: Never mind.", "assistant: Thanks.")
	for _, id := range s.lineage("s-1")[1:] {
		s.same(fmt.Sprint(s.load(id).Status, s.load(id).FailureReason), fmt.Sprint(session.Failed, session.FailureAbandoned), "status of %s", id)
	}
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "the reference")
	s.nobodyWaits(x)
	for _, p := range res.Pending {
		answer := helix.ToolResult(p.CallID, 1)
		if p.Kind == session.PendingApproval {
			answer = approve(p.CallID, p.ApprovalID)
		}
		s.Submit(x, "s-1", answer, helix.SubmitAlreadyCompleted)
	}
	s.same([]int{ran.of("pay"), ran.of("sign")}, []int{0, 0}, "calls carried out")
	s.nothingRuns()
}

func nestedAbort(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedStepPartial)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.until("the session has failed", func() bool { return s.load("s-1").Status == session.Failed })
	s.failed(s.Result(s.Attach(x, "s-1")), helix.ErrCancelled, "enough")
	for _, id := range s.lineage("s-1") {
		s.same(s.load(id).Status, session.Failed, "status of %s", id)
	}
	s.nobodyWaits(x)
	s.bracketed("s-1")
	s.same([]int{ran.of("pay"), ran.of("sign")}, []int{0, 0}, "calls carried out")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func nestedRewind(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	first := s.lineage("s-1")
	again := s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[0].ID}))
	s.ended(again, helix.SuspendedStepPartial)
	s.same(len(again.Pending), 4, "calls that wait")
	refs := s.children("s-1")
	s.same(len(refs), 2, "children")
	s.same(fmt.Sprint(refs[0].Status, refs[1].Status), fmt.Sprint(session.ChildSuperseded, session.ChildWaiting), "the references")
	for _, id := range first[1:] {
		s.same(s.load(id).Status, session.Failed, "status of %s", id)
	}
	list, err := x.Waiting(s.ctx(), "s-1")
	s.ok(err, "waiting")
	s.same(len(list), 4, "calls that wait")
	for _, p := range res.Pending {
		if slices.ContainsFunc(list, func(q session.Pending) bool { return q.CallID == p.CallID }) {
			s.Fatalf("call %s, which was undone, still waits", p.CallID)
		}
	}
}

func nestedKilledBefore(s *Stage) {
	var ran tally
	agent := deep(&ran)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedStepPartial)
	for _, tool := range []string{"sign", "pick", "pay", "choose"} {
		s.answer(x, tool)
	}
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ended(s.resumed(y), helix.Completed)
	s.wentDeep(&ran)
}

func nestedKilledAmid(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Approval = helix.RequireApproval
	agent := tower(2, named("child", scripted.New(scripted.Call("pay", num{3}), scripted.Text("Who knows.")).ByPosition(), tool))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "pay")
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the approved call is carried out", g.entered)
	x.Kill()
	s.takenOver(run, agent)
	s.same(ran.of("pay"), 1, "payments")
	ids := s.lineage("s-1")
	s.transcript(ids[2], "user: do it", `assistant: pay({"n":3})`, "tool pay failed: tool_outcome_unknown", "assistant: Who knows.")
	for _, id := range ids {
		s.same(len(s.runs(id)), 2, "runs of %s", id)
	}
	s.bracketed("s-1")
}

func nestedKilledSuspending(s *Stage) {
	for level := range 3 {
		t := s.withNewBackend()
		t.killedSuspending(level)
	}
}

// killedSuspending kills three levels right after the suspending commit of one.
func (s *Stage) killedSuspending(level int) {
	s.Helper()
	var ran tally
	agent := tower(2, signing(&ran))
	backend := s.newFrail(s.Backend)
	died := make(chan struct{})
	once := sync.OnceFunc(func() { close(died) })
	backend.faults.committed = func(commit *session.Commit) {
		if commit.Outcome != nil && strings.Count(commit.SessionID, "-sub-") == level {
			backend.kill()
			once()
		}
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the process dies", died)
	x.Kill()
	y, run := s.heir(agent)
	s.ended(s.Result(run), helix.SuspendedAwaitingChildren)
	s.approve(y, "sign")
	s.ended(s.resumed(y), helix.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	for _, id := range s.lineage("s-1") {
		s.same(len(s.runs(id)), 2, "runs of %s", id)
	}
	s.bracketed("s-1")
	s.checkSessions()
}

func nestedHooks(s *Stage) {
	var ran tally
	var j journal
	agent := tower(2, signing(&ran))
	hooks := &helix.Hooks{
		OnAgentSuspended: func(_ context.Context, h *helix.HookContext, e helix.AgentSuspendedEvent) error {
			j.add("%s suspends %s, %s, %d", h.Agent, h.RunID, e.Status, len(e.Pending))
			return nil
		},
		OnAgentResumed: func(_ context.Context, h *helix.HookContext, e helix.AgentResumedEvent) error {
			j.add("%s resumes %s, %s", h.Agent, e.PreviousRunID, h.RunID)
			return nil
		},
		OnAgentComplete: heard(&j, "hook", func(helix.AgentCompleteEvent) string { return "completes" }),
	}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Hooks: hooks})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.until("the last hook is told", func() bool { return strings.Contains(j.String(), "hook: agent completes") })
	run := func(level, turn int) string { return s.runs(s.lineage("s-1")[level])[turn].ID }
	s.same(j.String(), strings.Join([]string{
		fmt.Sprintf("child suspends %s, suspended_client_tool, 1", run(2, 0)),
		fmt.Sprintf("level-2 suspends %s, suspended_awaiting_children, 1", run(1, 0)),
		fmt.Sprintf("agent suspends %s, suspended_awaiting_children, 1", run(0, 0)),
		fmt.Sprintf("agent resumes %s, %s", run(0, 0), run(0, 1)),
		fmt.Sprintf("level-2 resumes %s, %s", run(1, 0), run(1, 1)),
		fmt.Sprintf("child resumes %s, %s", run(2, 0), run(2, 1)),
		"hook: child completes", "hook: level-2 completes", "hook: agent completes",
	}, "\n"), "hooks")
}

func nestedStream(s *Stage) {
	var ran tally
	agent := tower(2, signing(&ran))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	items := s.collect(run)
	last := items[len(items)-1]
	s.same(fmt.Sprint(last.Frame, last.End.Status), fmt.Sprint(stream.FrameEnd, stream.EndPaused), "the last item")
	var paused, asked []string
	for _, item := range items {
		switch {
		case item.Chunk == nil:
		case item.Chunk.Kind == stream.RunPaused:
			paused = append(paused, item.Chunk.AgentID)
		case item.Chunk.Kind == stream.ApprovalRequest:
			asked = append(asked, item.Chunk.AgentID)
		}
	}
	ids := s.lineage("s-1")
	s.same(paused, []string{ids[2], ids[1], ids[0]}, "runs that paused")
	s.same(asked, []string{ids[2]}, "approvals that were asked for")
	s.approve(x, "sign")
	again := s.Resume(x, "s-1", helix.ResumeOptions{})
	items = s.collect(again)
	last = items[len(items)-1]
	s.same(fmt.Sprint(last.Frame, last.End.Status), fmt.Sprint(stream.FrameEnd, stream.EndCompleted), "the last item")
	chunks := s.chunks("s-1")
	s.same(len(ofKind(chunks, stream.ApprovalRequest)), 1, "approvals that were asked for")
	s.same(len(ofKind(chunks, stream.RunResumed)), 3, "runs that were resumed")
	s.bracketed("s-1")
}
