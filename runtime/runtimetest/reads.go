package runtimetest

import (
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func readScenarios() []Scenario {
	return []Scenario{
		{"sessions", "sessions are read, listed and deleted through the runtime, each tenant's own", readSessions},
		{"state", "custom state is read as the agent's type", readState},
		{"text", "the text of a run's replies comes piece by piece, without that of its sub-agents", readText},
		{"text of a failure", "the text of a run that fails ends with its error", readTextOfFailure},
		{"failure as an error", "a result has an error if its run has failed, and only then", readErr},
		{"usage over an approval", "the usage of a resumed run includes what was used before", readUsage},
		{"deleted in mid-run", "a run whose session is deleted stops at once, and leaves nothing behind", readDeletedRun},
	}
}

func readSessions(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	sessions := x.Sessions()
	state, err := sessions.Get(s.ctx(), "s-1")
	s.ok(err, "get")
	s.same(state.Activity, session.ActivityWaiting, "activity")
	page, err := sessions.List(s.ctx(), session.Query{Agent: agent.Name})
	s.ok(err, "list")
	s.same(len(page.Items), 1, "sessions")
	messages, err := sessions.Messages(s.ctx(), "s-1", session.PageRequest{})
	s.ok(err, "messages")
	s.same(len(messages.Items), 2, "messages")
	checkpoints, err := sessions.Checkpoints(s.ctx(), "s-1", session.PageRequest{})
	s.ok(err, "checkpoints")
	s.same(len(checkpoints.Items) > 0, true, "checkpoints")
	waiting, err := sessions.Waiting(s.ctx(), session.WaitingQuery{})
	s.ok(err, "waiting")
	s.same(len(waiting.Items), 1, "waiting calls")
	s.same(waiting.Items[0].Call.CallID, res.Pending[0].CallID, "the call that waits")
	_, err = x.Tenant("other").Sessions().Get(s.ctx(), "s-1")
	s.refused(err, helix.ErrNotFound)
	_, err = x.Tenant("other").Sessions().Delete(s.ctx(), "s-1")
	s.refused(err, helix.ErrNotFound)
	for _, id := range []string{"", "a b"} {
		_, err := sessions.Get(s.ctx(), id)
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = sessions.Messages(s.ctx(), id, session.PageRequest{})
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = sessions.Checkpoints(s.ctx(), id, session.PageRequest{})
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = sessions.Delete(s.ctx(), id)
		s.refused(err, helix.ErrInvalid, "session id")
	}
	deleted, err := sessions.Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.same(strings.Join(deleted, " "), "s-1", "deleted sessions")
	s.absent("s-1")
}

func readState(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("note", num{7}), scripted.Text("Done.")), noteTool())
	agent.State = helix.StateOf(notes{Last: 1})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	state, err := helix.ReadState[notes](s.ctx(), x.Sessions(), "s-1")
	s.ok(err, "read the state")
	s.same(state, notes{Notes: []int{7}, Last: 7}, "state")
	_, err = helix.ReadState[struct {
		Notes string `json:"notes"`
	}](s.ctx(), x.Sessions(), "s-1")
	s.refused(err, helix.ErrInvalid, "s-1")
	_, err = helix.ReadState[notes](s.ctx(), x.Sessions(), "s-2")
	s.refused(err, helix.ErrNotFound)
}

// text collects what a run says.
func (s *Stage) text(run helix.Run) (pieces []string, failure error) {
	s.Helper()
	for piece, err := range run.Text(s.ctx()) {
		if err != nil {
			return pieces, err
		}
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

func readText(s *Stage) {
	child := named("child", scripted.New(scripted.Text("From below.")))
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("Let me ask."), handing("child", "look")), scripted.Text("All is well."),
	))
	agent.SubAgents = []helix.SubAgent{{Agent: child}}
	x := s.Start(agent)
	pieces, err := s.text(s.Begin(x, agent, "s-1", "Hi!"))
	s.ok(err, "text")
	s.same(strings.Join(pieces, ""), "Let me ask.All is well.", "text")
	s.sameJSON(string(new(s.result("subagent__child")).ResultJSON()), `"From below."`, "the sub-agent's result")
	for range s.Attach(x, "s-1").Text(s.ctx()) { // breaking out of it is fine
		break
	}
}

func readTextOfFailure(s *Stage) {
	agent := newAgent(scripted.New(fatal()))
	x := s.Start(agent)
	_, err := s.text(s.Begin(x, agent, "s-1", "Hi!"))
	s.refused(err, code(session.CodeProvider))
}

func readErr(s *Stage) {
	agent := newAgent(scripted.New(fatal(), scripted.Text("Fine."), scripted.Call("pick", num{1})), onClient("pick"))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.refused(res.Err(), code(session.CodeProvider))
	s.same(res.Waits(), false, "a failed run waits")
	res = s.Result(s.Retry(x, "s-1"))
	s.same(res.Err() == nil, true, "a completed run has no error")
	res = s.waitsOn(x, agent, "s-1")
	s.same([]bool{res.Err() == nil, res.Waits()}, []bool{true, true}, "no error and waits of a suspended run")
}

func readUsage(s *Stage) {
	x, _, res := s.suspended(onClient("pick"))
	before := res.Usage
	s.same(before.ModelCalls, int64(1), "model calls before the answer")
	s.Submit(x, "s-1", helix.ToolResult(res.Pending[0].CallID, "blue"), helix.SubmitAccepted)
	res = s.Result(s.Resume(x, "s-1", helix.ResumeOptions{}))
	s.ended(res, helix.Completed)
	s.same(res.Usage.ModelCalls, int64(2), "model calls of the turn")
	s.same(res.Usage.InputTokens > before.InputTokens, true, "input tokens grow")
	s.same(s.run("s-1", res.RunID).Usage.ModelCalls, int64(1), "model calls of the run's record")
}

func readDeletedRun(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))))
	x := s.Start(agent)
	s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	_, err := x.Sessions().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.ok(x.Shutdown(s.ctx()), "shut down") // it would wait for the run
	s.absent("s-1")
}
