package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/helixtest"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/router"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// named is a model that says its name in its answers.
type named struct {
	llm.Model
	name string
}

func (n named) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	response, err := n.Model.Generate(ctx, request, emit)
	if response != nil {
		response.Model = n.name
	}
	return response, err
}

func ask(t *testing.T, m llm.Model) (string, string, error) {
	t.Helper()
	var said strings.Builder
	request := &llm.Request{SessionID: "s", RunID: "r", Step: 1, Messages: []session.Message{session.UserText("Hi!")}}
	response, err := m.Generate(t.Context(), request, func(d llm.Delta) { said.WriteString(d.Text) })
	if err != nil {
		return "", said.String(), err
	}
	return response.Model, said.String(), nil
}

func TestFallsBack(t *testing.T) {
	t.Parallel()
	broken := func(code session.Code, retryable bool) llm.Model {
		return named{scripted.New(scripted.Fail(code, retryable, "no")), "broken"}
	}
	well := func() llm.Model { return named{scripted.New(scripted.Text("Hello.")), "well"} }
	for _, c := range []struct {
		name  string
		first llm.Model
		want  string
		code  session.Code
	}{
		{"the first answers", named{scripted.New(scripted.Text("Hello.")), "first"}, "first", ""},
		{"a key that is refused", broken("provider_auth", false), "well", ""},
		{"too long a prompt", broken("provider_context_length", false), "well", ""},
		{"what may pass, when the caller does not ask again", broken(session.CodeRateLimited, true), "well", ""},
		{"content is content", broken(session.CodeContentFilter, false), "", session.CodeContentFilter},
		{"not a provider's fault", broken(session.CodeInternal, false), "", session.CodeInternal},
	} {
		model, said, err := ask(t, router.New(c.first, well()))
		if model != c.want || (c.want != "" && said != "Hello.") {
			t.Errorf("%s: %q answered %q, %v", c.name, model, said, err)
		}
		if c.code != "" && !errors.Is(err, &session.Error{Code: c.code}) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	only := router.New(broken("provider_auth", false), broken("provider_auth", false)).When(func(error) bool { return true })
	if _, _, err := ask(t, only); session.IsRetryable(err) || err == nil {
		t.Errorf("the last one's failure is %v", err)
	}
}

// An outage outlives the retries: then the next model answers, also where the last attempt
// had said something before it failed.
func TestFallsBackAfterRetries(t *testing.T) {
	t.Parallel()
	for _, code := range []session.Code{session.CodeRateLimited, session.CodeOverloaded, session.CodeProviderDown} {
		down := &outage{err: llm.Error(code, true, "try later").WithCause(&llm.RetryAfterError{After: time.Millisecond}, "try later")}
		well := named{scripted.New(scripted.Text("Hello.")), "well"}
		res := helixtest.Run(t, &helix.Agent{Name: "a"}, helixtest.With(router.New(down, well)), "Hi!")
		if res.Status != helix.Completed || res.Text != "Hello." {
			t.Fatalf("%s: it is %s: %q %v", code, res.Status, res.Text, res.Error)
		}
		if asked := down.asked.Load(); asked != 3 {
			t.Errorf("%s: the first model was asked %d times", code, asked)
		}
	}
	// Without retries the next one is asked at once.
	down := &outage{err: llm.Error(session.CodeProviderDown, true, "refused"), quiet: true}
	if model, _, err := ask(t, router.New(down, named{scripted.New(scripted.Text("Hello.")), "well"})); model != "well" {
		t.Errorf("%q answered, %v", model, err)
	}
}

// outage is a model that begins to speak and fails.
type outage struct {
	err   error
	quiet bool
	asked atomic.Int64
}

func (o *outage) Generate(_ context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	o.asked.Add(1)
	if !o.quiet {
		emit(llm.Delta{Kind: llm.DeltaText, Text: "Well, "})
	}
	return nil, o.err
}

// A model that fails in the middle of its reply has what it said taken back before
// the next one answers, and the run tells who did.
func TestFallsBackInMidReply(t *testing.T) {
	t.Parallel()
	broken := named{scripted.New(scripted.Reply(scripted.Say("Well, "),
		scripted.Failing(llm.Error("provider_bad_request", false, "no more")))), "broken"}
	well := named{scripted.New(scripted.Text("Hello.")), "well"}
	res := helixtest.Run(t, &helix.Agent{Name: "a"}, helixtest.With(router.New(broken, well)), "Hi!")
	if res.Status != helix.Completed || res.Text != "Hello." {
		t.Fatalf("it is %s: %q %v", res.Status, res.Text, res.Error)
	}
	discarded := false
	for _, c := range res.Chunks {
		discarded = discarded || c.Kind == stream.StepDiscarded
	}
	if got := stream.Fold(res.SessionID, res.Chunks); !discarded || len(got) != 2 || got[1].Content() != "Hello." {
		t.Errorf("the stream folds to %+v", got)
	}
}

func ExampleNew() {
	busy := scripted.New(scripted.Fail("provider_auth", false, "the key was refused"))
	spare := scripted.New(scripted.Text("Here I am."))
	model := router.New(busy, spare)
	response, err := model.Generate(context.Background(), &llm.Request{
		Messages: []session.Message{session.UserText("Anybody?")},
	}, func(llm.Delta) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.Parts[0].Text)
	// Output: Here I am.
}

// knows is a model that knows its window, and counts.
type knows struct {
	llm.Model
	window, count int
}

func (k knows) Window() int { return k.window }

func (k knows) Count(context.Context, *llm.Request) (int, error) { return k.count, nil }

// The window is the smallest that is known: a prompt must fit whichever model is called. The
// model that is called first counts.
func TestWindowAndCount(t *testing.T) {
	t.Parallel()
	plain := scripted.New()
	r := router.New(knows{plain, 300, 7}, plain, knows{plain, 100, 8}, router.New(knows{plain, 200, 9}))
	if got := llm.WindowOf(r); got != 100 {
		t.Errorf("the window is %d", got)
	}
	if n, err := llm.CountTokens(t.Context(), r, &llm.Request{}); n != 7 || err != nil {
		t.Errorf("counted %d: %v", n, err)
	}
	if got := llm.WindowOf(router.New(plain, plain)); got != 0 {
		t.Errorf("the window of models that do not know theirs is %d", got)
	}
	if _, err := llm.CountTokens(t.Context(), router.New(plain, knows{plain, 1, 1}), &llm.Request{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a model that cannot count: %v", err)
	}
}
