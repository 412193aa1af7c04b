package runtimetest

import (
	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func branchScenarios() []Scenario {
	return []Scenario{
		{"checkpoint", "a branch from a checkpoint has its messages and its state", branchCheckpoint},
		{"message index", "a branch from a message index has the messages before it", branchIndex},
		{"message index in a step", "a branch that cuts a step in two answers the calls it leaves open", branchCut},
		{"latest", "a branch without options has everything", branchLatest},
		{"source", "a branch does not affect its source, nor the source the branch", branchSource},
		{"running source", "a session can be branched while it runs; calls in flight are answered", branchRunning},
		{"failed source", "a failed session can be branched", branchFailed},
		{"exists", "a branch needs a new session id", branchExists},
		{"unknown", "a branch of what does not exist is refused", branchUnknown},
		{"bad place", "a branch from a place that does not exist is refused, and no session is created", branchBadPlace},
		{"request repeated", "a repeated request id attaches to the branch's run", branchRepeated},
		{"labels", "a branch has its own user, tags and metadata", branchLabels},
		{"mid-step source", "a branch of a session that waits in the middle of a step keeps finished calls and their state", branchMidStep},
		{"source of another", "a branch of another user's session, or another agent's, is refused", branchOthers},
		{"onto a copy", "a branch onto a copy without a turn is refused, unless it is the same branch made again", branchOntoCopy},
		{"answered source", "a branch in the middle of a step keeps answers that were accepted", branchAnswered},
		{"cut short", "a branch that was cut short can be requested again and is completed, also if the source has continued", branchCutShort},
		{"request of another", "a request id of another user's session reveals nothing", branchRequest},
		{"continues", "a branch is a session like any other: it continues, is retried, and is branched", branchContinues},
	}
}

// story leaves session s-1 completed after two note steps and a reply.
func (s *Stage) story(more ...scripted.Step) (Executor, *helix.Agent, *scripted.Model) {
	s.Helper()
	model := scripted.New(append([]scripted.Step{scripted.Call("note", num{1}), scripted.Call("note", num{2}), scripted.Text("The end.")}, more...)...)
	agent := newAgent(model, noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "A tale!"), helix.Completed)
	return x, agent, model
}

var tale = []string{
	"user: A tale!", `assistant: note({"n":1})`, "tool note: 1", `assistant: note({"n":2})`, "tool note: 2", "assistant: The end.",
}

func (s *Stage) branch(x Executor, agent *helix.Agent, id string, from helix.Branch, text string) helix.Run {
	s.Helper()
	return s.Execute(x, agent, helix.Input{SessionID: id, Message: helix.UserText(text), Branch: &from})
}

func branchCheckpoint(s *Stage) {
	x, agent, _ := s.story(scripted.Call("note", num{7}), scripted.Text("Another end."))
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", Checkpoint: s.checkpoints("s-1")[1].ID}, "Continue!")), helix.Completed)
	s.transcript("s-2", append(tale[:3:3], "user: Continue!", `assistant: note({"n":7})`, "tool note: 2", "assistant: Another end.")...)
	s.sameJSON(s.state("s-2"), `{"notes":[1,7],"last":7}`, "state")
	s.same(s.load("s-2").Turn, 1, "turn")
	s.same(s.chunks("s-2")[0].Kind, stream.RunStarted, "the first chunk of the branch's own stream")
}

func branchIndex(s *Stage) {
	x, agent, model := s.story(scripted.Text("Another end."))
	index := 3
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", MessageIndex: &index}, "Continue!")), helix.Completed)
	s.transcript("s-2", append(tale[:3:3], "user: Continue!", "assistant: Another end.")...)
	s.sameJSON(s.state("s-2"), `{"notes":[1],"last":1}`, "state")
	s.same(len(model.Requests()[3].Messages), 4, "messages the model sees")
	none := 0
	agent2 := newAgent(scripted.New(scripted.Text("Hello.")))
	agent2.Name = "agent"
	y := s.StartOther(Options{Agents: []*helix.Agent{agent2}})
	s.ended(s.Result(s.branch(y, agent2, "s-3", helix.Branch{From: "s-1", MessageIndex: &none}, "From the start!")), helix.Completed)
	s.transcript("s-3", "user: From the start!", "assistant: Hello.")
}

func branchCut(s *Stage) {
	x, agent, _ := s.story(scripted.Text("Another end."))
	index := 4
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", MessageIndex: &index}, "Continue!")), helix.Completed)
	s.transcript("s-2", append(tale[:4:4], "tool note failed: tool_not_executed", "user: Continue!", "assistant: Another end.")...)
	s.sameJSON(s.state("s-2"), `{"notes":[1],"last":1}`, "state")
}

func branchLatest(s *Stage) {
	x, agent, _ := s.story(scripted.Text("And then?"))
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Continue!")), helix.Completed)
	s.transcript("s-2", append(tale[:6:6], "user: Continue!", "assistant: And then?")...)
	s.sameJSON(s.state("s-2"), `{"notes":[1,2],"last":2}`, "state")
}

func branchSource(s *Stage) {
	x, agent, _ := s.story(scripted.Call("note", num{7}), scripted.Text("Another end."), scripted.Call("note", num{8}), scripted.Text("More."))
	before, chunks := s.load("s-1"), len(s.chunks("s-1"))
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Continue!")), helix.Completed)
	after := s.load("s-1")
	s.same([]any{after.Version, after.Turn, after.MessageCount, after.Status}, []any{before.Version, before.Turn, before.MessageCount, before.Status}, "the source")
	s.same(len(s.chunks("s-1")), chunks, "chunks of the source")
	s.transcript("s-1", tale...)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":2}`, "state of the source")
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2,8],"last":8}`, "state of the source")
	s.sameJSON(s.state("s-2"), `{"notes":[1,2,7],"last":7}`, "state of the branch")
	s.same(len(s.messages("s-2")), 10, "messages of the branch")
}

func branchRunning(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("branch"), scripted.Text("source")), blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Not so slow!")), helix.Completed)
	s.transcript("s-2", "user: Hi!", `assistant: wait({"n":1})`, "tool wait failed: tool_outcome_unknown", "user: Not so slow!", "assistant: branch")
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: wait({"n":1})`, "tool wait: 1", "assistant: source")
}

func branchFailed(s *Stage) {
	x, agent, _ := s.broken(scripted.Text("Fine."))
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Once more!")), helix.Completed)
	s.transcript("s-2", append(untilBroken, "user: Once more!", "assistant: Fine.")...)
	s.same(s.load("s-1").Status, session.Failed, "status of the source")
}

func branchExists(s *Stage) {
	x, agent, _ := s.story(scripted.Text("I am here."), scripted.Text("Still."))
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.Completed)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Go!"), Branch: &helix.Branch{From: "s-1"}})
	s.refused(err, helix.ErrExists, "s-2")
	s.transcript("s-2", "user: Hi!", "assistant: I am here.")
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.Completed)
}

func branchUnknown(s *Stage) {
	x, agent, _ := s.story()
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Go!"), Branch: &helix.Branch{From: "nobody"}})
	s.refused(err, helix.ErrNotFound, "nobody")
	s.absent("s-2")
}

func (s *Stage) absent(id string) {
	s.Helper()
	exists, err := s.store().Exists(s.ctx(), id)
	s.ok(err, "exists")
	s.same(exists, false, "session %s exists", id)
}

func branchBadPlace(s *Stage) {
	x, agent, _ := s.story(scripted.Text("I am another."))
	s.ended(s.Say(x, agent, "s-3", "Hi!"), helix.Completed)
	index, negative := 99, -1
	for _, bad := range []struct {
		branch helix.Branch
		want   error
		state  any
	}{
		{helix.Branch{From: "s-1", Checkpoint: s.checkpoints("s-3")[0].ID}, helix.ErrNotFound, nil},
		{helix.Branch{From: "s-1", Checkpoint: "nothing"}, helix.ErrNotFound, nil},
		{helix.Branch{From: "s-1", MessageIndex: &index}, helix.ErrInvalid, nil},
		{helix.Branch{From: "s-1", MessageIndex: &negative}, helix.ErrInvalid, nil},
		{helix.Branch{From: "s-1", Checkpoint: s.checkpoints("s-1")[0].ID, MessageIndex: new(int)}, helix.ErrInvalid, nil},
		{helix.Branch{From: "s-1"}, helix.ErrInvalid, map[string]any{"last": 3}},
	} {
		_, err := x.Execute(s.ctx(), agent, helix.Input{
			SessionID: "s-2", Message: helix.UserText("Go!"), Branch: &bad.branch, State: bad.state,
		})
		s.refused(err, bad.want)
		s.absent("s-2")
	}
}

func branchRepeated(s *Stage) {
	x, agent, _ := s.story(scripted.Text("Once."))
	in := helix.Input{SessionID: "s-2", Message: helix.UserText("Go!"), RequestID: "req-1", Branch: &helix.Branch{From: "s-1"}}
	first := s.Execute(x, agent, in)
	s.ended(s.Result(first), helix.Completed)
	s.same(s.Execute(x, agent, in).ID(), first.ID(), "run of the repeated call")
	s.same(len(s.messages("s-2")), 8, "messages")
	s.same(s.run("s-2", first.ID()).Turn, 1, "turn")
	s.same(len(s.runs("s-2")), 1, "runs")
}

func branchLabels(s *Stage) {
	x, agent, _ := s.story(scripted.Text("Fine."))
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-2", Message: helix.UserText("Go!"), Branch: &helix.Branch{From: "s-1"},
		User: helix.User{ID: "bob"}, Tags: []string{"copy"}, Metadata: map[string]string{"k": "v"},
	})), helix.Completed)
	state := s.load("s-2")
	s.same([]any{state.UserID, state.Tags, state.Metadata}, []any{"bob", []string{"copy"}, map[string]string{"k": "v"}}, "labels")
}

func branchContinues(s *Stage) {
	x, agent, _ := s.story(scripted.Text("two"), fatal(), scripted.Text("three"), scripted.Text("four"))
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "second")), helix.Completed)
	s.ended(s.Say(x, agent, "s-2", "third"), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-2")), helix.Completed)
	s.transcript("s-2", append(tale[:6:6], "user: second", "assistant: two", "user: third", "assistant: three")...)
	s.ended(s.Result(s.branch(x, agent, "s-3", helix.Branch{From: "s-2"}, "fourth")), helix.Completed)
	s.transcript("s-3", append(tale[:6:6], "user: second", "assistant: two", "user: third", "assistant: three", "user: fourth", "assistant: four")...)
}

func branchMidStep(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("pick", num{2})), scripted.Text("Done.")).ByPosition(),
		noteTool(), onClient("pick"))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Never mind.")), helix.Completed)
	s.transcript("s-2", "user: Hi!", `assistant: note({"n":1}), pick({"n":2})`, "tool note: 1", "tool pick failed: client_tool_abandoned",
		"user: Never mind.", "assistant: Done.")
	s.sameJSON(s.state("s-2"), `{"notes":[1],"last":1}`, "state of the branch")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state of the source")
}

func branchOthers(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one")).ByPosition())
	x := s.Start(agent)
	say := func(in helix.Input) (helix.Run, error) {
		in.Message = helix.UserText("Hi!")
		return x.Execute(s.ctx(), agent, in)
	}
	run, err := say(helix.Input{SessionID: "s-1", User: helix.User{ID: "alice"}})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	_, err = say(helix.Input{SessionID: "s-2", User: helix.User{ID: "bob"}, Branch: &helix.Branch{From: "s-1"}})
	s.refused(err, helix.ErrNotFound, "bob")
	s.absent("s-2")
	other := named("other", scripted.New(scripted.Text("two")).ByPosition())
	_, err = x.Execute(s.ctx(), other, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!"), Branch: &helix.Branch{From: "s-1"}})
	s.refused(err, helix.ErrInvalid, "agent")
	s.absent("s-2")
}

func branchOntoCopy(s *Stage) {
	x, agent, _ := s.story(scripted.Text("Another tale."), scripted.Text("The end of the copy."))
	s.ended(s.Say(x, agent, "s-3", "Another!"), helix.Completed)
	_, err := s.store().Clone(s.ctx(), &session.Clone{From: "s-1", To: session.State{ID: "s-2", Agent: agent.Name, StreamID: "s-2"}})
	s.ok(err, "clone")
	index := 3
	for _, from := range []helix.Branch{{From: "s-3"}, {From: "s-1", MessageIndex: &index}, {From: "s-1", Checkpoint: s.checkpoints("s-1")[1].ID}} {
		_, err = x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Continue!"), Branch: &from})
		s.refused(err, helix.ErrExists, "s-2")
	}
	s.transcript("s-2", tale...)
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Continue!")), helix.Completed)
	s.transcript("s-2", append(tale[:6:6], "user: Continue!", "assistant: The end of the copy.")...)
}

func branchRequest(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one")).ByPosition())
	x := s.Start(agent)
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}, RequestID: "req-1"}
	first := s.Execute(x, agent, in)
	s.ended(s.Result(first), helix.Completed)
	s.same(s.Execute(x, agent, in).ID(), first.ID(), "run of the repeated call")
	in.User.ID = "bob"
	_, err := x.Execute(s.ctx(), agent, in)
	s.refused(err, helix.ErrNotFound, "bob")
}

// undecided is an agent that takes a note and asks for a pick, a word and a payment in
// one step.
func undecided(ran *tally) *helix.Agent {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("pick", num{2}),
		scripted.Calling("tell", num{3}), scripted.Calling("pay", num{4})), scripted.Text("Done.")).ByPosition(),
		noteTool(), onClient("pick"), onClient("tell"), guarded(ran, "pay"))
	agent.State = helix.StateOf(notes{})
	return agent
}

func branchAnswered(s *Stage) {
	var ran tally
	agent := undecided(&ran)
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	pick := s.waiting(res, "pick").CallID
	pay := s.waiting(res, "pay")
	for _, answer := range []session.Submission{
		{CallID: pick, Response: session.Response{Kind: session.PendingClientTool, Result: []byte(`"blue"`)}},
		{CallID: pay.CallID, ApprovalID: pay.ApprovalID, Response: session.Response{Kind: session.PendingApproval, Approved: true}},
	} { // no process takes them up
		outcome, err := s.store().Submit(s.ctx(), "s-1", answer)
		s.ok(err, "submit")
		s.same(outcome, session.SubmitAccepted, "the answer to %s", answer.CallID)
	}
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Never mind.")), helix.Completed)
	s.transcript("s-2", "user: Hi!", `assistant: note({"n":1}), pick({"n":2}), tell({"n":3}), pay({"n":4})`, "tool note: 1", `tool pick: "blue"`,
		"tool tell failed: client_tool_abandoned", "tool pay failed: tool_not_executed", "user: Never mind.", "assistant: Done.")
	s.same(ran.of("pay"), 0, "payments")
}

func branchCutShort(s *Stage) {
	var ran tally
	agent := undecided(&ran)
	x := s.Start(agent)
	s.waitsOn(x, agent, "s-1")
	cut := func(id string) {
		s.Helper()
		_, err := s.store().Clone(s.ctx(), &session.Clone{From: "s-1", To: session.State{ID: id, Agent: agent.Name, StreamID: id}})
		s.ok(err, "clone")
	}
	want := []string{
		"user: Hi!", `assistant: note({"n":1}), pick({"n":2}), tell({"n":3}), pay({"n":4})`, "tool note: 1",
		"tool pick failed: client_tool_abandoned", "tool tell failed: client_tool_abandoned", "tool pay failed: client_tool_abandoned",
		"user: Never mind.", "assistant: Done.",
	}
	cut("s-2")
	cut("s-3")
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Never mind.")), helix.Completed)
	s.transcript("s-2", want...)
	s.sameJSON(s.state("s-2"), `{"notes":[1],"last":1}`, "state of the branch")
	s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Continue."), AbandonPending: true})), helix.Completed)
	s.ended(s.Result(s.branch(x, agent, "s-3", helix.Branch{From: "s-1"}, "Never mind.")), helix.Completed)
	s.transcript("s-3", want...)
}
