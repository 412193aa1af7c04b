package runtimetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func lifetimeScenarios() []Scenario {
	return []Scenario{
		{"expiry of a session in use", "an old session that is in use does not expire; it does when it has waited for its time to live", lifetimeInUse},
		{"expiry is moved", "the expiry that a turn is given moves that of its session", lifetimeMoved},
		{"answered before the expiry", "an answer is a use: a session that was answered at the last moment can be resumed for as long again, also after a crash", lifetimeAnswered},
		{"answered below", "an answer to a sub-agent is a use of its root", lifetimeAnsweredBelow},
		{"answered and running", "a session whose expiry passes while a run uses an answer does not expire", lifetimeAnsweredRunning},
		{"expiry is seen", "run, session, stream, hooks and one error log line report that a session has expired, and it can be retried", lifetimeSeen},
		{"paused orphan", "a session that was paused while its run was orphaned is resumed: the run continues", lifetimePausedOrphan},
		{"paused after its end", "resuming a session that was paused after its run had ended lifts the pause, and asks no model", lifetimePausedEnded},
		{"paused after its end, cut short", "a session whose process died while it lifted the pause has the status of its run's end", lifetimePausedCutShort},
		{"aborted orphan", "an orphan whose agent no process knows is ended by an abort, whether its lease has expired or not", lifetimeAbortedOrphan},
		{"aborted paused orphan", "a paused orphan is ended by an abort", lifetimeAbortedPaused},
		{"aborted orphan's sub-agent", "a process that dies while it ends an aborted orphan leaves none of its sub-agents at work", lifetimeAbortedBelow},
		{"aborted by its handle", "a run that waits is aborted by its handle, and an old handle aborts no later run", lifetimeHandle},
		{"abandoned calls reported", "calls that a new message abandons are reported to hooks and stream, also after a crash", lifetimeLeftCalls},
		{"renewal at the end", "a lease that is released while it is being renewed is not taken for lost", lifetimeRenewal},
		{"companion failed from outside", "a caller that waits for a companion is woken when a process that does not know the companion fails it", lifetimeCompanion},
	}
}

// lives is how long sessions may wait in these scenarios: longer than a few sweeps.
const lives = 4 * lease

func lifetimeInUse(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello."), scripted.Call("pick", num{1}), scripted.Text("Done.")).ByPosition(), onClient("pick"))
	agent.SessionExpiry = s.pace(lives)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	first := s.load("s-1").ExpiresAt
	s.until("the session is older than sessions may wait", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now.After(first)
	})
	res := s.Say(x, agent, "s-1", "Choose!")
	s.ended(res, helix.SuspendedClientTool)
	s.becomes("s-1", session.Failed)
	runs := s.runs("s-1")
	s.same(len(runs), 3, "runs")
	if waited := runs[2].StartedAt.Sub(runs[1].EndedAt); waited < agent.SessionExpiry-lease/4 { // clocks may differ
		s.Fatalf("the session waited for %s, and may for %s", waited, agent.SessionExpiry)
	}
}

func lifetimeMoved(s *Stage) {
	now, err := s.store().Now(s.ctx())
	s.ok(err, "now")
	agent := newAgent(scripted.New(scripted.Text("Hello."), scripted.Call("pick", num{1}), scripted.Call("pick", num{2}), scripted.Text("Bye.")).ByPosition(), onClient("pick"))
	x := s.mortal(agent)
	say := func(text string, expires time.Time) *helix.Result {
		return s.Result(s.Execute(x, agent, helix.Input{
			SessionID: "s-1", Message: helix.UserText(text), ExpiresAt: expires, AbandonPending: true,
		}))
	}
	s.ended(say("Hi!", now.Add(-time.Minute)), helix.Completed)
	later := now.Add(time.Hour).UTC().Truncate(time.Second)
	s.ended(say("Choose!", later), helix.SuspendedClientTool)
	s.same(s.load("s-1").ExpiresAt.UTC(), later, "the expiry that was moved")
	s.idle(lease) // a sweep or more
	s.same(s.load("s-1").Status, session.Active, "status of a session whose time is not up")
	say("Again!", now)
	s.becomes("s-1", session.Failed)
	// What has passed was for the time in which nobody used the session.
	s.ended(say("Once more!", time.Time{}), helix.Completed)
	s.same(s.load("s-1").ExpiresAt.IsZero(), true, "the expiry is removed")
}

func lifetimeAnswered(s *Stage) {
	var ran tally
	s.answerLate(waitingAgent(guarded(&ran, "pay")))
	s.same(ran.of("pay"), 1, "payments")
}

func lifetimeAnsweredBelow(s *Stage) {
	var ran tally
	s.answerLate(treeOf(guarded(&ran, "pay")))
	s.same(ran.of("pay"), 1, "payments")
}

// answerLate begins two sessions, approves the call that each waits for shortly before they
// expire, and kills the process. After the expiry, one is resumed in another process. The other
// one expires when it has waited for as long again.
func (s *Stage) answerLate(agent *helix.Agent) {
	s.Helper()
	agent.SessionExpiry = s.pace(lives)
	now := func() time.Time {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now
	}
	x := s.mortal(agent)
	x.(*process).faults.noSweep.Store(true)
	resumed := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	left := s.waiting(s.waitsOn(x, agent, "s-2"), "pay")
	expiry := s.load("s-1").ExpiresAt
	s.until("the sessions are about to expire", func() bool { return now().After(expiry.Add(-agent.SessionExpiry / 4)) })
	answered := now()
	s.Submit(x, "s-1", approve(resumed.CallID, resumed.ApprovalID), helix.SubmitAccepted)
	s.Submit(x, "s-2", approve(left.CallID, left.ApprovalID), helix.SubmitAccepted)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.until("the expiry is moved", func() bool { return s.load("s-1").ExpiresAt.After(expiry) })
	s.completes(y, agent, "s-1")
	s.becomes("s-2", session.Failed)
	runs := s.runs("s-2")
	if waited := runs[len(runs)-1].StartedAt.Sub(answered); waited < agent.SessionExpiry-lease/4 { // clocks may differ
		s.Fatalf("the session waited for %s after the answer, and may for %s", waited, agent.SessionExpiry)
	}
}

func lifetimeAnsweredRunning(s *Stage) {
	g := s.newGate()
	pay := blocking(g)
	pay.Approval = helix.RequireApproval
	agent := waitingAgent(pay)
	x := s.Start(agent)
	now, err := s.store().Now(s.ctx())
	s.ok(err, "now")
	expires := now.Add(s.pace(time.Second))
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), ExpiresAt: expires})
	p := s.waiting(s.Result(run), "wait")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	run = s.Resume(x, "s-1", helix.ResumeOptions{})
	s.receive("the call is carried out", g.entered)
	s.until("the expiry has passed", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now.After(expires)
	})
	done, err := x.Cleanup(s.ctx(), "")
	s.ok(err, "cleanup")
	s.same(fmt.Sprint(done.Detected-done.Running, done.Marked, done.Errors), "0 0 []", "sessions that are cleaned up")
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.same(s.hasLogged("msg=sweep.failed"), false, "a sweep has failed")
}

func lifetimeSeen(s *Stage) {
	var j journal
	agent := newAgent(scripted.New(scripted.Call("pick", num{1}), scripted.Text("Done.")).ByPosition(), onClient("pick"))
	agent.SessionExpiry = s.pace(lives)
	agent.Hooks = tracing(&j, "")
	agent.Hooks.OnMessage, agent.Hooks.BeforeTool, agent.Hooks.AfterTool = nil, nil, nil
	agent.Hooks.BeforeLLMCall, agent.Hooks.AfterLLMCall = nil, nil
	x := s.mortal(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.becomes("s-1", session.Failed)
	run := s.Attach(x, "s-1")
	s.failed(s.Result(run), helix.ErrExpired)
	state := s.load("s-1")
	s.refused(state.Error, helix.ErrExpired)
	s.same(state.FailureReason, session.FailureExpired, "why it failed")
	items := s.collect(run)
	last := items[len(items)-1]
	s.same(last.Frame, stream.FrameFail, "how the stream ends")
	s.refused(last.Error, helix.ErrExpired)
	s.until("hooks are told", func() bool { return j.String() == "start 1\nsuspended suspended_client_tool\nfail session_expired" })
	s.logged("level=ERROR", "msg=run.failed", "session=s-1", "run="+run.ID(), "code=session_expired")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, "tool pick failed: client_tool_abandoned")
	s.logged("level=ERROR", "msg=run.failed", "tenant=default", "session=s-1", "run="+run.ID(), "agent=agent", "code=session_expired")
	s.same(strings.Count(s.Log.String(), "msg=run.failed"), 1, "lines that tell of the failure")
	s.Submit(x, "s-1", helix.ToolResult(res.Pending[0].CallID, "blue"), helix.SubmitAlreadyCompleted)
	s.same(s.Result(s.Retry(x, "s-1")).Status.Suspended(), true, "a retry asks again")
}

func lifetimeCompanion(s *Stage) {
	var ran tally
	signing := make(chan struct{})
	close(signing)
	agent := patient(asking(&ran), signing)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	bob := s.companion("bob")
	s.until("the companion waits", func() bool {
		run, err := s.store().CurrentRun(s.ctx(), bob)
		return err == nil && run.Status.Suspended()
	})
	y := s.StartOther(Options{})
	s.ok(y.Abort(s.ctx(), bob, "not needed"), "abort")
	s.becomes("s-1", session.Completed)
	s.refused(s.result(helix.WaitForResultTool).Error, code(session.CodeSubAgent), "not needed")
	s.same(s.runs(bob)[1].Status, session.RunFailed, "the companion's last run")
	// Where nobody knows its agent, too, a run that was aborted is no error.
	s.logged("level=INFO", "msg=run.failed", "session="+bob, "run="+s.runs(bob)[1].ID, "code=framework_cancelled", "not needed")
	s.same(strings.Count(s.Log.String(), "msg=run.failed"), 1, "lines that tell of the failure")
}

// pause pauses s-1 as soon as no process works on it.
func (s *Stage) pause() {
	s.Helper()
	s.until("the session can be paused", func() bool {
		done, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: session.Statuses(), To: session.Paused})
		return err == nil && done.OK
	})
}

func lifetimePausedOrphan(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("one"))))
	run := s.orphan(agent, g)
	s.pause()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	_, err := y.Resume(s.ctx(), "s-1", helix.ResumeOptions{Message: new(helix.UserText("Hello?"))})
	s.refused(err, helix.ErrAlreadyRunning, "paused")
	s.same(s.load("s-1").Status, session.Paused, "status after a resume that was refused")
	again := s.Resume(y, "s-1", helix.ResumeOptions{})
	s.same(again.ID(), run.ID(), "the run that continues")
	s.ended(s.Result(again), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: one")
	s.same(len(s.runs("s-1")), 1, "runs")
}

func lifetimePausedEnded(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Fail(session.CodeProvider, false, "broken"), scripted.Text("three")))
	x := s.Start(agent)
	first := s.Say(x, agent, "s-1", "Hi!")
	s.pause()
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.same(run.ID(), first.RunID, "the run that is given")
	res := s.Result(run)
	s.ended(res, helix.Completed)
	s.same(res.Text, "one", "its reply")
	s.same([]any{s.load("s-1").Status, len(s.runs("s-1"))}, []any{session.Completed, 1}, "the session and its runs")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable)
	s.failed(s.Say(x, agent, "s-1", "More!"), code(session.CodeProvider))
	s.pause()
	s.failed(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), code(session.CodeProvider))
	s.same([]any{s.load("s-1").Status, len(s.runs("s-1"))}, []any{session.Failed, 2}, "the session and its runs")
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
}

func lifetimePausedCutShort(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	letGo := func() {
		s.Helper()
		s.pause()
		done, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: []session.Status{session.Paused}, To: session.Active})
		s.ok(err, "set status")
		s.same(done.OK, true, "whether the session is active")
	}
	letGo()
	can, err := x.CanResume(s.ctx(), "s-1")
	s.ok(err, "can resume")
	s.same(can.OK, false, "whether it can be resumed")
	s.refused(can.Reason, helix.ErrNotResumable)
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable)
	s.same([]any{s.load("s-1").Status, len(s.runs("s-1"))}, []any{session.Completed, 1}, "the session and its runs")
	letGo()
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: one", "user: More!", "assistant: two")
}

func lifetimeAbortedOrphan(s *Stage) {
	for _, live := range []bool{true, false} {
		t := s.withNewBackend()
		g := t.newGate()
		agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))))
		run := t.orphan(agent, g)
		other := named("other", scripted.New())
		y := t.StartOther(Options{Agents: []*helix.Agent{other}, LeaseTTL: lease})
		if !live {
			t.until("no process has continued the run for a while", func() bool {
				now, err := t.store().Now(t.ctx())
				t.ok(err, "now")
				return now.Sub(t.load("s-1").Lease.ExpiresAt) > lease
			})
		}
		t.ok(y.Abort(t.ctx(), "s-1", "the agent is gone"), "abort")
		t.becomes("s-1", session.Failed)
		again := t.Attach(y, "s-1")
		t.same(again.ID(), run.ID(), "the run that was ended")
		t.failed(t.Result(again), helix.ErrCancelled, "the agent is gone")
		t.checkSessions()
	}
}

func lifetimeAbortedPaused(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))))
	s.orphan(agent, g)
	s.pause()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ok(y.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.becomes("s-1", session.Failed)
	s.failed(s.Result(s.Attach(y, "s-1")), helix.ErrCancelled, "enough")
}

func lifetimeAbortedBelow(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))))
	agent := with(newAgent(scripted.New(hand("helper", "do it"), scripted.Text("Done."))), helper)
	s.orphan(agent, g)
	child := s.child("s-1")
	backend := s.newFrail(s.Backend)
	died := s.newGate()
	backend.faults.taking = func(take *session.TakeOver) {
		if take.SessionID == child {
			backend.kill()
			died.enter()
		}
	}
	y := s.startOn(backend, Options{Agents: []*helix.Agent{named("other", scripted.New())}, LeaseTTL: lease})
	s.ok(y.Abort(s.ctx(), "s-1", "the agent is gone"), "abort")
	s.receive("the process that ends the orphan dies", died.entered)
	y.Kill()
	s.same([]any{s.load("s-1").Status, s.load(child).Status}, []any{session.Failed, session.Active}, "the orphan and its sub-agent")
	z := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.becomes(child, session.Failed)
	s.nothingRuns()
	s.ended(s.Say(z, agent, "s-1", "Never mind."), helix.Completed)
}

func lifetimeHandle(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("pick", num{1}), scripted.Text("Done."), scripted.Call("pick", num{2})).ByPosition(), onClient("pick"))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.SuspendedClientTool)
	s.ok(run.Abort(s.ctx(), "enough"), "abort")
	s.becomes("s-1", session.Failed)
	s.failed(s.Result(s.Attach(x, "s-1")), helix.ErrCancelled, "enough")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.SuspendedClientTool)
	s.refused(run.Abort(s.ctx(), "too late"), helix.ErrStale)
	s.same(s.load("s-1").Status, session.Active, "status after an abort of an earlier run")
}

func lifetimeLeftCalls(s *Stage) {
	var j journal
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("pick", num{2}), scripted.Calling("tell", num{3})),
		scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("Done.")),
	).ByPosition(), double(), onClient("pick"), withDeadline(onClient("tell"), s.pace(brief)))
	agent.Hooks = helix.Hooks{
		OnMessage: func(_ context.Context, _ *helix.HookContext, e helix.MessageEvent) error {
			if e.Message.Role == session.RoleTool {
				j.add("message %s", renderMessage(&e.Message))
			}
			return nil
		},
		AfterTool: func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
			j.add("after %s %v", e.Tool, e.Error == nil)
			return nil
		},
	}
	backend := s.newFrail(s.Backend)
	backend.faults.noSweep.Store(true) // the deadline is left to the next message
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	res := s.waitsOn(x, agent, "s-1")
	s.same(j.String(), "", "what hooks are told before the step is over")
	s.past(s.waiting(res, "tell"))
	s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Never mind."), AbandonPending: true})
	s.receive("the model is asked", g.entered)
	want := "message tool double: 2\nafter double true\n" +
		"message tool pick failed: client_tool_abandoned\nafter pick false\n" +
		"message tool tell failed: client_tool_timeout\nafter tell false"
	s.same(j.String(), want, "what hooks are told")
	var ends []stream.Chunk
	s.until("the stream has the ends of the calls", func() bool { // it may be behind
		ends = ofKind(s.chunks("s-1"), stream.ToolEnd)
		return len(ends) >= 3
	})
	for i, tool := range []string{"double", "pick", "tell"} {
		s.same([]any{ends[i].Tool, ends[i].Success}, []any{tool, i == 0}, "end %d", i+1)
	}
	x.Kill()
	_, run := s.heir(agent)
	s.ended(s.Result(run), helix.Completed)
	s.same(j.String(), want+"\n"+want, "what hooks are told by who takes the run over before it has committed")
	s.same(len(ofKind(s.chunks("s-1"), stream.ToolEnd)), 3, "ends of calls after the takeover")
}

func lifetimeRenewal(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("Done.")), blocking(g))
	backend := s.newFrail(s.Backend)
	renewing, closed := s.newGate(), s.newGate()
	backend.faults.renewing = func() {
		renewing.enter()
		<-closed.open
	}
	backend.faults.closed = func() {
		closed.release()
		s.idle(lease / 4) // the renewal finds that the lease is nobody's, while the turn is still held
	}
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: s.pace(4 * lease)})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.receive("the lease is being renewed", renewing.entered)
	g.release()
	s.ended(s.Result(run), helix.Completed)
	if log := s.Log.String(); strings.Contains(log, "lease.lost") || strings.Contains(log, "turn.released") {
		s.Fatal("the turn was released as it ended")
	}
}
