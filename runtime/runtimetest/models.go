package runtimetest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func modelScenarios() []Scenario {
	return []Scenario{
		{"retried", "a retryable error is a new attempt of the same step; what the failed one had streamed is discarded", modelRetried},
		{"retries run out", "a model that keeps failing is asked four times; then the run fails with its error", modelRetriesRunOut},
		{"retry after", "the delay that a provider requests replaces the backoff", modelRetryAfter},
		{"retry after hours", "a run fails at once if its provider asks to wait for longer than two minutes", modelRetryAfterHours},
		{"too many calls", "a reply with more than 256 calls fails the run, and no call is carried out", modelTooManyCalls},
		{"not retryable", "an error that is not retryable fails the run at once", modelNotRetryable},
		{"unclassified", "an error that the adapter did not classify fails the run as provider_error", modelUnclassified},
		{"panics", "a model that panics fails the run, and the session continues", modelPanics},
		{"failure logged", "a run that failed is one error line of the log, with session, run, agent and code; one that was aborted is none", modelFailureLogged},
		{"cut off", "a reply that ended at its length or by a content filter says so, in the transcript, the result and the stream's end", modelCutOff},
		{"fails in mid-turn", "a model that fails after a tool step leaves that step in the transcript", modelFailsLater},
		{"provider id", "call ids are the framework's own; the provider's are kept beside them", modelProviderIDs},
		{"provider data", "data that a provider attaches to a part is stored and sent back unchanged", modelProviderData},
		{"file", "a file that the model generates is part of the reply and of the stream", modelFile},
		{"hangs", "a model that does not answer in time is asked again", modelHangs},
		{"stubborn", "a model that ignores its cancellation delays neither an interrupt nor the next turn", modelStubborn},
		{"usage", "tokens and calls of all steps add up on the run", modelUsage},
		{"unicode", "text is stored and streamed rune by rune as the model wrote it", modelUnicode},
	}
}

func modelRetried(s *Stage) {
	model := scripted.New(
		scripted.Takes(
			scripted.Reply(scripted.Say("Well, the ans"), scripted.Failing(llm.Error(session.CodeProvider, true, "overloaded"))),
			scripted.Fail(session.CodeProvider, true, "overloaded again"),
			scripted.Reply(scripted.Say("Let me see. "), scripted.Calling("double", num{2})),
		),
		scripted.Text("4"),
	)
	agent := newAgent(model, double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "2+2?")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 2, "steps")
	s.same(len(model.Requests()), 4, "model calls")
	s.transcript("s-1", "user: 2+2?", `assistant: Let me see. , double({"n":2})`, "tool double: 4", "assistant: 4")
	discarded := ofKind(s.chunks("s-1"), stream.StepDiscarded)
	s.same(len(discarded), 2, "discarded attempts")
	for i, c := range discarded {
		s.same([]any{c.Step, c.Attempt, c.Scope}, []any{1, i + 1, stream.ScopeReply}, "discarded attempt %d", i+1)
	}
	s.logged("model.retried", "overloaded again")
}

func modelRetriesRunOut(s *Stage) {
	fail := scripted.Fail(session.CodeRateLimited, true, "too much of you")
	model := scripted.New(scripted.Takes(fail, fail, fail, fail), scripted.Text("better"))
	agent := newAgent(model)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.failed(res, code(session.CodeRateLimited), "too much of you")
	s.same(res.Error.Retryable, true, "the error is retryable")
	s.same(len(model.Requests()), 4, "model calls")
	s.transcript("s-1", "user: Hi!")
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.transcript("s-1", "user: Hi!", "assistant: better")
}

func modelRetryAfter(s *Stage) {
	const wait = 150 * time.Millisecond
	var asked atomic.Int64
	now := func() { asked.Store(time.Now().UnixNano()) }
	model := scripted.New(scripted.Takes(scripted.RateLimited(wait), scripted.Reply(scripted.Do(now), scripted.Say("ok"))))
	agent := newAgent(model)
	x := s.Start(agent)
	began := time.Now()
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	if waited := time.Unix(0, asked.Load()).Sub(began); waited < wait {
		s.Fatalf("the model was asked again after %s", waited)
	}
}

func modelRetryAfterHours(s *Stage) {
	model := scripted.New(scripted.RateLimited(time.Hour), scripted.Text("better"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeRateLimited))
	s.same(len(model.Requests()), 1, "model calls")
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
}

func modelTooManyCalls(s *Stage) {
	calls := make([]scripted.Part, 257)
	for i := range calls {
		calls[i] = scripted.Calling("double", num{i})
	}
	agent := newAgent(scripted.New(scripted.Reply(calls...), scripted.Reply(calls[:3]...), scripted.Text("better")), double())
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeBadReply), "257", "256")
	s.transcript("s-1", "user: Hi!")
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
}

func modelNotRetryable(s *Stage) {
	model := scripted.New(scripted.Reply(scripted.Say("I cann"), scripted.Failing(llm.Error("provider_refused", false, "not that"))), scripted.Text("ok"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code("provider_refused"), "not that")
	s.same(len(model.Requests()), 1, "model calls")
	s.transcript("s-1", "user: Hi!")
	s.refused(s.load("s-1").Error, code("provider_refused"), "not that")
	s.ended(s.Say(x, agent, "s-1", "Something else!"), helix.Completed)
}

func modelUnclassified(s *Stage) {
	model := scripted.New(scripted.Reply(scripted.Failing(errors.New("connection reset by peer"))), scripted.Text("ok"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeProvider), "connection reset by peer")
	s.same(len(model.Requests()), 1, "model calls")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
}

func modelPanics(s *Stage) {
	model := scripted.New(scripted.Reply(scripted.Say("boo"), scripted.Do(func() { panic("model is on fire") })), scripted.Text("ok"))
	agent := newAgent(model)
	x := s.Start(agent)
	s.failed(s.Say(x, agent, "s-1", "Hi!"), code(session.CodeProvider))
	s.logged("model.panicked", "model is on fire", "stack=")
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", "user: Again!", "assistant: ok")
}

func modelFailureLogged(s *Stage) {
	asked := s.newGate()
	model := scripted.New(
		scripted.Fail(session.CodeAuth, false, "wrong key"),
		scripted.Reply(scripted.Do(func() { panic("model is on fire") })),
		scripted.Reply(scripted.Do(asked.enter), scripted.Until(nil)),
	)
	agent := newAgent(model)
	x := s.Start(agent)
	first := s.Say(x, agent, "s-1", "Hi!")
	s.failed(first, code(session.CodeAuth))
	s.failed(s.Say(x, agent, "s-2", "Hi!"), code(session.CodeProvider))
	run := s.Begin(x, agent, "s-3", "Hi!")
	s.receive("the model is asked", asked.entered)
	s.ok(run.Abort(s.ctx(), "enough"), "abort")
	s.failed(s.Result(run), helix.ErrCancelled)
	s.logged("level=ERROR", "msg=run.failed", "session=s-1", "run="+first.RunID, "agent=agent", "code=provider_auth", "wrong key")
	s.logged("level=INFO", "msg=run.failed", "session=s-3", "code=framework_cancelled")
	lines := map[string]int{}
	for line := range strings.Lines(s.Log.String()) {
		for _, id := range []string{"s-1", "s-2", "s-3"} {
			if strings.Contains(line, "level=ERROR") && strings.Contains(line, "session="+id+" ") {
				lines[id]++
			}
		}
	}
	s.same(lines, map[string]int{"s-1": 1, "s-2": 1}, "error lines by session")
}

func modelCutOff(s *Stage) {
	for _, finish := range []llm.FinishReason{llm.FinishLength, llm.FinishContentFilter, llm.FinishStop} {
		agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("Once upon").WithFinish(finish)), double())
		x := s.Start(agent)
		id, want := "s-"+string(finish), string(finish)
		if finish == llm.FinishStop {
			want = ""
		}
		run := s.Begin(x, agent, id, "Hi!")
		items := s.collect(run)
		res := s.Result(run)
		s.ended(res, helix.Completed)
		s.same(res.FinishReason, want, "the result's reason")
		s.same(items[len(items)-1].End.FinishReason, want, "the reason in the stream's end")
		messages := s.messages(id)
		s.same(messages[1].FinishReason(), "", "the first reply's reason")
		s.same(messages[len(messages)-1].FinishReason(), want, "the last reply's reason")
	}
}

func modelFailsLater(s *Stage) {
	model := scripted.New(scripted.Call("double", num{1}), scripted.Fail(session.CodeProvider, false, "gone"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	s.failed(res, code(session.CodeProvider), "gone")
	s.same(res.Steps, 1, "steps")
	s.transcript("s-1", "user: Hi!", `assistant: double({"n":1})`, "tool double: 2")
}

func modelProviderIDs(s *Stage) {
	model := scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}).WithID("toolu_1"), scripted.Calling("double", num{2}).WithID("toolu_2")),
		scripted.Text("ok"),
	)
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	messages := s.messages("s-1")
	calls := messages[1].Calls()
	for i, call := range calls {
		result := messages[2+i].Parts[0]
		if !strings.HasPrefix(call.CallID, "call_") || result.CallID != call.CallID {
			s.Fatalf("call %d has id %q, its result %q", i+1, call.CallID, result.CallID)
		}
		want := []string{"toolu_1", "toolu_2"}[i]
		s.same(call.ProviderCallID+" "+result.ProviderCallID, want+" "+want, "the provider's id of call %d", i+1)
	}
	if calls[0].CallID == calls[1].CallID {
		s.Fatal("two calls have the same id")
	}
}

func modelProviderData(s *Stage) {
	signed := session.Part{Kind: session.PartReasoning, Text: "hm", Provider: []byte(`{ "signature" : "abc<>&" }`)}
	redacted := session.Part{Kind: session.PartReasoning, Provider: []byte(`{"redacted":"xyz"}`)}
	model := scripted.New(
		scripted.Reply(scripted.Content(signed), scripted.Content(redacted), scripted.Calling("double", num{1})), scripted.Text("ok"), scripted.Text("ok"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.loose["s-1"] = true // a part that is nothing but the provider's is not streamed
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(y, agent, "s-1", "Again!"), helix.Completed)
	for _, request := range model.Requests()[1:] {
		parts := request.Messages[1].Parts
		s.same(string(parts[0].Provider), string(signed.Provider), "the signature")
		s.same(string(parts[1].Provider), string(redacted.Provider), "the redacted reasoning")
	}
}

func modelFile(s *Stage) {
	file := session.Part{Kind: session.PartFile, URL: "data:image/png;base64,AAAA", MediaType: "image/png", Filename: "dot.png"}
	agent := newAgent(scripted.New(scripted.Reply(scripted.Say("Here: "), scripted.Content(file))))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "A dot!"), helix.Completed)
	s.transcript("s-1", "user: A dot!", "assistant: Here: , [image/png data:image/png;base64,AAAA]")
	s.same(len(ofKind(s.chunks("s-1"), stream.FileOutput)), 1, "file chunks")
}

func modelHangs(s *Stage) {
	model := scripted.New(scripted.Takes(scripted.Reply(scripted.Say("One mom"), scripted.Until(nil)), scripted.Text("Here.")))
	agent := newAgent(model)
	agent.ModelTimeout = 20 * time.Millisecond
	x := s.Start(agent)
	s.same(s.Say(x, agent, "s-1", "Hi!").Text, "Here.", "the reply")
	s.logged("model.retried", "20ms")
	s.transcript("s-1", "user: Hi!", "assistant: Here.")
}

func modelStubborn(s *Stage) {
	g := s.newGate()
	said := make(chan struct{})
	var asked tally
	agent := newAgent(modelFunc(func(_ context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
		if asked.add("") > 1 {
			emit(llm.Delta{Kind: llm.DeltaText, Text: "Again."})
			return &llm.Response{Parts: []session.Part{session.Text("Again.")}}, nil
		}
		defer close(said)
		emit(llm.Delta{Kind: llm.DeltaText, Text: "I will"})
		g.enter()
		<-g.open
		emit(llm.Delta{Kind: llm.DeltaText, Text: " not stop"})
		return &llm.Response{Parts: []session.Part{session.Text("I will not stop")}}, nil
	}))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Hi!")
	s.receive("the model is asked", g.entered)
	s.ok(run.Interrupt(s.ctx(), ""), "interrupt")
	s.ended(s.Result(run), helix.Interrupted)
	g.release()
	s.receive("the model ends", said)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: I will {"stop":"interrupt"}`, "user: More!", "assistant: Again.")
}

// modelFunc makes a function a model.
type modelFunc func(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error)

// Generate implements [llm.Model].
func (f modelFunc) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	return f(ctx, request, emit)
}

func modelUsage(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Call("double", num{1}).WithUsage(session.Usage{InputTokens: 100, OutputTokens: 10, CacheReadTokens: 80}),
		scripted.Text("ok").WithUsage(session.Usage{InputTokens: 130, OutputTokens: 5, ReasoningTokens: 3}),
	), double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Hi!")
	want := session.Usage{
		InputTokens: 230, OutputTokens: 15, ReasoningTokens: 3, CacheReadTokens: 80, ModelCalls: 2, ToolCalls: 1,
	}
	s.same(res.Usage, want, "usage")
	s.same(s.run("s-1", res.RunID).Usage, want, "usage of the run")
}

func modelUnicode(s *Stage) {
	const text = "naïve café — 日本語 🧭 \"quotes\" <b>&amp;</b>\n\ttabs"
	agent := newAgent(scripted.New(scripted.Text(text).WithPieceSize(1)))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", text)
	s.same(s.Result(run).Text, text, "the reply")
	var streamed strings.Builder
	for _, c := range ofKind(s.chunks("s-1"), stream.TextDelta) {
		streamed.WriteString(c.Delta)
	}
	s.same(streamed.String(), text, "what was streamed")
}

// report is the output of agents that have one.
type report struct {
	Summary string `json:"summary"`
}

// notes is the state of agents that have one.
type notes struct {
	Notes []int `json:"notes"`
	Last  int   `json:"last"`
}

// noteTool adds a number to the notes.
func noteTool() helix.Tool {
	return newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Update(call, func(v *notes) {
			v.Notes = append(v.Notes, n)
			v.Last = n
		})
		return len(helix.State[notes](call).Notes), nil
	})
}
