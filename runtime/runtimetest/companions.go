package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func companionScenarios() []Scenario {
	return []Scenario{
		{"tools", "the companion tools are offered where companions are, and waitForResult where one is blocking", companionTools},
		{"bad input", "a call whose input does not fit is a tool error that says what is wrong", companionBadInput},
		{"blocking", "a blocking companion answers the call that spawns it", companionBlocking},
		{"output", "the output of a companion that has one is its answer", companionOutput},
		{"names", "a companion is given a name that is free, also when two are spawned at once", companionNames},
		{"bad names", "a name that does not fit, or is another agent's, is refused", companionBadNames},
		{"names of others", "a session that another caller created under a companion's id is neither read nor written", companionForeign},
		{"again by spawn", "spawning under the same name continues the same session", func(s *Stage) { companionAgain(s, helix.SpawnAgentTool) }},
		{"again by message", "a message to a companion that is done continues the same session", func(s *Stage) { companionAgain(s, helix.SendMessageTool) }},
		{"again after finish", "a companion that finished with an output can be consulted again", companionAgainFinish},
		{"failed", "a companion that failed starts fresh", companionFailed},
		{"terminated", "a companion that was terminated starts fresh", companionTerminated},
		{"terminated at work", "a companion that is terminated at work stops, reports nothing, and starts fresh", companionTerminatedAtWork},
		{"unknown name", "calls to a companion that was never spawned are refused", companionUnknownName},
		{"list and status", "a model can see the status of its companions", companionStatus},
		{"twice in one reply", "of two calls to the same companion in one reply the second is refused", companionTwice},
		{"non-blocking", "a non-blocking companion works independently, with its own stream; the model is told of its end once, at the next turn", companionNonBlocking},
		{"notice at the next step", "a parent at work is told of a companion's end at its next step", companionNoticeStep},
		{"notice of a failure", "the model is told of a companion's failure", companionNoticeFailure},
		{"message at work", "a companion at work receives a message at its next step", companionMessage},
		{"message as it ends", "a message that arrives as a companion ends starts another turn, at whatever moment", companionMessageEnd},
		{"message race", "messages that race with a companion's end are never lost", companionMessageRace},
		{"wait", "waiting for a companion at work suspends the parent until the companion ends", companionWait},
		{"wait for one that is done", "waiting for a companion that is done gives its result at once", companionWaitDone},
		{"wait as it ends", "a companion that ends as the parent suspends wakes it, at whatever moment", companionWaitEnd},
		{"wait and failure", "waiting for a companion that fails is a tool error", companionWaitFailure},
		{"wait and kill", "a companion whose process died is taken over, and wakes the parent that waits", companionWaitKill},
		{"wait for one that waits", "the waiting calls of a companion are listed while its parent waits for it", companionWaitListed},
		{"waits for a person", "a non-blocking companion that waits is answered through the root and continues without a resume", companionPerson},
		{"waits for a person elsewhere", "an answer from a process that does not know the agents reaches a companion", companionPersonElsewhere},
		{"answered elsewhere, at once", "an answer from a process that does not know the agents reaches a companion without waiting for a sweep", companionPersonAtOnce},
		{"blocking waits for a person", "a blocking companion that waits suspends the parent", companionBlockingPerson},
		{"aborted while waiting", "aborting a parent ends the blocking companion that it waits for", companionAbortWaiting},
		{"abandoned by a message", "a blocking companion that waits keeps its memory when a new message abandons it", func(s *Stage) { companionLeft(s, abandonPending) }},
		{"abandoned by an interrupt", "a blocking companion that waits keeps its memory when its parent is interrupted", func(s *Stage) { companionLeft(s, interruptBeside) }},
		{"abandoned by a failure", "a blocking companion that waits keeps its memory when its parent fails", func(s *Stage) { companionLeft(s, failBeside) }},
		{"abandoned, spawned again", "a companion that was abandoned while it waited can be spawned again, and remembers", companionLeftSpawn},
		{"abandoned and terminated", "a companion that was abandoned while it waited starts fresh once it is terminated", companionLeftTerminated},
		{"parent stopped", "stopping the parent stops a blocking companion and not a non-blocking one", companionStopped},
		{"parent stopped before", "a call that a stop kept from its blocking companion has no result, not that of an earlier call", companionStoppedBefore},
		{"refused step", "a reply that was never committed leaves no companion", companionRefused},
		{"killed", "companions of a parent that died continue, each in the same run", companionKilled},
		{"killed before the spawn", "a companion whose spawn was committed is started once", companionKilledBefore},
		{"with a client tool", "companions in a step that waits for a person are called once", companionMixed},
		{"hooks", "hooks see companions, and may veto", companionHooks},
		{"vetoed again", "a finished companion stays finished when a second spawn is vetoed", companionVetoedAgain},
		{"of a sub-agent", "a sub-agent may have companions", companionOfSub},
		{"messages are cheap", "a message to a companion of a session that was never rewound does not read its whole inbox history", companionCheap},
	}
}

// team returns the agent with companions.
func team(agent *helix.Agent, mode helix.CompanionMode, companions ...*helix.Agent) *helix.Agent {
	for _, c := range companions {
		agent.Companions = append(agent.Companions, helix.Companion{Agent: c, Mode: mode})
	}
	return agent
}

// Calls of the companion tools.
func spawning(name, message string) scripted.Part {
	in := map[string]string{"agent": "helper", "initialMessage": message}
	if name != "" {
		in["name"] = name
	}
	return scripted.Calling(helix.SpawnAgentTool, in)
}

func messaging(name, message string) scripted.Part {
	return scripted.Calling(helix.SendMessageTool, map[string]string{"name": name, "message": message})
}

func about(tool, name string) scripted.Part {
	return scripted.Calling(tool, map[string]string{"name": name})
}

// companion is the session of a companion of s-1, by its name. It waits until the
// companion was called on.
func (s *Stage) companion(name string) (id string) {
	s.Helper()
	s.until("the companion "+name+" is known", func() bool {
		refs, err := s.store().Children(s.ctx(), "s-1")
		for i := range refs {
			if err == nil && refs[i].Name == name {
				id = refs[i].SessionID
			}
		}
		return id != ""
	})
	return id
}

// status returns the latest result of a companion tool.
func (s *Stage) status(tool string) string {
	s.Helper()
	part := s.result(tool)
	if part.Error != nil {
		return string(part.Error.Code)
	}
	var status struct {
		Status string
		Output json.RawMessage
		Error  string
	}
	s.ok(json.Unmarshal(part.ResultJSON(), &status), "result of %s", tool)
	return strings.TrimSpace(status.Status + " " + string(status.Output) + status.Error)
}

// hidden lists the hidden messages of session s-1.
func (s *Stage) hidden() (texts []string) {
	s.Helper()
	for _, m := range s.messages("s-1") {
		if m.Hidden() {
			texts = append(texts, m.Content())
		}
	}
	return texts
}

// noticed waits until session s-1 has the notice of a companion's end.
func (s *Stage) noticed() {
	s.Helper()
	s.until("the parent is told", func() bool {
		entries, err := s.store().Inbox(s.ctx(), "s-1")
		s.ok(err, "inbox")
		return len(entries) > 0 || len(s.hidden()) > 0
	})
}

// becomes waits until a session has a status.
func (s *Stage) becomes(id string, want session.Status) {
	s.Helper()
	s.until(id+" is "+string(want), func() bool {
		state, err := s.store().Load(s.ctx(), id)
		return err == nil && state.Status == want
	})
}

func companionTools(s *Stage) {
	var names []string
	for _, mode := range []helix.CompanionMode{"", helix.Blocking, helix.NonBlocking, "none"} {
		model := scripted.New(scripted.Text("ok"))
		agent := named("agent", model)
		if mode != "none" {
			helper := named("helper", scripted.New())
			helper.Description = "Helps."
			team(agent, mode, helper)
		}
		x := s.Start(agent)
		s.ended(s.Say(x, agent, "s-"+string(mode), "Hi!"), helix.Completed)
		var offered []string
		for _, tool := range model.Requests()[0].Tools {
			offered = append(offered, strings.TrimPrefix(tool.Name, helix.CompanionPrefix))
			if tool.Name == helix.SpawnAgentTool && !strings.Contains(tool.Description, "Helps.") {
				s.Fatalf("the tool does not say what the agent is for: %s", tool.Description)
			}
		}
		names = append(names, fmt.Sprint(offered))
	}
	five := "spawnAgent sendMessage listChildren getChildStatus terminateChild"
	s.same(names, []string{"[" + five + " waitForResult]", "[" + five + " waitForResult]", "[" + five + "]", "[]"}, "tools")
}

func companionBadInput(s *Stage) {
	agent := team(newAgent(scripted.New(scripted.Reply(
		scripted.Calling(helix.SpawnAgentTool, `{"initialMessage":"x"}`), scripted.Calling(helix.SpawnAgentTool, `{"agent":"helper"}`),
		scripted.Calling(helix.SpawnAgentTool, `{"agent":"nobody","initialMessage":"x"}`),
		scripted.Calling(helix.SendMessageTool, `{"name":"bob"}`), scripted.Calling(helix.GetChildStatusTool, `{}`),
		scripted.Calling(helix.TerminateChildTool, `{"name":3}`), scripted.Calling(helix.ListChildrenTool, `{"all":true}`),
		scripted.Calling(helix.WaitForResultTool, `{}`),
	), scripted.Text("Oh."))), helix.NonBlocking, named("helper", scripted.New()))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	for i, words := range [][]string{
		{"spawnAgent", "agent"},
		{"spawnAgent", "initialMessage"},
		{"nobody"},
		{"sendMessage", "message"},
		{"getChildStatus", "name"},
		{"terminateChild", "name"},
		{"listChildren", "all"},
	} {
		s.refused(s.messages("s-1")[i+2].Parts[0].Error, code(session.CodeToolInput), words...)
	}
	s.refused(s.messages("s-1")[9].Parts[0].Error, code(session.CodeToolUnknown), "waitForResult")
	s.same(s.sessions(), []string{"s-1"}, "sessions")
	s.same(len(s.children("s-1")), 0, "references")
}

func companionBlocking(s *Stage) {
	helper := named("helper", scripted.New(scripted.Call("double", num{2}), scripted.Text("four")), double())
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "2+2?")), scripted.Text("Thanks."))), helix.Blocking, helper)
	x := s.Start(agent)
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: companion__spawnAgent({"agent":"helper","initialMessage":"2+2?","name":"bob"})`,
		`tool companion__spawnAgent: {"name":"bob","agent":"helper","status":"completed","output":"four"}`, "assistant: Thanks.")
	s.transcript(s.companion("bob"), "user: 2+2?", `assistant: double({"n":2})`, "tool double: 4", "assistant: four")
	state, ref := s.load(s.companion("bob")), s.children("s-1")[0]
	s.same(fmt.Sprint(state.ParentID, state.RootID, state.StreamID, state.UserID), "s-1s-1s-1alice", "links")
	s.same(fmt.Sprint(ref.SessionID, ref.Name, ref.Agent, ref.Mode, ref.Blocking, ref.Status),
		fmt.Sprint(s.companion("bob"), "bob", "helper", session.ChildPersistent, true, session.ChildCompleted), "the reference")
	s.bracketed("s-1")
	s.same(len(s.hidden()), 0, "notices")
}

func companionOutput(s *Stage) {
	helper, _ := finisher(scripted.Finish(report{"done"}))
	helper.Name = "helper"
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Thanks."))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.SpawnAgentTool), `completed {"summary":"done"}`, "the result")
}

func companionNames(s *Stage) {
	helper := named("helper", scripted.New(scripted.Text("ok")).ByPosition())
	agent := team(newAgent(scripted.New(
		scripted.Reply(spawning("", "1"), spawning("", "2"), spawning("helper-4", "4")), scripted.Reply(spawning("", "3")), scripted.Reply(spawning("", "5")),
		scripted.Text("Thanks."))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	var got []string
	for _, ref := range s.children("s-1") {
		got = append(got, ref.Name)
		s.same(plainID(ref.SessionID), "s-1-agent-"+ref.Name, "the session of %s", ref.Name)
		s.same(s.messages(ref.SessionID)[0].Content(), ref.Name[len("helper-"):], "what %s was told", ref.Name)
	}
	s.same(len(got), 5, "companions")
}

func companionBadNames(s *Stage) {
	helper, other := named("helper", scripted.New(scripted.Text("ok"))), named("other", scripted.New())
	names := []string{"a b", "-bob", strings.Repeat("x", 65), "bob/../eve"}
	var calls []scripted.Part
	for _, name := range names {
		calls = append(calls, spawning(name, "hi"))
	}
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "hi")), scripted.Reply(append(calls,
		scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "other", "name": "bob", "initialMessage": "hi"}))...), scripted.Text("Oh."))),
		helix.Blocking, helper, other)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	results := s.messages("s-1")[4:]
	for i, name := range names {
		s.refused(results[i].Parts[0].Error, code(session.CodeToolInput), fmt.Sprintf("%q", name))
	}
	s.refused(results[len(names)].Parts[0].Error, code(session.CodeToolInput), `"bob"`, "helper")
	s.same(s.sessions(), []string{"s-1", s.companion("bob")}, "sessions")
}

func companionForeign(s *Stage) {
	helper := named("helper", scripted.New(scripted.Text("ok")).ByPosition())
	agent := team(newAgent(scripted.New(
		scripted.Reply(spawning("", "a secret"), spawning("bob", "a secret")), scripted.Text("Thanks."))), helix.Blocking, helper)
	x := s.Start(agent, helper)
	planted := []string{"s-1-agent-helper-1", "s-1-agent-bob"}
	for _, id := range planted {
		s.Result(s.Execute(x, helper, helix.Input{SessionID: id, Message: helix.UserText("Tell me."), User: helix.User{ID: "eve"}}))
	}
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	for _, id := range planted {
		s.transcript(id, "user: Tell me.", "assistant: ok")
	}
	for _, name := range []string{"helper-1", "bob"} {
		s.transcript(s.companion(name), "user: a secret", "assistant: ok")
	}
	s.same(len(s.children("s-1")), 2, "companions")
}

func companionAgain(s *Stage, tool string) {
	helper := named("helper", scripted.New(
		scripted.Call("double", num{1}), scripted.Text("one"), scripted.Text("two"), scripted.Text("three")).ByPosition(), double())
	again := spawning("bob", "and?")
	if tool == helix.SendMessageTool {
		again = messaging("bob", "and?")
	}
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "start")), scripted.Reply(again), scripted.Text("ok"),
		scripted.Reply(again), scripted.Text("ok"))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(tool), `completed "two"`, "the second answer")
	s.ended(s.Say(x, agent, "s-1", "Hi again!"), helix.Completed)
	s.same(s.status(tool), `completed "three"`, "the third answer")
	s.transcript(s.companion("bob"), "user: start", `assistant: double({"n":1})`, "tool double: 2", "assistant: one",
		"user: and?", "assistant: two", "user: and?", "assistant: three")
	s.same(len(s.runs(s.companion("bob"))), 3, "runs")
	s.same(s.load(s.companion("bob")).StepCount, 1, "steps of the last turn")
	s.same(len(s.children("s-1")), 1, "references")
	s.bracketed("s-1")
}

func companionAgainFinish(s *Stage) {
	helper, _ := finisher(scripted.Finish(report{"one"}), scripted.Finish(report{"two"}))
	helper.Name = "helper"
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "start")), scripted.Reply(messaging("bob", "and?")), scripted.Text("ok"))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.SendMessageTool), `completed {"summary":"two"}`, "the second answer")
	s.transcript(s.companion("bob"), "user: start", `assistant: __finish__({"summary":"one"})`, `tool __finish__: {"acknowledged":true}`,
		"user: and?", `assistant: __finish__({"summary":"two"})`, `tool __finish__: {"acknowledged":true}`)
}

func companionFailed(s *Stage) {
	s.loose["s-1-agent-bob"] = true // the parent's stream still has what the first one said
	helper := named("helper", scripted.New(scripted.Fail(session.CodeProvider, false, "broken"), scripted.Text("better")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "one")), scripted.Reply(messaging("bob", "two")), scripted.Text("ok"))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.result(helix.SpawnAgentTool).Error, code(session.CodeSubAgent), "its model could not answer")
	s.same(s.status(helix.SendMessageTool), `completed "better"`, "the second answer")
	s.transcript(s.companion("bob"), "user: two", "assistant: better")
	s.same(len(s.runs(s.companion("bob"))), 1, "runs")
	s.same(s.children("s-1")[0].Status, session.ChildCompleted, "the reference")
}

func companionTerminated(s *Stage) {
	s.loose["s-1-agent-bob"] = true // the parent's stream still has what the first one said
	helper := named("helper", scripted.New(scripted.Text("one"), scripted.Text("two")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "one")), scripted.Reply(about(helix.TerminateChildTool, "bob")),
		scripted.Reply(about(helix.GetChildStatusTool, "bob"), scripted.Calling(helix.ListChildrenTool, nil)),
		scripted.Reply(spawning("bob", "two")), scripted.Text("ok"))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.TerminateChildTool), "terminated", "what the model is told")
	s.same(strings.Fields(s.status(helix.GetChildStatusTool))[0], "terminated", "its status")
	s.sameJSON(string(new(s.result(helix.ListChildrenTool)).ResultJSON()), `[{"name":"bob","agent":"helper","status":"terminated"}]`, "the list")
	s.transcript(s.companion("bob"), "user: two", "assistant: two")
	s.same(s.children("s-1")[0].Status, session.ChildCompleted, "the reference")
}

// atWork is a companion that is in a tool.
func atWork(g *gate) *helix.Agent {
	return named("helper", scripted.New(scripted.Call("wait", num{1}), scripted.Text("one"), scripted.Text("two"), scripted.Text("three")).ByPosition(), blocking(g))
}

// after is a reply that comes when a channel is closed.
func after(open <-chan struct{}, parts ...scripted.Part) scripted.Step {
	return scripted.Reply(append([]scripted.Part{scripted.Until(open)}, parts...)...)
}

func companionTerminatedAtWork(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Func(func(r *llm.Request) scripted.Step {
		if r.Messages[0].Content() == "one" {
			return scripted.Call("wait", num{1})
		}
		return scripted.Text("two")
	})).ByPosition(), blocking(g))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "one")),
		after(g.entered, scripted.Calling(helix.TerminateChildTool, map[string]string{"name": "bob", "reason": "enough"})),
		scripted.Reply(spawning("bob", "two")), scripted.Text("ok"), scripted.Text("ok")).ByPosition()), helix.NonBlocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.TerminateChildTool), "terminated", "what the model is told")
	s.same(s.status(helix.SpawnAgentTool), "running", "the second spawn")
	s.becomes(s.companion("bob"), session.Completed)
	s.transcript(s.companion("bob"), "user: two", "assistant: two")
	s.noticed()
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
	if !strings.Contains(s.hidden()[0], `"two"`) {
		s.Fatalf("the notice is %q", s.hidden()[0])
	}
}

func companionStoppedBefore(s *Stage) {
	helper := named("helper", scripted.New(scripted.Text("Yes."), scripted.Text("No.")).ByPosition())
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "May I look?")), scripted.Reply(messaging("bob", "May I delete?")),
		scripted.Text("ok")).ByPosition()), helix.Blocking, helper)
	var x helix.Executor
	backend := s.newFrail(s.Backend)
	stop := sync.OnceFunc(func() { s.ok(x.Interrupt(s.ctx(), "s-1", "enough"), "interrupt") })
	backend.faults.committed = func(commit *session.Commit) {
		for i := range commit.Calls {
			if commit.SessionID == "s-1" && commit.Calls[i].Tool == helix.SendMessageTool {
				stop()
			}
		}
	}
	x = s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Interrupted)
	s.transcript(s.companion("bob"), "user: May I look?", "assistant: Yes.")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{})), helix.Completed)
	if part := s.result(helix.SendMessageTool); part.Error == nil {
		s.Fatalf("the second call has the result %s", part.ResultJSON())
	}
}

func companionUnknownName(s *Stage) {
	tools := []string{helix.SendMessageTool, helix.GetChildStatusTool, helix.TerminateChildTool, helix.WaitForResultTool}
	calls := []scripted.Part{messaging("eve", "hi")}
	for _, tool := range tools[1:] {
		calls = append(calls, about(tool, "eve"))
	}
	agent := team(newAgent(scripted.New(scripted.Reply(calls...), scripted.Text("Oh."))), helix.Blocking, named("helper", scripted.New()))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	for _, tool := range tools {
		s.refused(s.result(tool).Error, code(session.CodeToolInput), `"eve"`, helix.ListChildrenTool)
	}
}

func companionStatus(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Func(func(r *llm.Request) scripted.Step {
		switch r.Messages[0].Content() {
		case "work":
			return scripted.Call("wait", num{1})
		case "ask":
			return scripted.Call("pick", num{1})
		case "fail":
			return scripted.Fail(session.CodeProvider, false, "broken")
		}
		return scripted.Text("fine")
	}), scripted.Text("done")).ByPosition(), blocking(g), onClient("pick"))
	ready := make(chan struct{})
	var list []scripted.Part
	names := []string{"work", "ask", "fail", "do"}
	var spawns []scripted.Part
	for _, name := range names {
		spawns = append(spawns, spawning(name, name))
		list = append(list, about(helix.GetChildStatusTool, name))
	}
	agent := team(newAgent(scripted.New(scripted.Reply(spawns...),
		after(ready, append(list, scripted.Calling(helix.ListChildrenTool, nil))...), scripted.Text("ok"))), helix.NonBlocking, helper)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.becomes(s.companion("fail"), session.Failed)
	s.becomes(s.companion("do"), session.Completed)
	s.open(x, "pick")
	s.until("one is suspended", func() bool { return s.runs(s.companion("ask"))[0].Status.Suspended() })
	s.receive("one works", g.entered)
	close(ready)
	s.ended(s.Result(run), helix.Completed)
	var got []string
	for _, m := range s.messages("s-1") {
		if m.Role == session.RoleTool && m.Parts[0].Tool == helix.GetChildStatusTool {
			got = append(got, string(m.Parts[0].ResultJSON()))
		}
	}
	s.same(strings.Join(got, "\n"), strings.Join([]string{
		`{"name":"work","agent":"helper","status":"running"}`, `{"name":"ask","agent":"helper","status":"waiting"}`,
		`{"name":"fail","agent":"helper","status":"failed","error":"broken"}`, `{"name":"do","agent":"helper","status":"completed","output":"fine"}`,
	}, "\n"), "statuses")
	var all []struct{ Name, Status string }
	s.ok(json.Unmarshal(new(s.result(helix.ListChildrenTool)).ResultJSON(), &all), "the list")
	s.same(len(all), 4, "companions in the list")
	g.release()
	s.becomes(s.companion("work"), session.Completed)
}

func companionTwice(s *Stage) {
	for _, mode := range []helix.CompanionMode{helix.Blocking, helix.NonBlocking} {
		t := s.withNewBackend()
		helper := named("helper", scripted.New(scripted.Text("one"), scripted.Text("two")).ByPosition())
		agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "1"), messaging("bob", "2"), about(helix.TerminateChildTool, "bob")),
			scripted.Reply(messaging("bob", "3")), scripted.Text("ok"))), mode, helper)
		x := t.Start(agent)
		t.ended(t.Say(x, agent, "s-1", "Hi!"), helix.Completed)
		results := t.messages("s-1")[2:5]
		s.same(results[0].Parts[0].Error, (*session.Error)(nil), "the first call")
		for _, m := range results[1:] {
			s.refused(m.Parts[0].Error, code(session.CodeToolNotRun), "bob", "same reply")
		}
		t.until("the last message is answered", func() bool {
			messages := t.messages(t.companion("bob"))
			return messages[len(messages)-1].Content() == "two"
		})
		t.becomes(t.companion("bob"), session.Completed)
		t.checkSessions()
	}
}

func companionNonBlocking(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Started."), scripted.Text("Seen."), scripted.Text("Nothing new."))), helix.NonBlocking, atWork(g))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.SpawnAgentTool), "running", "the result")
	state := s.load(s.companion("bob"))
	s.same(fmt.Sprint(state.ParentID, state.RootID, state.StreamID), fmt.Sprint("s-1", "", s.companion("bob")), "links")
	s.receive("the companion is at work", g.entered)
	g.release()
	s.ended(s.Result(s.Attach(x, s.companion("bob"))), helix.Completed)
	s.noticed()
	s.same(len(s.messages("s-1")), 4, "messages before the next turn")
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
	for _, word := range []string{"bob", "helper", "completed", `"one"`} {
		if !strings.Contains(s.hidden()[0], word) {
			s.Fatalf("the notice %q does not say %s", s.hidden()[0], word)
		}
	}
	s.same(len(own(s.chunks("s-1"), s.companion("bob"))), 0, "chunks of the companion in the parent's stream")
	s.same(s.children("s-1")[0].Status, session.ChildCompleted, "the reference")
	items := s.collect(s.Attach(x, s.companion("bob")))
	s.same(items[0].Chunk.AgentID, s.companion("bob"), "the companion's stream")
}

func companionNoticeStep(s *Stage) {
	told, asked := make(chan struct{}), make(chan struct{})
	model := scripted.New(scripted.Reply(spawning("bob", "go")),
		scripted.Reply(scripted.Do(func() { close(asked) }), scripted.Until(told), scripted.Calling("double", num{1})), scripted.Text("Seen."))
	agent := team(newAgent(model, double()), helix.NonBlocking, named("helper", scripted.New(after(asked, scripted.Say("done")))))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.noticed()
	close(told)
	s.ended(s.Result(run), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
	s.same(s.messages("s-1")[5].Hidden(), true, "the message before the last reply is the notice")
	requests := model.Requests()
	last := requests[len(requests)-1].Messages
	s.same(last[len(last)-1].Content(), s.hidden()[0], "what the model was told last")
}

func companionNoticeFailure(s *Stage) {
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Started."), scripted.Text("Oh."))), helix.NonBlocking,
		named("helper", scripted.New(scripted.Fail(session.CodeProvider, false, "no such model"))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.noticed()
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
	if !strings.Contains(s.hidden()[0], "failed") || !strings.Contains(s.hidden()[0], "no such model") {
		s.Fatalf("the notice is %q", s.hidden()[0])
	}
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "the reference")
}

func companionMessage(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), after(g.entered, messaging("bob", "faster")), scripted.Text("ok"), scripted.Text("ok"))),
		helix.NonBlocking, atWork(g))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(s.status(helix.SendMessageTool), "queued", "the result")
	g.release()
	s.ended(s.Result(s.Attach(x, s.companion("bob"))), helix.Completed)
	s.transcript(s.companion("bob"), "user: go", `assistant: wait({"n":1})`, "tool wait: 1", "user: faster", "assistant: one")
	s.same(len(s.runs(s.companion("bob"))), 1, "runs")
	s.noticed()
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
}

func companionMessageEnd(s *Stage) {
	for _, before := range []bool{true, false} {
		t := s.withNewBackend()
		ending := t.newGate()
		agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), after(ending.entered, messaging("bob", "wait!")), scripted.Text("ok"))),
			helix.NonBlocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two")).ByPosition()))
		backend := t.newFrail(t.Backend)
		hook := func(commit *session.Commit) {
			if plainID(commit.SessionID) != "s-1-agent-bob" || commit.Outcome == nil || strings.HasSuffix(commit.RunID, ".1") {
				return
			}
			ending.enter()
			t.until("the message is sent", func() bool {
				entries, err := t.store().Inbox(t.ctx(), t.companion("bob"))
				return err == nil && len(entries) > 0 || len(t.runs(t.companion("bob"))) > 1
			})
		}
		if before {
			backend.faults.committing = hook
		} else {
			backend.faults.committed = hook
		}
		x := t.startOn(backend, Options{Agents: []*helix.Agent{agent}})
		t.ended(t.Say(x, agent, "s-1", "Hi!"), helix.Completed)
		t.until("the message is answered", func() bool {
			messages := t.messages(t.companion("bob"))
			return messages[len(messages)-1].Content() == "two"
		})
		t.becomes(t.companion("bob"), session.Completed)
		t.transcript(t.companion("bob"), "user: go", "assistant: one", "user: wait!", "assistant: two")
		t.same(len(t.runs(t.companion("bob"))), 2, "runs")
		t.checkSessions()
	}
}

func companionMessageRace(s *Stage) {
	const rounds = 12
	steps := []scripted.Step{scripted.Reply(spawning("bob", "0"))}
	for i := range rounds {
		steps = append(steps, scripted.Reply(messaging("bob", fmt.Sprint(i+1))))
	}
	helper := named("helper", answering("seen"))
	agent := team(newAgent(scripted.New(append(steps, scripted.Text("ok"))...)), helix.NonBlocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.until("all messages are answered", func() bool {
		state := s.load(s.companion("bob"))
		messages := s.messages(s.companion("bob"))
		users := 0
		for _, m := range messages {
			if m.Role == session.RoleUser {
				users++
			}
		}
		return users == rounds+1 && state.Status == session.Completed && messages[len(messages)-1].Role == session.RoleAssistant
	})
	next := 0
	for _, m := range s.messages(s.companion("bob")) {
		if m.Role == session.RoleUser {
			s.same(m.Content(), fmt.Sprint(next), "message %d", next)
			next++
		}
	}
}

// answering is a model that always says the same.
func answering(text string) llm.Model {
	steps := make([]scripted.Step, 100)
	for i := range steps {
		steps[i] = scripted.Text(text)
	}
	return scripted.New(steps...)
}

// patient is an agent that waits for bob, whom it has spawned; it has another
// companion, without whom it could not wait.
func patient(helper *helix.Agent, entered <-chan struct{}, more ...scripted.Step) *helix.Agent {
	agent := newAgent(scripted.New(append([]scripted.Step{
		scripted.Reply(spawning("bob", "go")), after(entered, about(helix.WaitForResultTool, "bob")), scripted.Text("Thanks."),
	}, more...)...).ByPosition())
	team(agent, helix.NonBlocking, helper)
	return team(agent, helix.Blocking, named("other", scripted.New()))
}

func companionWait(s *Stage) {
	g := s.newGate()
	agent := patient(atWork(g), g.entered, scripted.Reply(messaging("bob", "and?")), scripted.Text("Sent."), scripted.Text("Seen."))
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.same(len(s.load("s-1").AwaitingChildren), 1, "children that are awaited")
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrAwaitingInput)
	g.release()
	s.becomes("s-1", session.Completed)
	s.same(s.status(helix.WaitForResultTool), `completed "one"`, "the result")
	s.same(len(s.runs("s-1")), 2, "runs")
	s.same(len(s.load("s-1").AwaitingChildren), 0, "children that are awaited")
	// It is awaited no more: the next end is told. So may the first be, because a wake is
	// delivered at least once.
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	tells := func(text string) bool { return strings.Contains(text, `"two"`) }
	s.until("the parent is told", func() bool {
		entries, err := s.store().Inbox(s.ctx(), "s-1")
		s.ok(err, "inbox")
		return slices.ContainsFunc(s.hidden(), tells) || slices.ContainsFunc(entries, func(e session.InboxEntry) bool { return tells(string(e.Body)) })
	})
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	if told := s.hidden(); !tells(told[len(told)-1]) || len(told) > 2 {
		s.Fatalf("the notices are %q", told)
	}
}

func companionWaitListed(s *Stage) {
	var ran tally
	told := make(chan struct{})
	agent := patient(asking(&ran), told)
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	p := s.open(x, "sign")
	s.until("the companion waits", func() bool { return s.load(s.companion("bob")).SuspendedStep != "" })
	close(told)
	res := s.Result(run)
	s.ended(res, helix.SuspendedAwaitingChildren)
	s.same(s.waiting(res, "sign").CallID, p.CallID, "the call that waits")
	chunks := ofKind(s.chunks("s-1"), stream.Suspended)
	s.same(len(chunks), 1, "suspensions that are shown")
	if !strings.Contains(string(chunks[0].Data), p.CallID) {
		s.Fatalf("the suspension does not list the call: %s", chunks[0].Data)
	}
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("And?")})
	s.refused(err, helix.ErrAwaitingInput)
	refusal := session.AsError(err)
	if !strings.HasSuffix(refusal.Message, "is waiting for 1 answer") {
		s.Fatalf("the refusal says %q", refusal.Message)
	}
	s.same(refusal.Calls, []string{p.CallID}, "the calls that the refusal names")
	s.approve(x, "sign")
	s.becomes("s-1", session.Completed)
	s.same(s.status(helix.WaitForResultTool), `completed "signed"`, "the result")
	s.same(ran.of("sign"), 1, "signatures")
	s.same(len(s.runs("s-1")), 2, "runs")
}

func companionWaitDone(s *Stage) {
	told := make(chan struct{})
	agent := patient(named("helper", scripted.New(scripted.Text("one"))), told)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.becomes(s.companion("bob"), session.Completed)
	close(told)
	s.ended(s.Result(run), helix.Completed)
	s.same(s.status(helix.WaitForResultTool), `completed "one"`, "the result")
	s.same(len(s.runs("s-1")), 1, "runs")
}

func companionWaitEnd(s *Stage) {
	for _, before := range []bool{true, false} {
		t := s.withNewBackend()
		g := t.newGate()
		agent := patient(atWork(g), g.entered)
		backend := t.newFrail(t.Backend)
		hook := func(commit *session.Commit) {
			if commit.SessionID == "s-1" && commit.Outcome != nil && commit.Outcome.Status.Suspended() {
				g.release()
				t.becomes(t.companion("bob"), session.Completed)
			}
		}
		if before {
			backend.faults.committing = hook
		} else {
			backend.faults.committed = hook
		}
		x := t.startOn(backend, Options{Agents: []*helix.Agent{agent}})
		t.Begin(x, agent, "s-1", "Hi!")
		t.becomes("s-1", session.Completed)
		t.same(t.status(helix.WaitForResultTool), `completed "one"`, "the result")
		t.same(len(t.runs("s-1")), 2, "runs")
		t.checkSessions()
	}
}

func companionWaitFailure(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Call("wait", num{1}), scripted.Fail(session.CodeProvider, false, "broken")), blocking(g))
	agent := patient(helper, g.entered)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	g.release()
	s.becomes("s-1", session.Completed)
	s.refused(s.result(helix.WaitForResultTool).Error, code(session.CodeSubAgent), "its model could not answer")
}

func companionWaitKill(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Takes(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("one"))))
	agent := patient(helper, g.entered)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	below := s.runs(s.companion("bob"))[0].ID
	x.Kill()
	s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.becomes("s-1", session.Completed)
	s.same(s.status(helix.WaitForResultTool), `completed "one"`, "the result")
	s.same(fmt.Sprint(len(s.runs(s.companion("bob"))), s.runs(s.companion("bob"))[0].ID), fmt.Sprint(1, below), "the companion's run")
}

// asking is a companion that waits for a person.
func asking(ran *tally) *helix.Agent {
	return named("helper", scripted.New(scripted.Call("sign", num{3}), scripted.Text("signed"), scripted.Text("more")).ByPosition(), guarded(ran, "sign"))
}

func companionPerson(s *Stage) {
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Started."), scripted.Text("Seen."))), helix.NonBlocking, asking(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Result(s.Attach(x, s.companion("bob"))), helix.SuspendedClientTool)
	p := s.open(x, "sign")
	s.same(p.SessionID, s.companion("bob"), "the session that waits")
	out := s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.same(fmt.Sprint(out.Continuation, " ", out.SessionID, " ", out.RootID), fmt.Sprint(helix.ContinuesRunning, " ", s.companion("bob"), " s-1"), "the answer")
	s.becomes(s.companion("bob"), session.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.nobodyWaits(x)
	s.noticed()
	s.ended(s.Say(x, agent, "s-1", "Well?"), helix.Completed)
	s.same(len(s.hidden()), 1, "notices")
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAlreadyCompleted)
}

func companionPersonElsewhere(s *Stage) {
	s.answersCompanion(func(agent *helix.Agent) Executor {
		return s.startDeaf(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	})
}

func companionPersonAtOnce(s *Stage) {
	s.answersCompanion(func(agent *helix.Agent) Executor { return s.startRarely(agent) })
}

// answersCompanion answers the call of a companion in a process that does not know it.
func (s *Stage) answersCompanion(start func(*helix.Agent) Executor) {
	s.Helper()
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Started."))), helix.NonBlocking, asking(&ran))
	x := start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Result(s.Attach(x, s.companion("bob"))), helix.SuspendedClientTool)
	y := s.StartOther(Options{})
	p := s.open(y, "sign")
	s.Submit(y, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.becomes(s.companion("bob"), session.Completed)
	s.same(ran.of("sign"), 1, "signatures")
}

func companionBlockingPerson(s *Stage) {
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Reply(messaging("bob", "more")), scripted.Text("Thanks.")).ByPosition()), helix.Blocking, asking(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ended(s.Result(s.Attach(x, s.companion("bob"))), helix.SuspendedClientTool)
	out := s.approve(x, "sign")
	s.same(out.Continuation, helix.CallerResumes, "continuation")
	s.ended(s.resumed(x), helix.Completed)
	s.same(s.status(helix.SpawnAgentTool), `completed "signed"`, "the first answer")
	s.same(s.status(helix.SendMessageTool), `completed "more"`, "the second answer")
	s.same(ran.of("sign"), 1, "signatures")
	s.same(len(s.runs(s.companion("bob"))), 3, "the companion's runs")
	s.bracketed("s-1")
}

func companionAbortWaiting(s *Stage) {
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Thanks."))), helix.Blocking, asking(&ran))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.becomes("s-1", session.Failed)
	s.same(s.load(s.companion("bob")).Status, session.Failed, "the companion")
	s.same(s.children("s-1")[0].Status, session.ChildFailed, "the reference")
	s.nobodyWaits(x)
	s.transcript("s-1", "user: Hi!", `assistant: companion__spawnAgent({"agent":"helper","initialMessage":"go","name":"bob"})`, "tool companion__spawnAgent failed: run_stopped")
	s.bracketed("s-1")
}

func companionStopped(s *Stage) {
	for _, kind := range []session.StopKind{session.StopInterrupt, session.StopAbort} {
		t := s.withNewBackend()
		free, held := t.newGate(), t.newGate()
		helper := atWork(free)
		other := named("other", scripted.New(scripted.Call("wait", num{1}), scripted.Text("ok")).ByPosition(), blocking(held))
		agent := team(team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go"),
			scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "other", "name": "eve", "initialMessage": "go"})))), helix.NonBlocking, helper), helix.Blocking, other)
		x := t.Start(agent)
		run := t.Begin(x, agent, "s-1", "Hi!")
		t.receive("one works by itself", free.entered)
		t.receive("the other works for the parent", held.entered)
		want, stop := session.Interrupted, x.Interrupt
		if kind == session.StopAbort {
			want, stop = session.Failed, x.Abort
		}
		t.ok(stop(t.ctx(), "s-1", "lunch"), "stop")
		t.Result(run)
		t.same(t.load(t.companion("eve")).Status, want, "the blocking companion")
		t.refused(t.result(helix.SpawnAgentTool).Error, code(session.CodeRunStopped), "lunch")
		t.same(t.runs(t.companion("bob"))[0].Status, session.RunRunning, "the non-blocking companion")
		free.release()
		t.becomes(t.companion("bob"), session.Completed)
		t.noticed()
		t.bracketed("s-1")
		t.checkSessions()
	}
}

func companionRefused(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Takes(
		scripted.Reply(spawning("bob", "go"), scripted.Do(g.enter), scripted.Until(nil)), scripted.Text("I changed my mind.")))), helix.NonBlocking, named("helper", scripted.New()))
	s.takenOver(s.orphan(agent, g), agent)
	s.same(s.sessions(), []string{"s-1"}, "sessions")
	s.same(len(s.children("s-1")), 0, "references")
}

func companionKilled(s *Stage) {
	free, held := s.newGate(), s.newGate()
	die := func(name string, g *gate) *helix.Agent {
		return named(name, scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Text(name+" is done"))))
	}
	agent := team(team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go"),
		scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "other", "name": "eve", "initialMessage": "go"})), scripted.Text("Thanks."), scripted.Text("Seen.")).ByPosition()),
		helix.NonBlocking, die("helper", free)), helix.Blocking, die("other", held))
	x := s.mortal(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("one works by itself", free.entered)
	s.receive("the other works for the parent", held.entered)
	s.settled(1)
	x.Kill()
	s.takenOver(run, agent)
	s.becomes(s.companion("bob"), session.Completed)
	for _, id := range []string{s.companion("bob"), s.companion("eve")} {
		s.same(len(s.runs(id)), 1, "runs of %s", id)
		s.same(len(s.messages(id)), 2, "messages of %s", id)
	}
	s.same(s.status(helix.SpawnAgentTool), `completed "other is done"`, "the answer")
	s.bracketed("s-1")
}

func companionKilledBefore(s *Stage) {
	for _, mode := range []helix.CompanionMode{helix.Blocking, helix.NonBlocking} {
		t := s.withNewBackend()
		agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Thanks.")).ByPosition()), mode, named("helper", scripted.New(scripted.Text("one"))))
		backend := t.newFrail(t.Backend)
		died := make(chan struct{})
		once := sync.OnceFunc(func() { close(died) })
		backend.faults.committed = func(commit *session.Commit) {
			if commit.SessionID == "s-1" && len(commit.Calls) > 0 {
				backend.kill()
				once()
			}
		}
		x := t.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
		run := t.Begin(x, agent, "s-1", "Hi!")
		t.receive("the process dies", died)
		x.Kill()
		t.same(t.sessions(), []string{"s-1"}, "sessions")
		t.takenOver(run, agent)
		t.becomes(t.companion("bob"), session.Completed)
		t.transcript(t.companion("bob"), "user: go", "assistant: one")
		t.same(len(t.runs(t.companion("bob"))), 1, "runs")
		t.checkSessions()
	}
}

func companionMixed(s *Stage) {
	helper := named("helper", scripted.New(scripted.Text("one")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go"), scripted.Calling("pick", num{1}), scripted.Calling(helix.ListChildrenTool, nil)), scripted.Text("Thanks.")).ByPosition(),
		onClient("pick")), helix.NonBlocking, helper)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.SuspendedStepPartial)
	s.becomes(s.companion("bob"), session.Completed)
	s.noticed()
	s.same(s.load("s-1").Status, session.Active, "the parent still waits")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
	s.same(len(s.runs(s.companion("bob"))), 1, "the companion's runs")
	s.same(len(s.hidden()), 1, "notices")
	messages := s.messages("s-1")
	s.same(renderMessage(&messages[2]), `tool companion__spawnAgent: {"name":"bob","agent":"helper","status":"running"}`, "the first result")
	s.same(renderMessage(&messages[3]), `tool pick: "blue"`, "the second result")
	s.same(messages[5].Hidden(), true, "the notice comes after the results")
}

func companionHooks(s *Stage) {
	var j journal
	helper := named("helper", scripted.New(scripted.Text("one")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go"), spawning("eve", "veto")), scripted.Reply(scripted.Calling(helix.ListChildrenTool, nil)),
		scripted.Text("Thanks."))), helix.NonBlocking, helper)
	agent.Hooks = listening(&j, "parent")
	agent.Hooks.BeforeSubAgent = func(_ context.Context, _ *helix.HookContext, e helix.BeforeToolEvent) error {
		if strings.Contains(string(e.Input), "veto") {
			return errors.New("not on my watch")
		}
		j.add("before %s", e.Tool)
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.becomes(s.companion("bob"), session.Completed)
	s.refused(s.messages("s-1")[3].Parts[0].Error, code(session.CodeToolVetoed), "not on my watch")
	s.same(s.sessions(), []string{"s-1", s.companion("bob")}, "sessions")
	var list []struct{ Name, Status string }
	s.ok(json.Unmarshal(new(s.result(helix.ListChildrenTool)).ResultJSON(), &list), "the list")
	listed, refs := map[string]string{}, map[string]session.ChildStatus{}
	for _, entry := range list {
		listed[entry.Name] = entry.Status
	}
	for _, ref := range s.children("s-1") {
		refs[ref.Name] = ref.Status
	}
	s.same(listed["eve"], "not_started", "what is listed of the one that was never started")
	s.same(refs["eve"], session.ChildFailed, "the reference to the one that was never started")
	if text := j.String(); !strings.Contains(text, "before "+helix.SpawnAgentTool) || !strings.Contains(text, "after "+helix.SpawnAgentTool) {
		s.Fatalf("the hooks were told:\n%s", text)
	}
}

func companionVetoedAgain(s *Stage) {
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("Thanks."), scripted.Reply(spawning("bob", "veto")), scripted.Text("Oh."))),
		helix.NonBlocking, named("helper", scripted.New(scripted.Text("one"))))
	agent.Hooks.BeforeSubAgent = func(_ context.Context, _ *helix.HookContext, e helix.BeforeToolEvent) error {
		if strings.Contains(string(e.Input), "veto") {
			return errors.New("not on my watch")
		}
		return nil
	}
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.becomes(s.companion("bob"), session.Completed)
	s.noticed()
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.refused(s.result(helix.SpawnAgentTool).Error, code(session.CodeToolVetoed))
	s.same(s.children("s-1")[0].Status, session.ChildCompleted, "the reference")
}

func companionOfSub(s *Stage) {
	var ran tally
	child := team(named("child", scripted.New(scripted.Reply(spawning("bob", "go")), scripted.Text("handed on"))), helix.NonBlocking, asking(&ran))
	agent := parent(child)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	id := s.child(s.child("s-1"))
	s.ended(s.Result(s.Attach(x, id)), helix.SuspendedClientTool)
	p := s.open(x, "sign")
	s.same(p.SessionID, id, "the session that waits")
	out := s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.same(out.RootID, "s-1", "the root")
	s.becomes(id, session.Completed)
	s.same(ran.of("sign"), 1, "signatures")
	s.nobodyWaits(x)
}

// left returns an agent whose companion bob remembers one consultation and waits in the
// second. The reply that makes the second has another call, which is made meanwhile.
func left(beside helix.Tool, ran *tally, more ...scripted.Step) *helix.Agent {
	helper := named("helper", scripted.New(scripted.Text("one"), scripted.Call("sign", num{3}), scripted.Text("three")), guarded(ran, "sign"))
	return team(newAgent(scripted.New(append([]scripted.Step{
		scripted.Reply(spawning("bob", "first")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "second"), scripted.Calling(beside.Name, num{1})),
	}, more...)...), beside), helix.Blocking, helper)
}

// moveOn returns a tool, and a function that makes the parent of a waiting companion continue
// without it while the tool is called beside the companion. That function returns the
// executor that continues.
type moveOn func(s *Stage) (beside helix.Tool, leave func(x Executor, agent *helix.Agent, run helix.Run) Executor)

func abandonPending(s *Stage) (helix.Tool, func(Executor, *helix.Agent, helix.Run) Executor) {
	return double(), func(x Executor, agent *helix.Agent, run helix.Run) Executor {
		s.ended(s.Result(run), helix.SuspendedStepPartial)
		s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Continue."), AbandonPending: true})), helix.Completed)
		return x
	}
}

// bobWaits waits until the companion bob does.
func (s *Stage) bobWaits(x Executor) {
	s.Helper()
	s.open(x, "sign")
	s.until("the companion waits", func() bool { return s.load(s.companion("bob")).SuspendedStep != "" })
}

func interruptBeside(s *Stage) (helix.Tool, func(Executor, *helix.Agent, helix.Run) Executor) {
	g := s.newGate()
	return blocking(g), func(x Executor, agent *helix.Agent, run helix.Run) Executor {
		s.receive("the other call is made", g.entered)
		s.bobWaits(x)
		s.ok(x.Interrupt(s.ctx(), "s-1", "lunch"), "interrupt")
		s.ended(s.Result(run), helix.Interrupted)
		s.ended(s.Say(x, agent, "s-1", "Continue."), helix.Completed)
		return x
	}
}

func failBeside(s *Stage) (helix.Tool, func(Executor, *helix.Agent, helix.Run) Executor) {
	g := s.newGate()
	var made tally
	tool := newTool("wait", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		made.add("wait")
		return n, g.pass(ctx)
	})
	tool.Idempotent = true
	return tool, func(x Executor, agent *helix.Agent, _ helix.Run) Executor {
		s.receive("the other call is made", g.entered)
		s.bobWaits(x)
		failed := func() bool { return s.load("s-1").Status == session.Failed }
		for rounds := 0; !failed(); rounds++ { // it is given up because its processes keep dying
			if rounds == 12 {
				s.Fatal("the parent does not fail")
			}
			x.Kill()
			before := made.of("wait")
			x, _ = s.heir(agent)
			s.until("the parent was taken over", func() bool { return made.of("wait") > before || failed() })
		}
		s.ended(s.Say(x, agent, "s-1", "Continue."), helix.Completed)
		return x
	}
}

func companionLeft(s *Stage, how moveOn) {
	var ran tally
	beside, leave := how(s)
	agent := left(beside, &ran, scripted.Reply(messaging("bob", "third")), scripted.Text("Thanks."))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	x = leave(x, agent, s.Begin(x, agent, "s-1", "And?"))
	s.same(s.status(helix.SendMessageTool), `completed "three"`, "the third answer")
	s.remembers()
	s.nobodyWaits(x)
	s.same(ran.of("sign"), 0, "signatures")
}

func companionLeftSpawn(s *Stage) {
	var ran tally
	beside, leave := abandonPending(s)
	agent := left(beside, &ran, scripted.Reply(about(helix.GetChildStatusTool, "bob")), scripted.Reply(spawning("bob", "third")), scripted.Text("Thanks."))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	leave(x, agent, s.Begin(x, agent, "s-1", "And?"))
	s.same(s.status(helix.GetChildStatusTool), "interrupted", "status")
	s.same(s.status(helix.SpawnAgentTool), `completed "three"`, "the third answer")
	s.remembers()
}

func companionLeftTerminated(s *Stage) {
	var ran tally
	s.loose["s-1-agent-bob"] = true // the parent's stream still has what the first one said
	beside, leave := abandonPending(s)
	agent := left(beside, &ran, scripted.Reply(about(helix.TerminateChildTool, "bob")), scripted.Reply(spawning("bob", "third")), scripted.Text("Thanks."))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	leave(x, agent, s.Begin(x, agent, "s-1", "And?"))
	s.transcript(s.companion("bob"), "user: third", "assistant: three")
}

// remembers checks that the companion bob has all three consultations in its transcript.
func (s *Stage) remembers() {
	s.Helper()
	s.transcript(s.companion("bob"), "user: first", "assistant: one", "user: second", `assistant: sign({"n":3})`, "tool sign failed: tool_not_executed",
		"user: third", "assistant: three")
}

func companionCheap(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "more")), scripted.Text("Thanks."))), helix.NonBlocking, atWork(g))
	var read tally
	backend := s.newFrail(s.Backend)
	backend.faults.reading = func(id string) { read.add(id) }
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	bob := s.companion("bob")
	before := read.of(bob)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.same(s.status(helix.SendMessageTool), "queued", "what became of the message")
	s.same(read.of(bob)-before, 0, "times that the companion's transcript was read")
	g.release()
	s.becomes(bob, session.Completed)
}
