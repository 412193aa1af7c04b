package runtimetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func hangScenarios() []Scenario {
	return []Scenario{
		{"hooks", "a hook that does not return is logged by its name, and the run continues", hangHooks},
		{"gates", "a BeforeTool that does not return vetoes the call, a BeforeLLMCall fails the run", hangGates},
		{"definition", "a run whose InstructionsFunc, ModelFunc, SettingsFunc or StopWhen does not return fails", hangDefinition},
		{"policies", "a call whose approval policy does not return needs approval, and nobody may answer it while its approver does not return", hangPolicies},
		{"factory", "a turn whose factory does not return is refused", hangFactory},
		{"factory at the end", "a run whose process died as it ended is closed when its factory returns again, and its hooks are called", hangFactoryClose},
		{"context of a model", "a model may use the context of the ModelFunc that has made it", hangModelContext},
		{"changed late", "what a hook changes of a reply after its time is up does not count", hangChanges},
		{"sweeps", "hooks and factories that never return, in an expired session, a closing run and a wake, keep no process from the rest", hangSweeps},
	}
}

// hookLimit is how long hooks may take where a scenario is about that.
const hookLimit = 100 * time.Millisecond

// startImpatient starts an executor whose hooks may take as long as hookLimit.
func (s *Stage) startImpatient(agents ...*helix.Agent) Executor {
	s.Helper()
	return s.StartWith(Options{Agents: agents, HookTimeout: hookLimit})
}

func hangHooks(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	var j journal
	agent.Hooks = tracing(&j, "")
	agent.Hooks.OnAgentStart = func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { <-g.open; return nil }
	agent.Hooks.AfterTool = func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
		helix.Append(h, "notes", 7) // it is dropped
		<-g.open
		return nil
	}
	agent.Hooks.OnAgentComplete = func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error { <-g.open; return nil }
	x := s.startImpatient(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	for _, name := range []string{"OnAgentStart", "AfterTool", "OnAgentComplete"} {
		s.until(name+" is logged", func() bool {
			return s.hasLogged("level=ERROR", "msg=hook.failed", "tenant=default", "session=s-1", "agent=agent", "hook="+name, "it did not return within "+hookLimit.String())
		})
	}
	s.same(s.hasLogged("msg=hook.failed", "hook=OnMessage"), false, "another hook has failed")
}

func hangGates(s *Stage) {
	g := s.newGate()
	var ran tally
	pay := guarded(&ran, "pay")
	pay.Approval = nil
	agent := newAgent(scripted.New(scripted.Call("pay", num{1}), scripted.Text("ok")).ByPosition(), pay)
	var asked atomic.Bool
	agent.Hooks.BeforeTool = func(context.Context, *helix.HookContext, helix.BeforeToolEvent) error {
		<-g.open
		return nil
	}
	agent.Hooks.BeforeLLMCall = func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		if h.Step == 2 && !asked.Swap(true) {
			<-g.open
		}
		return nil
	}
	x := s.startImpatient(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeHook), "it did not return within")
	s.transcript("s-1", "user: Hi!", `assistant: pay({"n":1})`, "tool pay failed: tool_vetoed")
	s.same(ran.of("pay"), 0, "payments")
	s.logged("msg=hook.failed", "session=s-1", "agent=agent", "hook=BeforeTool")
	s.logged("msg=hook.failed", "session=s-1", "agent=agent", "hook=BeforeLLMCall")
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
}

func hangDefinition(s *Stage) {
	g := s.newGate()
	for name, spoil := range map[string]func(*helix.Agent){
		"InstructionsFunc": func(a *helix.Agent) {
			a.InstructionsFunc = func(context.Context, *helix.Prompt) (string, error) { <-g.open; return "", nil }
		},
		"ModelFunc": func(a *helix.Agent) {
			a.Model, a.ModelFunc = nil, func(context.Context, *helix.Prompt) (llm.Model, error) { <-g.open; return nil, nil }
		},
		"SettingsFunc": func(a *helix.Agent) {
			a.SettingsFunc = func(context.Context, *helix.Prompt) (llm.Settings, error) { <-g.open; return llm.Settings{}, nil }
		},
		"StopWhen": func(a *helix.Agent) {
			a.StopWhen = func(context.Context, *helix.Step) (bool, error) { <-g.open; return false, nil }
		},
	} {
		agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")).ByPosition(), noteTool())
		agent.Name = name
		spoil(agent)
		x := s.startImpatient(agent)
		s.failed(s.Say(x, agent, name, "Hi!"), code(session.CodeInternal), name+" failed", "it did not return within "+hookLimit.String())
		s.logged("level=ERROR", "msg=run.failed", "session="+name, "agent="+name, name+" failed", "it did not return within")
	}
}

func hangPolicies(s *Stage) {
	g := s.newGate()
	var ran tally
	pay := guarded(&ran, "pay")
	pay.Approval = func(context.Context, *helix.Call, json.RawMessage) (bool, error) { <-g.open; return false, nil }
	var works atomic.Bool
	pay.Approver = func(context.Context, *helix.Answer) error {
		if !works.Load() {
			<-g.open
		}
		return nil
	}
	agent := newAgent(scripted.New(scripted.Call("pay", num{1}), scripted.Text("ok")).ByPosition(), pay)
	x := s.startImpatient(agent)
	p := s.waiting(s.waitsOn(x, agent, "s-1"), "pay")
	s.logged("msg=approval_gate.failed", "session=s-1", "agent=agent", "tool=pay", "it did not return within")
	_, err := x.Submit(s.ctx(), "s-1", approve(p.CallID, p.ApprovalID))
	s.refused(err, helix.ErrNotAllowed)
	s.logged("msg=client_tool.validation_failed", "session=s-1", "agent=agent", "it did not return within")
	works.Store(true)
	s.Submit(x, "s-1", approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
	s.completes(x, agent, "s-1")
	s.same(ran.of("pay"), 1, "payments")
}

func hangFactory(s *Stage) {
	g := s.newGate()
	x := s.startImpatient()
	s.ok(x.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		<-g.open
		return nil, nil
	}), "register")
	_, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrUnavailable, "made", "could not be made in time")
	s.logged("level=ERROR", "msg=factory.failed", "session=s-1", "agent=made", "it did not return within")
	_, err = s.store().Load(s.ctx(), "s-1")
	s.refused(err, helix.ErrNotFound)
}

func hangFactoryClose(s *Stage) {
	g := s.newGate()
	var hangs, told atomic.Bool
	hangs.Store(true)
	agent := named("made", scripted.New(scripted.Text("Done.")).ByPosition())
	s.unclosedIn("s-1", agent)
	agent = named("made", scripted.New(scripted.Text("Done.")).ByPosition())
	agent.Hooks.OnAgentComplete = func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error {
		told.Store(true)
		return nil
	}
	x := s.StartOther(Options{LeaseTTL: lease, HookTimeout: hookLimit})
	s.ok(x.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		if hangs.Load() {
			<-g.open
		}
		return agent, nil
	}), "register")
	s.until("the factory hangs", func() bool { return s.hasLogged("msg=factory.failed", "session=s-1") })
	s.same(s.load("s-1").ClosePending, true, "the run is not closed yet")
	hangs.Store(false)
	s.until("the run is closed", func() bool { return !s.load("s-1").ClosePending })
	s.same(told.Load(), true, "the hook was told")
}

// lasting is a model that answers as long as a context has not ended.
type lasting struct {
	llm.Model
	ctx context.Context //nolint:containedctx // which is what the scenario is about
}

func (m lasting) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if err := m.ctx.Err(); err != nil {
		return nil, err
	}
	return m.Model.Generate(ctx, request, emit)
}

func hangModelContext(s *Stage) {
	agent := newAgent(nil)
	agent.Model, agent.ModelFunc = nil, func(ctx context.Context, _ *helix.Prompt) (llm.Model, error) {
		return lasting{scripted.New(scripted.Text("ok")), ctx}, nil
	}
	x := s.startImpatient(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}

func hangChanges(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Text("hidden")))
	over := make(chan struct{})
	agent.Hooks.AfterLLMCall = func(_ context.Context, h *helix.HookContext, e helix.AfterLLMCallEvent) error {
		defer close(over)
		e.Response.Parts[0].Text = "changed late"
		h.Emit("early", 1)
		<-g.open
		h.Emit("late", 1)
		return nil
	}
	agent.Hooks.OnMessage = func(context.Context, *helix.HookContext, helix.MessageEvent) error {
		g.release()
		<-over
		return nil
	}
	x := s.startImpatient(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: hidden")
	names := []string{}
	for _, c := range ofKind(s.chunks("s-1"), stream.Custom) {
		names = append(names, c.Name)
	}
	s.same(names, []string{"early"}, "events of the hook")
}

// hangSweeps has what a sweep handles twice: once with user code that never returns.
func hangSweeps(s *Stage) {
	g := s.newGate()
	var hangs atomic.Bool
	var entered tally
	hang := func(what string) {
		if hangs.Load() {
			entered.add(what)
			<-g.open
		}
	}
	orphans := s.newGate()
	clerk := func(name string) *helix.Agent {
		agent := newAgent(scripted.New(scripted.Call("pick", num{1}), scripted.Text("Done.")).ByPosition(), onClient("pick"))
		agent.Name = name
		agent.SessionExpiry = s.pace(lives)
		return agent
	}
	expires, stuckExpires := clerk("expires"), clerk("stuck-expires")
	stuckExpires.Hooks.OnAgentFail = func(context.Context, *helix.HookContext, helix.AgentFailEvent) error { hang("expired"); return nil }
	closes := named("closes", scripted.New(scripted.Text("Done.")).ByPosition())
	stuckCloses := named("stuck-closes", scripted.New(scripted.Text("Done.")).ByPosition())
	stuckCloses.Hooks.OnAgentComplete = func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error {
		hang("closing")
		return nil
	}
	worker := named("worker", scripted.New(scripted.Call("wait", num{1}), scripted.Text("Done.")).ByPosition(), blocking(orphans))
	worker.Tools[0].Idempotent = true
	build := func(request helix.FactoryRequest) *helix.Agent {
		if request.SessionID == "stuck-made" {
			hang("wake")
		}
		agent := clerk(request.Agent)
		agent.SessionExpiry = 0
		return agent
	}
	// No hook of this scenario is ever left behind because its time is up.
	launch := func(start func(Options) Executor) Executor {
		x := start(Options{Agents: []*helix.Agent{expires, stuckExpires, closes, stuckCloses, worker}, LeaseTTL: lease, HookTimeout: time.Hour})
		s.ok(x.RegisterFactory("made", func(_ context.Context, r helix.FactoryRequest) (*helix.Agent, error) { return build(r), nil }), "register")
		return x
	}

	x := launch(s.StartWith)
	x.(*process).faults.noSweep.Store(true) // what it has begun is left to others
	s.unclosedIn("closes", closes)
	s.unclosedIn("stuck-closes", stuckCloses)
	s.waitsOn(x, expires, "expires")
	s.waitsOn(x, stuckExpires, "stuck-expires")
	for _, id := range []string{"made", "stuck-made"} {
		run, err := x.Execute(s.ctx(), helix.Named("made"), helix.Input{SessionID: id, Message: helix.UserText("Hi!")})
		s.ok(err, "execute")
		p := s.waiting(s.Result(run), "pick")
		s.Submit(x, id, helix.ToolResult(p.CallID, "blue"), helix.SubmitAccepted)
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		s.ok(s.store().PutWake(s.ctx(), session.Wake{SessionID: id, ChildID: id, RunID: p.CallID, At: now}), "put a wake")
	}
	lost := s.Begin(x, worker, "s-1", "Hi!")
	s.receive("the run is where it is to die", orphans.entered)
	hangs.Store(true)
	x.Kill()

	processes := []Executor{launch(s.StartOther), launch(s.StartOther), launch(s.StartOther)}
	for _, what := range []string{"expired", "closing", "wake"} {
		s.until("user code hangs: "+what, func() bool { return entered.of(what) > 0 })
	}
	orphans.release()
	s.ended(s.Result(s.Attach(processes[0], "s-1")), helix.Completed)
	s.same(s.run("s-1", lost.ID()).Attempts > 0, true, "the run was taken over")
	s.becomes("expires", session.Failed)
	s.becomes("made", session.Completed)
	s.until("the other run is closed", func() bool { return !s.load("closes").ClosePending })

	// So it goes on, also in the processes that are left.
	for i := range 3 {
		id := fmt.Sprint("later-", i)
		expired := s.Result(s.Execute(processes[0], expires, helix.Input{SessionID: id, Message: helix.UserText("Hi!")}))
		s.same(expired.Status, helix.SuspendedClientTool, "the session that is to expire")
		s.becomes(id, session.Failed)
	}
	g.release()
	s.becomes("stuck-made", session.Completed)
	for _, id := range []string{"stuck-closes", "stuck-expires"} {
		s.until(id+" is closed", func() bool { return !s.load(id).ClosePending })
	}
}
