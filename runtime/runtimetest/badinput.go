package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func badInputScenarios() []Scenario {
	return []Scenario{
		{"unknown state field", "a field that the state type does not have is refused by name, and no session is made", badStateField},
		{"state that is no object", "initial state that is no JSON object is refused", badStateShape},
		{"session ids", "invalid session ids are refused at the edge, by every call", badSessionIDs},
		{"valid session ids", "every session id that the rules allow works", goodSessionIDs},
		{"request ids", "invalid request ids are refused", badRequestIDs},
		{"foreign checkpoint", "a checkpoint of another session is ErrNotFound, for a resume and a branch", badCheckpoint},
		{"argument of a wrong type", "arguments of a wrong type are a tool error that names the field", badArgumentType},
		{"missing argument", "a missing argument is a tool error that names it", badArgumentMissing},
		{"unknown argument", "an argument that the tool does not have is a tool error that names it", badArgumentUnknown},
		{"undeclared argument", "an argument that a schema does not declare, at any depth, is a tool error that names it, for every kind of call", badUndeclared},
		{"argument given twice", "an input that programs read in different ways is a tool error that names the place, for every kind of call", badTwice},
		{"large arguments", "arguments that are too large are a tool error, and only their beginning is kept", badLargeArguments},
		{"broken JSON", "arguments that are not JSON are a tool error, and the history can still be sent", badJSON},
		{"no arguments", "empty arguments are an empty object", badNoArguments},
		{"panicking tool", "a tool that panics is a tool error; the stack is logged, and siblings are not disturbed", badPanic},
		{"typed nil of a tool", "a tool whose error is a nil pointer fails its call, and nothing else", badToolNil},
		{"typed nil of a model", "a model whose error is a nil pointer fails the run, and the session continues", badModelNil},
		{"typed nil of a hook", "a hook whose error is a nil pointer is a hook that fails", badHookNil},
		{"hanging tool", "a tool that hangs is a tool error after its timeout", badHang},
		{"slow tool that listens", "a tool that returns its context's error at its timeout is a timeout", badListening},
		{"channel", "a tool that returns what JSON cannot hold is a tool error that says so", badChannel},
		{"invalid raw result", "a raw tool that returns no JSON is a tool error", badRawResult},
		{"10 MiB", "a tool that returns 10 MiB is a tool error that says how much is allowed", badHuge},
		{"repeated call id", "a model that repeats a call id has every call answered once, under ids of their own", badRepeatedID},
		{"unknown tool", "a call of a tool that does not exist is a tool error that names it", badUnknownTool},
		{"unnamed tool", "a call without a tool's name is a tool error", badUnnamedTool},
		{"empty text", "an empty reply is asked for again; a model that gives nothing else fails the run", badEmptyText},
		{"huge arguments", "very large arguments are carried out", badHugeArguments},
		{"huge provider error", "a provider error of 2 MiB is cut; the run fails, its stream closes and the session continues", badHugeProviderError},
		{"huge tool error", "a tool error of 2 MiB is cut; the model sees its beginning, and the run continues", badHugeToolError},
		{"huge reason", "a stop with a reason of 2 MiB is refused and stops nothing", badHugeReason},
		{"escaped text", "a text that JSON makes too large for a stream is left out of it; the run and the next turn are not disturbed", badEscapedText},
		{"invalid UTF-8", "text that is not valid UTF-8 does not break the session", badUTF8},
		{"nil agent", "a nil agent is refused", badNilAgent},
	}
}

// usable checks that session s-1 takes another turn.
func (s *Stage) usable(x helix.Executor, agent *helix.Agent) {
	s.Helper()
	s.ended(s.Say(x, agent, "s-1", "Still there?"), helix.Completed)
}

// badCall runs a turn in which the model makes one call and then says ok, and
// checks that the call's result is an error.
func (s *Stage) badCall(call scripted.Part, want session.Code, words []string, tools ...helix.Tool) {
	s.Helper()
	agent := newAgent(scripted.New(scripted.Reply(call), scripted.Text("I see."), scripted.Text("Yes.")), tools...)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Text, "I see.", "the reply")
	messages := s.messages("s-1")
	s.same(len(messages), 4, "messages")
	if messages[2].Parts[0].Error == nil {
		s.Fatalf("the call is answered by %s", renderMessage(&messages[2]))
	}
	s.refused(messages[2].Parts[0].Error, code(want), words...)
	s.usable(x, agent)
}

func badStateField(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok"), scripted.Text("ok")))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	_, err := x.Execute(s.ctx(), agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), State: map[string]any{"last": 1, "colour": "red"},
	})
	s.refused(err, helix.ErrInvalid, "state.colour")
	s.same(session.AsError(err).Field, "state.colour", "the field")
	s.absent("s-1")
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.usable(x, agent)
}

func badStateShape(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	x := s.Start(agent)
	for _, state := range []any{7, "text", []int{1}, make(chan int)} {
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), State: state})
		s.refused(err, helix.ErrInvalid, "state")
	}
	s.absent("s-1")
	s.usable(x, agent)
}

func badSessionIDs(s *Stage) {
	agent := newAgent(scripted.New())
	x := s.Start(agent)
	for _, id := range []string{"a b", "../etc", "/abs", ".hidden", "a..b", "naïve", "a\x00b", "a\nb", "a?b", strings.Repeat("x", 257)} {
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: id, Message: helix.UserText("Hi!")})
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = x.Resume(s.ctx(), id, helix.ResumeOptions{})
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = x.Retry(s.ctx(), id, helix.RetryOptions{})
		s.refused(err, helix.ErrInvalid, "session id")
		_, err = x.Attach(s.ctx(), id)
		s.refused(err, helix.ErrInvalid, "session id")
		s.refused(x.Interrupt(s.ctx(), id, ""), helix.ErrInvalid, "session id")
		s.refused(x.Abort(s.ctx(), id, ""), helix.ErrInvalid, "session id")
	}
	for _, id := range []string{"", "a b"} {
		_, err := x.Resume(s.ctx(), id, helix.ResumeOptions{})
		s.refused(err, helix.ErrInvalid, "session id")
	}
}

func goodSessionIDs(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")).ByPosition())
	x := s.Start(agent)
	for _, id := range []string{"a", "A.b:c@d/e-9", "user@example/2024-01-01:x", "-", strings.Repeat("x", 256)} {
		s.same(s.Begin(x, agent, id, "Hi!").SessionID(), id, "session id")
		s.ended(s.Result(s.Attach(x, id)), helix.Completed)
	}
}

func badRequestIDs(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	x := s.Start(agent)
	for _, id := range []string{strings.Repeat("x", 257), "a\x00b"} {
		_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), RequestID: id})
		s.refused(err, helix.ErrInvalid, "request id")
	}
	s.absent("s-1")
	s.usable(x, agent)
}

func badCheckpoint(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("one"), scripted.Text("two"), scripted.Text("three")))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-2", "Hi!"), helix.Completed)
	foreign := s.checkpoints("s-2")[0].ID
	_, err := x.Resume(s.ctx(), "s-1", helix.ResumeOptions{Checkpoint: foreign})
	s.refused(err, helix.ErrNotFound, foreign)
	_, err = x.Execute(s.ctx(), agent, helix.Input{
		SessionID: "s-3", Message: helix.UserText("Hi!"), Branch: &helix.Branch{From: "s-1", Checkpoint: foreign},
	})
	s.refused(err, helix.ErrNotFound, foreign)
	s.usable(x, agent)
}

func badArgumentType(s *Stage) {
	s.badCall(scripted.Calling("double", `{"n":"twenty"}`), session.CodeToolInput, []string{"double", "n:"}, double())
}

func badArgumentMissing(s *Stage) {
	s.badCall(scripted.Calling("double", `{}`), session.CodeToolInput, []string{"double", `"n"`}, double())
}

func badArgumentUnknown(s *Stage) {
	s.badCall(scripted.Calling("double", `{"n":1,"m":2}`), session.CodeToolInput, []string{"double", `"m"`}, double())
}

func badJSON(s *Stage) {
	s.badCall(scripted.Calling("double", `{"n": 1, `), session.CodeToolInput, []string{"double", "not valid JSON"}, double())
	call := s.messages("s-1")[1].Calls()[0]
	if !strings.Contains(string(call.Input), `{\"n\": 1, `) {
		s.Fatalf("what the model wrote is kept as %s", call.Input)
	}
}

func badLargeArguments(s *Stage) {
	const size = 1 << 20
	s.badCall(scripted.Calling("double", `{"n":`+strings.Repeat("1", size)+`}`), session.CodeToolInput, []string{"double", fmt.Sprint(size + len(`{"n":}`)), "room for 1048576"}, double())
	call := s.messages("s-1")[1].Calls()[0]
	if len(call.Input) > 2000 || !strings.Contains(string(call.Input), "1111…") {
		s.Fatalf("%d bytes are kept of what the model wrote: %.100s", len(call.Input), call.Input)
	}
}

func badNoArguments(s *Stage) {
	tool := helix.Tool{Name: "now", Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) { return "noon", nil })}
	agent := newAgent(scripted.New(scripted.Call("now", ""), scripted.Call("now", "  "), scripted.Text("ok")), tool)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", "assistant: now({})", `tool now: "noon"`, "assistant: now({})", `tool now: "noon"`, "assistant: ok")
}

func badPanic(s *Stage) {
	boom := newTool("boom", func(_ context.Context, _ *helix.Call, n int) (int, error) {
		return make([]int, n)[n], nil
	})
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("boom", num{}), scripted.Calling("double", num{1})), scripted.Text("I see."), scripted.Text("Yes.")), boom, double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: boom({"n":0}), double({"n":1})`, "tool boom failed: tool_panicked", "tool double: 2", "assistant: I see.")
	failure := s.messages("s-1")[2].Parts[0].Error
	if strings.Contains(failure.Message, "index out of range") {
		s.Fatalf("the model is told %q", failure.Message)
	}
	s.logged("tool.panicked", "index out of range", "stack=", "tool=boom")
	s.usable(x, agent)
}

func badHang(s *Stage) {
	g := s.newGate()
	hang := newTool("hang", func(context.Context, *helix.Call, int) (int, error) {
		<-g.open
		return 1, nil
	})
	hang.Timeout = 20 * time.Millisecond
	s.badCall(scripted.Calling("hang", num{}), session.CodeToolTimeout, []string{"hang", "20ms"}, hang)
}

func badListening(s *Stage) {
	hang := newTool("hang", func(ctx context.Context, _ *helix.Call, _ int) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	hang.Timeout = 20 * time.Millisecond
	s.badCall(scripted.Calling("hang", num{}), session.CodeToolTimeout, []string{"hang", "20ms"}, hang)
}

func badChannel(s *Stage) {
	tool := newTool("leak", func(context.Context, *helix.Call, int) (chan int, error) { return make(chan int), nil })
	s.badCall(scripted.Calling("leak", num{}), session.CodeToolOutput, []string{"chan int", "encoded"}, tool)
}

func badRawResult(s *Stage) {
	tool := helix.Tool{Name: "raw", Execute: helix.RawFunc([]byte(`{"type":"object"}`),
		func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage("not json"), nil
		})}
	s.badCall(scripted.Calling("raw", num{}), session.CodeToolOutput, []string{"JSON"}, tool)
}

func badHuge(s *Stage) {
	tool := newTool("dump", func(context.Context, *helix.Call, int) (string, error) { return strings.Repeat("x", 10<<20), nil })
	s.badCall(scripted.Calling("dump", num{}), session.CodeToolOutput, []string{"dump", "bytes", "allowed"}, tool)
}

func badRepeatedID(s *Stage) {
	model := scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}).WithID("same"), scripted.Calling("double", num{2}).WithID("same")),
		scripted.Reply(scripted.Calling("double", num{3}).WithID("same")),
		scripted.Text("ok"), scripted.Text("ok"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: double({"n":1}), double({"n":2})`, "tool double: 2", "tool double: 4",
		`assistant: double({"n":3})`, "tool double: 6", "assistant: ok")
	ids, provider := map[string]bool{}, map[string]bool{}
	for _, m := range s.messages("s-1") {
		for _, call := range m.Calls() {
			ids[call.CallID] = true
			if m.Step == 1 {
				provider[call.ProviderCallID] = true
			}
		}
	}
	s.same(len(ids), 3, "call ids")
	s.same(len(provider), 2, "ids that the provider gets back in one message")
	s.usable(x, agent)
}

func badUnknownTool(s *Stage) {
	s.badCall(scripted.Calling("fly", num{}), session.CodeToolUnknown, []string{`"fly"`}, double())
}

func badUnnamedTool(s *Stage) {
	s.badCall(scripted.Calling("", num{}), session.CodeToolUnknown, []string{"no tool"}, double())
}

func badEmptyText(s *Stage) {
	empty := scripted.Text("")
	model := scripted.New(scripted.Takes(empty, scripted.Text("ok")), scripted.Takes(empty, empty, empty, empty), scripted.Text("Yes."))
	agent := newAgent(model)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.failed(s.Say(x, agent, "s-1", "second"), code(session.CodeBadReply), "empty")
	s.same(len(model.Requests()), 6, "model calls")
	s.usable(x, agent)
	s.transcript("s-1", "user: first", "assistant: ok", "user: second", "user: Still there?", "assistant: Yes.")
}

func badHugeArguments(s *Stage) {
	text := strings.Repeat("<é\"", (1<<20-len(`{"text":""}`))/len(`<é\"`)) // as much as is allowed, and more than a chunk of a stream holds
	length := helix.Tool{Name: "length", Execute: helix.Func(func(_ context.Context, _ *helix.Call, in struct {
		Text string `json:"text"`
	},
	) (int, error) {
		return len(in.Text), nil
	})}
	agent := newAgent(scripted.New(scripted.Call("length", map[string]string{"text": text}), scripted.Text("ok"), scripted.Text("Yes.")), length)
	x := s.Start(agent)
	s.loose["s-1"] = true // a chunk that is too large is told without its content
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.same(string(s.messages("s-1")[2].Parts[0].Output), strconv.Itoa(len(text)), "the result")
	s.usable(x, agent)
}

func badUTF8(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("bad \xff\xfe text"), scripted.Call("double", "{\"n\":1,\"\xff\":2}"), scripted.Text("ok"), scripted.Text("Yes.")), double())
	x := s.Start(agent)
	s.loose["s-1"] = true // where a piece ends decides how many bad bytes are replaced
	s.ended(s.Say(x, agent, "s-1", "so \xff so"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.usable(x, agent)
}

func badNilAgent(s *Stage) {
	x := s.Start()
	_, err := x.Execute(s.ctx(), nil, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	s.refused(err, helix.ErrInvalid, "agent")
	_, err = x.Resume(s.ctx(), "s-1", helix.ResumeOptions{}) // the session knows its agent
	s.refused(err, helix.ErrNotFound)
}

// oddError is an error type with a pointer receiver.
type oddError struct{ text string }

func (e *oddError) Error() string { return e.text }

// nilErrors returns errors that are not nil but hold a nil pointer.
func nilErrors() []error {
	var odd *oddError
	var own *helix.Error
	return []error{odd, own, fmt.Errorf("wrapped: %w", own)}
}

func badToolNil(s *Stage) {
	errs := nilErrors()
	odd := newTool("odd", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return n, errs[n]
	})
	var calls []scripted.Part
	for i := range errs {
		calls = append(calls, scripted.Calling("odd", num{i}))
	}
	agent := newAgent(scripted.New(scripted.Reply(append(calls, scripted.Calling("double", num{4}))...), scripted.Text("I see."), scripted.Text("Yes.")), odd, double())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(len(messages), 4+len(errs), "messages")
	for i := range errs {
		if messages[2+i].Parts[0].Error == nil {
			s.Fatalf("call %d is answered by %s", i+1, renderMessage(&messages[2+i]))
		}
	}
	s.refused(messages[2].Parts[0].Error, code(session.CodeToolFailed), "oddError")
	s.refused(messages[3].Parts[0].Error, code(session.CodeToolFailed), "Error")
	s.same(renderMessage(&messages[2+len(errs)]), "tool double: 8", "the sibling's result")
	s.sameJSON(s.state("s-1"), `{"notes":[],"last":0}`, "state")
	s.usable(x, agent)
}

func badModelNil(s *Stage) {
	errs := nilErrors()
	var asked tally
	agent := newAgent(modelFunc(func(_ context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
		emit(llm.Delta{Kind: llm.DeltaText, Text: "ok"})
		reply := &llm.Response{Parts: []session.Part{session.Text("ok")}}
		if n := asked.add(""); n <= len(errs) {
			return reply, errs[n-1]
		}
		return reply, nil
	}))
	x := s.Start(agent)
	for i := range errs {
		s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Failed)
		s.same(asked.of(""), i+1, "model calls")
	}
	s.usable(x, agent)
}

func badHookNil(s *Stage) {
	for i, err := range nilErrors() {
		agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("ok"), scripted.Text("never")), double())
		agent.Name = fmt.Sprintf("agent-%d", i)
		agent.Hooks = helix.Hooks{
			BeforeTool:      func(context.Context, *helix.HookContext, helix.BeforeToolEvent) error { return err },
			AfterTool:       func(context.Context, *helix.HookContext, helix.AfterToolEvent) error { return err },
			AfterLLMCall:    func(context.Context, *helix.HookContext, helix.AfterLLMCallEvent) error { return err },
			OnAgentStart:    func(context.Context, *helix.HookContext, helix.AgentStartEvent) error { return err },
			OnAgentComplete: func(context.Context, *helix.HookContext, helix.AgentCompleteEvent) error { return err },
			OnMessage:       func(context.Context, *helix.HookContext, helix.MessageEvent) error { return err },
			BeforeLLMCall: func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
				if h.Turn == 2 {
					return err
				}
				return nil
			},
		}
		x, id := s.Start(agent), fmt.Sprintf("s-%d", i+1)
		s.ended(s.Say(x, agent, id, "Hi!"), helix.Completed)
		s.transcript(id, "user: Hi!", `assistant: double({"n":1})`, "tool double failed: tool_vetoed", "assistant: ok")
		s.failed(s.Say(x, agent, id, "Again!"), code(session.CodeHook))
	}
}

// huge is text that neither a store nor a stream is made for.
func huge() string { return "It began so: " + strings.Repeat("x", 2<<20) }

// cut checks that an error holds no more than the beginning of a huge text.
func (s *Stage) cut(err *helix.Error) {
	s.Helper()
	if n := len(err.Error()); n > 64<<10 || !strings.Contains(err.Error(), "It began so: xxx") {
		s.Fatalf("the error has %d bytes: %.200s", n, err)
	}
}

func badHugeProviderError(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Takes(scripted.Fail(session.CodeProvider, true, "%s", huge()), scripted.Fail("provider_bad", false, "%s", huge())),
		scripted.Reply(scripted.Failing(errors.New(huge()))), scripted.Text("Yes.")))
	x := s.Start(agent)
	for _, want := range []session.Code{"provider_bad", session.CodeProvider} {
		run := s.Begin(x, agent, "s-1", "Hi!")
		items := s.collect(run)
		s.same(items[len(items)-1].Frame, stream.FrameFail, "the last item")
		res := s.Result(run)
		s.failed(res, code(want))
		s.cut(res.Error)
		s.cut(s.load("s-1").Error)
	}
	s.usable(x, agent)
}

func badHugeToolError(s *Stage) {
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("odd", num{0}), scripted.Calling("odd", num{1})), scripted.Text("I see."), scripted.Text("Yes.")),
		newTool("odd", func(_ context.Context, _ *helix.Call, n int) (int, error) {
			if n == 0 {
				return 0, errors.New(huge())
			}
			return 0, helix.ErrNotFound.WithMessage("%s", huge())
		}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: odd({"n":0}), odd({"n":1})`,
		"tool odd failed: tool_execution_failed", "tool odd failed: state_not_found", "assistant: I see.")
	for _, m := range s.messages("s-1")[2:4] {
		s.cut(m.Parts[0].Error)
	}
	s.same(s.runs("s-1")[0].Attempts, 0, "takeovers")
	s.usable(x, agent)
}

func badHugeReason(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(scripted.Reply(scripted.Do(g.enter), scripted.Until(g.open), scripted.Say("ok")), scripted.Text("Yes.")))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.refused(run.Interrupt(s.ctx(), huge()), session.ErrTooLarge, "reason")
	s.refused(run.Abort(s.ctx(), huge()), session.ErrTooLarge, "reason")
	s.refused(x.Interrupt(s.ctx(), "s-1", huge()), session.ErrTooLarge, "reason")
	s.refused(x.Abort(s.ctx(), "s-1", huge()), session.ErrTooLarge, "reason")
	stop, err := s.store().StopRequest(s.ctx(), "s-1", run.ID())
	s.ok(err, "stop request")
	if stop != nil {
		s.Fatalf("a refused stop is requested all the same: %s", stop.Kind)
	}
	g.release()
	s.ended(s.Result(run), helix.Completed)
	s.usable(x, agent)
}

func badEscapedText(s *Stage) {
	text := strings.Repeat("\"\n", 300<<10)
	model := scripted.New(scripted.Text("ok"), scripted.Text("Yes."))
	agent := newAgent(model)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", text)
	s.ended(res, helix.Completed)
	s.same(s.run("s-1", res.RunID).Attempts, 0, "takeovers")
	if s.messages("s-1")[0].Content() != text || model.Requests()[0].Messages[0].Content() != text {
		s.Fatal("the text did not arrive as it was sent")
	}
	input := ofKind(s.chunks("s-1"), stream.InputReceived)
	s.same(len(input), 1, "chunks that tell of the input")
	if s.Backend.Streams().Limits().MaxChunk < 2*len(text) {
		s.same([]any{input[0].Omitted, len(input[0].Messages)}, []any{true, 0}, "the input's text is left out, and the messages told")
		s.loose["s-1"] = true
	}
	s.usable(x, agent)
}
