package remote_test

import (
	"context"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/session"
)

// TestQuestions has an agent on another server ask for an answer, a confirmation and
// something that is declined.
func TestQuestions(t *testing.T) {
	t.Parallel()
	said := make(chan []helix.Answered, 1)
	ask := helix.Tool{
		Name: "ask", Description: "ask", Asks: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ number) (int, error) {
			switch len(call.Answers()) {
			case 0:
				return 0, helix.AskFor[number](helix.Question{Prompt: "How many?"})
			case 1:
				return 0, helix.Ask(helix.Question{Prompt: "Sign in.", URL: "https://example.com/"})
			case 2:
				return 0, helix.Ask(helix.Question{Prompt: "Why?"})
			}
			said <- call.Answers()
			return len(call.Answers()), nil
		}),
	}
	_, url := serve(t, &helix.Agent{Name: "clerk", Tools: []helix.Tool{ask}, Model: scripted.New(
		scripted.Call("ask", number{3}), scripted.Text("Asked.")).ByPosition()})
	a := &remote.Agent{URL: url, Token: token, Agent: "clerk"}
	boss := bossOf(a.SubAgent())
	rt := newRuntime(t, boss)
	run, err := rt.Execute(t.Context(), boss, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prompt string
		answer func(p session.Pending) helix.Submission
	}{
		{"How many?", func(p session.Pending) helix.Submission { return helix.Reply(p, number{7}, helix.User{ID: "ann"}) }},
		{"Sign in.", func(p session.Pending) helix.Submission { return helix.Reply(p, nil, helix.User{ID: "ann"}) }},
		{"Why?", func(p session.Pending) helix.Submission { return helix.Decline(p, helix.User{ID: "ann"}, "secret") }},
	} {
		res, err := run.Result(t.Context())
		if err != nil || len(res.Pending) != 1 || res.Pending[0].Prompt != c.prompt || res.Pending[0].Kind != session.PendingQuestion {
			t.Fatalf("the run is %+v, %v, want one that asks %q", res, err, c.prompt)
		}
		if out, err := rt.Submit(t.Context(), "s-1", c.answer(res.Pending[0])); err != nil || out.Outcome != helix.SubmitAccepted {
			t.Fatalf("the answer is %+v, %v", out, err)
		}
		if run, err = rt.Resume(t.Context(), "s-1", helix.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := run.Result(t.Context()); err != nil || res.Status != helix.Completed {
		t.Fatalf("the run is %+v, %v", res, err)
	}
	got := <-said
	var n number
	if err := got[0].Decode(&n); err != nil || n.N != 7 || got[1].Answer != nil || got[1].Declined || !got[2].Declined || got[2].Reason != "secret" {
		t.Errorf("the answers there are %+v, %v", got, err)
	}
}
