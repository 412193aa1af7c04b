package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/storetest"
)

// extensionTaskScenarios are about the tasks that extensions want to follow a commit.
func extensionTaskScenarios() []Scenario {
	return []Scenario{
		{"tasks", "tasks of extensions are part of the commits that complete steps and end runs, under ids of their own", extensionTasks},
		{"tasks of every end", "however a run ends, its last commit has the tasks: completed, failed, suspended, interrupted, aborted", extensionEnds},
		{"tasks of an expired session", "a session that expires fails with the tasks of that run", extensionExpires},
		{"tasks of a crash loop", "a run that is written off has its tasks", extensionCrashLoop},
		{"tasks of an aborted wait", "a session that waits and is aborted fails with the tasks of that run", extensionWaitAborted},
		{"tasks of an abandoned child", "a sub-agent that no process drives, and whose caller has ended, fails with the tasks of its run", extensionAbandoned},
		{"tasks of an orphan", "a run that is aborted when no process drives it has its tasks", extensionOrphan},
		{"bad tasks", "tasks that cannot be stored, and extensions that fail, are left out; the run goes on", extensionBadTasks},
	}
}

// idsOf lists the tasks' ids, sorted, with a run's id shortened to its number.
func idsOf(tasks []session.Task, runs ...string) string {
	var out []string
	for i := range tasks {
		id := tasks[i].ID
		for n, run := range runs {
			id = strings.Replace(id, run, "run-"+string(rune('1'+n)), 1)
		}
		out = append(out, id)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// tasksOn starts an executor whose writes are noted.
func (s *Stage) tasksOn(agent *helix.Agent) (Executor, *storetest.TaskBook) {
	s.Helper()
	book := &storetest.TaskBook{Backend: s.Backend}
	return s.startOn(book, Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease}), book
}

// working is an extension that wants tasks to follow.
type working struct {
	extension
	step   func(turn *helix.Turn, step *helix.Step) ([]session.Task, error)
	finish func(turn *helix.Turn, outcome *session.Outcome) ([]session.Task, error)
	asked  tally // how often it was asked for the tasks after each run
}

func (w *working) AfterStep(_ context.Context, turn *helix.Turn, step *helix.Step) ([]session.Task, error) {
	if w.step == nil {
		return nil, nil
	}
	return w.step(turn, step)
}

func (w *working) Finish(_ context.Context, turn *helix.Turn, outcome *session.Outcome) ([]session.Task, error) {
	if w.finish == nil {
		return nil, nil
	}
	w.asked.add(turn.RunID)
	return w.finish(turn, outcome)
}

// afterwards is an extension whose task after a run names the outcome.
func afterwards() *working {
	return &working{extension: extension{name: "notes"}, finish: func(_ *helix.Turn, o *session.Outcome) ([]session.Task, error) {
		return []session.Task{{Kind: "note", ID: string(o.Status)}}, nil
	}}
}

func extensionTasks(s *Stage) {
	var seen journal
	w := func(name string) *working {
		return &working{
			extension: extension{name: name},
			step: func(turn *helix.Turn, step *helix.Step) ([]session.Task, error) {
				seen.add("%s step %d: %s, %s, %s", name, turn.Step, render(turn.View), renderMessage(&step.Reply), render(step.Results))
				return []session.Task{{Kind: "index", Body: json.RawMessage(`{"message":"m"}`), Tenant: "another", SessionID: "another", RunID: "another", Attempts: 7}}, nil
			},
			finish: func(turn *helix.Turn, o *session.Outcome) ([]session.Task, error) {
				seen.add("%s end: %s, %s, %s", name, render(turn.Input), o.Status, o.Reply)
				return []session.Task{{Kind: "title"}, {Kind: "title", ID: "second"}}, nil
			},
		}
	}
	agent := extending(newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("Done.")), double()), w("a"), w("b"))
	x, book := s.tasksOn(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	s.same(idsOf(book.Tasks(), run.ID()), strings.Join([]string{
		"run-1/1/a/index", "run-1/1/b/index", "run-1/2/a/index", "run-1/2/b/index",
		"run-1/a/second", "run-1/a/title", "run-1/b/second", "run-1/b/title",
	}, "\n"), "tasks")
	for _, task := range book.Tasks() {
		s.same([]any{task.Tenant, task.Agent, task.SessionID, task.RunID, task.Attempts}, []any{session.DefaultTenant, "agent", "s-1", run.ID(), 0}, "task %s", task.ID)
	}
	lines := strings.Split(seen.String(), "\n")
	for _, want := range []string{
		`a step 1: user: Hi!, assistant: double({"n":1}), tool double: 2`, "a end: user: Hi!, completed, Done.",
	} {
		if !slices.Contains(lines, want) {
			s.Errorf("the extensions did not see %q but\n%s", want, seen.String())
		}
	}
}

func extensionEnds(s *Stage) {
	g, h := s.newGate(), s.newGate()
	model := scripted.New(
		scripted.Call("choose", num{1}), scripted.Text("Done."), // suspended, completed
		scripted.Reply(scripted.Say("Half"), scripted.Do(g.enter), scripted.Until(g.open)), // interrupted
		scripted.Reply(scripted.Say("Half"), scripted.Do(h.enter), scripted.Until(h.open)), // aborted
		scripted.Fail(session.CodeBadRequest, false, "no"),                                 // failed
	)
	agent := extending(newAgent(model, onClient("choose")), afterwards())
	x, book := s.tasksOn(agent)
	var runs []string
	first := s.Begin(x, agent, "s-1", "One.")
	res := s.Result(first)
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "choose").CallID, 1), session.SubmitAccepted)
	second := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.ended(s.Result(second), helix.Completed)
	third := s.Begin(x, agent, "s-1", "Three.")
	s.receive("the model replies", g.entered)
	s.ok(third.Interrupt(s.ctx(), ""), "interrupt")
	s.ended(s.Result(third), helix.Interrupted)
	fourth := s.Begin(x, agent, "s-1", "Four.")
	s.receive("the model replies again", h.entered)
	s.ok(fourth.Abort(s.ctx(), ""), "abort")
	s.ended(s.Result(fourth), helix.Failed)
	fifth := s.Begin(x, agent, "s-1", "Five.")
	s.ended(s.Result(fifth), helix.Failed)
	for _, run := range []helix.Run{first, second, third, fourth, fifth} {
		runs = append(runs, run.ID())
	}
	s.same(idsOf(book.Tasks(), runs...), "run-1/notes/suspended_client_tool\nrun-2/notes/completed\nrun-3/notes/interrupted\nrun-4/notes/failed\nrun-5/notes/failed", "tasks")
}

// askedOnce checks that an extension was asked once for the tasks after each run.
func (s *Stage) askedOnce(w *working, runs ...string) {
	s.Helper()
	for _, run := range runs {
		s.same(w.asked.of(run), 1, "times that the tasks after run %s were asked for", run)
	}
}

func extensionExpires(s *Stage) {
	notes := afterwards()
	agent := extending(newAgent(scripted.New(scripted.Call("choose", num{1})), onClient("choose")), notes)
	agent.SessionExpiry = s.pace(lives)
	x, book := s.tasksOn(agent)
	s.waitsOn(x, agent, "s-1")
	s.becomes("s-1", session.Failed)
	s.endedWaiting(book, notes)
}

// endedWaiting checks the tasks of session s-1, which waited and was failed from outside.
func (s *Stage) endedWaiting(book *storetest.TaskBook, notes *working) {
	s.Helper()
	runs := s.runs("s-1")
	s.same(len(runs), 2, "runs")
	s.until("the tasks are noted, which is after the session has failed", func() bool {
		return idsOf(book.Tasks(), runs[0].ID, runs[1].ID) == "run-1/notes/suspended_client_tool\nrun-2/notes/failed"
	})
	s.askedOnce(notes, runs[0].ID, runs[1].ID)
}

func extensionWaitAborted(s *Stage) {
	notes := afterwards()
	agent := extending(newAgent(scripted.New(scripted.Call("choose", num{1})), onClient("choose")), notes)
	x, book := s.tasksOn(agent)
	s.waitsOn(x, agent, "s-1")
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.becomes("s-1", session.Failed)
	s.endedWaiting(book, notes)
}

func extensionAbandoned(s *Stage) {
	g := s.newGate()
	notes := afterwards()
	helper := extending(named("helper", scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)))), notes)
	agent := with(newAgent(scripted.New(hand("helper", "do it"), scripted.Text("Done."))), helper)
	s.orphan(agent, g)
	child := s.child("s-1")
	x, book := s.tasksOn(helper) // it does not know the caller
	s.ok(x.Abort(s.ctx(), "s-1", "the agent is gone"), "abort")
	s.becomes(child, session.Failed)
	run := s.load(child).CurrentRunID
	s.until("the tasks are noted", func() bool { return idsOf(book.Tasks(), run) == "run-1/notes/failed" })
	s.askedOnce(notes, run)
	s.nothingRuns()
	z := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(z, agent, "s-1", "Never mind."), helix.Completed) // so that the transcript is whole
}

func extensionCrashLoop(s *Stage) {
	var asked tally
	gates := []*gate{s.newGate(), s.newGate(), s.newGate(), s.newGate()}
	notes := afterwards()
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), notes)
	agent.Hooks.BeforeLLMCall = func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		gates[asked.add("")-1].enter()
		<-ctx.Done()
		return ctx.Err()
	}
	run := s.orphan(agent, gates[0])
	for i := 1; i <= 3; i++ {
		y, _ := s.heir(agent)
		s.receive("the run is taken over", gates[i].entered)
		y.Kill()
	}
	x, book := s.tasksOn(agent)
	s.failed(s.Result(s.Attach(x, "s-1")), helix.ErrCrashLoop)
	s.same(idsOf(book.Tasks(), run.ID()), "run-1/notes/failed", "tasks")
	s.askedOnce(notes, run.ID())
}

func extensionOrphan(s *Stage) {
	g := s.newGate()
	notes := afterwards()
	agent := extending(newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open)))), notes)
	run := s.orphan(agent, g)
	_, err := s.store().RequestStop(s.ctx(), "s-1", session.Stop{RunID: run.ID(), Kind: session.StopAbort, Reason: "off"})
	s.ok(err, "request a stop")
	_, book := s.tasksOn(agent)
	s.becomes("s-1", session.Failed)
	s.until("the tasks are noted", func() bool { return idsOf(book.Tasks(), run.ID()) == "run-1/notes/failed" })
	s.askedOnce(notes, run.ID())
}

func extensionBadTasks(s *Stage) {
	g := s.newGate()
	returns := func(name string, err error, tasks ...session.Task) *working {
		return &working{extension: extension{name: name}, finish: func(*helix.Turn, *session.Outcome) ([]session.Task, error) { return tasks, err }}
	}
	list := []helix.Extension{
		returns("failing", errors.New("no")),
		returns("kindless", nil, session.Task{ID: "x"}),
		returns("twice", nil, session.Task{Kind: "x"}, session.Task{Kind: "x"}),
		returns("large", nil, session.Task{Kind: "x", Body: json.RawMessage(`"` + strings.Repeat("x", session.MaxTaskBody) + `"`)}),
		returns("huge", nil, session.Task{Kind: "x", Body: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}),
		returns("longId", nil, session.Task{Kind: "x", ID: strings.Repeat("x", session.MaxIDBytes+1)}),
		returns("longKind", nil, session.Task{Kind: strings.Repeat("x", session.MaxIDBytes+1)}),
		returns("broken", nil, session.Task{Kind: "x", Body: json.RawMessage(`{`)}),
		returns("many", nil, make([]session.Task, 10_000)...),
		&working{extension: extension{name: "panicking"}, finish: func(*helix.Turn, *session.Outcome) ([]session.Task, error) { panic("boom") }},
		&working{extension: extension{name: "hanging"}, finish: func(*helix.Turn, *session.Outcome) ([]session.Task, error) { <-g.open; return nil, nil }},
	}
	agent := extending(newAgent(scripted.New(scripted.Text("Done."))), append(list, returns("long", nil, session.Task{Kind: strings.Repeat("k", 256)}), afterwards())...)
	x, book := s.tasksOn(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	for _, e := range list {
		s.logged("extension.tasks_failed", "extension="+e.Name())
	}
	s.logged("extension=many", "are 10000 more, but only 64 more may follow the commit")
	s.logged("extension=huge", "has 1048578 bytes, at most 16384 are allowed")
	s.logged("extension=longId", "task id")
	s.logged("extension=longKind", "task id") // a kind is the id's default
	s.same(len(book.Tasks()), 2, "tasks")
	s.same(len(book.Tasks()[0].ID), session.MaxIDBytes, "length of a long id")
	s.same(book.Tasks()[1].ID, run.ID()+"/notes/completed", "the other id")
}
