package runtimetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func executeScenarios() []Scenario {
	return []Scenario{
		{"new", "executing an unknown session id creates the session and runs its first turn", executeNew},
		{"minted id", "an empty session id is replaced by a new one that the run reports", executeMinted},
		{"labels", "user, tags, metadata and expiry of the input are the session's, and tools see them", executeLabels},
		{"request repeated", "a repeated request id attaches to the run that the first one started, which has ended", executeRepeated},
		{"request while running", "a repeated request id attaches to the run while it runs, also from another process", executeAttached},
		{"request concurrently", "of concurrent calls with one request id, one runs and all get its run", executeConcurrentRequests},
		{"concurrently", "of concurrent calls without a request id exactly one runs; the others get ErrAlreadyRunning", executeConcurrently},
		{"running", "a session that runs refuses another turn with ErrAlreadyRunning, and the run is not disturbed", executeRunning},
		{"paused", "a paused session refuses a turn with ErrPaused until it is resumed", executePaused},
		{"waiting for a person", "a session that waits for a person refuses a turn with ErrAwaitingInput, naming the calls", executeAwaiting},
		{"attach", "another process attaches to a run, follows it and gets its result", executeAttach},
		{"caller disconnects", "a run continues though the request that started it has ended", executeCallerGone},
		{"races", "processes that execute, resume and retry one session at once get one run or a typed error each", executeRaces},
		{"no message", "a turn without a message is refused", executeNoMessage},
		{"wrong role", "a turn begins with user messages only", executeWrongRole},
		{"several messages", "several messages of one input reach the model in order", executeSeveralMessages},
		{"hidden message", "a hidden message reaches the model and is marked in the transcript", executeHidden},
		{"file", "a user's file reaches the model and the transcript", executeFile},
		{"instructions", "instructions and tools are offered to the model", executeInstructions},
		{"instructions from state", "an instructions function sees the state and the transcript's length", executeInstructionsFunc},
		{"model from state", "model and settings functions see the state, at each model call", executeModelFunc},
		{"instructions fail", "a failing instructions function fails the run, and the session continues", executeInstructionsFail},
		{"reasoning", "reasoning is streamed and kept in the transcript", executeReasoning},
		{"another agent", "a session belongs to its agent; another one is refused", executeAnotherAgent},
		{"bad definition", "an agent that cannot work is refused, with its name and the field", executeBadDefinition},
		{"two definitions", "two agents of one name in one process are refused", executeTwoDefinitions},
		{"deleted", "a session deleted during its run stays deleted, and the executor still works", executeDeleted},
		{"many sessions", "many sessions run at the same time without meeting", executeMany},
	}
}

func executeCallerGone(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("Hello, you.")))
	ctx, cancel := context.WithCancel(s.ctx())
	backend := s.newFrail(s.Backend)
	backend.faults.appending = cancel // the run has begun, and shows that
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	run, err := x.Execute(ctx, agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.ok(err, "execute")
	s.ended(s.Result(run), helix.Completed)
	s.refused(ctx.Err(), context.Canceled)
}

func executeNew(s *Stage) {
	model := scripted.New(scripted.Text("Hello, you."))
	agent := newAgent(model)
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.same(run.SessionID(), "s-1", "session id")
	res := s.Result(run)
	s.ended(res, helix.Completed)
	s.same(res.Text, "Hello, you.", "the reply")
	s.same(res.RunID, run.ID(), "run id")
	s.same(res.Steps, 1, "steps")
	s.same(res.CompletionReason, session.ReasonReply, "completion reason")
	s.transcript("s-1", "user: Hi!", "assistant: Hello, you.")
	state := s.load("s-1")
	s.same(state.Status, session.Completed, "status")
	s.same(state.Agent, "agent", "agent")
	s.same(state.CurrentRunID, run.ID(), "current run")
	record := s.run("s-1", run.ID())
	s.same(record.Kind, session.RunExecute, "kind of run")
	s.same(record.Turn, 1, "turn")
	if record.Runtime == "" {
		s.Fatal("the run does not record its runtime")
	}
	model.Check(s)
}

func executeMinted(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("a"), scripted.Text("b")))
	x := s.Start(agent)
	first, second := s.Begin(x, agent, "", "Hi!"), s.Begin(x, agent, "", "Hi!")
	for _, run := range []helix.Run{first, second} {
		if !strings.HasPrefix(run.SessionID(), "ses_") {
			s.Fatalf("the minted id is %q", run.SessionID())
		}
		s.ended(s.Result(run), helix.Completed)
	}
	if first.SessionID() == second.SessionID() {
		s.Fatal("two sessions got the same id")
	}
}

func executeLabels(s *Stage) {
	var seen helix.Scope
	look := newTool("look", func(_ context.Context, call *helix.Call, _ int) (string, error) {
		seen = call.Scope
		return "ok", nil
	})
	agent := newAgent(scripted.New(scripted.Call("look", num{}), scripted.Text("done")), look)
	x := s.Start(agent)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	run := s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), User: helix.User{ID: "alice"},
		Tags: []string{"demo", "blue"}, Metadata: map[string]string{"team": "a"}, ExpiresAt: expires,
	})
	s.ended(s.Result(run), helix.Completed)
	state := s.load("s-1")
	s.same(state.UserID, "alice", "user")
	s.same(state.Tags, []string{"demo", "blue"}, "tags")
	s.same(state.Metadata, map[string]string{"team": "a"}, "metadata")
	s.same(state.ExpiresAt.UTC(), expires, "expiry")
	s.same(seen.SessionID+" "+seen.RunID+" "+seen.Agent+" "+seen.UserID, "s-1 "+run.ID()+" agent alice", "what the tool sees")
	s.same(seen.Tenant, session.DefaultTenant, "tenant")
	s.same([]any{seen.Turn, seen.Step, seen.Tags, seen.Metadata}, []any{1, 1, state.Tags, state.Metadata}, "what the tool sees")
}

func executeRepeated(s *Stage) {
	model := scripted.New(scripted.Text("once"))
	agent := newAgent(model)
	x := s.Start(agent)
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), RequestID: "req-1"}
	first := s.Execute(x, agent, in)
	s.ended(s.Result(first), helix.Completed)
	again := s.Execute(x, agent, in)
	s.same(again.ID(), first.ID(), "run")
	s.same(s.Result(again).Text, "once", "the reply")
	s.same(len(model.Requests()), 1, "model calls")
	s.transcript("s-1", "user: Hi!", "assistant: once")
	if items := s.collect(again); items[len(items)-1].Frame != "end" {
		s.Fatalf("the repeated call streams %s", kinds(items))
	}
}

func executeAttached(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("once")))
	agent := newAgent(model)
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), RequestID: "req-1"}
	first := s.Execute(x, agent, in)
	s.receive("the model is asked", g.entered)
	here, there := s.Execute(x, agent, in), s.Execute(y, agent, in)
	s.same(here.ID()+" "+there.ID(), first.ID()+" "+first.ID(), "runs")
	g.release()
	for _, run := range []helix.Run{first, here, there} {
		s.same(s.Result(run).Text, "once", "the reply")
	}
	s.same(len(model.Requests()), 1, "model calls")
}

func executeConcurrentRequests(s *Stage) {
	model := scripted.New(scripted.Text("once"))
	agent := newAgent(model)
	xs := []Executor{s.Start(agent), s.StartOther(Options{Agents: []*helix.Agent{agent}})}
	in := helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), RequestID: "req-1"}
	const callers = 8
	runs, errs := make([]helix.Run, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { runs[i], errs[i] = xs[i%2].Execute(s.ctx(), agent, in) })
	}
	wg.Wait()
	for i := range callers {
		s.ok(errs[i], "call %d", i)
		s.same(runs[i].ID(), runs[0].ID(), "run of call %d", i)
		s.same(s.Result(runs[i]).Text, "once", "the reply to call %d", i)
	}
	s.same(len(s.runs("s-1")), 1, "runs")
	s.transcript("s-1", "user: Hi!", "assistant: once")
}

func executeConcurrently(s *Stage) {
	g := s.newGate()
	model := scripted.New(scripted.Reply(scripted.Until(g.open), scripted.Say("once")))
	agent := newAgent(model)
	xs := []Executor{s.Start(agent), s.StartOther(Options{Agents: []*helix.Agent{agent}})}
	const callers = 8
	var mu sync.Mutex
	var won []helix.Run
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			run, err := xs[i%2].Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, run)
			} else if !errors.Is(err, helix.ErrAlreadyRunning) {
				s.Errorf("call %d is refused with %v", i, err)
			}
		})
	}
	wg.Wait()
	s.same(len(won), 1, "calls that run")
	g.release()
	s.ended(s.Result(won[0]), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: once")
}

func executeRunning(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("one")), scripted.Text("two")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "first")
	s.receive("the model is asked", g.entered)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("second")})
	s.refused(err, helix.ErrAlreadyRunning, "s-1", run.ID())
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript("s-1", "user: first", "assistant: one", "user: second", "assistant: two")
}

func executePaused(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("three")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	changed, err := s.store().SetStatus(s.ctx(), "s-1", session.StatusChange{
		Expect: []session.Status{session.Completed}, To: session.Paused,
	})
	s.ok(err, "pause")
	s.same(changed.OK, true, "paused")
	_, err = x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("second")})
	s.refused(err, helix.ErrPaused, "s-1")
	message := helix.UserText("continue")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Message: &message})), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.transcript("s-1", "user: first", "assistant: one", "user: continue", "assistant: two", "user: third", "assistant: three")
}

// foreignRun starts a run on session s-1 that another runtime drives.
func (s *Stage) foreignRun(ttl time.Duration) *session.Started {
	s.Helper()
	state := &session.State{
		Tenant: session.DefaultTenant, ID: "s-1", Agent: "agent", StreamID: "s-1", Status: session.Active,
	}
	started, err := s.store().StartRun(s.ctx(), &session.StartRun{
		SessionID: "s-1", Create: state, Owner: "other:1", TTL: ttl,
		Run:    session.Run{ID: "run-1", Kind: session.RunExecute, Status: session.RunRunning, Agent: "agent", Runtime: "other"},
		Change: session.Change{Messages: []session.Message{{ID: "m-1", Role: session.RoleUser, Parts: []session.Part{session.Text("Hi!")}, RunID: "run-1"}}},
	})
	s.ok(err, "start a run of another runtime")
	return started
}

func executeAwaiting(s *Stage) {
	agent := newAgent(scripted.New())
	x := s.Start(agent)
	started := s.foreignRun(0)
	_, err := s.store().Commit(s.ctx(), &session.Commit{
		SessionID: "s-1", RunID: "run-1", Key: "k", Version: started.Version, Fence: started.Lease.Fence(),
		Change: session.Change{
			Messages: []session.Message{{ID: "m-2", Role: session.RoleAssistant, RunID: "run-1", Step: 1, Parts: []session.Part{
				{Kind: session.PartToolCall, CallID: "call-ask", Tool: "ask", Input: []byte("{}")},
			}}},
			Pending: []session.Pending{{CallID: "call-ask", MessageID: "m-2", Tool: "ask", Kind: session.PendingClientTool, State: session.PendingWaiting, SessionID: "s-1", RunID: "run-1"}},
			Outcome: &session.Outcome{Status: session.RunSuspendedClientTool, SuspendedStep: "m-2"},
		},
	})
	s.ok(err, "suspend the run")
	s.ok(s.store().CloseRun(s.ctx(), "s-1", started.Lease.Fence(), true), "close the run")
	_, err = x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hello?")})
	s.refused(err, helix.ErrAwaitingInput, "s-1")
	s.same(session.AsError(err).Calls, []string{"call-ask"}, "the calls it waits for")
	s.same(len(s.messages("s-1")), 2, "messages")
	_, err = s.store().Delete(s.ctx(), "s-1") // it was never streamed
	s.ok(err, "delete")
}

func executeAttach(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("Done."))))
	x := s.Start(agent)
	y := s.StartOther(Options{})
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	attached := s.Attach(y, "s-1")
	s.same([]string{attached.SessionID(), attached.ID()}, []string{"s-1", run.ID()}, "what it is attached to")
	g.release()
	s.same(s.Result(attached).Text, "Done.", "the reply")
	s.same(kinds(s.collect(attached)), kinds(s.collect(run)), "what both see")
	s.same(s.Result(s.Attach(y, "s-1")).Text, "Done.", "the reply, after the end")
}

func executeRaces(s *Stage) {
	const rounds = 12
	var asked tally
	agent := newAgent(modelFunc(func(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
		if asked.add("")%3 == 0 {
			return nil, llm.Error(session.CodeProvider, false, "every third time")
		}
		return scripted.New(scripted.Text("ok")).Generate(ctx, request, emit)
	}))
	x, y := s.Start(agent), s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.Result(s.Begin(x, agent, "s-1", "Hi!"))
	total := 1
	for range rounds {
		var mu sync.Mutex
		var won []helix.Run
		var wg sync.WaitGroup
		for _, z := range []Executor{x, y} {
			for _, call := range []func() (helix.Run, error){
				func() (helix.Run, error) {
					return z.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("More!")})
				},
				func() (helix.Run, error) { return z.Resume(s.ctx(), "s-1", helix.ResumeOptions{}) },
				func() (helix.Run, error) { return z.Retry(s.ctx(), "s-1", helix.RetryOptions{}) },
			} {
				wg.Go(func() {
					run, err := call()
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won = append(won, run)
					} else if !errorIsOneOf(err, []error{helix.ErrAlreadyRunning, helix.ErrNotResumable}) {
						s.Errorf("refused with %v", err)
					}
				})
			}
		}
		wg.Wait()
		for _, run := range won {
			s.Result(run)
		}
		if len(won) == 0 {
			s.Fatal("none of the calls runs")
		}
		total += len(won)
	}
	s.same(len(s.runs("s-1")), total, "runs")
}

func executeNoMessage(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("hello")))
	x := s.Start(agent)
	for _, in := range []helix.Input{
		{SessionID: "s-1"},
		{SessionID: "s-1", Message: helix.UserText("")},
		{SessionID: "s-1", Message: session.Message{Role: session.RoleUser}},
	} {
		_, err := x.Execute(s.ctx(), agent, in)
		s.refused(err, helix.ErrInvalid, "message")
	}
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}

func executeWrongRole(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("hello")))
	x := s.Start(agent)
	message := session.Message{Role: session.RoleAssistant, Parts: []session.Part{session.Text("I said so.")}}
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: message})
	s.refused(err, helix.ErrInvalid, "role", "assistant")
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}

func executeSeveralMessages(s *Stage) {
	model := scripted.New(scripted.Text("three of them"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("one"),
		Messages: []session.Message{helix.UserText("two"), helix.UserText("three")},
	})), helix.Completed)
	s.same(render(model.Requests()[0].Messages), "user: one\nuser: two\nuser: three", "what the model sees")
	s.transcript("s-1", "user: one", "user: two", "user: three", "assistant: three of them")
}

func executeHidden(s *Stage) {
	model := scripted.New(scripted.Text("I know"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.Hidden(helix.UserText("It rains.")), Messages: []session.Message{helix.UserText("Weather?")},
	})), helix.Completed)
	s.same(render(model.Requests()[0].Messages), "user: It rains. [hidden]\nuser: Weather?", "what the model sees")
	s.transcript("s-1", "user: It rains. [hidden]", "user: Weather?", "assistant: I know")
}

func executeFile(s *Stage) {
	model := scripted.New(scripted.Text("a dot"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserFile("What is this?", "data:image/png;base64,AAAA", "image/png", "dot.png"),
	})), helix.Completed)
	s.same(render(model.Requests()[0].Messages), "user: What is this?, [image/png data:image/png;base64,AAAA]", "what the model sees")
	s.same(s.messages("s-1")[0].Parts[1].Filename, "dot.png", "file name")
}

func executeInstructions(s *Stage) {
	model := scripted.New(scripted.Text("ok"))
	agent := newAgent(model, double())
	agent.Instructions = "Be brief."
	agent.Settings.MaxOutputTokens = 77
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(run), helix.Completed)
	request := model.Requests()[0]
	s.same(request.Instructions, "Be brief.", "instructions")
	s.same(request.Settings.MaxOutputTokens, 77, "settings")
	s.same(request.Agent+" "+request.SessionID+" "+request.RunID, "agent s-1 "+run.ID(), "who asks")
	s.same(len(request.Tools), 1, "tools")
	s.same(request.Tools[0].Name, "double", "the tool")
	if !strings.Contains(string(request.Tools[0].Schema), `"n"`) {
		s.Fatalf("the tool's schema is %s", request.Tools[0].Schema)
	}
}

func executeModelFunc(s *Stage) {
	models := []*scripted.Model{scripted.New(scripted.Call("note", num{7})), scripted.New(scripted.Text("ok"))}
	agent := newAgent(nil, noteTool())
	agent.State = helix.StateOf(notes{})
	agent.ModelFunc = func(_ context.Context, p *helix.Prompt) (llm.Model, error) {
		return models[len(helix.State[notes](p).Notes)], nil
	}
	agent.SettingsFunc = func(_ context.Context, p *helix.Prompt) (llm.Settings, error) {
		return llm.Settings{MaxOutputTokens: 10 + helix.State[notes](p).Last}, nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(models[0].Requests()[0].Settings.MaxOutputTokens, 10, "settings of step 1")
	s.same(models[1].Requests()[0].Settings.MaxOutputTokens, 17, "settings of step 2")
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":7})`, "tool note: 1", "assistant: ok")
}

func executeInstructionsFunc(s *Stage) {
	model := scripted.New(scripted.Call("note", num{7}), scripted.Text("ok"))
	agent := newAgent(model, noteTool())
	agent.State = helix.StateOf(notes{Notes: []int{1}})
	agent.InstructionsFunc = func(_ context.Context, p *helix.Prompt) (string, error) {
		return strings.Repeat("#", len(helix.State[notes](p).Notes)) + strings.Repeat("m", p.MessageCount), nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(model.Requests()[0].Instructions, "#m", "instructions of step 1")
	s.same(model.Requests()[1].Instructions, "##mmm", "instructions of step 2")
}

func executeInstructionsFail(s *Stage) {
	failing := true
	agent := newAgent(scripted.New(scripted.Text("ok")))
	agent.InstructionsFunc = func(context.Context, *helix.Prompt) (string, error) {
		if failing {
			return "", errors.New("no prompt today")
		}
		return "Be brief.", nil
	}
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeInternal), "agent", "InstructionsFunc", "no prompt today")
	failing = false
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func executeReasoning(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Think("Two and two"), scripted.Say("Let me see. "), scripted.Calling("double", num{2})),
		scripted.Reply(scripted.Think("Four."), scripted.Say("It is 4.")),
	), double())
	x := s.Start(agent)
	s.same(s.Say(x, agent, "s-1", "2+2?").Text, "It is 4.", "the reply")
	s.transcript("s-1", "user: 2+2?", `assistant: <Two and two>, Let me see. , double({"n":2})`, "tool double: 4", "assistant: <Four.>, It is 4.")
}

func executeAnotherAgent(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two")))
	other := newAgent(scripted.New())
	other.Name = "other"
	x := s.Start(agent, other)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	_, err := x.Execute(s.ctx(), other, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "other", "agent")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
}

func executeBadDefinition(s *Stage) {
	x := s.Start()
	work := double()
	for _, bad := range []struct {
		agent *helix.Agent
		words []string
	}{
		{&helix.Agent{Name: "bad name", Model: scripted.New()}, []string{"agent name", "bad name"}},
		{&helix.Agent{Name: "modelless"}, []string{"modelless", "Model"}},
		{&helix.Agent{Name: "twice", Model: scripted.New(), Tools: []helix.Tool{work, work}}, []string{"twice", "double"}},
		{&helix.Agent{Name: "empty", Model: scripted.New(), Tools: []helix.Tool{{Name: "idle"}}}, []string{"empty", "idle", "Execute"}},
		{&helix.Agent{Name: "taken", Model: scripted.New(), Tools: []helix.Tool{{Name: "__finish__", Execute: work.Execute}}}, []string{"taken", "__finish__", "reserved"}},
		{&helix.Agent{Name: "under", Model: scripted.New(), MaxSteps: -2}, []string{"under", "MaxSteps"}},
	} {
		_, err := x.Execute(s.ctx(), bad.agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrInvalid, bad.words...)
	}
	exists, err := s.store().Exists(s.ctx(), "s-1")
	s.ok(err, "exists")
	s.same(exists, false, "a session was made")
}

func executeTwoDefinitions(s *Stage) {
	agent, twin := newAgent(scripted.New(scripted.Text("one"))), newAgent(scripted.New())
	x := s.Start(agent)
	_, err := x.Execute(s.ctx(), twin, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "agent", "registered")
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
}

func executeDeleted(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Call("wait", num{1}), scripted.Text("fresh")), blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the tool runs", g.entered)
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	g.release()
	_, err = run.Result(s.ctx())
	s.refused(err, helix.ErrNotFound)
	exists, err := s.store().Exists(s.ctx(), "s-1")
	s.ok(err, "exists")
	s.same(exists, false, "the session came back")
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.Completed)
	s.transcript("s-2", "user: Hi!", "assistant: fresh")
}

func executeMany(s *Stage) {
	const sessions = 20
	model := scripted.New(scripted.Call("double", num{21}), scripted.Text("42")).ByPosition()
	agent := newAgent(model, double())
	x := s.Start(agent)
	runs := make([]helix.Run, sessions)
	for i := range runs {
		runs[i] = s.Begin(x, agent, "", "21?")
	}
	for _, run := range runs {
		s.same(s.Result(run).Text, "42", "the reply")
		s.transcript(run.SessionID(), "user: 21?", `assistant: double({"n":21})`, "tool double: 42", "assistant: 42")
	}
}
