package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func stopScenarios() []Scenario {
	return []Scenario{
		{"during the model", "an interrupt during a model call keeps the partial reply, flagged", stopModel},
		{"empty reply", "an interrupt before the model has said anything stores no reply", stopEmpty},
		{"half a call", "of a partial reply with half a call, the text is kept", stopHalfCall},
		{"whole calls", "of a partial reply whole calls are kept, each answered run_stopped", stopWholeCalls},
		{"during a tool", "an interrupt during a tool cancels it and answers its call with run_stopped", stopTool},
		{"finished siblings", "the results of calls that were done before the interrupt stand", stopSiblings},
		{"stubborn tool", "a tool that ignores its cancellation does not delay the interrupt", stopStubborn},
		{"before the start", "an interrupt right after the start stops the run before it asks the model, or in it", stopBeforeStart},
		{"during a retry", "an interrupt ends the wait for another attempt", stopBackoff},
		{"abort the model", "an abort during a model call fails the run as framework_cancelled; the session can continue", stopAbortModel},
		{"abort a tool", "an abort during a tool answers its call and fails the run", stopAbortTool},
		{"interrupt a finish", "an interrupt in a step that finishes, while its other calls run, leaves the run to be resumed", stopInterruptFinish},
		{"abort a finish", "an abort in a step that finishes fails the run as framework_cancelled, without an output", stopAbortFinish},
		{"abort clears output", "an abort clears the session's output, an interrupt does not", stopOutput},
		{"abort over interrupt", "an abort overrides an interrupt, and not the other way round", stopAbortWins},
		{"ended", "a session whose run has ended has nothing to stop", stopEnded},
		{"old handle", "a stop through the handle of an old run never stops a later one", stopOldHandle},
		{"unnoticed", "a stop that arrived too late for its run never stops the next one", stopUnnoticed},
		{"from another process", "an interrupt from another process is noticed at the next step", stopElsewhere},
		{"abort from another process", "an abort from another process is noticed at the next step", stopAbortElsewhere},
		{"heartbeat", "a stop from another process reaches a long call with the heartbeat", stopHeartbeat},
		{"at once", "a stop from another process cancels a model call in flight without waiting for the heartbeat", stopAtOnce},
		{"sub-agent at once", "a stop of a sub-agent's run from another process cancels it without waiting for the heartbeat", stopChildAtOnce},
		{"sub-agent's heartbeat", "a stop of a sub-agent's run from another process reaches a long call with the heartbeat", stopChildHeartbeat},
		{"outlives its reader", "a stop request outlives the process that should have read it", stopOutlives},
		{"sub-agent's reply outlives its reader", "a sub-agent that was lost in a reply is ended by a stop; watchers discard what they saw of it", stopLostReply},
		{"sub-agent's call outlives its reader", "a sub-agent that was lost in a call is ended by a stop, and the call has a result", stopLostCall},
		{"repeated", "a stop may be requested many times", stopRepeated},
	}
}

func stopModel(s *Stage) {
	run, _ := s.stopped(func(run helix.Run) error { return run.Interrupt(s.ctx(), "enough") })
	res := s.Result(run)
	s.ended(res, helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: I was about to {"stop":"interrupt"}`)
	state := s.load("s-1")
	s.same(state.Status, session.Interrupted, "status")
	s.same([]any{state.Interrupt.RunID, state.Interrupt.Reason}, []any{run.ID(), "enough"}, "why it was interrupted")
	if res.Error != nil || state.Error != nil {
		s.Fatalf("an interrupted run has the error %v", res.Error)
	}
}

func stopEmpty(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Think("Hm"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("ok")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: ok")
}

func stopHalfCall(s *Stage) {
	g := s.newGate()
	agent := newAgent(modelFunc(func(ctx context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
		emit(llm.Delta{Kind: llm.DeltaText, Text: "Let me see"})
		emit(llm.Delta{Kind: llm.DeltaCallStart, Tool: "double"})
		emit(llm.Delta{Kind: llm.DeltaCallArgs, Text: `{"n`})
		g.enter()
		<-ctx.Done()
		return &llm.Response{Parts: []session.Part{session.Text("Let me see")}}, ctx.Err()
	}), double())
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: Let me see {"stop":"interrupt"}`)
}

func stopTool(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Call("wait", num{1}), scripted.Text("ok"))
	agent := newAgent(model, blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeRunStopped), "enough", "whether it took effect is unknown")
	s.same(len(model.Requests()), 1, "model calls")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1})`, "tool wait failed: run_stopped", "assistant: ok")
}

func stopSiblings(s *Stage) {
	g := s.newGate()
	done := make(chan struct{})
	quick := newTool("quick", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("wait", num{1}), scripted.Calling("quick", num{2})), scripted.Text("ok")), blocking(g), quick)
	agent.State = helix.StateOf(notes{})
	agent.Hooks.OnStateChange = func(context.Context, *helix.HookContext, helix.StateChangeEvent) error {
		close(done)
		return nil
	}
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("one tool waits", g.entered)
	s.receive("the other one is done", done)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1}), quick({"n":2})`, "tool wait failed: run_stopped", "tool quick: 2")
	s.sameJSON(s.state("s-1"), `{"notes":[2],"last":0}`, "state")
}

func stopStubborn(s *Stage) {
	g := s.newGate()
	finished := make(chan struct{})
	stubborn := newTool("stubborn", func(context.Context, *helix.Call, int) (int, error) {
		defer close(finished)
		g.enter()
		<-g.open
		return 1, nil
	})
	agent := newAgent(scripted.New(scripted.Call("stubborn", num{}), scripted.Text("ok")), stubborn)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: stubborn({"n":0})`, "tool stubborn failed: run_stopped")
	g.release()
	s.receive("the tool returns", finished)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func stopBeforeStart(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Until(nil)), scripted.Text("ok")).ByPosition())
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ok(run.Interrupt(s.ctx(), "changed my mind"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!")
}

func stopBackoff(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Failing(rateLimited(time.Minute))), scripted.Text("ok"))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
}

func rateLimited(after time.Duration) error {
	err := llm.Error(session.CodeRateLimited, true, "slow down")
	err.Cause = &llm.RetryAfterError{After: after}
	return err
}

func stopAbortModel(s *Stage) {
	run, x := s.stopped(func(run helix.Run) error { return run.Abort(s.ctx(), "off with it") })
	res := s.Result(run)
	s.failed(res, helix.ErrCancelled, "off with it")
	s.same(res.Error.Retryable, false, "retryable")
	s.transcript("s-1", "user: Hi!", `assistant: I was about to {"stop":"abort"}`)
	s.same(s.load("s-1").Status, session.Failed, "status")
	agent := newAgent(scripted.New(scripted.Text("ok")))
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	_, err := y.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrNotResumable, "aborted")
	_, err = y.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable)
	s.ended(s.Say(y, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: I was about to {"stop":"abort"}`, "user: Again!", "assistant: ok")
	s.ok(x.Shutdown(s.ctx()), "close")
}

func stopAbortTool(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("ok")), blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(x.Abort(s.ctx(), "s-1", ""), "abort")
	s.failed(s.Result(run), helix.ErrCancelled)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func stopOutput(s *Stage) {
	g, h := s.newGate(), s.newGate()
	agent, _ := finisher(scripted.Finish(report{"one"}),
		scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Reply(scripted.Do(h.enter), scripted.Until(nil)))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	run := s.Begin(x, agent, "s-1", "second")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.sameJSON(string(s.load("s-1").Output), `{"summary":"one"}`, "the output after an interrupt")
	run = s.Begin(x, agent, "s-1", "third")
	s.receive("the model is asked", h.entered)
	s.ok(x.Abort(s.ctx(), "s-1", ""), "abort")
	s.failed(s.Result(run), helix.ErrCancelled)
	s.same(string(s.load("s-1").Output), "", "the output after an abort")
}

func stopAbortWins(s *Stage) {
	for _, kinds := range [][]session.StopKind{{session.StopInterrupt, session.StopAbort}, {session.StopAbort, session.StopInterrupt}} {
		id := "s-" + string(kinds[0])
		g := s.newGate()
		agent := newAgent(scripted.New(scripted.Call("wait", num{})), blocking(g))
		agent.Name = "stop-" + string(kinds[0])
		x := s.startDeaf(Options{Agents: []*helix.Agent{agent}})
		run := s.Begin(x, agent, id, "Hi!")
		s.receive("the tool runs", g.entered)
		for _, kind := range kinds { // in the store, so that both are there when the step ends
			_, err := s.store().RequestStop(s.ctx(), id, session.Stop{RunID: run.ID(), Kind: kind})
			s.ok(err, "request %s", kind)
		}
		g.release()
		s.failed(s.Result(run), helix.ErrCancelled)
	}
}

func stopEnded(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok"), scripted.Text("ok")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	s.refused(x.Interrupt(s.ctx(), "s-1", ""), helix.ErrStale, "s-1")
	s.refused(x.Abort(s.ctx(), "s-1", ""), helix.ErrStale, "s-1")
	s.refused(run.Interrupt(s.ctx(), ""), helix.ErrStale)
	s.refused(x.Interrupt(s.ctx(), "nobody", ""), helix.ErrNotFound)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func stopOldHandle(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("two"))))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	old := s.Begin(x, agent, "s-1", "first")
	s.ended(s.Result(old), helix.Completed)
	elsewhere := s.Attach(y, "s-1")
	run := s.Begin(x, agent, "s-1", "second")
	s.receive("the model is asked", g.entered)
	for _, handle := range []helix.Run{old, elsewhere} {
		s.refused(handle.Interrupt(s.ctx(), ""), helix.ErrStale)
		s.refused(handle.Abort(s.ctx(), ""), helix.ErrStale)
	}
	g.release()
	s.ended(s.Result(run), helix.Completed)
}

// startDeaf starts an executor to which nothing is announced.
func (s *Stage) startDeaf(opts Options) Executor {
	s.Helper()
	backend := s.newFrail(s.Backend)
	backend.faults.deaf.Store(true)
	return s.startOn(backend, opts)
}

// startRarely starts an executor that looks for nothing by itself for a long time.
func (s *Stage) startRarely(agents ...*helix.Agent) Executor {
	s.Helper()
	return s.StartWith(Options{Agents: agents, LeaseTTL: time.Hour, Sweep: time.Hour})
}

func stopAtOnce(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("One mom"), scripted.Do(g.enter), scripted.Until(nil))))
	x := s.startRarely(agent)
	y := s.StartOther(Options{})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(y.Interrupt(s.ctx(), "s-1", "from afar"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.transcript("s-1", "user: Hi!", `assistant: One mom {"stop":"interrupt"}`)
}

// stopsChild stops the run of a sub-agent, and nothing else, from another process.
func (s *Stage) stopsChild(start func(*helix.Agent) Executor) {
	s.Helper()
	g := s.newGate()
	agent := tower(1, named("child", scripted.New(scripted.Call("wait", num{1}), scripted.Text("never")).ByPosition(), blocking(g)))
	x := start(agent)
	y := s.StartOther(Options{})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	child := s.child("s-1")
	s.ok(s.Attach(y, child).Abort(s.ctx(), "from afar"), "abort")
	s.ended(s.Result(run), helix.Completed) // it sees what became of the call
	s.transcript(child, "user: do it", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	s.same(s.load(child).Status, session.Failed, "status of the sub-agent")
}

func stopChildAtOnce(s *Stage) {
	s.stopsChild(func(agent *helix.Agent) Executor { return s.startRarely(agent) })
}

func stopChildHeartbeat(s *Stage) {
	s.stopsChild(func(agent *helix.Agent) Executor {
		return s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: 3 * lease})
	})
}

func stopUnnoticed(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("one")), scripted.Call("double", num{2}), scripted.Text("two")), double())
	x := s.startDeaf(Options{Agents: []*helix.Agent{agent}})
	run := s.Begin(x, agent, "s-1", "first")
	s.receive("the model is asked", g.entered)
	_, err := s.store().RequestStop(s.ctx(), "s-1", session.Stop{RunID: run.ID(), Kind: session.StopInterrupt})
	s.ok(err, "request a stop")
	g.release()
	s.ended(s.Result(run), helix.Completed) // there is no next step to notice it at
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
}

// stopFromElsewhere stops a run from another executor during its first step.
func (s *Stage) stopFromElsewhere(stop func(y Executor) error) *helix.Result {
	s.Helper()
	g := s.newGate()
	model := scripted.New(scripted.Call("hold", num{1}), scripted.Text("never"))
	hold := newTool("hold", func(_ context.Context, call *helix.Call, n int) (int, error) {
		g.enter()
		<-g.open
		return n, nil
	})
	agent := newAgent(model, hold)
	x := s.Start(agent)
	y := s.StartOther(Options{})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(stop(y), "stop")
	g.release()
	res := s.Result(run)
	s.same(len(model.Requests()), 1, "model calls")
	return res
}

func stopElsewhere(s *Stage) {
	s.ended(s.stopFromElsewhere(func(y Executor) error { return y.Interrupt(s.ctx(), "s-1", "from afar") }), helix.Interrupted)
	s.same(s.load("s-1").Interrupt.Reason, "from afar", "the reason")
	s.same(len(s.messages("s-1")), 3, "messages")
}

func stopAbortElsewhere(s *Stage) {
	s.failed(s.stopFromElsewhere(func(y Executor) error { return s.Attach(y, "s-1").Abort(s.ctx(), "from afar") }), helix.ErrCancelled, "from afar")
}

func stopOutlives(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Reply(scripted.Say("One mom"), scripted.Do(g.enter), scripted.Until(nil)))
	agent := newAgent(model)
	x := s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	_, err := s.store().RequestStop(s.ctx(), "s-1", session.Stop{RunID: run.ID(), Kind: session.StopInterrupt, Reason: "enough"})
	s.ok(err, "request a stop")
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	res := s.Result(s.Attach(y, "s-1"))
	s.ended(res, helix.Interrupted)
	s.same(res.RunID, run.ID(), "run")
	s.same(len(model.Requests()), 1, "model calls")
	s.same(s.load("s-1").Interrupt.Reason, "enough", "the reason")
}

// stopsLost interrupts a run whose process dies when a sub-agent, which a person has let continue, has come so far. It
// returns the sub-agent's session.
func (s *Stage) stopsLost(soFar func(), tool helix.Tool, then scripted.Step) string {
	s.Helper()
	var ran tally
	agent := parent(named("child", scripted.New(scripted.Call("pay", num{1}), then).ByPosition(), guarded(&ran, "pay"), tool))
	x := s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: shortLease - 1}) // it renews no lease, and sees no stop, before it is killed
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "pay")
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	soFar()
	_, err := s.store().RequestStop(s.ctx(), "s-1", session.Stop{RunID: run.ID(), Kind: session.StopInterrupt, Reason: "enough"})
	s.ok(err, "request a stop")
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Interrupted)
	id := s.child("s-1")
	s.same(s.load(id).Status, session.Failed, "status of the sub-agent")
	return id
}

func stopLostReply(s *Stage) {
	g := s.newGate()
	id := s.stopsLost(func() {
		s.receive("the model is asked", g.entered)
		s.until("watchers see the reply", func() bool {
			return slices.ContainsFunc(s.chunks("s-1"), func(c stream.Chunk) bool { return c.Delta == "One mom" })
		})
	}, blocking(g), scripted.Reply(scripted.Say("One mom"), scripted.Do(g.enter), scripted.Until(nil)))
	s.transcript(id, "user: do it", `assistant: pay({"n":1})`, "tool pay: 2")
}

func stopLostCall(s *Stage) {
	g := s.newGate()
	id := s.stopsLost(func() { s.receive("the tool runs", g.entered) }, blocking(g), scripted.Call("wait", num{1}))
	s.transcript(id, "user: do it", `assistant: pay({"n":1})`, "tool pay: 2", `assistant: wait({"n":1})`, "tool wait failed: tool_outcome_unknown")
}

func stopRepeated(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("hold", num{1})), newTool("hold", func(context.Context, *helix.Call, int) (json.RawMessage, error) {
		g.enter()
		<-g.open
		return json.RawMessage("1"), nil
	}))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	for range 3 {
		s.ok(x.Interrupt(s.ctx(), "s-1", "enough"), "interrupt")
	}
	g.release()
	s.ended(s.Result(run), helix.Interrupted)
	s.same(len(s.runs("s-1")), 1, "runs")
}

func stopWholeCalls(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Say("First this, "), scripted.Calling("count", num{1}), scripted.Say("then that"), scripted.Calling("count", num{2}),
		scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("ok")),
		newTool("count", func(context.Context, *helix.Call, int) (int, error) { return ran.add(""), nil }))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model has made its calls", g.entered)
	s.ok(run.Interrupt(s.ctx(), "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	cut := []string{
		"user: Hi!", `assistant: First this, , count({"n":1}), then that, count({"n":2}) {"stop":"interrupt"}`,
		"tool count failed: run_stopped", "tool count failed: run_stopped",
	}
	s.transcript("s-1", cut...)
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeRunStopped), "enough")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", append(cut, "assistant: ok")...)
	s.same(ran.of(""), 0, "calls that ran")
}

func stopInterruptFinish(s *Stage) {
	g := s.newGate()
	agent, _ := finisher(scripted.Reply(scripted.Calling("wait", num{1}), scripted.Finishing(report{"early"})), scripted.Finish(report{"late"}))
	agent.Tools = append(agent.Tools, blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Go!")
	s.receive("the tool runs", g.entered)
	s.ok(run.Interrupt(s.ctx(), "wait a moment"), "interrupt")
	res := s.Result(run)
	s.ended(res, helix.Interrupted)
	s.same(len(res.Output), 0, "bytes of output")
	s.transcript("s-1", "user: Go!", `assistant: wait({"n":1}), __finish__({"summary":"early"})`,
		"tool wait failed: run_stopped", "tool __finish__ failed: run_stopped")
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.sameJSON(string(res.Output), `{"summary":"late"}`, "output")
}

func stopAbortFinish(s *Stage) {
	g := s.newGate()
	agent, _ := finisher(scripted.Finish(report{"first"}), scripted.Reply(scripted.Calling("wait", num{1}), scripted.Finishing(report{"second"})))
	agent.Tools = append(agent.Tools, blocking(g))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	run := s.Begin(x, agent, "s-1", "Again!")
	s.receive("the tool runs", g.entered)
	s.ok(run.Abort(s.ctx(), "off with it"), "abort")
	res := s.Result(run)
	s.failed(res, helix.ErrCancelled, "off with it")
	s.same([]int{len(res.Output), len(s.load("s-1").Output)}, []int{0, 0}, "bytes of output, of the run and of the session")
	s.same(len(ofKind(s.chunks("s-1"), stream.Output)), 1, "outputs in the stream")
}

func stopHeartbeat(s *Stage) {
	for i, stop := range []session.StopKind{session.StopAbort, session.StopInterrupt} {
		g, id := s.newGate(), fmt.Sprintf("s-%d", i+1)
		agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("never")), blocking(g))
		x := s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: 3 * lease})
		y := s.StartOther(Options{})
		run := s.Begin(x, agent, id, "Hi!")
		s.receive("the tool runs", g.entered)
		if stop == session.StopAbort {
			s.ok(y.Abort(s.ctx(), id, "from afar"), "abort")
			s.failed(s.Result(run), helix.ErrCancelled, "from afar") // though nobody lets the tool on
		} else {
			s.ok(y.Interrupt(s.ctx(), id, "from afar"), "interrupt")
			s.ended(s.Result(run), helix.Interrupted)
		}
		s.transcript(id, "user: Hi!", `assistant: wait({"n":1})`, "tool wait failed: run_stopped")
	}
}
