package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// This file has the scenarios about when a task is carried out, and by which worker.

// finishing returns an agent with a task after each run, which is sent to done.
func finishing(model *scripted.Model, done chan<- session.Task, tools ...helix.Tool) *helix.Agent {
	agent := newAgent(model, tools...)
	agent.Extensions = []helix.Extension{&worker{
		extension: extension{name: "worker"}, finish: []session.Task{{Kind: "work"}},
		do: func(_ context.Context, task *session.Task) error {
			done <- *task
			return nil
		},
	}}
	return agent
}

// taskOf waits for a task of a run. Where it is not found at once, the options [seldom] have others find it too late.
func (s *Stage) taskOf(done <-chan session.Task, runID string) {
	s.Helper()
	s.same(eventually.Receive(s.T, "the task begins", done).RunID, runID, "run of the task")
}

func tasksAtOnce(s *Stage) {
	done := make(chan session.Task, 10)
	agent := finishing(scripted.New(scripted.Call("choose", num{1})), done, onClient("choose"))
	agent.SessionExpiry = s.pace(lives)
	opts := seldom(agent)
	opts.LeaseTTL = lease
	x := s.StartWith(opts)
	s.taskOf(done, s.waitsOn(x, agent, "s-0").RunID)
	s.becomes("s-0", session.Failed) // it has expired
	s.taskOf(done, s.load("s-0").CurrentRunID)
	s.noTasks()
	s.collect(s.Attach(x, "s-0")) // nobody else would close the stream
	x.Kill()

	g := s.newGate()
	helper := finishing(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(nil))), done)
	helper.Name = "helper"
	caller := with(newAgent(scripted.New(hand("helper", "do it"), scripted.Text("Done."))), helper)
	s.orphan(caller, g)
	child := s.child("s-1")
	opts = seldom(helper) // it does not know the caller, so it ends both from outside
	opts.LeaseTTL = lease
	y := s.StartOther(opts)
	s.ok(y.Abort(s.ctx(), "s-1", "the agent is gone"), "abort")
	s.becomes(child, session.Failed)
	s.taskOf(done, s.load(child).CurrentRunID)
	s.noTasks()
	z := s.StartOther(Options{Agents: []*helix.Agent{caller}})
	s.ended(s.Say(z, caller, "s-1", "Never mind."), helix.Completed) // so that the transcript is whole
}

func tasksSlow(s *Stage) {
	for _, workers := range []int{1, 3} {
		t := s.withNewBackend()
		t.slowTenant(workers)
	}
}

// slowTenant has a tenant occupy all workers.
func (s *Stage) slowTenant(workers int) {
	g := s.newGate()
	var slow atomic.Int64
	quiet := make(chan string, 10)
	agent := withWorker(func(ctx context.Context, task *session.Task) error {
		if task.Tenant != session.DefaultTenant {
			quiet <- task.Tenant
			return nil
		}
		slow.Add(1)
		return g.pass(ctx)
	})
	opts := quick(agent)
	opts.Tasks.Workers = workers
	for i := range 3 * workers {
		s.putTask("", fmt.Sprint(i))
	}
	x := s.StartWith(opts)
	s.until("the slow tenant has all workers", func() bool { return slow.Load() == int64(workers) })
	for _, tenant := range []string{"a", "zz"} { // before and after the slow one in the order of tenants
		for i := range 3 {
			task := session.Task{ID: fmt.Sprint(i), Kind: "work", Agent: "agent"}
			s.ok(s.Backend.Sessions().Tenant(tenant).PutTasks(s.ctx(), []session.Task{task}), "put a task")
			s.same(s.receiveFrom("a task begins while all workers are at slow ones", quiet), tenant, "tenant")
		}
	}
	s.same(slow.Load(), int64(workers), "slow tasks that run")
	g.release()
	s.noTasks()
	s.same(slow.Load(), int64(3*workers), "slow tasks that ran")
	s.until("no worker is busy", func() bool { return x.TaskStats().Running == 0 })
}

func tasksFactoryAtOnce(s *Stage) {
	done := make(chan session.Task, 10)
	x := s.StartWith(seldom())
	s.ok(x.RegisterFactory("agent", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return finishing(scripted.New(scripted.Text("Hello.")), done), nil
	}), "register")
	run, err := x.Execute(s.ctx(), helix.Named("agent"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	s.taskOf(done, run.ID())
	s.noTasks()
}

func tasksFactoryLeft(s *Stage) {
	done := make(chan session.Task, 10)
	factory := func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return finishing(scripted.New(scripted.Text("Hello.")), done), nil
	}
	opts := quick()
	opts.Tasks.Workers = -1
	x := s.StartWith(opts)
	s.ok(x.RegisterFactory("agent", factory), "register")
	run, err := x.Execute(s.ctx(), helix.Named("agent"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	x.Kill()
	y := s.StartOther(seldom())
	time.Sleep(time.Millisecond) // waits: the search looks for tasks that were due before it, and a fake clock may stand still
	s.ok(y.RegisterFactory("agent", factory), "register")
	s.taskOf(done, run.ID())
	s.noTasks()
}

func tasksFactoryBroken(s *Stage) {
	var broken atomic.Bool
	opts := quick()
	opts.Tasks.MaxAttempts = 3
	x := s.StartWith(opts)
	s.ok(x.RegisterFactory("agent", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		if broken.Load() {
			return nil, errors.New("no such customer")
		}
		return finishing(scripted.New(scripted.Text("Hello.")), make(chan session.Task, 10)), nil
	}), "register")
	run, err := x.Execute(s.ctx(), helix.Named("agent"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	s.noTasks()
	broken.Store(true)
	s.putTask("s-1", "one")
	s.until("it is given up", func() bool { return !s.tasks()[0].GivenUpAt.IsZero() })
	task := s.tasks()[0]
	s.same(task.Attempts, 3, "attempts")
	if !strings.Contains(task.LastError, "no such customer") {
		s.Errorf("the last error is %q", task.LastError)
	}
	s.logs("task.given_up")
	s.logged("task.given_up", "no such customer")
}

// undeletable is a backend whose sessions cannot be deleted for a while.
type undeletable struct {
	store.Backend
	down *atomic.Bool
}

// Sessions implements [store.Backend].
func (b undeletable) Sessions() session.Store {
	return undeletableSessions{b.Backend.Sessions(), b.down}
}

type undeletableSessions struct {
	session.Store
	down *atomic.Bool
}

// Tenant implements [session.Store].
func (s undeletableSessions) Tenant(tenant string) session.Store {
	return undeletableSessions{s.Store.Tenant(tenant), s.down}
}

// Delete implements [session.Lifecycle].
func (s undeletableSessions) Delete(ctx context.Context, id string) ([]string, error) {
	if s.down.Load() {
		return nil, session.ErrUnavailable
	}
	return s.Store.Delete(ctx, id)
}

func tasksFailedDeletion(s *Stage) {
	var down atomic.Bool
	var cleaned tally
	agent := newAgent(scripted.New(scripted.Text("Hello.")))
	agent.Extensions = []helix.Extension{&cleaner{worker{extension: extension{name: "cleaner"}, do: func(ctx context.Context, task *session.Task) (err error) {
		// The task may begin before the deletion that has stored it ends.
		left := eventually.PollContext(ctx, func() bool {
			var exists bool
			exists, err = s.Backend.Sessions().Exists(ctx, "s-1")
			switch {
			case err != nil:
			case !exists:
				cleaned.add(string(task.Body))
			case down.Load():
				err = errors.New("the session exists")
			}
			return err != nil || !exists
		})
		return errors.Join(left, err)
	}}}}
	opts := quick(agent)
	opts.Tasks.MaxAttempts = 2
	x := s.startOn(undeletable{s.Backend, &down}, opts)
	_, err := x.Sessions().Delete(s.ctx(), "s-1")
	s.refused(err, session.ErrNotFound)
	s.same(len(s.tasks()), 0, "tasks after the deletion of a session that does not exist")
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	down.Store(true)
	_, err = x.Sessions().Delete(s.ctx(), "s-1")
	s.refused(err, session.ErrUnavailable)
	s.until("the task of the failed deletion is given up", func() bool { return !s.tasks()[0].GivenUpAt.IsZero() })
	s.same(s.tasks()[0].LastError, "the session exists", "why")
	s.same(s.tasks()[0].Attempts, 2, "attempts")
	down.Store(false)
	_, err = x.Sessions().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	s.until("it is cleaned up after the session", func() bool { return cleaned.of(`"s-1"`) == 1 })
}

func tasksHangAlways(s *Stage) {
	g := s.newGate()
	agent := withWorker(func(context.Context, *session.Task) error {
		<-g.open
		return nil
	})
	opts := quick(agent)
	opts.Tasks.Limit, opts.Tasks.MaxAttempts = 20*time.Millisecond, 2
	s.StartWith(opts)
	s.putTask("", "one")
	s.until("it is given up", func() bool { return !s.tasks()[0].GivenUpAt.IsZero() })
	s.same(s.tasks()[0].Attempts, 2, "attempts")
	s.logs("task.given_up")
	s.logged("task.given_up", "task=one")
}

func tasksHangShutdown(s *Stage) {
	g, f := s.newGate(), s.newGate()
	agent := withWorker(func(context.Context, *session.Task) error {
		g.enter()
		<-g.open
		return nil
	})
	opts := quick(agent)
	opts.Tasks.Grace = 100 * time.Millisecond
	x := s.StartWith(opts)
	s.putTask("", "one")
	s.receive("the handler has begun", g.entered)
	s.ok(s.Backend.Sessions().PutTasks(s.ctx(), []session.Task{{ID: "two", Kind: "work", Agent: "made"}}), "put a task")
	s.ok(x.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		f.enter()
		<-f.open
		return nil, errors.New("too late")
	}), "register")
	s.receive("the factory is asked", f.entered)
	ctx, cancel := context.WithCancel(context.Background())
	rescue := time.AfterFunc(eventually.Patience, func() { g.release(); f.release() })
	cancel()
	_ = x.Shutdown(ctx)
	if !rescue.Stop() {
		s.Error("the shutdown waited for a handler or a factory")
	}
	for _, task := range s.tasks() {
		s.same([]any{task.Attempts, task.Owner}, []any{0, ""}, "task %s", task.ID)
	}
}
