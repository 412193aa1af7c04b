package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func hookScenarios() []Scenario {
	return []Scenario{
		{"order", "hooks are called in the canonical order around model calls, tools and messages", hookOrder},
		{"parallel order", "OnMessage and AfterTool come after all calls of the reply are done, call by call", hookParallelOrder},
		{"composition", "hooks of the runtime come first, then the agent's, then those of the execution", hookComposition},
		{"per run refused", "hooks of one run are refused unless the caller accepts that they are ephemeral", hookEphemeral},
		{"veto", "a failing BeforeTool vetoes the call; the model sees a tool error, and the tool does not run", hookVeto},
		{"before model fails", "a failing BeforeLLMCall fails the run, and the session continues", hookModelRefused},
		{"changes the request", "BeforeLLMCall may change what the model is sent, and not what is stored", hookChangesRequest},
		{"attempts", "BeforeLLMCall gets the number of the attempt", hookAttempts},
		{"state in the commit", "state changes by hooks are part of the step's own commit", hookStateInCommit},
		{"hooks see state", "hooks see what calls and hooks before them have changed", hookSeesState},
		{"failing", "a hook that fails is logged, and the run continues", hookFailing},
		{"failing set", "when a hook of one set fails, the state changes of that set are dropped and those of the other sets are kept", hookFailingSet},
		{"called once", "OnAgentComplete is called once per turn, however soon the next one starts", hookToldOnce},
		{"panicking", "a hook that panics is logged, and the hooks after it are still called", hookPanicking},
		{"panicking gate", "a BeforeTool that panics vetoes, a BeforeLLMCall that panics fails the run", hookPanickingGate},
		{"veto of a client tool", "BeforeTool is called before the client sees the call, and vetoes it", hookClientVeto},
		{"resumed from", "OnAgentResumed has the checkpoint that the run continues from, whether the session was rewound or not", hookResumedFrom},
		{"lifecycle", "hooks see start, completion, failure, suspension and resumption, with the run before", hookLifecycle},
		{"results", "AfterTool sees results and errors; OnAgentComplete output, steps and usage", hookResults},
		{"events", "hooks may send custom events", hookEvents},
	}
}

// tracing is a set of hooks that record their calls.
func tracing(j *journal, prefix string) helix.Hooks {
	note := func(format string, args ...any) { j.add(prefix+format, args...) }
	return helix.Hooks{
		OnAgentStart: func(_ context.Context, _ *helix.HookContext, e helix.AgentStartEvent) error {
			note("start %d", len(e.Input))
			return nil
		},
		OnAgentComplete: func(_ context.Context, _ *helix.HookContext, e helix.AgentCompleteEvent) error {
			note("complete %s%s", e.Reply, e.Output)
			return nil
		},
		OnAgentFail: func(_ context.Context, _ *helix.HookContext, e helix.AgentFailEvent) error {
			note("fail %s", e.Error.Code)
			return nil
		},
		OnAgentSuspended: func(_ context.Context, _ *helix.HookContext, e helix.AgentSuspendedEvent) error {
			note("suspended %s", e.Status)
			return nil
		},
		OnAgentInterrupted: func(_ context.Context, _ *helix.HookContext, e helix.AgentInterruptedEvent) error {
			note("interrupted after %d steps: %s %s", e.Steps, e.Reply, e.Reason)
			return nil
		},
		OnAgentResumed: func(_ context.Context, _ *helix.HookContext, e helix.AgentResumedEvent) error {
			note("resumed %s", e.PreviousRunID)
			return nil
		},
		BeforeLLMCall: func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			note("before model %d", h.Step)
			return nil
		},
		AfterLLMCall: func(_ context.Context, h *helix.HookContext, e helix.AfterLLMCallEvent) error {
			note("after model %d", h.Step)
			return nil
		},
		BeforeTool: func(_ context.Context, _ *helix.HookContext, e helix.BeforeToolEvent) error {
			note("before tool %s%s", e.Tool, e.Input)
			return nil
		},
		AfterTool: func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
			note("after tool %s%s = %s", e.Tool, e.Input, e.Result.Parts[0].ResultJSON())
			return nil
		},
		OnStateChange: func(_ context.Context, _ *helix.HookContext, e helix.StateChangeEvent) error {
			note("state %s %s", e.Tool, e.Writes.Ops[0].Key)
			return nil
		},
		OnMessage: func(_ context.Context, _ *helix.HookContext, e helix.MessageEvent) error {
			note("message %s", e.Message.Role)
			return nil
		},
	}
}

func hookOrder(s *Stage) {
	var j journal
	note := newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
		j.add("execute note")
		helix.Append(call, "notes", n)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), note)
	agent.State = helix.StateOf(notes{})
	agent.Hooks = tracing(&j, "")
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(j.String(), strings.Join([]string{
		"start 1",
		"before model 1", "after model 1", "message assistant",
		`before tool note{"n":1}`, "execute note", "state note notes",
		"message tool", `after tool note{"n":1} = 1`,
		"before model 2", "after model 2", "message assistant",
		"complete ok",
	}, "\n"), "order of hooks")
}

func hookParallelOrder(s *Stage) {
	for _, readOnly := range []bool{false, true} {
		var j journal
		tool := chain(2)
		tool.ReadOnly = readOnly
		agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("chain", num{1}), scripted.Calling("chain", num{2})), scripted.Text("ok")), tool)
		hooks := tracing(&j, "")
		agent.Hooks = helix.Hooks{OnMessage: hooks.OnMessage, AfterTool: hooks.AfterTool}
		if readOnly {
			agent.Name = "reader"
		}
		x := s.Start(agent)
		s.ended(s.Say(x, agent, "s-"+agent.Name, "Hi!"), helix.Completed)
		s.same(j.String(), strings.Join([]string{
			"message assistant",
			"message tool", `after tool chain{"n":1} = 1`,
			"message tool", `after tool chain{"n":2} = 2`,
			"message assistant",
		}, "\n"), "order of hooks, read-only %t", readOnly)
	}
}

func hookComposition(s *Stage) {
	var j journal
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks = tracing(&j, "agent: ")
	runtimeHooks, runHooks := tracing(&j, "runtime: "), tracing(&j, "run: ")
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Hooks: &runtimeHooks})
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), Hooks: &runHooks, EphemeralHooks: true,
	})), helix.Completed)
	var want []string
	for _, line := range []string{
		"start 1", "before model 1", "after model 1", "message assistant", `before tool note{"n":1}`, "state note last",
		"message tool", `after tool note{"n":1} = 1`, "before model 2", "after model 2", "message assistant", "complete ok",
	} {
		want = append(want, "runtime: "+line, "agent: "+line, "run: "+line)
	}
	s.same(j.String(), strings.Join(want, "\n"), "order of hooks")
}

func hookEphemeral(s *Stage) {
	var j journal
	hooks := tracing(&j, "")
	agent := newAgent(scripted.New(scripted.Fail(session.CodeProvider, false, "no"), scripted.Text("ok"), scripted.Text("ok")))
	x := s.Start(agent)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), Hooks: &hooks})
	s.refused(err, helix.ErrInvalid, "Hooks", "EphemeralHooks")
	s.same(j.String(), "", "hooks called")
	s.failed(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), Hooks: &hooks, EphemeralHooks: true,
	})), code(session.CodeProvider))
	_, err = x.Retry(s.ctx(), "s-1", helix.RetryOptions{Hooks: &hooks})
	s.refused(err, helix.ErrInvalid, "Hooks", "EphemeralHooks")
	run, err := x.Retry(s.ctx(), "s-1", helix.RetryOptions{Hooks: &hooks, EphemeralHooks: true})
	s.ok(err, "retry")
	s.ended(s.Result(run), helix.Completed)
	if !strings.Contains(j.String(), "complete ok") {
		s.Fatalf("the run's hooks were told %q", j.String())
	}
}

func hookVeto(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("count", num{1}), scripted.Calling("count", num{2})), scripted.Text("ok")),
		newTool("count", func(_ context.Context, call *helix.Call, n int) (int, error) {
			helix.Append(call, "notes", n)
			return ran.add("count"), nil
		}))
	agent.State = helix.StateOf(notes{})
	agent.Hooks.BeforeTool = func(_ context.Context, h *helix.HookContext, e helix.BeforeToolEvent) error {
		if string(e.Input) == `{"n":1}` {
			helix.Append(h, "notes", 100)
			return errors.New("not on a Sunday")
		}
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(ran.of("count"), 1, "calls that ran")
	s.transcript("s-1", "user: Hi!", `assistant: count({"n":1}), count({"n":2})`, "tool count failed: tool_vetoed", "tool count: 1", "assistant: ok")
	s.refused(s.messages("s-1")[2].Parts[0].Error, code(session.CodeToolVetoed), "not on a Sunday")
	s.sameJSON(s.state("s-1"), `{"notes":[2],"last":0}`, "state")
}

func hookClientVeto(s *Stage) {
	var j journal
	agent := waitingAgent(onClient("pick"), onClient("drop"))
	agent.State = helix.StateOf(notes{})
	agent.Hooks.BeforeTool = func(_ context.Context, h *helix.HookContext, e helix.BeforeToolEvent) error {
		waiting, err := s.Backend.Sessions().Tenant("").PendingCalls(s.ctx(), "s-1", true)
		s.ok(err, "look for calls that wait")
		j.add("before %s%s, while %d wait", e.Tool, e.Input, len(waiting))
		helix.Append(h, "notes", len(e.Tool))
		if e.Tool == "drop" {
			return errors.New("not on a Sunday")
		}
		return nil
	}
	agent.Hooks.AfterTool = func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
		j.add("after %s", e.Tool)
		return nil
	}
	x := s.Start(agent)
	res := s.waitsOn(x, agent, "s-1")
	s.same(len(res.Pending), 1, "calls that wait")
	s.sameJSON(s.state("s-1"), `{"notes":[4],"last":0}`, "the state while it waits")
	s.Submit(x, "s-1", helix.ToolResult(s.waiting(res, "pick").CallID, "blue"), session.SubmitAccepted)
	s.ended(s.completes(x, agent, "s-1"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1}), drop({"n":2})`, `tool pick: "blue"`, "tool drop failed: tool_vetoed", "assistant: Done.")
	s.same(j.String(), strings.Join([]string{
		`before pick{"n":1}, while 0 wait`, `before drop{"n":2}, while 0 wait`, "after pick", "after drop",
	}, "\n"), "what hooks were told")
}

func hookResumedFrom(s *Stage) {
	x, _, _ := s.interrupted(scripted.Text("Done."), scripted.Text("Done again."))
	var j journal
	var from []string
	hooks := &helix.Hooks{OnAgentResumed: func(_ context.Context, _ *helix.HookContext, e helix.AgentResumedEvent) error {
		j.add("%s", e.CheckpointID)
		return nil
	}}
	resume := func(opts helix.ResumeOptions) {
		opts.Hooks, opts.EphemeralHooks = hooks, true
		s.ended(s.Result(s.Resume(x, "s-1", opts)), helix.Completed)
	}
	latest := s.checkpoints("s-1")
	from = append(from, latest[len(latest)-1].ID)
	resume(helix.ResumeOptions{})
	from = append(from, latest[0].ID)
	resume(helix.ResumeOptions{Checkpoint: latest[0].ID})
	s.same(j.String(), strings.Join(from, "\n"), "checkpoints")
}

func hookModelRefused(s *Stage) {
	model := scripted.New(scripted.Text("ok"))
	agent := newAgent(model)
	refuse := true
	agent.Hooks.BeforeLLMCall = func(context.Context, *helix.HookContext, helix.BeforeLLMCallEvent) error {
		if refuse {
			return errors.New("over budget")
		}
		return nil
	}
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeHook), "BeforeLLMCall", "over budget")
	s.same(len(model.Requests()), 0, "model calls")
	refuse = false
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func hookChangesRequest(s *Stage) {
	model := scripted.New(scripted.Text("ok"))
	agent := newAgent(model)
	agent.Hooks.BeforeLLMCall = func(_ context.Context, _ *helix.HookContext, e helix.BeforeLLMCallEvent) error {
		e.Request.Instructions = "Be kind."
		e.Request.Messages = append(e.Request.Messages, session.UserText("By the way, it rains."))
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(model.Requests()[0].Instructions, "Be kind.", "instructions")
	s.same(render(model.Requests()[0].Messages), "user: Hi!\nuser: By the way, it rains.", "what the model sees")
	s.transcript("s-1", "user: Hi!", "assistant: ok")
}

func hookAttempts(s *Stage) {
	var j journal
	agent := newAgent(scripted.New(scripted.Takes(scripted.Fail(session.CodeProvider, true, "no"), scripted.Text("ok"))))
	agent.Hooks.BeforeLLMCall = func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCallEvent) error {
		j.add("step %d attempt %d", h.Step, e.Attempt)
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(j.String(), "step 1 attempt 1\nstep 1 attempt 2", "attempts")
}

func hookStateInCommit(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("note", num{2})), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks.AfterTool = func(_ context.Context, h *helix.HookContext, e helix.AfterToolEvent) error {
		helix.Append(h, "notes", 10)
		return nil
	}
	agent.Hooks.OnStateChange = func(_ context.Context, h *helix.HookContext, e helix.StateChangeEvent) error {
		helix.Append(h, "notes", 100)
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,100,2,100,10,10],"last":2}`, "state")
	step, err := s.store().Checkpoint(s.ctx(), "s-1", s.checkpoints("s-1")[1].ID)
	s.ok(err, "checkpoint")
	raw, err := step.State.MarshalJSON()
	s.ok(err, "state of the checkpoint")
	s.sameJSON(string(raw), `{"notes":[1,100,2,100,10,10],"last":2}`, "state at the step's checkpoint")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}

func hookSeesState(s *Stage) {
	var j journal
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("note", num{2})), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks.BeforeLLMCall = func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		j.add("before model %v", helix.State[notes](h).Notes)
		helix.Append(h, "notes", 0)
		return nil
	}
	agent.Hooks.AfterTool = func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
		j.add("after tool %v", helix.State[notes](h).Notes)
		helix.Append(h, "notes", 10)
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.same(j.String(), "before model []\nafter tool [0 1 2]\nafter tool [0 1 2 10]\nbefore model [0 1 2 10 10]", "what hooks see")
	s.sameJSON(s.state("s-1"), `{"notes":[0,1,2,10,10,0],"last":2}`, "state")
}

func hookFailing(s *Stage) {
	fail := errors.New("this hook is broken")
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks = helix.Hooks{
		OnAgentStart:    func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { return fail },
		OnAgentComplete: func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error { return fail },
		AfterLLMCall:    func(context.Context, *helix.HookContext, helix.AfterLLMCallEvent) error { return fail },
		AfterTool:       func(context.Context, *helix.HookContext, helix.AfterToolEvent) error { return fail },
		OnStateChange:   func(context.Context, *helix.HookContext, helix.StateChangeEvent) error { return fail },
		OnMessage:       func(context.Context, *helix.HookContext, helix.MessageEvent) error { return fail },
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, "tool note: 1", "assistant: ok")
	for _, hook := range []string{"OnAgentStart", "AfterLLMCall", "AfterTool", "OnStateChange", "OnMessage"} {
		s.logged("hook.failed", "hook="+hook, "this hook is broken", "session=s-1")
	}
}

func hookPanicking(s *Stage) {
	var j journal
	boom := func() error { panic("this hook explodes") }
	bad := helix.Hooks{
		OnAgentStart:    func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { return boom() },
		OnAgentComplete: func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error { return boom() },
		AfterLLMCall:    func(context.Context, *helix.HookContext, helix.AfterLLMCallEvent) error { return boom() },
		AfterTool:       func(context.Context, *helix.HookContext, helix.AfterToolEvent) error { return boom() },
		OnStateChange:   func(context.Context, *helix.HookContext, helix.StateChangeEvent) error { return boom() },
		OnMessage: func(_ context.Context, _ *helix.HookContext, e helix.MessageEvent) error {
			j.add("message %s", e.Message.Role)
			return boom()
		},
	}
	afterTool := bad.AfterTool
	bad.AfterTool = func(ctx context.Context, h *helix.HookContext, e helix.AfterToolEvent) error {
		j.add("after tool")
		return afterTool(ctx, h, e)
	}
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	agent.Hooks = tracing(&j, "agent: ")
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Hooks: &bad})
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.logged("hook.failed", "this hook explodes", "stack=")
	s.same(j.String(), strings.Join([]string{
		"agent: start 1", "agent: before model 1", "agent: after model 1", "message assistant", "agent: message assistant",
		`agent: before tool note{"n":1}`, "agent: state note last",
		"message tool", "agent: message tool", "after tool", `agent: after tool note{"n":1} = 1`,
		"agent: before model 2", "agent: after model 2", "message assistant", "agent: message assistant", "agent: complete ok",
	}, "\n"), "hooks called")
}

func hookPanickingGate(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("ok")), double())
	var asked tally
	agent.Hooks.BeforeTool = func(context.Context, *helix.HookContext, helix.BeforeToolEvent) error { panic("no tools") }
	agent.Hooks.BeforeLLMCall = func(context.Context, *helix.HookContext, helix.BeforeLLMCallEvent) error {
		if asked.add("") == 3 {
			panic("no models")
		}
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: double({"n":1})`, "tool double failed: tool_vetoed", "assistant: ok")
	s.failed(s.Say(x, agent, "s-1", "Again!"), code(session.CodeHook), "BeforeLLMCall")
}

func hookLifecycle(s *Stage) {
	var j journal
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Fail(session.CodeProvider, false, "no"),
		scripted.Reply(scripted.Say("..."), scripted.Do(g.enter), scripted.Until(nil)),
		scripted.Text("done"),
	))
	hooks := tracing(&j, "")
	agent.Hooks = helix.Hooks{
		OnAgentStart: hooks.OnAgentStart, OnAgentComplete: hooks.OnAgentComplete, OnAgentFail: hooks.OnAgentFail,
		OnAgentInterrupted: hooks.OnAgentInterrupted, OnAgentSuspended: hooks.OnAgentSuspended, OnAgentResumed: hooks.OnAgentResumed,
	}
	x := s.Start(agent)
	first := s.Begin(x, agent, "s-1", "Hi!")
	s.ended(s.Result(first), helix.Failed)
	second := s.Retry(x, "s-1")
	s.receive("the model is asked", g.entered)
	s.ok(second.Interrupt(s.ctx(), "coffee"), "interrupt")
	s.ended(s.Result(second), helix.Interrupted)
	third := s.Resume(x, "s-1", helix.ResumeOptions{})
	s.ended(s.Result(third), helix.Completed)
	s.same(j.String(), strings.Join([]string{
		"start 1", "fail provider_error",
		"resumed " + first.ID(), "interrupted after 1 steps: ... coffee",
		"resumed " + second.ID(), "complete done",
	}, "\n"), "lifecycle hooks")
}

func hookResults(s *Stage) {
	var mu sync.Mutex
	var after []helix.AfterToolEvent
	var complete helix.AgentCompleteEvent
	agent, _ := finisher(
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("broken", num{2}), scripted.Calling("unknown", num{3})),
		scripted.Finish(report{"done"}))
	agent.Tools = append(agent.Tools, newTool("broken", func(context.Context, *helix.Call, int) (int, error) { return 0, errors.New("no") }))
	agent.Hooks.AfterTool = func(_ context.Context, _ *helix.HookContext, e helix.AfterToolEvent) error {
		mu.Lock()
		defer mu.Unlock()
		after = append(after, e)
		return nil
	}
	agent.Hooks.OnAgentComplete = func(_ context.Context, _ *helix.HookContext, e helix.AgentCompleteEvent) error {
		complete = e
		return nil
	}
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.ended(res, helix.Completed)
	s.same(len(after), 3, "AfterTool calls")
	s.same(string(after[0].Result.Parts[0].ResultJSON()), "2", "the first result")
	s.refused(after[1].Error, code(session.CodeToolFailed), "no")
	s.refused(after[2].Error, code(session.CodeToolUnknown), "unknown")
	s.sameJSON(string(complete.Output), `{"summary":"done"}`, "output")
	s.same([]any{complete.Steps, complete.Usage}, []any{2, res.Usage}, "steps and usage")
}

func hookEvents(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("ok")), double())
	agent.Hooks.BeforeTool = func(_ context.Context, h *helix.HookContext, e helix.BeforeToolEvent) error {
		h.Emit("calling", map[string]string{"tool": e.Tool})
		return nil
	}
	agent.Hooks.OnAgentComplete = func(_ context.Context, h *helix.HookContext, e helix.AgentCompleteEvent) error {
		h.Emit("completed", e.Steps)
		return nil
	}
	x := s.Start(agent)
	items := s.collect(s.Begin(x, agent, "s-1", "Hi!"))
	var got []string
	for _, item := range items {
		if item.Chunk != nil && item.Chunk.Kind == stream.Custom {
			got = append(got, fmt.Sprintf("%s %s", item.Chunk.Name, item.Chunk.Data))
		}
	}
	s.same(strings.Join(got, "\n"), "calling {\"tool\":\"double\"}\ncompleted 2", "custom events")
}

func hookFailingSet(s *Stage) {
	write := func(h *helix.HookContext, n int, err error) error {
		helix.Append(h, "notes", n)
		return err
	}
	hooks := func(base int, err error) helix.Hooks {
		return helix.Hooks{
			OnAgentStart: func(_ context.Context, h *helix.HookContext, _ helix.AgentStartEvent) error {
				return write(h, base+1, err)
			},
			AfterLLMCall: func(_ context.Context, h *helix.HookContext, _ helix.AfterLLMCallEvent) error {
				return write(h, base+2, err)
			},
			OnMessage: func(_ context.Context, h *helix.HookContext, _ helix.MessageEvent) error {
				return write(h, base+3, err)
			},
			OnStateChange: func(_ context.Context, h *helix.HookContext, _ helix.StateChangeEvent) error {
				return write(h, base+4, err)
			},
			AfterTool: func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error {
				return write(h, base+5, err)
			},
		}
	}
	first, perRun := hooks(10, nil), hooks(30, nil)
	agent := newAgent(scripted.New(scripted.Call("note", num{0}), scripted.Text("ok")), noteTool())
	agent.State, agent.Hooks = helix.StateOf(notes{}), hooks(20, errors.New("no"))
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, Hooks: &first})
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), Hooks: &perRun, EphemeralHooks: true,
	})), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[11,31,12,32,13,33,0,14,34,13,33,15,35,12,32,13,33],"last":0}`, "state")
}

func hookToldOnce(s *Stage) {
	const turns = 30
	var told tally
	agent := newAgent(modelFunc(func(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
		return &llm.Response{Parts: []session.Part{session.Text("ok")}}, nil
	}))
	agent.Hooks.OnAgentComplete = func(_ context.Context, h *helix.HookContext, _ helix.AgentCompleteEvent) error {
		told.add("")
		told.add(h.RunID)
		return nil
	}
	backend := s.newFrail(s.Backend)
	backend.faults.closing = func() { s.idle(2 * time.Millisecond) } // readers know of the end, the store does not
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	var runs []string
	for range turns {
		run := s.Begin(x, agent, "s-1", "Hi!")
		s.collect(run)
		runs = append(runs, run.ID())
	}
	s.ok(x.Shutdown(s.ctx()), "close")
	s.same(told.of(""), turns, "times the hook was told")
	for i, id := range runs {
		s.same(told.of(id), 1, "times the hook was told of turn %d", i+1)
	}
}
