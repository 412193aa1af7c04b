package runtimetest

import (
	"errors"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func resumeScenarios() []Scenario {
	return []Scenario{
		{"continue", "a resume without options continues where the session stopped, as a new run", resumeContinue},
		{"after a partial reply", "after a partial reply the model is asked to continue, in a hidden message", resumePartial},
		{"with a message", "a resume with a message adds it", resumeMessage},
		{"from a checkpoint", "a resume from a checkpoint rewinds messages and state to it", resumeCheckpoint},
		{"from the start", "the checkpoint of a turn's start can be resumed from", resumeStart},
		{"checkpoint and message", "a resume may rewind and add a message", resumeCheckpointMessage},
		{"checkpoint of a turn before", "a rewind reaches back over turns", resumeEarlierTurn},
		{"in place of the input", "a message replaces the one that a turn started with, and calls that waited before it still wait", resumeReplaced},
		{"foreign checkpoint", "a checkpoint of another session is refused, and nothing changes", resumeForeign},
		{"undone checkpoint", "a checkpoint that a later rewind undid is refused, and nothing changes", resumeUndone},
		{"no messages", "a session without messages is not resumed", resumeEmpty},
		{"completed", "a completed session is not resumed unless from a checkpoint", resumeCompleted},
		{"failed", "a failed session is not resumed unless from a checkpoint", resumeFailed},
		{"running", "a running session is not resumed", resumeRunning},
		{"unknown", "a session that does not exist can be neither resumed, retried, stopped nor attached to", resumeUnknown},
		{"request repeated", "a repeated request id attaches to the run that the first resume started", resumeRepeated},
		{"concurrently", "of concurrent resumes exactly one runs", resumeConcurrently},
		{"elsewhere", "a session is resumed in a process that did not run it before", resumeElsewhere},
		{"paused before it ran", "a paused session is resumed", resumePaused},
	}
}

// interrupted leaves session s-1 interrupted in a tool, after one step, by an
// agent that continues with the given steps.
func (s *Stage) interrupted(more ...scripted.Step) (Executor, *helix.Agent, *scripted.Model) {
	s.Helper()
	g := s.newGate()
	model := scripted.New(append([]scripted.Step{scripted.Call("note", num{1}), scripted.Call("wait", num{2})}, more...)...)
	agent := newAgent(model, noteTool(), blocking(g))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	return x, agent, model
}

var untilInterrupted = []string{
	"user: Hi!", `assistant: note({"n":1})`, "tool note: 1", `assistant: wait({"n":2})`, "tool wait failed: run_stopped",
}

func resumeContinue(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Where was I?"))
	before := s.runs("s-1")[0]
	run := s.Resume(x, "s-1", helix.ResumeOptions{})
	res := s.Result(run)
	s.ended(res, helix.Completed)
	s.same(res.Steps, 1, "steps")
	s.transcript("s-1", append(untilInterrupted, "assistant: Where was I?")...)
	record := s.run("s-1", run.ID())
	s.same([]any{record.Kind, record.PreviousRunID, record.Turn}, []any{session.RunResume, before.ID, 2}, "the new run")
	if run.ID() == before.ID {
		s.Fatal("a resume has the run id of the run before")
	}
	s.same(s.load("s-1").ResumeCount, 1, "resume count")
}

func resumePartial(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("Once upon a"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("time")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "A tale!")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	messages := s.messages("s-1")
	s.same(len(messages), 4, "messages")
	if !messages[2].Hidden() || messages[2].Role != session.RoleUser {
		s.Fatalf("the model is asked to continue by %s", renderMessage(&messages[2]))
	}
}

func resumeMessage(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Fine."))
	message := helix.UserText("Never mind the waiting.")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Message: &message})), helix.Completed)
	s.transcript("s-1", append(untilInterrupted, "user: Never mind the waiting.", "assistant: Fine.")...)
}

func resumeCheckpoint(s *Stage) {
	x, _, model := s.interrupted(scripted.Call("note", num{5}), scripted.Text("Fine."))
	to := s.checkpoints("s-1")[1]
	run := s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: to.ID})
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, "tool note: 1", `assistant: note({"n":5})`, "tool note: 2", "assistant: Fine.")
	s.sameJSON(s.state("s-1"), `{"notes":[1,5],"last":5}`, "state")
	s.same(render(model.Requests()[2].Messages), "user: Hi!\nassistant: note({\"n\":1})\ntool note: 1", "what the model sees")
	s.same(s.run("s-1", run.ID()).CheckpointID, to.ID, "the checkpoint of the run")
}

func resumeStart(s *Stage) {
	x, _, model := s.interrupted(scripted.Text("Hello!"))
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[0].ID})), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Hello!")
	s.sameJSON(s.state("s-1"), `{"notes":[],"last":0}`, "state")
	s.same(render(model.Requests()[2].Messages), "user: Hi!", "what the model sees")
}

func resumeCheckpointMessage(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Fine."))
	message := helix.UserText("Rather not.")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[1].ID, Message: &message})), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, "tool note: 1", "user: Rather not.", "assistant: Fine.")
}

func resumeEarlierTurn(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Call("note", num{1}), scripted.Text("one"), scripted.Call("note", num{2}), scripted.Text("two"), scripted.Text("three")), noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	to := s.checkpoints("s-1")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	message := helix.UserText("third")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: to[len(to)-1].ID, Message: &message})), helix.Completed)
	s.transcript("s-1", "user: first", `assistant: note({"n":1})`, "tool note: 1", "assistant: one", "user: third", "assistant: three")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	s.same(s.load("s-1").Turn, 3, "turn")
}

func resumeReplaced(s *Stage) {
	model := scripted.New(
		scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("locate", num{2})),
		scripted.Call("note", num{3}), scripted.Text("one"), scripted.Text("two"), scripted.Text("three"),
	)
	agent := newAgent(model, noteTool(), onClient("locate"))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedStepPartial)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", AbandonPending: true, Messages: []session.Message{
		helix.UserText("One?"), helix.Hidden(helix.UserText("He is in a hurry.")),
	}})), helix.Completed)
	kept := []string{
		"user: Hi!", `assistant: note({"n":1}), locate({"n":2})`, "tool note: 1", "tool locate failed: client_tool_abandoned",
	}
	version, points := s.load("s-1").Version, s.checkpoints("s-1")
	message := helix.UserText("Two?")
	for field, opts := range map[string]helix.ResumeOptions{
		"Message":      {Checkpoint: points[1].ID, ReplaceInput: true},
		"Checkpoint":   {Message: &message, ReplaceInput: true},
		points[2].ID:   {Message: &message, Checkpoint: points[2].ID, ReplaceInput: true}, // that of a step
		"ReplaceInput": {ReplaceInput: true},
	} {
		_, err := x.Resume(s.ctx(), "s-1", opts)
		if err == nil || !strings.Contains(err.Error(), field) {
			s.Fatalf("%+v is answered with %v", opts, err)
		}
	}
	s.same(s.load("s-1").Version, version, "version after what was refused")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: points[1].ID, Message: &message, ReplaceInput: true})), helix.Completed)
	s.transcript("s-1", append(kept, "user: Two?", "assistant: two")...)
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	s.same(render(model.Requests()[3].Messages), strings.Join(append(kept, "user: Two?"), "\n"), "what the model sees")
	first := helix.UserText("Hello!")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: points[0].ID, Message: &first, ReplaceInput: true})), helix.Completed)
	s.transcript("s-1", "user: Hello!", "assistant: three")
	s.sameJSON(s.state("s-1"), `{"notes":[],"last":0}`, "state")
}

func resumeForeign(s *Stage) {
	x, agent, _ := s.interrupted(scripted.Text("I am another."), scripted.Text("Fine."))
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.Completed)
	version := s.load("s-1").Version
	for _, id := range []string{s.checkpoints("s-2")[0].ID, "cp-nobody"} {
		_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{Checkpoint: id})
		s.refused(err, helix.ErrNotFound, id)
	}
	s.same(s.load("s-1").Version, version, "version")
	s.same(len(s.runs("s-1")), 1, "runs")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
}

func resumeCompleted(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("one"), scripted.Text("two")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable, "completed", "checkpoint")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[1].ID})), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: double({"n":1})`, "tool double: 2", "assistant: two")
}

func resumeFailed(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Fail(session.CodeProvider, false, "no"), scripted.Text("two")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Failed)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable, "failed", "retry")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.checkpoints("s-1")[0].ID})), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: two")
}

func resumeRunning(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("ok"))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAlreadyRunning, run.ID())
	_, err = x.Retry(s.ctx(), "s-1", helix.RetryOptions{})
	s.refused(err, helix.ErrAlreadyRunning, run.ID())
	g.release()
	s.ended(s.Result(run), helix.Completed)
}

func resumeUnknown(s *Stage) {
	agent := newAgent(scripted.New())
	x := s.Start(agent)
	_, err := x.Resume(s.ctx(), "nobody", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotFound, "nobody")
	_, err = x.Retry(s.ctx(), "nobody", helix.RetryOptions{})
	s.refused(err, helix.ErrNotFound, "nobody")
	_, err = x.Attach(s.ctx(), "nobody")
	s.refused(err, helix.ErrNotFound, "nobody")
	s.refused(x.Abort(s.ctx(), "nobody", ""), helix.ErrNotFound, "nobody")
}

func resumeRepeated(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Once."))
	opts := helix.ResumeOptions{RequestID: "req-1"}
	first := s.Resume(x, "s-1", opts)
	s.ended(s.Result(first), helix.Completed)
	s.same(s.Resume(x, "s-1", opts).ID(), first.ID(), "run of the repeated call")
	s.same(len(s.runs("s-1")), 2, "runs")
}

// race makes calls at once and checks that exactly one runs; the others must be
// refused for one of the reasons given.
func (s *Stage) race(call func(i int) (helix.Run, error), reasons ...error) helix.Run {
	s.Helper()
	const callers = 6
	runs, errs := make([]helix.Run, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { runs[i], errs[i] = call(i) })
	}
	wg.Wait()
	var won helix.Run
	for i := range callers {
		if errs[i] == nil {
			if won != nil {
				s.Fatal("two of the concurrent calls run")
			}
			won = runs[i]
			continue
		}
		if !errorIsOneOf(errs[i], reasons) {
			s.Fatalf("a concurrent call is refused with %v", errs[i])
		}
	}
	if won == nil {
		s.Fatal("none of the concurrent calls runs")
	}
	return won
}

func errorIsOneOf(err error, reasons []error) bool {
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

func resumeConcurrently(s *Stage) {
	g := s.newGate()
	x, agent, _ := s.interrupted(scripted.Reply(scripted.Until(g.open), scripted.Say("Fine.")))
	xs := []Executor{x, s.StartOther(Options{Agents: []*helix.Agent{agent}})}
	run := s.race(func(i int) (helix.Run, error) {
		return xs[i%2].Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	}, helix.ErrAlreadyRunning)
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", append(untilInterrupted, "assistant: Fine.")...)
}

func resumeElsewhere(s *Stage) {
	x, agent, _ := s.interrupted(scripted.Text("Fine."))
	s.ok(x.Shutdown(s.ctx()), "close")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Result(s.Resume(y, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", append(untilInterrupted, "assistant: Fine.")...)
}

func resumePaused(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Fine."))
	_, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{Expect: []session.Status{session.Interrupted}, To: session.Paused})
	s.ok(err, "pause")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	s.transcript("s-1", append(untilInterrupted, "assistant: Fine.")...)
}

func resumeUndone(s *Stage) {
	x, _, model := s.story(scripted.Call("note", num{7}), scripted.Text("Another end."))
	before := s.checkpoints("s-1")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: before[0].ID})), helix.Completed)
	for _, undone := range before[1:] {
		_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{Checkpoint: undone.ID})
		s.refused(err, helix.ErrNotResumable, undone.ID)
	}
	s.transcript("s-1", "user: A tale!", `assistant: note({"n":7})`, "tool note: 1", "assistant: Another end.")
	s.sameJSON(s.state("s-1"), `{"notes":[7],"last":7}`, "state")
	s.same([]int{len(s.runs("s-1")), len(model.Requests())}, []int{2, 5}, "runs and model calls")
}

func resumeEmpty(s *Stage) {
	model := scripted.New(scripted.Text("ok"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.ok(session.Create(s.ctx(), s.store(), &session.State{
		Tenant: session.DefaultTenant, ID: "s-1", Agent: "agent", StreamID: "s-1", Status: session.Active,
	}), "create")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable, "no messages")
	s.same([]int{len(s.runs("s-1")), len(model.Requests())}, []int{0, 0}, "runs and model calls")
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}
