package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// taskScenarios are about the work that follows commits.
func taskScenarios() []Scenario {
	return []Scenario{
		{"follows a run", "a task that an extension returns at the end of a run is carried out after it, and then removed", tasksFollow},
		{"killed process", "a task whose process was killed while it carried it out is carried out by another", tasksKilled},
		{"left by a dead process", "a task that a dead process has stored is carried out by another", tasksLeft},
		{"panics", "a handler that always panics is given up and listed, and the session stays usable; retried, it runs again", tasksPanic},
		{"fails", "a handler that fails is called again after a growing delay, and the last error is kept", tasksFail},
		{"deleted session", "a task of a deleted session does not run", tasksDeleted},
		{"cleaned up", "the tasks of extensions that clean up after a session and those below it are carried out when it is deleted", tasksCleanUp},
		{"dropped", "a handler whose task was dropped is cancelled", tasksDropped},
		{"lost hold", "a handler whose hold cannot be renewed is cancelled, and another process carries the task out", tasksLost},
		{"shutdown waits", "a shutdown waits for handlers", tasksShutdown},
		{"shutdown's grace", "a handler has a grace after the shutdown's deadline; then it is cancelled and its task handed back", tasksGrace},
		{"closed", "closing cancels handlers and hands their tasks back, and the attempt does not count", tasksClosed},
		{"few at a time", "a process carries out only as many tasks at the same time as it has workers", tasksFew},
		{"shared", "several processes share the tasks, and each is carried out once", tasksShared},
		{"nobody", "a task of an agent that no process has waits, is given up after an age, and removed after another", tasksNobody},
		{"another's", "a process leaves a task that it cannot carry out to one that can", tasksAnother},
		{"factory", "a task of an agent that a factory makes is carried out", tasksFactory},
		{"tenants", "a tenant with one task does not wait for another's many", tasksTenants},
		{"trimmed streams", "the chunks of a run's stream are removed some time after the run has ended, if configured", tasksTrim},
		{"trimmed after a wait", "the stream of a session that waits is not trimmed before its run has ended, and one that does not exist is no failure", tasksTrimWaits},
		{"trimmed after an abort", "a run that is ended by a process which does not know its agent has its stream trimmed, too", tasksTrimLost},
		{"cleaned calls", "rows of calls that no step will use are removed, if configured", tasksCleanCalls},
		{"hangs", "a handler that ignores its context is left behind, and its task is tried again", tasksHang},
		{"at once", "a task begins at once in the process that has stored it, whichever commit that was", tasksAtOnce},
		{"slow tenant", "a tenant whose tasks occupy all workers does not hold up another", tasksSlow},
		{"factory at once", "a task of an agent that a factory makes begins at once in the process that has stored it", tasksFactoryAtOnce},
		{"left to a factory", "a task of a factory's agent that a dead process has left is carried out once the factory is registered", tasksFactoryLeft},
		{"broken factory", "a task whose agent a factory no longer makes is tried and given up, and its log says so", tasksFactoryBroken},
		{"failed deletion", "a task that cleans up after a session is called again while the session exists, and a repeated deletion has its own", tasksFailedDeletion},
		{"always hangs", "a handler that always ignores its context is given up", tasksHangAlways},
		{"hangs at the shutdown", "a handler that ignores its context, or a factory that hangs, does not delay a shutdown beyond its grace", tasksHangShutdown},
	}
}

// worker is an extension that has a task follow each run, and carries tasks out.
type worker struct {
	extension
	finish []session.Task
	do     func(ctx context.Context, task *session.Task) error
}

func (w *worker) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return w.finish, nil
}

func (w *worker) TaskKinds() []string { return []string{"work"} }

func (w *worker) HandleTask(ctx context.Context, task *session.Task) error { return w.do(ctx, task) }

// withWorker returns an agent whose tasks do something.
func withWorker(do func(ctx context.Context, task *session.Task) error) *helix.Agent {
	agent := newAgent(scripted.New(scripted.Text("Hello."), scripted.Text("Hello again.")).ByPosition())
	agent.Extensions = []helix.Extension{&worker{extension: extension{name: "worker"}, do: do}}
	return agent
}

// quick are options with which tasks are carried out at once, and again soon.
func quick(agents ...*helix.Agent) Options {
	return Options{Agents: agents, Tasks: helix.TaskOptions{
		Poll: 10 * time.Millisecond, Hold: time.Minute, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
	}}
}

// seldom are options with which only those tasks are found that the process has stored.
func seldom(agents ...*helix.Agent) Options {
	opts := quick(agents...)
	opts.Tasks.Poll = time.Hour
	return opts
}

// putTask stores a task of the agent of most scenarios.
func (s *Stage) putTask(sessionID, id string) session.TaskRef {
	s.Helper()
	task := session.Task{ID: id, Kind: "work", Agent: "agent", SessionID: sessionID, Body: []byte(`{"n":1}`)}
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{task}), "put a task")
	return task.Ref()
}

// tasks lists the tasks of the default tenant.
func (s *Stage) tasks() []session.Task {
	s.Helper()
	page, err := s.Backend.Sessions().ListTasks(s.ctx(), session.TaskQuery{Limit: session.MaxPageSize})
	s.ok(err, "list tasks")
	return page.Items
}

// noTasks waits until all tasks are done.
func (s *Stage) noTasks() {
	s.Helper()
	s.until("all tasks are done", func() bool { return len(s.tasks()) == 0 })
}

// logs waits for a line of the log, which follows what is stored.
func (s *Stage) logs(event string) {
	s.Helper()
	s.until("the log says "+event, func() bool { return strings.Contains(s.Log.String(), event) })
}

func tasksFollow(s *Stage) {
	done := make(chan session.Task, 10)
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		done <- *task
		return nil
	})
	agent.Extensions[0].(*worker).finish = []session.Task{{Kind: "work", Body: []byte(`{"n":1}`)}} //nolint:forcetypeassert // as made above
	x := s.StartWith(quick(agent))
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	task := eventually.Receive(s.T, "the task is carried out", done)
	s.same([]any{task.Kind, task.Agent, task.SessionID, task.RunID, string(task.Body), task.Attempts},
		[]any{"work", "agent", "s-1", res.RunID, `{"n":1}`, 1}, "task")
	s.noTasks()
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.until("the second run's task is carried out", func() bool { return len(done) == 1 })
	s.noTasks()
}

func tasksKilled(s *Stage) {
	g := s.newGate()
	agent := withWorker(func(ctx context.Context, _ *session.Task) error { return g.pass(ctx) })
	opts := quick(agent)
	opts.Tasks.Hold = 100 * time.Millisecond
	x := s.StartWith(opts)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	ref := s.putTask("s-1", "one")
	s.receive("the handler has begun", g.entered)
	x.Kill()
	var ran tally
	heir := withWorker(func(_ context.Context, task *session.Task) error {
		s.same(task.Ref(), ref, "task")
		if task.Attempts < 2 {
			s.Errorf("this is attempt %d", task.Attempts)
		}
		ran.add("one")
		return nil
	})
	s.StartOther(quick(heir))
	s.noTasks()
	s.same(ran.of("one"), 1, "times that the other process carried it out")
}

func tasksLeft(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello.")))
	agent.Extensions = []helix.Extension{&worker{extension: extension{name: "worker"}, finish: []session.Task{{Kind: "work"}}}}
	opts := quick(agent)
	opts.Tasks.Workers = -1
	x := s.StartWith(opts)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(len(s.tasks()), 1, "tasks after the run")
	x.Kill()
	var ran tally
	s.StartOther(quick(withWorker(func(context.Context, *session.Task) error { ran.add("one"); return nil })))
	s.noTasks()
	s.same(ran.of("one"), 1, "times that it was carried out")
}

func tasksPanic(s *Stage) {
	var ran tally
	var mended atomic.Bool
	agent := withWorker(func(context.Context, *session.Task) error {
		ran.add("one")
		if !mended.Load() {
			panic("no such index")
		}
		return nil
	})
	opts := quick(agent)
	opts.Tasks.MaxAttempts = 4
	x := s.StartWith(opts)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	ref := s.putTask("s-1", "one")
	given := func() []session.Task {
		page, err := s.Backend.Sessions().ListTasks(s.ctx(), session.TaskQuery{GivenUp: true})
		s.ok(err, "list tasks")
		return page.Items
	}
	s.until("it is given up", func() bool { return len(given()) == 1 })
	task := given()[0]
	s.same([]any{task.Ref(), task.Attempts, task.LastError, ran.of("one")}, []any{ref, 4, "panic: no such index", 4}, "the task that was given up")
	s.logs("task.given_up")
	s.logged("task.given_up", "no such index")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.same(ran.of("one"), 4, "attempts after it was given up")
	mended.Store(true)
	s.ok(s.Backend.Sessions().RetryTask(s.ctx(), ref), "retry")
	s.noTasks()
	s.same(ran.of("one"), 5, "attempts")
}

func tasksFail(s *Stage) {
	attempts := make(chan session.Task, 10)
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		attempts <- *task
		if task.Attempts < 4 {
			return fmt.Errorf("attempt %d failed", task.Attempts)
		}
		return nil
	})
	opts := quick(agent)
	opts.Tasks.Backoff, opts.Tasks.MaxBackoff = 40*time.Millisecond, 80*time.Millisecond
	s.StartWith(opts)
	began := time.Now()
	s.putTask("", "one")
	s.noTasks()
	if took := time.Since(began); took < 200*time.Millisecond { // waits: a lower bound, which a slow machine keeps
		s.Errorf("four attempts with delays of 40, 80 and 80 ms took %s", took)
	}
	for n := 1; n <= 4; n++ {
		task := <-attempts
		want := ""
		if n > 1 {
			want = fmt.Sprintf("attempt %d failed", n-1)
		}
		s.same([]any{task.Attempts, task.LastError}, []any{n, want}, "attempt")
	}
}

func tasksDeleted(s *Stage) {
	var ran tally
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		ran.add(task.ID)
		return nil
	})
	x := s.StartWith(quick(agent))
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	later := time.Now().Add(time.Hour)
	of := session.Task{ID: "of the session", Kind: "work", Agent: "agent", SessionID: "s-1", DueAt: later}
	other := session.Task{ID: "clean-up", Kind: "work", Agent: "agent", DueAt: later}
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{of}), "put a task")
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{other}), "put a task")
	_, err := x.Sessions().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.refused(s.Backend.Sessions().RetryTask(s.ctx(), of.Ref()), session.ErrNotFound)
	s.ok(s.Backend.Sessions().RetryTask(s.ctx(), other.Ref()), "retry")
	s.noTasks()
	s.same([]int{ran.of("of the session"), ran.of("clean-up")}, []int{0, 1}, "tasks that were carried out")
}

// cleaner is an extension that cleans up after sessions.
type cleaner struct{ worker }

func (c *cleaner) Delete(_ context.Context, key session.Key) ([]session.Task, error) {
	return []session.Task{{Kind: "work", Body: []byte(`"` + key.ID + `"`)}}, nil
}

func tasksCleanUp(s *Stage) {
	var cleaned tally
	do := func(_ context.Context, task *session.Task) error {
		if task.SessionID != "" {
			s.Errorf("the task belongs to session %s", task.SessionID)
		}
		if _, err := s.Backend.Sessions().Load(context.Background(), "s-1"); !errors.Is(err, session.ErrNotFound) {
			s.Errorf("attempt %d of task %s began before the session was deleted", task.Attempts, task.ID)
		}
		cleaned.add(string(task.Body))
		return nil
	}
	child := named("child", scripted.New(scripted.Text("Done.")))
	child.Extensions = []helix.Extension{&cleaner{worker: worker{extension: extension{name: "cleaner"}, do: do}}}
	agent := parent(child)
	agent.Extensions = []helix.Extension{
		&cleaner{worker: worker{extension: extension{name: "cleaner"}, do: do}},
		&brokenCleaner{extension{name: "broken"}},
	}
	x := s.StartWith(seldom(agent)) // a look at the wrong moment would find the session
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	deleted, err := x.Sessions().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.same(len(deleted), 2, "sessions that were deleted")
	s.logged("extension.clean_up_failed", "broken")
	s.until("both are cleaned up after", func() bool { return cleaned.of(`"`+deleted[0]+`"`) == 1 && cleaned.of(`"`+deleted[1]+`"`) == 1 })
	s.noTasks()
}

// brokenCleaner is an extension that cannot say what to clean up.
type brokenCleaner struct{ extension }

func (c *brokenCleaner) Delete(context.Context, session.Key) ([]session.Task, error) {
	return nil, errors.New("no idea")
}

func tasksDropped(s *Stage) {
	g := s.newGate()
	cancelled := make(chan struct{})
	agent := withWorker(func(ctx context.Context, _ *session.Task) error {
		g.enter()
		<-ctx.Done()
		close(cancelled)
		return ctx.Err()
	})
	opts := quick(agent)
	opts.Tasks.Hold = 100 * time.Millisecond
	s.StartWith(opts)
	ref := s.putTask("", "one")
	s.receive("the handler has begun", g.entered)
	s.ok(s.Backend.Sessions().DropTask(s.ctx(), ref, time.Time{}), "drop")
	s.receive("the handler is cancelled", cancelled)
	s.same(len(s.tasks()), 0, "tasks")
}

func tasksLost(s *Stage) {
	g := s.newGate()
	cancelled := make(chan error, 1)
	agent := withWorker(func(ctx context.Context, task *session.Task) error {
		if task.Attempts > 1 {
			return nil
		}
		g.enter()
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		return ctx.Err()
	})
	backend := s.newFrail(s.Backend)
	opts := quick(agent)
	opts.Tasks.Hold = 150 * time.Millisecond
	s.startOn(backend, opts)
	s.putTask("", "one")
	s.receive("the handler has begun", g.entered)
	backend.kill() // it lives on, but cannot reach the store
	if err := eventually.Receive(s.T, "the handler is cancelled", cancelled); !errors.Is(err, session.ErrStale) {
		s.Errorf("the handler was cancelled because of %v", err)
	}
	s.StartOther(quick(agent))
	s.noTasks()
}

func tasksShutdown(s *Stage) {
	g := s.newGate()
	agent := withWorker(func(ctx context.Context, _ *session.Task) error { return g.pass(ctx) })
	x := s.StartWith(quick(agent))
	s.putTask("", "one")
	s.receive("the handler has begun", g.entered)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := x.Shutdown(s.ctx()); err != nil {
			s.Errorf("shutdown: %v", err)
		}
	}()
	s.until("new work is refused", func() bool {
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-2", Message: helix.UserText("Hi!")})
		return err != nil
	})
	s.putTask("", "two")
	s.putTask("", "three")
	g.release()
	s.receive("it closes", closed)
	left := s.tasks()
	if len(left) == 0 || len(left) > 2 { // a search that began before the shutdown may find one of them
		s.Fatalf("%d tasks are left of the two that came too late", len(left))
	}
	for _, task := range left {
		s.same(task.Attempts, 0, "attempts at task %s, which came too late", task.ID)
	}
}

func tasksGrace(s *Stage) {
	g := s.newGate()
	finished := make(chan struct{})
	agent := withWorker(func(ctx context.Context, task *session.Task) error {
		if task.ID == "short" {
			g.enter()
			select {
			case <-g.open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		defer close(finished)
		<-ctx.Done()
		return ctx.Err()
	})
	opts := quick(agent)
	opts.Tasks.Grace = s.pace(300 * time.Millisecond)
	x := s.StartWith(opts)
	s.putTask("", "long")
	s.putTask("", "short")
	s.receive("a handler has begun", g.entered)
	s.until("both have begun", func() bool {
		return !slices.ContainsFunc(s.tasks(), func(task session.Task) bool { return task.Owner == "" })
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // waits: it passes, because the handlers hang
	defer cancel()
	go func() {
		<-ctx.Done()
		g.release() // after the deadline, within the grace
	}()
	_ = x.Shutdown(ctx)
	s.receive("the long handler was cancelled", finished)
	left := s.tasks()
	s.same(len(left), 1, "tasks that are left")
	s.same([]any{left[0].ID, left[0].Attempts, left[0].Owner}, []any{"long", 0, ""}, "the task that was handed back")
}

func tasksClosed(s *Stage) {
	g := s.newGate()
	agent := withWorker(func(ctx context.Context, _ *session.Task) error { return g.pass(ctx) })
	x := s.StartWith(quick(agent))
	s.putTask("", "one")
	s.receive("the handler has begun", g.entered)
	s.ok(x.Close(), "close")
	left := s.tasks()
	s.same(len(left), 1, "tasks that are left")
	s.same([]any{left[0].Attempts, left[0].Owner, left[0].LastError}, []any{0, "", ""}, "the task that was handed back")
	var ran tally
	s.StartOther(quick(withWorker(func(context.Context, *session.Task) error { ran.add("one"); return nil })))
	s.noTasks()
	s.same(ran.of("one"), 1, "times that the other process carried it out")
}

func tasksFew(s *Stage) {
	var now, most atomic.Int64
	agent := withWorker(func(context.Context, *session.Task) error {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond) // waits: so that handlers overlap
		return nil
	})
	opts := quick(agent)
	opts.Tasks.Workers = 2
	for i := range 8 {
		s.putTask("", fmt.Sprint(i))
	}
	s.StartWith(opts)
	s.noTasks()
	if n := most.Load(); n > 2 {
		s.Errorf("%d handlers ran at the same time", n)
	}
}

func tasksShared(s *Stage) {
	const n = 30
	var ran tally
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		ran.add(task.ID)
		return nil
	})
	for i := range n {
		s.putTask("", fmt.Sprint(i))
	}
	s.StartWith(quick(agent))
	s.StartOther(quick(agent))
	s.noTasks()
	for i := range n {
		s.same(ran.of(fmt.Sprint(i)), 1, "times that task %d was carried out", i)
	}
}

func tasksNobody(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello.")))
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{{ID: "one", Kind: "work", Agent: "vanished"}}), "put a task")
	opts := quick(agent)
	opts.Tasks.Abandon, opts.Tasks.KeepGivenUp = 300*time.Millisecond, 300*time.Millisecond
	s.StartWith(opts)
	s.same(s.tasks()[0].GivenUpAt.IsZero(), true, "not given up at once")
	s.until("it is given up", func() bool {
		left := s.tasks()
		return len(left) == 0 || !left[0].GivenUpAt.IsZero()
	})
	s.logs("task.given_up")
	s.logged("task.given_up", "vanished")
	s.noTasks()
}

func tasksAnother(s *Stage) {
	var ran tally
	busy := withWorker(func(context.Context, *session.Task) error { ran.add("busy"); return nil })
	busy.Name = "busy"
	s.StartWith(quick(newAgent(scripted.New(scripted.Text("Hello."))), busy))
	s.putTask("", "one")
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{{ID: "two", Kind: "work", Agent: "busy"}}), "put a task")
	s.until("it has done what it can", func() bool { return ran.of("busy") == 1 && len(s.tasks()) == 1 })
	s.same(s.tasks()[0].Attempts, 0, "attempts of a process that cannot")
	s.StartOther(quick(withWorker(func(context.Context, *session.Task) error { ran.add("one"); return nil })))
	s.noTasks()
	s.same(ran.of("one"), 1, "times that it was carried out")
}

func tasksFactory(s *Stage) {
	done := make(chan struct{})
	opts := quick()
	opts.Tasks.Abandon = time.Second // it is looked for the kinds of a factory's agents about as often
	x := s.StartWith(opts)
	s.ok(x.RegisterFactory("agent", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return withWorker(func(context.Context, *session.Task) error {
			close(done)
			return nil
		}), nil
	}), "register")
	s.putTask("", "one")
	s.receive("the task is carried out", done)
	s.noTasks()
}

func tasksTenants(s *Stage) {
	var ran journal
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		ran.add("%s", task.Tenant)
		return nil
	})
	const many = 100
	for i := range many {
		s.putTask("", fmt.Sprint(i))
	}
	task := session.Task{ID: "one", Kind: "work", Agent: "agent"}
	s.ok(s.Backend.Sessions().Tenant("quiet").PutTasks(s.ctx(), []session.Task{task}), "put a task")
	opts := quick(agent)
	opts.Tasks.Workers = 1
	s.StartWith(opts)
	s.noTasks()
	order := strings.Fields(ran.String())
	if at := slices.Index(order, "quiet"); at < 0 || at > many/2 { // its turn is the second, but it runs beside the others
		s.Errorf("the other tenant's task was number %d of %d", at+1, len(order))
	}
}

func tasksHang(s *Stage) {
	g := s.newGate()
	agent := withWorker(func(_ context.Context, task *session.Task) error {
		if task.Attempts == 1 {
			<-g.open
		}
		return nil
	})
	opts := quick(agent)
	opts.Tasks.Limit = 20 * time.Millisecond
	s.StartWith(opts)
	s.putTask("", "one")
	s.noTasks()
	s.logs("task.failed")
}

func tasksTrim(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello."), scripted.Text("Hello again.")).ByPosition())
	s.loose["s-1"] = true
	opts := quick(agent)
	opts.Tasks.TrimStreams = 200 * time.Millisecond
	x := s.StartWith(opts)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	floor := func() (int64, int64) {
		info, err := s.Backend.Streams().Info(s.ctx(), "s-1")
		s.ok(err, "info")
		return info.Floor, info.Last
	}
	first, last := floor()
	if left := s.tasks(); len(left) == 1 && left[0].Attempts == 0 { // else the time has passed already
		s.same(first, 0, "chunks that are removed at once")
	}
	s.noTasks()
	trimmed, _ := floor()
	if trimmed == 0 || trimmed > last {
		s.Errorf("the stream begins after %d of %d", trimmed, last)
	}
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: Hello.", "user: Again!", "assistant: Hello again.")
	s.noTasks()
	s.tenants = nil // the numbering is checked to begin at 1 otherwise
}

func tasksTrimWaits(s *Stage) {
	agent := waitingAgent(onClient("pick"))
	s.loose["s-1"] = true
	opts := quick(agent)
	opts.Tasks.TrimStreams = time.Millisecond
	x := s.StartWith(opts)
	res := s.waitsOn(x, agent, "s-1")
	s.same(len(s.tasks()), 0, "tasks that follow a run which waits")
	floor := func() int64 {
		info, err := s.Backend.Streams().Info(s.ctx(), "s-1")
		s.ok(err, "info")
		return info.Floor
	}
	trim := func(id string) {
		s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{{ID: "trim", Kind: "helix.trim", SessionID: id}}), "put a task")
		s.noTasks()
	}
	s.idle(10 * time.Millisecond) // the chunks are old enough then
	trim("s-1")
	s.same(floor(), 0, "chunks that are removed while the session waits")
	s.leaveCalls("s-0")
	trim("s-0") // it has no stream
	if strings.Contains(s.Log.String(), "task.failed") {
		s.Error("the trimming of a stream that does not exist has failed")
	}
	_, err := s.store().Delete(s.ctx(), "s-0") // it is not what a turn leaves
	s.ok(err, "delete")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.noTasks()
	s.idle(10 * time.Millisecond)
	trim("s-1")
	if floor() == 0 {
		s.Error("the stream is not trimmed after the run")
	}
	s.tenants = nil // the numbering is checked to begin at 1 otherwise
}

func tasksTrimLost(s *Stage) {
	g := s.newGate()
	run := s.orphan(newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil)))), g)
	opts := quick(named("other", scripted.New()))
	opts.LeaseTTL, opts.Tasks.TrimStreams = lease, time.Hour
	x := s.StartOther(opts)
	s.ok(x.Abort(s.ctx(), "s-1", "enough"), "abort")
	s.becomes("s-1", session.Failed)
	left := s.tasks()
	s.same(len(left), 1, "tasks")
	s.same([]any{left[0].SessionID, left[0].RunID, left[0].Agent}, []any{"s-1", run.ID(), ""}, "the task")
	if left[0].DueAt.Before(time.Now().Add(time.Minute)) {
		s.Errorf("the stream is trimmed at %s already", left[0].DueAt)
	}
}

func tasksCleanCalls(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello.")))
	opts := quick(agent)
	opts.Tasks.CleanCalls, opts.Tasks.Abandon = time.Millisecond, 200*time.Millisecond // clean-ups are begun about as often as tasks are abandoned
	s.leaveCalls("s-0")
	x := s.StartWith(opts)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.until("the rows are removed", func() bool {
		rows, err := s.store().Calls(s.ctx(), "s-0", "m-1")
		s.ok(err, "calls")
		return len(rows) == 0
	})
	s.noTasks()
	_, err := s.store().Delete(s.ctx(), "s-0") // it is not what a turn leaves
	s.ok(err, "delete")
}

// leaveCalls makes a session whose run has ended with a row of a call.
func (s *Stage) leaveCalls(id string) {
	s.Helper()
	started, err := s.store().StartRun(s.ctx(), &session.StartRun{
		SessionID: id, Create: &session.State{ID: id, Agent: "agent", Status: session.Active, StreamID: id}, Owner: "me", TTL: time.Hour,
		Run: session.Run{ID: "run-1", Kind: session.RunExecute, Status: session.RunRunning, Agent: "agent", Runtime: "gone"},
	})
	s.ok(err, "start a run")
	commit := &session.Commit{SessionID: id, RunID: "run-1", Key: "1", Version: started.Version, Fence: started.Lease.Fence()}
	commit.Messages = []session.Message{{ID: "m-1", Role: session.RoleAssistant, Parts: []session.Part{
		{Kind: session.PartToolCall, CallID: "c-1", Tool: "pay", Input: []byte(`{}`)},
	}}}
	commit.Calls = []session.Call{{MessageID: "m-1", ID: "c-1", Tool: "pay", Kind: session.CallServer, Status: session.CallOpen}}
	done, err := s.store().Commit(s.ctx(), commit)
	s.ok(err, "commit")
	last := &session.Commit{SessionID: id, RunID: "run-1", Key: "2", Version: done.Version, Fence: started.Lease.Fence()}
	last.Status, last.Outcome = session.Failed, &session.Outcome{Status: session.RunFailed, Error: session.ErrInternal}
	_, err = s.store().Commit(s.ctx(), last)
	s.ok(err, "commit the end")
	s.ok(s.store().CloseRun(s.ctx(), id, started.Lease.Fence(), true), "close the run")
	rows, err := s.store().Calls(s.ctx(), id, "m-1")
	s.ok(err, "calls")
	s.same(len(rows), 1, "rows of calls")
}
