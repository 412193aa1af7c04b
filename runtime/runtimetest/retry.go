package runtimetest

import (
	"context"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func retryScenarios() []Scenario {
	return []Scenario{
		{"last good checkpoint", "a retry continues from the last good step; no call and no message is repeated", retryLastGood},
		{"first step", "a retry after a failure in the first step starts over, without adding the message again", retryFirstStep},
		{"state", "a retry continues with the state of the last good step", retryState},
		{"max steps", "a retry after the step limit gets a fresh budget", retryMaxSteps},
		{"again", "a retry that fails can be retried", retryAgain},
		{"second turn", "a retry of a later turn keeps the turns before", retrySecondTurn},
		{"completed", "only a failed session can be retried", retryCompleted},
		{"request repeated", "a repeated request id attaches to the run that the first retry started", retryRepeated},
		{"concurrently", "of concurrent retries exactly one runs", retryConcurrently},
		{"stale", "a retry that arrives after another has completed is refused and rewinds nothing", retryStale},
		{"elsewhere", "a session is retried in a process that did not run it before", retryElsewhere},
	}
}

func fatal() scripted.Step {
	return scripted.Reply(scripted.Say("And th"), scripted.Failing(llm.Error(session.CodeProvider, false, "no more")))
}

// broken leaves session s-1 failed after one good step, by an agent that continues
// with the given steps.
func (s *Stage) broken(more ...scripted.Step) (Executor, *helix.Agent, *tally) {
	s.Helper()
	ran := &tally{}
	count := newTool("count", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return ran.add("count"), nil
	})
	agent := newAgent(scripted.New(append([]scripted.Step{scripted.Call("count", num{1}), fatal()}, more...)...), count)
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeProvider), "no more")
	return x, agent, ran
}

var untilBroken = []string{"user: Hi!", `assistant: count({"n":1})`, "tool count: 1"}

func retryLastGood(s *Stage) {
	x, _, ran := s.broken(scripted.Text("Fine."))
	failed := s.runs("s-1")[0]
	run := s.Retry(x, "s-1")
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", append(untilBroken, "assistant: Fine.")...)
	s.same(ran.of("count"), 1, "calls")
	record := s.run("s-1", run.ID())
	s.same([]any{record.Kind, record.PreviousRunID, record.CheckpointID},
		[]any{session.RunRetry, failed.ID, s.checkpoints("s-1")[1].ID}, "the new run")
	if err := s.load("s-1").Error; err != nil {
		s.Fatalf("the session still has the error %v", err)
	}
}

func retryFirstStep(s *Stage) {
	agent := newAgent(scripted.New(fatal(), scripted.Text("Fine.")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Fine.")
}

func retryState(s *Stage) {
	x, _, _ := s.broken(scripted.Call("count", num{2}), scripted.Text("Fine."))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":0}`, "state")
}

func retryMaxSteps(s *Stage) {
	model := doubling(3)
	agent := newAgent(model, double())
	agent.MaxSteps = 2
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Go!"), helix.ErrMaxSteps)
	res := s.Result(s.Retry(x, "s-1"))
	s.ended(res, helix.Completed)
	s.same(res.Steps, 2, "steps of the retry")
	s.transcript("s-1", "user: Go!", `assistant: double({"n":0})`, "tool double: 0", `assistant: double({"n":1})`, "tool double: 2",
		`assistant: double({"n":2})`, "tool double: 4", "assistant: ok")
}

func retryAgain(s *Stage) {
	x, _, _ := s.broken(fatal(), fatal(), scripted.Text("Fine."))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", append(untilBroken, "assistant: Fine.")...)
	s.same(s.load("s-1").Turn, 4, "turn")
}

func retrySecondTurn(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Call("double", num{1}), fatal(), scripted.Text("two")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", "user: first", "assistant: one", "user: second", `assistant: double({"n":1})`, "tool double: 2", "assistant: two")
}

func retryCompleted(s *Stage) {
	x, _, _ := s.broken(scripted.Text("Fine."))
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	_, err := x.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrNotResumable, "completed")
	x, _, _ = s.interruptedAs("other")
	_, err = x.Retry(s.ctx(), "other", helix.RetryOptions{})
	s.refused(err, helix.ErrNotResumable, "interrupted")
}

// interruptedAs leaves a session interrupted in its first step.
func (s *Stage) interruptedAs(id string) (Executor, *helix.Agent, helix.Run) {
	s.Helper()
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))))
	agent.Name = "interrupted"
	x := s.Start(agent)
	run := s.Begin(x, agent, id, "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), id, ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	return x, agent, run
}

func retryRepeated(s *Stage) {
	x, _, _ := s.broken(scripted.Text("Fine."))
	opts := helix.RetryOptions{RequestID: "req-1"}
	first, err := x.Retry(s.ctx(), "s-1", opts)
	s.ok(err, "retry")
	s.ended(s.Result(first), helix.Completed)
	again, err := x.Retry(s.ctx(), "s-1", opts)
	s.ok(err, "retry again")
	s.same(again.ID(), first.ID(), "run of the repeated call")
}

func retryConcurrently(s *Stage) {
	g := s.newGate()
	x, agent, _ := s.broken(scripted.Reply(scripted.Until(g.open), scripted.Say("Fine.")))
	xs := []Executor{x, s.StartOther(Options{Agents: []*helix.Agent{agent}})}
	run := s.race(func(i int) (helix.Run, error) {
		return xs[i%2].Retry(s.ctx(), "s-1", helix.RetryOptions{})
	}, helix.ErrAlreadyRunning)
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", append(untilBroken, "assistant: Fine.")...)
}

func retryStale(s *Stage) {
	x, agent, _ := s.broken(scripted.Text("Fine."))
	xs := []Executor{x, s.StartOther(Options{Agents: []*helix.Agent{agent}})}
	run := s.race(func(i int) (helix.Run, error) {
		return xs[i%2].Retry(s.ctx(), "s-1", helix.RetryOptions{})
	}, helix.ErrAlreadyRunning, helix.ErrNotResumable)
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", append(untilBroken, "assistant: Fine.")...)
	s.same(len(s.runs("s-1")), 2, "runs")
}

func retryElsewhere(s *Stage) {
	x, agent, ran := s.broken(scripted.Text("Fine."))
	s.ok(x.Shutdown(s.ctx()), "close")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Result(s.Retry(y, "s-1")), helix.Completed)
	s.transcript("s-1", append(untilBroken, "assistant: Fine.")...)
	s.same(ran.of("count"), 1, "calls")
}
