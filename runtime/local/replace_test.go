package local_test

import (
	"context"
	"errors"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// version is a definition of the agent "greeter" that says who it is.
func version(says string) *helix.Agent {
	return &helix.Agent{Name: "greeter", Model: scripted.New(
		scripted.Text(says), scripted.Text(says), scripted.Text(says),
	).ByPosition()}
}

func newRuntime(t *testing.T, agents ...*helix.Agent) *local.Runtime {
	t.Helper()
	rt, err := local.New(local.Config{Backend: memory.New(memory.Config{}), Agents: agents})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Shutdown(context.Background()) })
	return rt
}

func said(t *testing.T, rt *local.Runtime, agent *helix.Agent, id string) string {
	t.Helper()
	run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: id, Message: helix.UserText("hello")})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result.Text
}

func TestReplaceIsForTheNextTurns(t *testing.T) {
	t.Parallel()
	first, second := version("one"), version("two")
	rt := newRuntime(t, first)
	if got := said(t, rt, first, "s"); got != "one" {
		t.Fatalf("it said %q", got)
	}
	if err := rt.Replace(second); err != nil {
		t.Fatal(err)
	}
	// Whoever looked the agent up just before the change is not refused for that.
	for name, agent := range map[string]*helix.Agent{"new": second, "displaced": first} {
		if got := said(t, rt, agent, "s"); got != "two" {
			t.Errorf("%s definition: it said %q", name, got)
		}
	}
	_, err := rt.Execute(t.Context(), version("three"), helix.Input{Message: helix.UserText("hello")})
	if !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a third definition that nobody announced: %v", err)
	}
}

// However often an agent was replaced, who has any of its definitions gets the latest.
func TestReplaceAgain(t *testing.T) {
	t.Parallel()
	first, second, third := version("one"), version("two"), version("three")
	rt := newRuntime(t, first)
	for _, next := range []*helix.Agent{second, third, second} {
		if err := rt.Replace(next); err != nil {
			t.Fatal(err)
		}
	}
	for name, agent := range map[string]*helix.Agent{"first": first, "second": second, "third": third} {
		if got := said(t, rt, agent, name); got != "two" {
			t.Errorf("%s definition: it said %q", name, got)
		}
	}
	caller := &helix.Agent{Name: "caller", Model: scripted.New(scripted.Text("done")).ByPosition(), SubAgents: []helix.SubAgent{{Agent: first}}}
	if got := said(t, rt, caller, "caller"); got != "done" {
		t.Errorf("an agent that calls the first definition: it said %q", got)
	}
	if got := said(t, rt, second, "again"); got != "two" {
		t.Errorf("after that: it said %q", got)
	}
}

// waiting is a model that answers when it is let.
type waiting struct {
	asked chan struct{}
	let   chan struct{}
	says  llm.Model
}

func (w *waiting) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	w.asked <- struct{}{}
	select {
	case <-w.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return w.says.Generate(ctx, request, emit)
}

func TestReplaceLeavesARunningTurnAlone(t *testing.T) {
	t.Parallel()
	model := &waiting{asked: make(chan struct{}, 1), let: make(chan struct{}), says: scripted.New(scripted.Text("one"))}
	first := &helix.Agent{Name: "greeter", Model: model}
	rt := newRuntime(t, first)
	run, err := rt.Execute(t.Context(), first, helix.Input{SessionID: "s", Message: helix.UserText("hello")})
	if err != nil {
		t.Fatal(err)
	}
	<-model.asked
	if err := rt.Replace(version("two")); err != nil {
		t.Fatal(err)
	}
	close(model.let)
	result, err := run.Result(t.Context())
	if err != nil || result.Text != "one" {
		t.Fatalf("the turn that ran: %+v, %v", result, err)
	}
	if got := said(t, rt, first, "other"); got != "two" {
		t.Errorf("the next: it said %q", got)
	}
}

func TestReplaceRefusesAllOrNothing(t *testing.T) {
	t.Parallel()
	first := version("one")
	rt := newRuntime(t, first)
	for name, agents := range map[string][]*helix.Agent{
		"one that cannot be used": {version("two"), {Name: "broken"}},
		"two of a name":           {version("two"), version("three")},
		"nil":                     {version("two"), nil},
	} {
		if err := rt.Replace(agents...); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := said(t, rt, first, "s"); got != "one" {
		t.Errorf("it said %q", got)
	}
}
