package runtimetest

import (
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func rewindScenarios() []Scenario {
	return []Scenario{
		{"done", "a blocking companion that a rewind undoes starts fresh when it is spawned again", rewindDone},
		{"waiting", "a blocking companion that waits, and that a rewind undoes, ends and starts fresh", rewindWaiting},
		{"on its own, done", "a non-blocking companion that a rewind undoes starts fresh, and the old one's end is not reported", rewindAloneDone},
		{"on its own, running", "a non-blocking companion at work stops when a rewind undoes it, and starts fresh", rewindAloneRunning},
		{"on its own, waiting", "a non-blocking companion that waits ends when a rewind undoes it, and starts fresh", rewindAloneWaiting},
		{"on its own, awaited", "a non-blocking companion from before the checkpoint continues when the wait for it is undone", rewindAwaited},
		{"spoken to", "a blocking companion from before the checkpoint goes back to what it was told before", func(s *Stage) { rewindSpoken(s, helix.SendMessageTool) }},
		{"spawned twice", "a companion from before the checkpoint that was spawned again goes back to what it was told before", func(s *Stage) { rewindSpoken(s, helix.SpawnAgentTool) }},
		{"spoken to, waiting", "a blocking companion from before the checkpoint that waits is abandoned, and goes back", rewindSpokenWaiting},
		{"spoken to on its own", "a non-blocking companion from before the checkpoint goes back to what it was told before", rewindSpokenAlone},
		{"spoken to at work", "a message that a non-blocking companion has not read is withdrawn", rewindWithdrawn},
		{"working on it", "a non-blocking companion that works on an undone message stops, and goes back", rewindWorkingOnIt},
		{"not known", "a companion that a rewind undid is not known any more, and its name is free", rewindNotKnown},
		{"below", "companions of agents that a rewind undoes stop, too", rewindBelow},
		{"cut short", "a rewind that fails halfway still ends the agents that it undoes", rewindCutShort},
		{"crash", "the process that takes over a rewinding run ends the agents that were undone", rewindCrash},
		{"refused", "a rewind that is refused ends no agent", rewindRefused},
		{"twice", "a session can go back again and again", rewindTwice},
	}
}

// back rewinds session s-1 to the start of its latest turn.
func (s *Stage) back(x helix.Executor) *helix.Result {
	s.Helper()
	return s.backTo(x, s.load("s-1").Turn)
}

// backTo rewinds session s-1 to the start of a turn.
func (s *Stage) backTo(x helix.Executor, turn int) *helix.Result {
	s.Helper()
	run := s.runs("s-1")[turn-1]
	for _, cp := range s.checkpoints("s-1") {
		if cp.RunID == run.ID && cp.Step == 0 && !cp.Undone {
			return s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: cp.ID}))
		}
	}
	s.Fatalf("turn %d has no checkpoint to go back to", turn)
	return nil
}

// statuses lists the references of session s-1, by name and status.
func (s *Stage) statuses() string {
	s.Helper()
	var out []string
	for _, ref := range s.children("s-1") {
		out = append(out, fmt.Sprint(ref.Name, " ", ref.Status))
	}
	return strings.Join(out, ", ")
}

// latest is the session of the companion bob that was made last.
func (s *Stage) latest() (id string) {
	s.Helper()
	for _, ref := range s.children("s-1") {
		if ref.Name == "bob" && ref.Status != session.ChildSuperseded {
			id = ref.SessionID
		}
	}
	if id == "" {
		s.Fatalf("no companion is named bob: %s", s.statuses())
	}
	return id
}

// spawner is an agent that spawns bob in its first turn, and again after it is
// rewound.
func spawner(mode helix.CompanionMode, helper *helix.Agent, more ...scripted.Step) *helix.Agent {
	steps := append([]scripted.Step{
		scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks again."),
	}, more...)
	return team(newAgent(scripted.New(steps...)), mode, helper)
}

func rewindDone(s *Stage) {
	agent := spawner(helix.Blocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two"))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	old := s.companion("bob")
	s.ended(s.back(x), helix.Completed)
	s.same(s.statuses(), "bob superseded, bob completed", "references")
	s.transcript(s.latest(), "user: the task", "assistant: two")
	s.transcript(old, "user: the task", "assistant: one")
	s.bracketed("s-1")
}

func rewindWaiting(s *Stage) {
	var ran tally
	agent := spawner(helix.Blocking, named("helper", scripted.New(scripted.Call("sign", num{3}), scripted.Text("two")), guarded(&ran, "sign")))
	agent.Model = scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	old := s.companion("bob")
	s.ended(s.back(x), helix.Completed)
	s.same(s.load(old).Status, session.Failed, "the one that was undone")
	s.same(s.statuses(), "bob superseded, bob completed", "references")
	s.transcript(s.latest(), "user: the task", "assistant: two")
	s.nobodyWaits(x)
}

func rewindAloneDone(s *Stage) {
	agent := spawner(helix.NonBlocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two"))))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.noticed()
	s.ended(s.back(x), helix.Completed)
	s.becomes(s.latest(), session.Completed)
	s.transcript(s.latest(), "user: the task", "assistant: two")
	for _, text := range s.hidden() {
		if strings.Contains(text, "one") {
			s.Fatalf("the end of the companion that was undone is told: %s", text)
		}
	}
	s.same(strings.HasPrefix(s.statuses(), "bob superseded, bob "), true, "references: %s", s.statuses())
}

func rewindAloneRunning(s *Stage) {
	g := s.newGate()
	agent := spawner(helix.NonBlocking, named("helper", scripted.New(scripted.Takes(scripted.Call("wait", num{1}), scripted.Text("two"))), blocking(g)))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	old := s.companion("bob")
	s.ended(s.back(x), helix.Completed)
	s.becomes(old, session.Failed)
	s.becomes(s.latest(), session.Completed)
	s.transcript(s.latest(), "user: the task", "assistant: two")
	s.same(len(s.runs(s.latest())), 1, "runs")
	s.until("no wake is left", s.noWakes)
	s.same(strings.Contains(strings.Join(s.hidden(), "\n"), "failed"), false, "whether the end of the first is told")
	s.nothingRuns()
}

// noWakes reports whether no wake is left.
func (s *Stage) noWakes() bool {
	s.Helper()
	wakes, err := s.store().Wakes(s.ctx(), session.WakeRequest{Limit: 10})
	s.ok(err, "wakes")
	return len(wakes) == 0
}

func rewindAloneWaiting(s *Stage) {
	var ran tally
	agent := spawner(helix.NonBlocking, named("helper", scripted.New(scripted.Call("sign", num{3}), scripted.Text("two")), guarded(&ran, "sign")))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.open(x, "sign")
	old := s.companion("bob")
	s.until("the companion waits", func() bool { return s.load(old).SuspendedStep != "" && s.load(old).Lease.Owner == "" })
	s.ended(s.back(x), helix.Completed)
	s.becomes(old, session.Failed)
	s.becomes(s.latest(), session.Completed)
	s.transcript(s.latest(), "user: the task", "assistant: two")
	s.nobodyWaits(x)
	s.same(ran.of("sign"), 0, "signatures")
}

func rewindAwaited(s *Stage) {
	g := s.newGate()
	agent := team(team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Started."),
		scripted.Reply(about(helix.WaitForResultTool, "bob")), scripted.Text("Never mind."), scripted.Reply(about(helix.WaitForResultTool, "bob")), scripted.Text("Seen."))),
		helix.NonBlocking, atWork(g)), helix.Blocking, named("other", scripted.New()))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.SuspendedAwaitingChildren)
	s.ended(s.back(x), helix.Completed)
	s.same(s.statuses(), "bob running", "references")
	s.ended(s.Say(x, agent, "s-1", "And now?"), helix.SuspendedAwaitingChildren)
	g.release()
	s.becomes("s-1", session.Completed)
	s.transcript(s.companion("bob"), "user: the task", `assistant: wait({"n":1})`, "tool wait: 1", "assistant: one")
	s.same(s.status(helix.WaitForResultTool), `completed "one"`, "the result")
}

func rewindSpoken(s *Stage, tool string) {
	again := func(text string) scripted.Step {
		if tool == helix.SendMessageTool {
			return scripted.Reply(messaging("bob", text))
		}
		return scripted.Reply(spawning("bob", text))
	}
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		again("more"), scripted.Text("Thanks."), scripted.Reply(about(helix.GetChildStatusTool, "bob")), again("something else"), scripted.Text("Thanks."))),
		helix.Blocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("three"))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.ended(s.back(x), helix.Completed)
	s.same(s.status(helix.GetChildStatusTool), `completed "one"`, "status")
	s.same(s.status(tool), `completed "three"`, "the answer")
	s.transcript(s.companion("bob"), "user: the task", "assistant: one", "user: something else", "assistant: three")
	s.same(s.statuses(), "bob completed", "references")
}

func rewindSpokenWaiting(s *Stage) {
	var ran tally
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "sign")), scripted.Reply(messaging("bob", "something else")), scripted.Text("Thanks."))),
		helix.Blocking, named("helper", scripted.New(scripted.Text("one"), scripted.Call("sign", num{3}), scripted.Text("three")), guarded(&ran, "sign")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.SuspendedAwaitingChildren)
	s.ended(s.back(x), helix.Completed)
	s.transcript(s.companion("bob"), "user: the task", "assistant: one", "user: something else", "assistant: three")
	s.same(s.statuses(), "bob completed", "references")
	s.nobodyWaits(x)
}

func rewindSpokenAlone(s *Stage) {
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "more")), scripted.Text("Thanks."), scripted.Reply(messaging("bob", "something else")), scripted.Text("Thanks."))),
		helix.NonBlocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("three"))))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	bob := s.companion("bob")
	s.becomes(bob, session.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.until("it has answered", func() bool { return s.load(bob).Status == session.Completed && len(s.messages(bob)) == 4 })
	s.ended(s.back(x), helix.Completed)
	s.until("it has answered", func() bool { return s.load(bob).Status == session.Completed && len(s.runs(bob)) == 3 })
	s.transcript(bob, "user: the task", "assistant: one", "user: something else", "assistant: three")
}

func rewindWithdrawn(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "more")), scripted.Text("Thanks."), scripted.Text("Never mind."))), helix.NonBlocking, atWork(g))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.same(s.status(helix.SendMessageTool), "queued", "what became of the message")
	s.ended(s.back(x), helix.Completed)
	g.release()
	s.becomes(s.companion("bob"), session.Completed)
	s.transcript(s.companion("bob"), "user: the task", `assistant: wait({"n":1})`, "tool wait: 1", "assistant: one")
	s.noticed()
}

func rewindWorkingOnIt(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "more")), scripted.Text("Thanks."), scripted.Text("Never mind."),
		scripted.Reply(messaging("bob", "something else")), scripted.Text("Thanks."))),
		helix.NonBlocking, named("helper", scripted.New(scripted.Text("one"), scripted.Call("wait", num{1}), scripted.Text("three")), blocking(g)))
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	bob := s.companion("bob")
	s.becomes(bob, session.Completed)
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	s.ended(s.back(x), helix.Completed)
	s.becomes(bob, session.Interrupted)
	s.nothingRuns()
	s.ended(s.Say(x, agent, "s-1", "And?"), helix.Completed)
	s.until("it has answered", func() bool { return s.load(bob).Status == session.Completed && len(s.runs(bob)) == 3 })
	s.transcript(bob, "user: the task", "assistant: one", "user: something else", "assistant: three")
}

func rewindNotKnown(s *Stage) {
	other := named("other", scripted.New(scripted.Text("other's")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Reply(messaging("bob", "more")), scripted.Reply(scripted.Calling(helix.ListChildrenTool, nil)),
		scripted.Reply(scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "other", "name": "bob", "initialMessage": "go"})),
		scripted.Text("Thanks."))), helix.Blocking, named("helper", scripted.New(scripted.Text("one"))), other)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.back(x), helix.Completed)
	s.refused(s.result(helix.SendMessageTool).Error, code(session.CodeToolInput), "bob")
	list := s.result(helix.ListChildrenTool)
	s.same(string(list.ResultJSON()), "[]", "the list")
	s.same(s.status(helix.SpawnAgentTool), `completed "other's"`, "the answer")
	s.transcript(s.latest(), "user: go", "assistant: other's")
}

func rewindBelow(s *Stage) {
	g := s.newGate()
	middle := team(named("middle", scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Started."))), helix.NonBlocking, atWork(g))
	agent := with(newAgent(scripted.New(hand("middle", "do it"), scripted.Text("Thanks."), scripted.Text("Never mind."))), middle)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	bob := s.child(s.child("s-1"))
	s.ended(s.back(x), helix.Completed)
	s.becomes(bob, session.Failed)
	s.nothingRuns()
	s.same(s.children("s-1")[0].Status, session.ChildSuperseded, "the reference")
}

func rewindTwice(s *Stage) {
	agent := spawner(helix.Blocking, named("helper", scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("three"))),
		scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks once more."))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	first := s.checkpoints("s-1")[0].ID
	for range 2 {
		s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: first})), helix.Completed)
	}
	s.same(s.statuses(), "bob superseded, bob superseded, bob completed", "references")
	s.transcript(s.latest(), "user: the task", "assistant: three")
}

// atTheStart is the checkpoint at which the first turn of s-1 began.
func (s *Stage) atTheStart() string {
	s.Helper()
	return s.checkpoints("s-1")[0].ID
}

func rewindCutShort(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."),
		scripted.Text("Never mind."), scripted.Text("Never mind."))), helix.NonBlocking, atWork(g))
	backend := s.newFrail(s.Backend)
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	bob := s.companion("bob")
	backend.faults.noStop.Store(true)
	opts := helix.ResumeOptions{Checkpoint: s.atTheStart()}
	if _, err := x.Resume(s.ctx(), "s-1", opts); err == nil {
		s.Fatal("the session went back, and the companion was not told to stop")
	}
	backend.faults.noStop.Store(false)
	_, err := x.Resume(s.ctx(), "s-1", opts) // it may be refused: the run that could not begin may be under way
	if err != nil {
		s.refused(err, helix.ErrAlreadyRunning)
	}
	s.becomes(bob, session.Failed)
	s.until("the session has continued", func() bool {
		return s.load("s-1").Status == session.Completed && len(s.messages("s-1")) == 2
	})
	s.same(s.statuses(), "bob superseded", "references")
	s.nothingRuns()
}

func rewindCrash(s *Stage) {
	g := s.newGate()
	helper := named("helper", scripted.New(scripted.Takes(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)), scripted.Reply(scripted.Until(nil)))))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."), scripted.Text("Never mind."))), helix.NonBlocking, helper)
	backend := s.newFrail(s.Backend)
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	bob := s.companion("bob")
	backend.faults.started = func(start *session.StartRun) {
		if start.SessionID == "s-1" {
			backend.kill()
		}
	}
	if _, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{Checkpoint: s.atTheStart()}); err == nil {
		s.Fatal("the process died, and the session went back")
	}
	x.Kill()
	s.same(s.statuses(), "bob superseded", "references")
	_, run := s.heir(agent)
	s.ended(s.Result(run), helix.Completed)
	s.becomes(bob, session.Failed)
	s.transcript("s-1", "user: Hi!", "assistant: Never mind.")
	s.nothingRuns()
}

func rewindRefused(s *Stage) {
	g := s.newGate()
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("Thanks."))), helix.NonBlocking, atWork(g))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, MaxSession: 100_000})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.receive("the companion is at work", g.entered)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{
		Checkpoint: s.atTheStart(), Message: new(helix.UserText(strings.Repeat("x", 100_000))),
	})
	s.refused(err, helix.ErrTooLarge)
	s.same(s.statuses(), "bob running", "references")
	g.release()
	s.becomes(s.companion("bob"), session.Completed)
	s.noticed()
}
