package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func shutdownScenarios() []Scenario {
	return []Scenario{
		{"waits", "closing waits for the turns that run", shutdownWaits},
		{"deadline in a model call", "at the deadline a turn is released, and another process continues it at once", shutdownModel},
		{"deadline in a tool", "at the deadline an idempotent call is left to run again, with its siblings' results kept", shutdownTool},
		{"deadline in an unsafe tool", "a call that may not run again is answered tool_outcome_unknown after a shutdown", shutdownUnsafeTool},
		{"finished in time", "the result of a call that ends while the process shuts down is not lost", shutdownFinished},
		{"refuses", "a closed runtime takes no new work", shutdownRefuses},
		{"takes nothing over", "a runtime that is closing takes no orphans over", shutdownTakesNothing},
		{"again and again", "any number of shutdowns in one slow step are no crash loop", shutdownAgain},
		{"hanging hook", "a hook that ignores its context does not delay closing past the deadline", shutdownHangingHook},
		{"twice", "closing twice does nothing", shutdownTwice},
		{"same process", "a new runtime in the same process continues the released runs", shutdownRestart},
		{"handle", "the handle on a run that another process continues gives its result", shutdownHandle},
	}
}

// handOver starts a run on one executor, closes that at once when the gate is
// entered, and returns the result of a second one, which must not wait for a lease.
func (s *Stage) handOver(agent *helix.Agent, g *gate) (*helix.Result, helix.Run) {
	s.Helper()
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: time.Hour, Sweep: time.Second})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the run is where it is to be left", g.entered)
	s.ok(x.Close(), "close")
	s.same(s.run("s-1", run.ID()).Status, session.RunRunning, "the run after the shutdown")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	res := s.Result(s.Attach(y, "s-1"))
	s.same(res.RunID, run.ID(), "run")
	return res, run
}

func shutdownWaits(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("Done."))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	var closed atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := x.Shutdown(s.ctx()); err != nil {
			s.Errorf("close: %v", err)
		}
		closed.Store(true)
	}()
	s.until("new work is refused", func() bool {
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
		return err != nil
	})
	s.same(closed.Load(), false, "closed before the turn has ended")
	g.release()
	s.receive("it closes", done)
	s.ended(s.Result(run), helix.Completed)
}

func shutdownModel(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("One mom"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("Here."))))
	res, _ := s.handOver(agent, g)
	s.ended(res, helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Here.")
}

func shutdownTool(s *Stage) {
	g := s.newGate()
	var ran tally
	tool := countingTool(g, &ran, &journal{})
	tool.Idempotent = true
	counted := make(chan struct{})
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("count", num{1}), scripted.Calling("pay", num{2})), scripted.Text("Done.")).ByPosition(),
		tool, newTool("count", func(context.Context, *helix.Call, int) (int, error) {
			defer close(counted)
			return ran.add("count"), nil
		}))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("one tool waits", g.entered)
	s.receive("the other one is done", counted)
	s.settled(1)
	s.ok(x.Close(), "close")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	res := s.Result(s.Attach(y, "s-1"))
	s.ended(res, helix.Completed)
	s.same(res.RunID, run.ID(), "run")
	s.same([]int{ran.of("pay"), ran.of("count")}, []int{2, 1}, "calls")
	s.transcript("s-1", "user: Hi!", `assistant: count({"n":1}), pay({"n":2})`, "tool count: 1", "tool pay: 2", "assistant: Done.")
}

func shutdownUnsafeTool(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{5}), scripted.Text("Who knows.")).ByPosition(), countingTool(g, &ran, &journal{}))
	res, _ := s.handOver(agent, g)
	s.ended(res, helix.Completed)
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":5})`, "tool pay failed: tool_outcome_unknown", "assistant: Who knows.")
}

func shutdownFinished(s *Stage) {
	g := s.newGate()
	var ran tally
	agent := newAgent(scripted.New(scripted.Call("pay", num{5}), scripted.Text("Paid.")).ByPosition(),
		newTool("pay", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
			ran.add("pay")
			g.enter()
			<-ctx.Done() // it was too far to turn back
			return n, nil
		}))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(x.Close(), "close")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	res := s.Result(s.Attach(y, "s-1"))
	s.ended(res, helix.Completed)
	s.same(res.RunID, run.ID(), "run")
	s.same(ran.of("pay"), 1, "payments")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":5})`, "tool pay: 5", "assistant: Paid.")
}

func shutdownRefuses(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok"), scripted.Text("ok")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "close")
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrClosed)
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrClosed)
	_, err = x.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrClosed)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(y, agent, "s-1", "Hi!"), helix.Completed)
}

func shutdownTwice(s *Stage) {
	x := s.Start(newAgent(scripted.New()))
	s.ok(x.Shutdown(s.ctx()), "shut down")
	s.ok(x.Shutdown(s.ctx()), "shut down again")
	s.ok(x.Shutdown(over()), "shut down with a context that has ended")
	s.ok(x.Close(), "close")
	s.ok(x.Close(), "close again")
}

func shutdownRestart(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("Here."))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Close(), "close")
	y := s.Start(agent)
	handle := s.Attach(y, "s-1")
	s.same(handle.ID(), run.ID(), "run")
	s.ended(s.Result(handle), helix.Completed)
}

func shutdownHandle(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("Here."))))
	_, run := s.handOver(agent, g)
	s.same(s.Result(run).Text, "Here.", "the reply, through the first handle")
	items := s.collect(run)
	s.same(items[len(items)-1].Frame, "end", "the last item of its stream")
}

func shutdownTakesNothing(s *Stage) {
	g, busyGate := s.newGate(), s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Done."))))
	busy := newAgent(scripted.New(scripted.Reply(scripted.Do(busyGate.enter), scripted.Until(busyGate.open), scripted.Say("ok"))))
	busy.Name = "busy"
	x := s.StartWith(Options{Agents: []*helix.Agent{agent, busy}, LeaseTTL: lease})
	run := s.Begin(x, busy, "s-2", "Hi!")
	s.receive("a turn runs", busyGate.entered)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := x.Shutdown(s.ctx()); err != nil {
			s.Errorf("close: %v", err)
		}
	}()
	s.until("new work is refused", func() bool {
		_, err := x.Execute(s.ctx(), busy, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
		return errors.Is(err, helix.ErrClosed)
	})
	orphan := s.orphan(agent, g)
	epoch := s.load("s-1").Lease.Epoch
	s.until("the lease has long expired", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		return now.After(s.load("s-1").Lease.ExpiresAt.Add(2 * lease))
	})
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hello?")})
	s.refused(err, helix.ErrClosed)
	record := s.run("s-1", orphan.ID())
	s.same([]any{record.Status, record.Attempts, s.load("s-1").Lease.Epoch}, []any{session.RunRunning, 0, epoch}, "status, attempts and epoch of the orphan")
	busyGate.release()
	s.receive("it closes", done)
	s.ended(s.Result(run), helix.Completed)
	s.takenOver(orphan, agent)
}

func shutdownAgain(s *Stage) {
	const shutdowns = 5
	var asked tally
	gates := make([]*gate, shutdowns)
	for i := range gates {
		gates[i] = s.newGate()
	}
	agent := newAgent(modelFunc(func(ctx context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
		if n := asked.add(""); n <= shutdowns {
			return nil, gates[n-1].pass(ctx)
		}
		emit(llm.Delta{Kind: llm.DeltaText, Text: "At last."})
		return &llm.Response{Parts: []session.Part{session.Text("At last.")}}, nil
	}))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	for i, g := range gates {
		s.receive("the model is asked", g.entered)
		s.ok(x.Close(), "close")
		s.same(s.run("s-1", run.ID()).Status, session.RunRunning, "the run after shutdown %d", i+1)
		x = s.StartOther(Options{Agents: []*helix.Agent{agent}})
	}
	res := s.Result(s.Attach(x, "s-1"))
	s.ended(res, helix.Completed)
	s.same([]any{res.RunID, res.Text, asked.of("")}, []any{run.ID(), "At last.", shutdowns + 1}, "run, reply and model calls")
}

func shutdownHangingHook(s *Stage) {
	for i, name := range []string{"BeforeLLMCall", "AfterLLMCall", "BeforeTool", "OnMessage", "AfterTool", "OnAgentComplete", "InstructionsFunc", "StopWhen"} {
		g, id := s.newGate(), fmt.Sprintf("s-%d", i+1)
		var called tally
		hang := func(hook string) { // the first time, and without heeding its context
			if hook == name && called.add("") == 1 {
				g.enter()
				<-g.open
			}
		}
		agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("ok")).ByPosition(), double())
		agent.Name, agent.Tools[0].Idempotent = "agent-"+name, true
		agent.Hooks = helix.Hooks{
			BeforeLLMCall: func(context.Context, *helix.HookContext, helix.BeforeLLMCallEvent) error {
				hang("BeforeLLMCall")
				return nil
			},
			AfterLLMCall: func(context.Context, *helix.HookContext, helix.AfterLLMCallEvent) error {
				hang("AfterLLMCall")
				return nil
			},
			BeforeTool: func(context.Context, *helix.HookContext, helix.BeforeToolEvent) error { hang("BeforeTool"); return nil },
			OnMessage:  func(context.Context, *helix.HookContext, helix.MessageEvent) error { hang("OnMessage"); return nil },
			AfterTool:  func(context.Context, *helix.HookContext, helix.AfterToolEvent) error { hang("AfterTool"); return nil },
			OnAgentComplete: func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error {
				hang("OnAgentComplete")
				return nil
			},
		}
		agent.InstructionsFunc = func(context.Context, *helix.Prompt) (string, error) { hang("InstructionsFunc"); return "", nil }
		agent.StopWhen = func(context.Context, *helix.Step) (bool, error) { hang("StopWhen"); return false, nil }
		x := s.Start(agent)
		run := s.Begin(x, agent, id, "Hi!")
		s.receive(name+" is called", g.entered)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // waits: it passes, because the hook hangs
		rescue := time.AfterFunc(eventually.Patience, g.release)
		s.refused(x.Shutdown(ctx), context.DeadlineExceeded)
		cancel()
		if !rescue.Stop() {
			s.Fatalf("closing waited for %s, which hung", name)
		}
		y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
		res := s.Result(s.Attach(y, id))
		s.ended(res, helix.Completed)
		s.same(res.RunID, run.ID(), "run")
		s.transcript(id, "user: Hi!", `assistant: double({"n":1})`, "tool double: 2", "assistant: ok")
		g.release()
	}
}
