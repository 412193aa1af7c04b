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
)

func observerScenarios() []Scenario {
	return []Scenario{
		{"activities", "run, model attempts, tools and commits are reported, each with who, where and when, and each ends once", observeActivities},
		{"failures", "the end of an attempt or a call that failed has the error", observeFailures},
		{"nesting", "model, tools, hooks and sub-agents run in the contexts that observers return", observeNesting},
		{"values of the caller", "model, tools, hooks and sub-agents see the values of the context that began the run", observeCaller},
		{"takeover", "a run that is taken over is reported again, under the same id and with the times of its record", observeTakeover},
		{"closed elsewhere", "the end of a run whose process died after the last commit is reported by the process that closes it", observeClosed},
		{"extensions", "extensions are asked in contexts with the values of the caller and of observers, and each Preparer is an activity", observeExtensions},
		{"tasks", "a task is carried out in the context that observers return for it, and each attempt is an activity", observeTasks},
		{"waits", "the call of a sub-agent that waits for a person ends as waiting, and is reported again by the run that resumes", observeWaits},
		{"panicking observer", "an observer that panics is logged and changes nothing", observePanic},
		{"wrapped tool", "a Callable around another loses nothing: the tool's input, and that it runs on the client", observeWrapped},
		{"wrapped model", "a model around another sees every request and loses nothing", observeWrappedModel},
	}
}

// seen is an activity and its ends.
type seen struct {
	helix.Activity

	inside string // the activities in whose contexts it began, outermost first
	ends   []helix.Ending
}

// diary is an observer that keeps what it is told.
type diary struct {
	mu  sync.Mutex
	all []*seen
}

type diaryKey struct{}

// within names the activities in whose contexts ctx is, outermost first.
func within(ctx context.Context) string {
	path, _ := ctx.Value(diaryKey{}).(string)
	return path
}

// Begin implements [helix.Observer].
func (d *diary) Begin(ctx context.Context, a *helix.Activity) (context.Context, func(*helix.Ending)) {
	entry := &seen{Activity: *a, inside: within(ctx)}
	d.mu.Lock()
	d.all = append(d.all, entry)
	d.mu.Unlock()
	ctx = context.WithValue(ctx, diaryKey{}, strings.TrimSpace(entry.inside+" "+string(a.Kind)))
	return ctx, func(e *helix.Ending) {
		d.mu.Lock()
		defer d.mu.Unlock()
		entry.ends = append(entry.ends, *e)
	}
}

// of lists the activities of a kind, in the order in which they began.
func (d *diary) of(kind helix.ActivityKind) []seen {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []seen
	for _, entry := range d.all {
		if entry.Kind == kind {
			one := *entry
			one.ends = slices.Clone(entry.ends)
			out = append(out, one)
		}
	}
	return out
}

// closed waits until every activity has ended and checks that each ended once.
func (d *diary) closed(s *Stage) {
	s.Helper()
	s.until("every activity has ended", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.ContainsFunc(d.all, func(entry *seen) bool { return len(entry.ends) == 0 })
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.all {
		if len(entry.ends) != 1 {
			s.Errorf("%s %s ended %d times", entry.Kind, entry.ID, len(entry.ends))
		}
	}
}

func observeActivities(s *Stage) {
	d := &diary{}
	agent := newAgent(scripted.New(scripted.Call("double", num{3}).WithUsage(session.Usage{InputTokens: 7, OutputTokens: 2}), scripted.Text("ok")), double())
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	run := s.Execute(x, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"}})
	s.ended(s.Result(run), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	var got []string
	ids := map[string]bool{}
	for _, kind := range []helix.ActivityKind{helix.ActivityRun, helix.ActivityModel, helix.ActivityTool, helix.ActivityCommit} {
		for _, a := range d.of(kind) {
			if ids[a.ID] {
				s.Errorf("two activities have the id %s", a.ID)
			}
			ids[a.ID] = true
			if a.SessionID != "s-1" || a.RunID != run.ID() || a.Agent != "agent" || a.UserID != "alice" || a.Tenant != session.DefaultTenant ||
				a.Epoch == 0 || a.Began.IsZero() || a.Key == "" {
				s.Fatalf("an activity does not say where it belongs: %+v", a)
			}
			end := a.ends[0]
			if end.Error != nil || end.Lost || end.Waits || end.Ended.IsZero() {
				s.Fatalf("%s ended with %+v", a.ID, end)
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", kind, a.Name, end.Usage.TotalTokens(), end.Status)))
		}
	}
	s.same(strings.Join(got, "\n"), strings.Join([]string{
		"run agent 24 completed", "model agent 9", "model agent 15", "tool double 0", "commit commit 0", "commit commit 0", "commit commit 0",
	}, "\n"), "activities")
	s.same(d.of(helix.ActivityTool)[0].CallID, s.messages("s-1")[1].Calls()[0].CallID, "the tool's call")
	s.same(d.of(helix.ActivityModel)[0].ends[0].Model, "scripted", "the model that replied")
	record := s.run("s-1", run.ID())
	whole := d.of(helix.ActivityRun)[0]
	s.same(whole.ID, run.ID(), "the run's id")
	if !whole.Began.Equal(record.StartedAt) || !whole.ends[0].Ended.Equal(record.EndedAt) {
		s.Fatalf("the run began %s and ended %s, its record says %s and %s", whole.Began, whole.ends[0].Ended, record.StartedAt, record.EndedAt)
	}
}

func observeFailures(s *Stage) {
	d := &diary{}
	agent := newAgent(scripted.New(
		scripted.Takes(scripted.Fail(session.CodeProvider, true, "no"), scripted.Call("boom", num{})), scripted.Fail(session.CodeProvider, false, "no more")),
		newTool("boom", func(context.Context, *helix.Call, int) (int, error) { panic("boom") }))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeProvider))
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	var got []string
	for _, kind := range []helix.ActivityKind{helix.ActivityModel, helix.ActivityTool, helix.ActivityRun} {
		for _, a := range d.of(kind) {
			outcome := "ok"
			if err := a.ends[0].Error; err != nil {
				outcome = string(err.Code)
			}
			got = append(got, fmt.Sprintf("%s %d %s", kind, a.Attempt, outcome))
		}
	}
	s.same(strings.Join(got, "\n"), strings.Join([]string{
		"model 1 provider_error", "model 2 ok", "model 1 provider_error", "tool 0 tool_panicked", "run 0 provider_error",
	}, "\n"), "ends")
}

// journaling is an agent whose model, tool and hooks write to a journal what their context
// says.
func journaling(name string, j *journal, say func(context.Context) string) *helix.Agent {
	agent := named(name, modelFunc(func(ctx context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
		j.add("%s's model: %s", name, say(ctx))
		if r.Messages[len(r.Messages)-1].Role == session.RoleTool {
			return &llm.Response{Parts: []session.Part{session.Text("ok")}}, nil
		}
		return &llm.Response{Parts: []session.Part{{Kind: session.PartToolCall, Tool: "note", Input: json.RawMessage(`{"n":1}`)}}}, nil
	}), newTool("note", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		j.add("%s's tool: %s", name, say(ctx))
		return n, nil
	}))
	agent.Hooks.BeforeTool = func(ctx context.Context, _ *helix.HookContext, _ helix.BeforeToolEvent) error {
		j.add("%s's hook: %s", name, say(ctx))
		return nil
	}
	agent.Hooks.OnAgentComplete = func(ctx context.Context, _ *helix.HookContext, _ helix.AgentCompleteEvent) error {
		j.add("%s's end: %s", name, say(ctx))
		return nil
	}
	return agent
}

func observeNesting(s *Stage) {
	var j journal
	d := &diary{}
	agent := parent(journaling("child", &j, within))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	s.same(j.String(), strings.Join([]string{
		"child's model: run subagent run model",
		"child's hook: run subagent run tool",
		"child's tool: run subagent run tool",
		"child's model: run subagent run model",
		"child's end: run subagent run",
	}, "\n"), "contexts")
	for _, a := range d.of(helix.ActivityCommit) {
		if !strings.HasSuffix(a.inside, "run") {
			s.Errorf("a commit is inside of %q", a.inside)
		}
	}
}

func observeCaller(s *Stage) {
	type requestKey struct{}
	var j journal
	say := func(ctx context.Context) string { return fmt.Sprint(ctx.Value(requestKey{})) }
	agent := parent(journaling("child", &j, say))
	x := s.Start(agent)
	run, err := x.Execute(context.WithValue(s.ctx(), requestKey{}, "request 7"), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "shut down")
	for line := range strings.Lines(j.String()) {
		if !strings.HasSuffix(strings.TrimSpace(line), ": request 7") {
			s.Errorf("the caller's value is lost: %s", line)
		}
	}
	s.same(strings.Count(j.String(), "\n"), 4, "how often the value was looked for, less one")
}

func observeExtensions(s *Stage) {
	type requestKey struct{}
	var j journal
	d := &diary{}
	say := func(ctx context.Context, what string) {
		j.add("%s: %v, %s", what, ctx.Value(requestKey{}), within(ctx))
	}
	x := &bystander{say: say}
	agent := extending(newAgent(scripted.New(scripted.Call("double", num{3}), scripted.Text("ok")), double()), x)
	rt := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	run, err := rt.Execute(context.WithValue(s.ctx(), requestKey{}, "request 7"), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	s.ok(rt.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	s.same(j.String(), strings.Join([]string{
		"Attach: request 7, run", "Prepare: request 7, run prepare", "Check: request 7, run", "Filter: request 7, run",
		"AfterStep: request 7, run", "AfterStep: request 7, run", "Finish: request 7, run",
	}, "\n"), "contexts")
	prepared := d.of(helix.ActivityPrepare)
	s.same(len(prepared), 1, "activities of the Preparer")
	s.same([]any{prepared[0].Name, prepared[0].RunID, prepared[0].ends[0].Error == nil}, []any{"bystander", run.ID(), true}, "the activity")
}

// bystander is an extension that says in which context it is asked.
type bystander struct {
	say func(ctx context.Context, what string)
}

func (w *bystander) Name() string { return "bystander" }

func (w *bystander) Attach(ctx context.Context, _ *helix.Turn) (*helix.Attachment, error) {
	w.say(ctx, "Attach")
	return &helix.Attachment{}, nil
}

func (w *bystander) Prepare(ctx context.Context, _ *helix.Turn) ([]session.Message, error) {
	w.say(ctx, "Prepare")
	return nil, nil
}

func (w *bystander) Check(ctx context.Context, _ *helix.Call) error {
	w.say(ctx, "Check")
	return nil
}

func (w *bystander) Filter(ctx context.Context, _ *helix.Call, result helix.CallResult) (helix.CallResult, error) {
	w.say(ctx, "Filter")
	return result, nil
}

func (w *bystander) AfterStep(ctx context.Context, _ *helix.Turn, _ *helix.Step) ([]session.Task, error) {
	w.say(ctx, "AfterStep")
	return nil, nil
}

func (w *bystander) Finish(ctx context.Context, _ *helix.Turn, _ *session.Outcome) ([]session.Task, error) {
	w.say(ctx, "Finish")
	return nil, nil
}

func observeTasks(s *Stage) {
	var j journal
	d := &diary{}
	agent := withWorker(func(ctx context.Context, task *session.Task) error {
		j.add("attempt %d: %s", task.Attempts, within(ctx))
		if task.Attempts == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	agent.Extensions[0].(*worker).finish = []session.Task{{Kind: "work"}} //nolint:forcetypeassert // as withWorker made it
	opts := quick(agent)
	opts.Observers = []helix.Observer{d}
	x := s.StartWith(opts)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.until("the task is carried out", func() bool { return len(d.of(helix.ActivityTask)) == 2 })
	s.noTasks()
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	s.same(j.String(), "attempt 1: task\nattempt 2: task", "contexts")
	var got []string
	for _, a := range d.of(helix.ActivityTask) {
		got = append(got, fmt.Sprintf("%s %s of %s in %s, %d, failed: %t", a.Kind, a.Name, a.Agent, a.SessionID, a.Attempt, a.ends[0].Error != nil))
		if a.RunID != res.RunID || !strings.HasPrefix(a.ID, a.Key) || a.ID == a.Key {
			s.Errorf("the activity of a task is %+v", a)
		}
	}
	s.same(strings.Join(got, "\n"), "task work of agent in s-1, 1, failed: true\ntask work of agent in s-1, 2, failed: false", "activities")
}

func observeTakeover(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Takes(
		scripted.Reply(scripted.Say("I was about to"), scripted.Do(g.enter), scripted.Until(g.open)), scripted.Text("Here I am again."))))
	first, second := &diary{}, &diary{}
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, Observers: []helix.Observer{first}})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	x.Kill()
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, Observers: []helix.Observer{second}})
	s.ended(s.Result(s.Attach(y, "s-1")), helix.Completed)
	s.ok(y.Shutdown(s.ctx()), "shut down")
	second.closed(s)
	before, after := first.of(helix.ActivityRun)[0], second.of(helix.ActivityRun)[0]
	record := s.run("s-1", run.ID())
	s.same([]any{after.ID, after.Began.Equal(before.Began), after.ends[0].Ended.Equal(record.EndedAt), after.ends[0].Status},
		[]any{before.ID, true, true, session.RunCompleted}, "the run in the second process")
	if n := len(second.of(helix.ActivityTakeover)); n != 1 {
		s.Fatalf("%d takeovers are reported", n)
	}
	taken := second.of(helix.ActivityTakeover)[0]
	s.same([]any{taken.RunID, taken.Attempt, taken.Epoch}, []any{run.ID(), 1, after.Epoch}, "the takeover")
	lost, again := first.of(helix.ActivityModel)[0], second.of(helix.ActivityModel)[0]
	if lost.ID == again.ID || lost.Key != again.Key {
		s.Fatalf("the repeated model call has the id %s and the key %s, the lost one %s and %s", again.ID, again.Key, lost.ID, lost.Key)
	}
	_ = x.Close()
	first.closed(s)
	s.same(first.of(helix.ActivityRun)[0].ends[0].Lost, true, "whether the first process says that it lost the run")
}

func observeClosed(s *Stage) {
	d := &diary{}
	agent := newAgent(scripted.New(scripted.Text("Done.")))
	run := s.unclosed(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}, LeaseTTL: lease, Observers: []helix.Observer{d}})
	s.until("the run is closed", func() bool { return !s.load("s-1").ClosePending })
	s.ok(y.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	record := s.run("s-1", run.ID())
	reported := d.of(helix.ActivityRun)
	if len(reported) == 0 {
		s.Fatal("the end of the run is not reported")
	}
	for _, a := range reported {
		s.same([]any{a.ID, a.Began.Equal(record.StartedAt), a.ends[0].Ended.Equal(record.EndedAt), a.ends[0].Status, a.ends[0].Usage},
			[]any{run.ID(), true, true, session.RunCompleted, record.Usage}, "the reported run")
	}
}

func observeWaits(s *Stage) {
	var ran tally
	d := &diary{}
	agent := tower(1, signing(&ran))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{d}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedAwaitingChildren)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	var got []string
	for _, a := range d.of(helix.ActivitySubAgent) {
		got = append(got, fmt.Sprintf("%s %t", a.Name, a.ends[0].Waits))
	}
	s.same(strings.Join(got, "\n"), "subagent__child true\nsubagent__child false", "calls of the sub-agent, and whether they wait")
	got = nil
	for _, a := range d.of(helix.ActivityRun) {
		got = append(got, a.Name+" "+string(a.ends[0].Status))
	}
	s.same(strings.Join(got, "\n"), strings.Join([]string{
		"agent " + string(session.RunSuspendedChildren), "child " + string(session.RunSuspendedClientTool), "agent completed", "child completed",
	}, "\n"), "runs")
}

// grumpy is an observer that panics.
type grumpy struct{}

// Begin implements [helix.Observer].
func (grumpy) Begin(ctx context.Context, a *helix.Activity) (context.Context, func(*helix.Ending)) {
	if a.Kind == helix.ActivityModel {
		panic("no models")
	}
	return ctx, func(*helix.Ending) { panic("no ends") }
}

func observePanic(s *Stage) {
	d := &diary{}
	agent := newAgent(scripted.New(scripted.Call("double", num{3}), scripted.Text("ok")), double())
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Observers: []helix.Observer{grumpy{}, d}})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ok(x.Shutdown(s.ctx()), "shut down")
	d.closed(s)
	s.same(len(d.of(helix.ActivityModel)), 2, "model calls that the other observer was told of")
	s.logged("observer.failed", "no models")
	s.logged("observer.failed", "no ends")
}

// noted is a Callable around another.
type noted struct {
	helix.Callable

	j *journal
}

func (n noted) Call(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
	n.j.add("%s(%s)", call.Tool, input)
	return n.Callable.Call(ctx, call, input)
}

func observeWrapped(s *Stage) {
	var j journal
	here, there := double(), helix.Tool{Name: "there", Execute: helix.OnClient[num]()}
	here.Execute, there.Execute = noted{here.Execute, &j}, noted{there.Execute, &j}
	agent := newAgent(scripted.New(scripted.Call("double", num{3}), scripted.Call("double", "no object"), scripted.Call("there", num{4}), scripted.Text("ok")), here, there)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.SuspendedClientTool)
	s.same(j.String(), `double({"n":3})`, "calls that ran here")
	s.same(s.open(x, "there").Kind, session.PendingClientTool, "what the other call waits for")
	s.Submit(x, "s-1", helix.ToolResult(s.open(x, "there").CallID, 4), helix.SubmitAccepted)
	s.ended(s.resumed(x), helix.Completed)
}

// wrapped is a model around another.
type wrapped struct {
	llm.Model

	j *journal
}

func (w wrapped) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	w.j.add("step %d: %d tools", r.Step, len(r.Tools))
	return w.Model.Generate(ctx, r, emit)
}

func observeWrappedModel(s *Stage) {
	var j journal
	agent := newAgent(wrapped{scripted.New(scripted.Call("double", num{3}).WithUsage(session.Usage{InputTokens: 7, OutputTokens: 2}), scripted.Text("ok")), &j}, double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.same(j.String(), "step 1: 1 tools\nstep 2: 1 tools", "requests")
	s.same(res.Usage.TotalTokens(), int64(24), "tokens")
	s.same(res.Text, "ok", "the reply")
}
