package runtimetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func registryScenarios() []Scenario {
	return []Scenario{
		{"names", "agents are listed, found, unregistered and registered again by name", registryNames},
		{"unregistered", "sessions of an unregistered agent are not touched until it is registered again", registryUnregistered},
		{"factory", "a factory makes the agent of each turn from its session, here and in a process that takes over", registryFactory},
		{"factory's sub-agents", "agents below one that a factory made need not be registered, also after a crash", registryFactoryTree},
		{"factory fails", "a factory that fails, panics or makes another agent refuses the turn", registryFactoryFails},
		{"factory's names", "an agent that a factory made may not call an agent under the name of a registered one", registryFactoryNames},
		{"factory fails for a while", "a run whose factory fails for a while is taken over when the factory works again", registryFactoryAway},
		{"can resume", "CanResume reports whether a session can be resumed, with the reason if not", registryCanResume},
		{"handles", "a run's handle resumes and retries its session, without the agent", registryHandles},
	}
}

func registryNames(s *Stage) {
	child := &helix.Agent{Name: "child", Model: scripted.New()}
	agent := newAgent(scripted.New())
	agent.SubAgents = []helix.SubAgent{{Agent: child}}
	x := s.Start(agent)
	s.ok(x.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return nil, nil }), "register a factory")
	s.same(strings.Join(x.Agents(), " "), "agent child made", "agents")
	s.same([]bool{x.HasAgent("child"), x.HasAgent("made"), x.HasAgent("other")}, []bool{true, true, false}, "agents that are known")
	x.Unregister("made", "child", "other")
	s.same(strings.Join(x.Agents(), " "), "agent", "agents after two were made unknown")
	x.UnregisterAll()
	s.same(len(x.Agents()), 0, "agents after all were made unknown")
	s.ok(x.Register(agent), "register again")
	s.same(strings.Join(x.Agents(), " "), "agent child", "agents that are back")
	s.refused(x.RegisterFactory("agent", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return nil, nil }), helix.ErrInvalid, "Replace")
	s.refused(x.RegisterFactory("x y", nil), helix.ErrInvalid, "x y")
	s.refused(x.RegisterFactory("none", nil), helix.ErrInvalid, "none")
}

func registryUnregistered(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	x.Unregister(agent.Name)
	s.Submit(x, "s-1", helix.ToolResult(res.Pending[0].CallID, "blue"), helix.SubmitAccepted)
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.refused(err, helix.ErrUnknownAgent, "agent")
	_, err = x.Execute(s.ctx(), helix.Named("agent"), helix.Input{Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrUnknownAgent, "agent")
	s.ok(x.Register(agent), "register again")
	run, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.ok(err, "resume")
	s.ended(s.Result(run), helix.Completed)
}

// maker is a factory that notes whom it made agents for.
type maker struct {
	mu       sync.Mutex
	requests []helix.FactoryRequest
	make     func(request helix.FactoryRequest) *helix.Agent
}

func (m *maker) agent(_ context.Context, request helix.FactoryRequest) (*helix.Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, request)
	return m.make(request), nil
}

// made returns the requests so far.
func (m *maker) made() []helix.FactoryRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

func registryFactory(s *Stage) {
	m := &maker{make: func(request helix.FactoryRequest) *helix.Agent {
		agent := waitingAgent(onClient("pick"))
		agent.Name = "made"
		agent.Instructions = "You work for " + request.User.ID + "."
		agent.Hooks.BeforeLLMCall = func(_ context.Context, _ *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			if e.Request.Instructions != agent.Instructions {
				return errors.New("another's instructions")
			}
			return nil
		}
		return agent
	}}
	x := s.mortal()
	s.ok(x.RegisterFactory("made", m.agent), "register a factory")
	for _, user := range []string{"ada", "bob"} {
		run, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{
			SessionID: "s-" + user, Message: helix.UserText("Hi!"), User: helix.User{ID: user},
		})
		s.ok(err, "execute")
		s.same(s.Result(run).Status.Suspended(), true, "it waits")
	}
	made := len(m.made())
	_, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{
		SessionID: "s-ada", Message: helix.UserText("Hi!"), User: helix.User{ID: "bob"},
	})
	s.refused(err, helix.ErrNotFound, "bob")
	s.same(len(m.made()), made, "agents that were made for another user's session")
	s.refused(x.Register(m.make(helix.FactoryRequest{})), helix.ErrInvalid, "factory")
	x.Kill()
	y := s.StartOther(Options{LeaseTTL: lease})
	s.ok(y.RegisterFactory("made", m.agent), "register the factory in another process")
	for _, user := range []string{"ada", "bob"} {
		waiting, err := y.Waiting(s.ctx(), "s-"+user)
		s.ok(err, "what waits")
		s.Submit(y, "s-"+user, helix.ToolResult(waiting[0].CallID, "blue"), helix.SubmitAccepted)
		run, err := y.Resume(s.ctx(), "s-"+user, helix.ResumeOptions{})
		s.ok(err, "resume")
		s.ended(s.Result(run), helix.Completed)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, request := range m.requests {
		who := request.User.ID
		if request.Agent != "made" || request.SessionID != "s-"+who || request.User.Tenant == "" {
			s.Errorf("an agent was made for %+v", request)
		}
	}
}

func registryFactoryTree(s *Stage) {
	var ran tally
	m := &maker{make: func(helix.FactoryRequest) *helix.Agent {
		agent := tower(2, signing(&ran))
		agent.Name = "made"
		return agent
	}}
	x := s.mortal()
	s.ok(x.RegisterFactory("made", m.agent), "register a factory")
	run, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.same(s.Result(run).Status.Suspended(), true, "it waits")
	x.Kill()
	y := s.StartOther(Options{LeaseTTL: lease})
	s.ok(y.RegisterFactory("made", m.agent), "register the factory in another process")
	waiting, err := y.Waiting(s.ctx(), "s-1")
	s.ok(err, "what waits")
	s.same(len(waiting), 1, "calls that wait")
	p := waiting[0]
	s.Submit(y, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	again, err := y.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
	s.ok(err, "resume")
	s.ended(s.Result(again), helix.Completed)
	s.same(strings.Join(y.Agents(), " "), "made", "agents that are known")
}

func registryFactoryFails(s *Stage) {
	x := s.Start()
	for name, factory := range map[string]helix.Factory{
		"failing": func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
			return nil, errors.New("no such plan")
		},
		"panicking": func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { panic("no such plan") },
		"lying": func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
			return newAgent(scripted.New()), nil
		},
		"empty": func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return nil, nil },
	} {
		s.ok(x.RegisterFactory(name, factory), "register %s", name)
		_, err := x.Execute(s.ctx(), helix.Named(name), helix.Input{SessionID: "s-" + name, Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrUnknownAgent, name)
		s.absent("s-" + name)
	}
	broken := func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return &helix.Agent{Name: "broken"}, nil
	}
	s.ok(x.RegisterFactory("broken", broken), "broken")
	_, err := x.Execute(s.ctx(), helix.Named("broken"), helix.Input{SessionID: "s-broken", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "broken", "Model")
	_, err = x.Execute(s.ctx(), nil, helix.Input{SessionID: "s-none", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "agent")
	_, err = x.Execute(s.ctx(), helix.Named("unknown"), helix.Input{SessionID: "s-unknown", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrUnknownAgent, "unknown")
}

func registryCanResume(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Call("wait", num{1}), scripted.Call("pick", num{2}), scripted.Text("Done."),
	).ByPosition(), blocking(g), onClient("pick"))
	x := s.Start(agent)
	tell := func(want session.Activity, reason error) {
		s.Helper()
		can, err := x.CanResume(s.ctx(), "s-1")
		s.ok(err, "ask")
		s.same([]any{can.OK, can.Activity}, []any{reason == nil, want}, "whether it can be resumed")
		_, resumed := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{})
		if reason == nil {
			s.ok(resumed, "resume")
			return
		}
		s.refused(can.Reason, reason)
		s.refused(resumed, reason, can.Reason.Message)
	}
	_, err := x.CanResume(s.ctx(), "s-1")
	s.refused(err, helix.ErrNotFound)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	tell(session.ActivityRunning, helix.ErrAlreadyRunning)
	s.ok(run.Interrupt(s.ctx(), ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	tell(session.ActivityStopped, nil)
	res := s.Result(s.Attach(x, "s-1"))
	s.same(res.Status.Suspended(), true, "it waits")
	tell(session.ActivityWaiting, helix.ErrAwaitingInput)
	s.Submit(x, "s-1", helix.ToolResult(res.Pending[0].CallID, "blue"), helix.SubmitAccepted)
	tell(session.ActivityWaiting, nil)
	s.ended(s.Result(s.Attach(x, "s-1")), helix.Completed)
	tell(session.ActivityDone, helix.ErrNotResumable)
	x.Unregister(agent.Name)
	tell(session.ActivityDone, helix.ErrUnknownAgent)
}

func registryHandles(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Fail(session.CodeProvider, false, "no"), scripted.Call("wait", num{1}), scripted.Text("Done."),
	), blocking(g))
	x := s.Start(agent)
	first := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(first), helix.Failed)
	_, err := first.Resume(s.ctx(), helix.ResumeOptions{})
	s.refused(err, helix.ErrNotResumable)
	second, err := first.Retry(s.ctx(), helix.RetryOptions{RequestID: "again"})
	s.ok(err, "retry")
	s.receive("the tool runs", g.entered)
	s.ok(second.Interrupt(s.ctx(), ""), "interrupt")
	s.ended(s.Result(second), helix.Interrupted)
	third, err := first.Resume(s.ctx(), helix.ResumeOptions{})
	s.ok(err, "resume by the first run's handle")
	s.ended(s.Result(third), helix.Completed)
	s.same(len(map[string]bool{first.ID(): true, second.ID(): true, third.ID(): true}), 3, "runs")
}

func registryFactoryNames(s *Stage) {
	own, global := newAgent(scripted.New()), newAgent(scripted.New())
	own.Name, global.Name = "child", "child"
	x := s.Start(global)
	made := func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		agent := newAgent(scripted.New())
		agent.Name, agent.SubAgents = "made", []helix.SubAgent{{Agent: own}}
		return agent, nil
	}
	s.ok(x.RegisterFactory("made", made), "register a factory")
	_, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "made", "child")
	s.absent("s-1")
	x.Unregister("child")
	run, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.Result(run)
}

func registryFactoryAway(s *Stage) {
	g := s.newGate()
	var down atomic.Bool
	made := func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		if down.Load() {
			return nil, errors.New("the database is down")
		}
		agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("Done.")).ByPosition(), blocking(g))
		agent.Name = "made"
		agent.Tools[0].Idempotent = true
		return agent, nil
	}
	x := s.mortal()
	s.ok(x.RegisterFactory("made", made), "register a factory")
	run, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.receive("the tool runs", g.entered)
	down.Store(true)
	x.Kill()
	y := s.StartOther(Options{LeaseTTL: lease})
	s.ok(y.RegisterFactory("made", made), "register the factory in another process")
	s.idle(8 * lease) // more sweeps than a crash loop has
	down.Store(false)
	g.release()
	s.ended(s.Result(run), helix.Completed)
}
