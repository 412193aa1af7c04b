package runtimetest

import (
	"encoding/json"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func multiturnScenarios() []Scenario {
	return []Scenario{
		{"after completed", "a completed session continues with the next message, and the model sees the whole history", multiturnCompleted},
		{"after failed", "a failed session continues with the next message", multiturnFailed},
		{"after interrupted", "an interrupted session continues with the next message", multiturnInterrupted},
		{"turns", "every execute, resume and retry writes one run record, with turns 1, 2, 3 and the run before", multiturnTurns},
		{"step budget", "the step count restarts at each turn, with a fresh budget", multiturnBudget},
		{"stable prefix", "what the model is sent begins with what it was sent before, unchanged", multiturnPrefix},
		{"state carries over", "custom state is kept from turn to turn", multiturnState},
		{"heals a call", "a call that was left without a result is answered before the next turn", multiturnHeals},
		{"heals a finish", "a finish call that was left without a result is acknowledged before the next turn", multiturnHealsFinish},
		{"long", "a session of many turns keeps every message once", multiturnLong},
	}
}

func multiturnCompleted(s *Stage) {
	model := scripted.New(scripted.Text("one"), scripted.Text("two"))
	agent := newAgent(model)
	x := s.Start(agent)
	first := s.Begin(x, agent, "s-1", "first")
	s.ended(s.Result(first), helix.Completed)
	second := s.Begin(x, agent, "s-1", "second")
	s.same(s.Result(second).Text, "two", "the second reply")
	s.same(render(model.Requests()[1].Messages), "user: first\nassistant: one\nuser: second", "what the model sees")
	s.transcript("s-1", "user: first", "assistant: one", "user: second", "assistant: two")
	s.same(s.run("s-1", second.ID()).PreviousRunID, first.ID(), "the run before")
	s.same(s.load("s-1").Turn, 2, "turn")
}

func multiturnFailed(s *Stage) {
	agent := newAgent(scripted.New(scripted.Fail(session.CodeProvider, false, "no"), scripted.Text("yes")))
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "first"), code(session.CodeProvider))
	s.same(s.load("s-1").Status, session.Failed, "status")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: first", "user: second", "assistant: yes")
	if err := s.load("s-1").Error; err != nil {
		s.Fatalf("the session still has the error of the turn before: %v", err)
	}
}

func multiturnInterrupted(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("One moment"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("yes")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "first")
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", "enough"), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: first", `assistant: One moment {"stop":"interrupt"}`, "user: second", "assistant: yes")
	if s.load("s-1").Interrupt != nil {
		s.Fatal("the session still says why it was interrupted")
	}
}

func multiturnTurns(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Text("one"),
		scripted.Fail(session.CodeProvider, false, "no"),
		scripted.Reply(scripted.Say("three"), scripted.Do(g.enter), scripted.Until(nil)),
		scripted.Text("four"),
	))
	x := s.Start(agent)
	runs := []helix.Run{s.Begin(x, agent, "s-1", "first")}
	s.Result(runs[0])
	runs = append(runs, s.Begin(x, agent, "s-1", "second"))
	s.Result(runs[1])
	runs = append(runs, s.Retry(x, "s-1"))
	s.receive("the model is asked", g.entered)
	s.ok(x.Interrupt(s.ctx(), "s-1", ""), "interrupt")
	s.Result(runs[2])
	runs = append(runs, s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.Result(runs[3])
	records := s.runs("s-1")
	s.same(len(records), 4, "records")
	previous := ""
	for i, want := range []struct {
		kind   session.RunKind
		status session.RunStatus
	}{
		{session.RunExecute, session.RunCompleted},
		{session.RunExecute, session.RunFailed},
		{session.RunRetry, session.RunInterrupted},
		{session.RunResume, session.RunCompleted},
	} {
		r := records[i]
		s.same([]any{r.ID, r.Turn, r.Kind, r.Status, r.PreviousRunID},
			[]any{runs[i].ID(), i + 1, want.kind, want.status, previous}, "record %d", i+1)
		previous = r.ID
	}
	s.same(s.load("s-1").ResumeCount, 1, "resume count")
}

func multiturnBudget(s *Stage) {
	model := scripted.New(
		scripted.Call("double", num{1}), scripted.Text("one"),
		scripted.Call("double", num{2}), scripted.Text("two"),
	)
	agent := newAgent(model, double())
	agent.MaxSteps = 2
	x := s.Start(agent)
	for _, text := range []string{"first", "second"} {
		res := s.Say(x, agent, "s-1", text)
		s.ended(res, helix.Completed)
		s.same(res.Steps, 2, "steps of the %s turn", text)
		s.same(s.load("s-1").StepCount, 2, "step count after the %s turn", text)
	}
	s.same(model.Requests()[2].Step, 1, "the first step of the second turn")
}

func multiturnPrefix(s *Stage) {
	model := scripted.New(
		scripted.Reply(scripted.Say("Hm. "), scripted.Calling("double", json.RawMessage(`{ "n" :  1 }`))),
		scripted.Text("one"), scripted.Call("double", num{2}), scripted.Text("two"),
	)
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.Say(x, agent, "s-1", "first")
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}}) // which reads the history from the store
	s.Say(y, agent, "s-1", "second")
	requests := model.Requests()
	s.same(len(requests), 4, "model calls")
	for i := 1; i < len(requests); i++ {
		before, now := requests[i-1].Messages, requests[i].Messages
		if len(now) <= len(before) {
			s.Fatalf("call %d sends %d messages after %d", i+1, len(now), len(before))
		}
		for j := range before {
			if !before[j].Equal(&now[j]) {
				s.Fatalf("call %d sends message %d as\n%s\nand before as\n%s",
					i+1, j+1, encode(s, &now[j]), encode(s, &before[j]))
			}
		}
	}
}

func encode(s *Stage, m *session.Message) string {
	raw, err := m.AppendJSON(nil)
	s.ok(err, "encode a message")
	return string(raw)
}

func multiturnState(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Call("note", num{1}), scripted.Text("a"), scripted.Call("note", num{2}), scripted.Text("b")), noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.Say(x, agent, "s-1", "first")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state after turn 1")
	s.Say(x, agent, "s-1", "second")
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":2}`, "state after turn 2")
}

// dangling leaves a session whose last reply calls a tool and has no result.
func (s *Stage) dangling(x Executor, agent *helix.Agent, tool string, input string) {
	s.Helper()
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	_, err := session.AppendMessages(s.ctx(), s.store(), "s-1", []session.Message{{
		ID: "msg-x", Role: session.RoleAssistant, Parts: []session.Part{{
			Kind: session.PartToolCall, CallID: "call-x", Tool: tool, Input: json.RawMessage(input),
		}},
	}})
	s.ok(err, "append a reply with a call")
	s.loose["s-1"] = true // the reply was never streamed
}

func multiturnHeals(s *Stage) {
	model := scripted.New(scripted.Text("one"), scripted.Text("two"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.dangling(x, agent, "double", `{"n":1}`)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: first", "assistant: one", `assistant: double({"n":1})`,
		"tool double failed: tool_not_executed", "user: second", "assistant: two")
}

func multiturnHealsFinish(s *Stage) {
	agent := newAgent(scripted.New(scripted.Finish(report{"one"}), scripted.Finish(report{"two"})))
	agent.Output = helix.OutputOf[report]()
	x := s.Start(agent)
	s.dangling(x, agent, session.FinishTool, `{"summary":"x"}`)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: first", `assistant: __finish__({"summary":"one"})`, `tool __finish__: {"acknowledged":true}`,
		`assistant: __finish__({"summary":"x"})`, `tool __finish__: {"acknowledged":true}`,
		"user: second", `assistant: __finish__({"summary":"two"})`, `tool __finish__: {"acknowledged":true}`)
}

func multiturnLong(s *Stage) {
	const turns = 25
	var steps []scripted.Step
	for range turns {
		steps = append(steps, scripted.Call("double", num{1}), scripted.Text("ok"))
	}
	agent := newAgent(scripted.New(steps...), double())
	x := s.Start(agent)
	for range turns {
		s.ended(s.Say(x, agent, "s-1", "go"), helix.Completed)
	}
	s.same(len(s.messages("s-1")), 4*turns, "messages")
	s.same(s.load("s-1").MessageCount, 4*turns, "message count")
	s.same(s.load("s-1").Turn, turns, "turn")
}
