package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// ask makes one request and returns the response with the deltas, joined by kind.
func ask(t *testing.T, m llm.Model, request *llm.Request) (*llm.Response, []llm.Delta) {
	t.Helper()
	var deltas []llm.Delta
	response, err := m.Generate(t.Context(), request, func(d llm.Delta) { deltas = append(deltas, d) })
	if err != nil {
		t.Fatalf("Generate: %v", err)
	}
	return response, deltas
}

func content(r *llm.Response) string {
	m := session.Message{Parts: r.Parts}
	return m.Content()
}

// transcript is a history with n replies.
func transcript(n int) []session.Message {
	messages := []session.Message{session.UserText("continue")}
	for i := range n {
		messages = append(messages, session.Message{
			ID: fmt.Sprint(i), Role: session.RoleAssistant, Parts: []session.Part{session.Text("…")},
		})
	}
	return messages
}

func TestSequence(t *testing.T) {
	t.Parallel()
	m := scripted.New(
		scripted.Call("search", `{"query":"compass"}`),
		scripted.Text("hello"),
		scripted.Finish(struct {
			Summary string `json:"summary"`
		}{"a < b"}),
	)
	first, _ := ask(t, m, &llm.Request{})
	if len(first.Parts) != 1 || first.Parts[0].Tool != "search" || string(first.Parts[0].Input) != `{"query":"compass"}` {
		t.Errorf("first reply is %+v", first.Parts)
	}
	if first.Parts[0].ProviderCallID == "" || first.Parts[0].CallID != "" {
		t.Errorf("call ids are %q and %q; the provider's must be set, ours not", first.Parts[0].ProviderCallID, first.Parts[0].CallID)
	}
	if first.Finish != llm.FinishToolCalls || first.Usage.InputTokens != 10 || first.Usage.OutputTokens != 5 {
		t.Errorf("finish %q, usage %+v", first.Finish, first.Usage)
	}
	second, _ := ask(t, m, &llm.Request{})
	if content(second) != "hello" || second.Finish != llm.FinishStop {
		t.Errorf("second reply is %q, %q", content(second), second.Finish)
	}
	third, _ := ask(t, m, &llm.Request{})
	if third.Parts[0].Tool != session.FinishTool || string(third.Parts[0].Input) != `{"summary":"a < b"}` {
		t.Errorf("third reply is %+v", third.Parts)
	}
	m.Check(t)
}

func TestStreamsInPieces(t *testing.T) {
	t.Parallel()
	const text, args = "日本語のコンパス", `{"query":"compass","n":3}`
	for _, size := range []int{0, 1, 2, 1000} {
		m := scripted.New(scripted.Reply(
			scripted.Think("hmm"), scripted.Say(text), scripted.Calling("a", args), scripted.Calling("b", nil),
		).WithPieceSize(size))
		response, deltas := ask(t, m, &llm.Request{})

		var said, thought string
		calls := map[int]string{}
		open := -1
		for _, d := range deltas {
			switch d.Kind {
			case llm.DeltaText:
				said += d.Text
			case llm.DeltaReasoning:
				thought += d.Text
			case llm.DeltaCallStart:
				open = d.Index
				calls[d.Index] = d.Tool + " "
			case llm.DeltaCallArgs:
				if d.Index != open {
					t.Errorf("size %d: arguments of call %d while %d is open", size, d.Index, open)
				}
				calls[d.Index] += d.Text
			case llm.DeltaCallEnd:
				open = -1
			}
			if strings.ContainsRune(d.Text, '\uFFFD') {
				t.Errorf("size %d: piece %q cuts a rune", size, d.Text)
			}
		}
		if said != text || thought != "hmm" || calls[0] != "a "+args || calls[1] != "b {}" {
			t.Errorf("size %d: streamed %q, %q, %v", size, said, thought, calls)
		}
		kinds := []session.PartKind{}
		for _, p := range response.Parts {
			kinds = append(kinds, p.Kind)
		}
		want := []session.PartKind{session.PartReasoning, session.PartText, session.PartToolCall, session.PartToolCall}
		if !slices.Equal(kinds, want) {
			t.Errorf("size %d: parts are %v, want %v", size, kinds, want)
		}
		if a, b := response.Parts[2].ProviderCallID, response.Parts[3].ProviderCallID; a == b {
			t.Errorf("both calls have provider id %q", a)
		}
	}
}

func TestAdjacentTextsJoin(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Reply(
		scripted.Say("one "), scripted.Do(func() {}), scripted.Say("two"),
		scripted.Content(session.Part{Kind: session.PartFile, URL: "data:,x", MediaType: "text/plain"}),
		scripted.Say("three"),
	))
	response, _ := ask(t, m, &llm.Request{})
	if len(response.Parts) != 3 || response.Parts[0].Text != "one two" || response.Parts[2].Text != "three" {
		t.Errorf("parts are %+v", response.Parts)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	m := scripted.New(
		scripted.Fail("provider_overloaded", true, "try %s", "later"),
		scripted.RateLimited(7*time.Second),
		scripted.Reply(scripted.Say("half an ans"), scripted.Failing(llm.Error(session.CodeProvider, true, "cut off"))),
		scripted.Reply(scripted.Failing(errors.New("not classified"))),
	)
	var deltas []llm.Delta
	generate := func() error {
		deltas = nil
		response, err := m.Generate(t.Context(), &llm.Request{}, func(d llm.Delta) { deltas = append(deltas, d) })
		if response != nil {
			t.Errorf("a failed reply gave a response: %+v", response)
		}
		return err
	}
	var failure *session.Error
	if err := generate(); !errors.As(err, &failure) || failure.Code != "provider_overloaded" || !failure.Retryable || failure.Message != "try later" {
		t.Errorf("got %#v", err)
	}
	var after *llm.RetryAfterError
	err := generate()
	if !errors.As(err, &after) || after.After != 7*time.Second || !session.IsRetryable(err) {
		t.Errorf("got %#v", err)
	}
	if err := generate(); !errors.Is(err, &session.Error{Code: session.CodeProvider}) || len(deltas) == 0 {
		t.Errorf("got %v after %d deltas, want a provider error in mid-stream", err, len(deltas))
	}
	if err := generate(); err == nil || err.Error() != "not classified" {
		t.Errorf("got %v", err)
	}
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Text("only"))
	ask(t, m, &llm.Request{Agent: "writer"})
	_, err := m.Generate(t.Context(), &llm.Request{Agent: "writer"}, nil)
	if !errors.Is(err, &session.Error{Code: scripted.CodeExhausted}) || session.IsRetryable(err) {
		t.Fatalf("got %#v, want a final %s", err, scripted.CodeExhausted)
	}
	for _, want := range []string{`"writer"`, "reply 2", "has 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %s", err, want)
		}
	}
}

func TestRoutesByAgent(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Text("shared 1"), scripted.Text("shared 2")).
		For("writer", scripted.Text("w1")).
		For("critic", scripted.Text("c1"), scripted.Text("c2")).
		For("writer", scripted.Text("w2"))
	for _, step := range []struct{ agent, want string }{
		{"critic", "c1"}, {"other", "shared 1"}, {"writer", "w1"}, {"critic", "c2"}, {"writer", "w2"}, {"", "shared 2"},
	} {
		response, _ := ask(t, m, &llm.Request{Agent: step.agent})
		if got := content(response); got != step.want {
			t.Errorf("agent %q was told %q, want %q", step.agent, got, step.want)
		}
	}
	m.Check(t)
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		step  scripted.Step
		parts []session.Part // of the partial response; nil if there must be none
	}{
		"before anything":   {scripted.Reply(scripted.Until(nil), scripted.Say("never")), nil},
		"after some text":   {scripted.Reply(scripted.Say("so far"), scripted.Until(nil), scripted.Say(" never")), []session.Part{session.Text("so far")}},
		"while it waits":    {scripted.Reply(scripted.Say("so far"), scripted.Wait(time.Hour)), []session.Part{session.Text("so far")}},
		"in mid-text":       {scripted.Text("abc").WithPieceSize(1).WithPace(time.Minute), []session.Part{session.Text("ab")}},
		"in mid-arguments":  {scripted.Reply(scripted.Say("x"), scripted.Calling("a", `{}`)).WithPieceSize(1).WithPace(time.Minute), []session.Part{session.Text("x")}},
		"after a call":      {scripted.Reply(scripted.Calling("a", `{}`).WithID("p1"), scripted.Until(nil)), []session.Part{{Kind: session.PartToolCall, Tool: "a", ProviderCallID: "p1", Input: json.RawMessage(`{}`)}}},
		"before any pieces": {scripted.Reply(scripted.Say("x"), scripted.Calling("a", `{}`)).WithPace(time.Hour), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
				defer cancel()
				response, err := scripted.New(test.step).Generate(ctx, &llm.Request{}, nil)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got error %v, want ctx's", err)
				}
				if test.parts == nil {
					if response != nil {
						t.Errorf("got %+v, want no response", response.Parts)
					}
					return
				}
				if response == nil {
					t.Fatal("got no partial response")
				}
				got, _ := json.Marshal(response.Parts)
				want, _ := json.Marshal(test.parts)
				if string(got) != string(want) {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		})
	}
}

func TestCancelledBeforeIsNotPlayed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := scripted.New(scripted.Text("kept"))
	if _, err := m.Generate(ctx, &llm.Request{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if response, _ := ask(t, m, &llm.Request{}); content(response) != "kept" {
		t.Errorf("got %q", content(response))
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		reached := make(chan struct{})
		m := scripted.New(scripted.Reply(
			scripted.Wait(time.Minute), scripted.Say("a"),
			scripted.Do(func() { close(reached) }), scripted.Until(open), scripted.Say("b"),
		))
		begin := time.Now()
		go func() {
			<-reached
			if waited := time.Since(begin); waited != time.Minute {
				t.Errorf("waited %s", waited)
			}
			close(open)
		}()
		if response, _ := ask(t, m, &llm.Request{}); content(response) != "ab" {
			t.Errorf("got %q", content(response))
		}
	})
}

func TestByPosition(t *testing.T) {
	t.Parallel()
	script := func() *scripted.Model {
		return scripted.New(scripted.Text("zero"), scripted.Call("a", nil), scripted.Text("two")).ByPosition()
	}
	m := script()
	for _, n := range []int{0, 0, 1, 1, 1, 2, 0} {
		response, _ := ask(t, m, &llm.Request{Messages: transcript(n)})
		if want := []string{"zero", "", "two"}[n]; content(response) != want {
			t.Errorf("position %d: got %q", n, content(response))
		}
	}
	m.Check(t)
	fresh := script()
	if response, _ := ask(t, fresh, &llm.Request{Messages: transcript(2)}); content(response) != "two" {
		t.Errorf("a fresh model at position 2 said %q", content(response))
	}
	if got := fresh.Unused(); len(got) != 2 {
		t.Errorf("unused: %q", got)
	}
	_, err := m.Generate(t.Context(), &llm.Request{Messages: transcript(3)}, nil)
	if !errors.Is(err, &session.Error{Code: scripted.CodeExhausted}) {
		t.Errorf("got %v", err)
	}
}

func TestVary(t *testing.T) {
	t.Parallel()
	m := scripted.New(
		scripted.Reply(scripted.Think("hm"), scripted.Say("hello"), scripted.Calling("a", nil)),
		scripted.Call("b", `{"x":1}`),
		scripted.Reply(),
	).Vary()
	say := func(sessionID string, n int) (string, string) {
		response, deltas := ask(t, m, &llm.Request{SessionID: sessionID, Messages: transcript(n)})
		streamed := ""
		for _, d := range deltas {
			if d.Kind == llm.DeltaText {
				streamed += d.Text
			}
		}
		if streamed != content(response) {
			t.Errorf("streamed %q, answered %q", streamed, content(response))
		}
		if len(response.Parts) == 0 {
			return "", ""
		}
		return content(response), response.Parts[len(response.Parts)-1].ProviderCallID
	}
	seen := map[string]bool{}
	for take, want := range []string{"hello", "hello (take 2)", "hello (take 3)"} {
		got, id := say("s", 0)
		if got != want || seen[id] {
			t.Errorf("take %d: %q, id %q", take+1, got, id)
		}
		seen[id] = true
	}
	if got, _ := say("another", 0); got != "hello" {
		t.Errorf("another session was told %q", got)
	}
	if got, _ := say("s", 1); got != "" {
		t.Errorf("take 1 of a call says %q", got)
	}
	if got, _ := say("s", 1); got != "(take 2)" {
		t.Errorf("take 2 of a call says %q", got)
	}
	for range 2 {
		if got, _ := say("s", 2); got != "" {
			t.Errorf("an empty reply says %q", got)
		}
	}
	later := scripted.New(scripted.Text("hello")).VaryFrom(5)
	if response, _ := ask(t, later, &llm.Request{}); content(response) != "hello (take 5)" {
		t.Errorf("a later process said %q", content(response))
	}
}

func TestTakes(t *testing.T) {
	t.Parallel()
	steps := []scripted.Step{
		scripted.Text("start"),
		scripted.Takes(scripted.Fail(session.CodeProvider, true, "no"), scripted.Text("yes")).WithUsage(session.Usage{InputTokens: 99}),
		scripted.Text("end"),
	}
	sequence := scripted.New(steps...)
	ask(t, sequence, &llm.Request{})
	if _, err := sequence.Generate(t.Context(), &llm.Request{}, nil); err == nil {
		t.Error("the first take did not fail")
	}
	if got := sequence.Unused(); len(got) != 2 || !strings.Contains(got[0], "take 2") {
		t.Errorf("unused: %q", got)
	}
	if response, _ := ask(t, sequence, &llm.Request{}); content(response) != "yes" || response.Usage.InputTokens != 99 {
		t.Errorf("second take: %q, %+v", content(response), response.Usage)
	}
	if response, _ := ask(t, sequence, &llm.Request{}); content(response) != "end" {
		t.Errorf("then: %q", content(response))
	}
	sequence.Check(t)

	positional := scripted.New(steps...).ByPosition()
	if _, err := positional.Generate(t.Context(), &llm.Request{Messages: transcript(1)}, nil); err == nil {
		t.Error("the first take did not fail")
	}
	for range 2 {
		if response, _ := ask(t, positional, &llm.Request{Messages: transcript(1)}); content(response) != "yes" {
			t.Errorf("later takes: %q", content(response))
		}
	}
}

func TestFunc(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Func(func(r *llm.Request) scripted.Step {
		return scripted.Text("you said " + r.Messages[0].Content())
	}).WithFinish(llm.FinishLength))
	response, _ := ask(t, m, &llm.Request{Messages: []session.Message{session.UserText("ping")}})
	if content(response) != "you said ping" || response.Finish != llm.FinishLength {
		t.Errorf("got %q, %q", content(response), response.Finish)
	}
}

func TestHostileReplies(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 10<<20)
	m := scripted.New(
		scripted.Call("search", `{"query":`),
		scripted.Call("no such tool", nil),
		scripted.Text(""),
		scripted.Reply(scripted.Calling("a", nil).WithID("same"), scripted.Calling("b", nil).WithID("same")),
		scripted.Text(huge),
		scripted.Reply(),
		scripted.Reply(scripted.Do(func() { panic("boom") })),
	)
	broken, _ := ask(t, m, &llm.Request{})
	if string(broken.Parts[0].Input) != `{"query":` {
		t.Errorf("arguments were changed to %s", broken.Parts[0].Input)
	}
	ask(t, m, &llm.Request{})
	empty, deltas := ask(t, m, &llm.Request{})
	if len(empty.Parts) != 1 || empty.Parts[0].Text != "" || len(deltas) != 0 {
		t.Errorf("an empty text gave %+v and %d deltas", empty.Parts, len(deltas))
	}
	repeated, _ := ask(t, m, &llm.Request{})
	if repeated.Parts[0].ProviderCallID != "same" || repeated.Parts[1].ProviderCallID != "same" {
		t.Errorf("ids are %+v", repeated.Parts)
	}
	large, _ := ask(t, m, &llm.Request{})
	if content(large) != huge {
		t.Error("a huge text was changed")
	}
	if nothing, _ := ask(t, m, &llm.Request{}); len(nothing.Parts) != 0 {
		t.Errorf("an empty reply has parts: %+v", nothing.Parts)
	}
	defer func() {
		if recover() == nil {
			t.Error("the last step did not panic")
		}
	}()
	ask(t, m, &llm.Request{})
}

func TestRequestsAreCopies(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Text("a"), scripted.Text("b"))
	messages := transcript(0)
	ask(t, m, &llm.Request{Agent: "x", Messages: messages})
	ask(t, m, &llm.Request{Agent: "y"})
	got := m.Requests()
	if len(got) != 2 || got[0].Agent != "x" || got[1].Agent != "y" || got[0].Messages[0].Content() != "continue" {
		t.Fatalf("requests are %+v", got)
	}
	got[0].Messages[0] = session.UserText("changed")
	if m.Requests()[0].Messages[0].Content() != "continue" || messages[0].Content() != "continue" {
		t.Error("changing what Requests returned changed the record")
	}
}

type recorder struct{ failures []string }

func (*recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func TestUnused(t *testing.T) {
	t.Parallel()
	m := scripted.New(
		scripted.Text("played"),
		scripted.Call("search", nil),
		scripted.Func(func(*llm.Request) scripted.Step { return scripted.Reply() }),
		scripted.Fail(session.CodeProvider, false, "boom"),
		scripted.Reply(scripted.Think("x")),
		scripted.Reply(),
	).For("writer", scripted.Text("long "+strings.Repeat("long ", 100)))
	ask(t, m, &llm.Request{})
	r := &recorder{}
	m.Check(r)
	want := []string{
		"step 2 of 6: calls search", "step 3 of 6: a computed reply", `step 4 of 6: fails with "boom"`,
		"step 5 of 6: gives reasoning", "step 6 of 6: an empty reply", `agent "writer": step 1 of 1: says "long`,
	}
	if len(r.failures) != len(want) {
		t.Fatalf("got %q", r.failures)
	}
	for i := range want {
		if !strings.Contains(r.failures[i], want[i]) {
			t.Errorf("%q does not contain %q", r.failures[i], want[i])
		}
	}
}

func TestConcurrentAsks(t *testing.T) {
	t.Parallel()
	const asks = 50
	steps := make([]scripted.Step, asks)
	for i := range steps {
		steps[i] = scripted.Text(fmt.Sprint(i))
	}
	m := scripted.New(steps...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range asks {
		wg.Go(func() {
			response, err := m.Generate(context.Background(), &llm.Request{}, func(llm.Delta) {})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			seen[content(response)] = true
		})
	}
	wg.Wait()
	if len(seen) != asks {
		t.Errorf("%d different replies of %d", len(seen), asks)
	}
	m.Check(t)
}

func TestArgumentsWithoutJSONPanic(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "chan int") {
			t.Errorf("panicked with %q", got)
		}
	}()
	scripted.Call("a", make(chan int))
}
