package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// hooked is a hook runner over sets of hooks that note their calls, and what they
// logged.
type hooked struct {
	*hookRunner
	calls []string
	log   strings.Builder
}

func newHooked(t *testing.T, sets ...func(h *hooked) *helix.Hooks) *hooked {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	var doc session.CustomState
	h := &hooked{}
	env := userEnv{
		pool: usercode.NewPool(done), limit: newHookLimit(time.Minute), log: slog.New(slog.NewTextHandler(&h.log, nil)),
		attrs: func(more ...any) []any { return more },
		draft: func(earlier ...session.Writes) *userstate.Draft { return userstate.New(&doc, earlier...) },
	}
	env.scope = func(scope *helix.Scope, key string, draft *userstate.Draft) {
		*scope = helix.Scope{Key: key}
		access.BindScope(scope, &draftEnv{draft})
	}
	var hooks []*helix.Hooks
	for _, set := range sets {
		hooks = append(hooks, set(h))
	}
	h.hookRunner = newHookRunner(env, hooks...)
	return h
}

// draftEnv is an environment of user code that has nothing but a draft.
type draftEnv struct{ draft *userstate.Draft }

func (e *draftEnv) Draft() *userstate.Draft                      { return e.draft }
func (e *draftEnv) Emit(string, json.RawMessage)                 {}
func (e *draftEnv) EmitOwn(string, json.RawMessage)              {}
func (e *draftEnv) RecordUsage(string, float64, json.RawMessage) {}
func (e *draftEnv) View() []session.Message                      { return nil }
func (e *draftEnv) PutBlob(context.Context, []byte) (string, error) {
	return "", session.ErrNotSupported
}

func (e *draftEnv) Blob(context.Context, string) ([]byte, error) { return nil, session.ErrNotSupported }

// noting is a set whose hooks note their calls under a name and append it to the
// state; those in fails fail after that.
func noting(name string, fails ...string) func(h *hooked) *helix.Hooks {
	return func(h *hooked) *helix.Hooks {
		note := func(kind string, c *helix.HookContext) error {
			h.calls = append(h.calls, name+"."+kind+" "+c.Key)
			helix.Append(c, "log", name+"."+kind)
			switch {
			case slices.Contains(fails, kind):
				return errors.New(name + " refuses")
			case slices.Contains(fails, kind+" panics"):
				panic(name + " panics")
			}
			return nil
		}
		return &helix.Hooks{
			OnMessage: func(_ context.Context, c *helix.HookContext, _ helix.MessageEvent) error { return note("OnMessage", c) },
			BeforeTool: func(_ context.Context, c *helix.HookContext, _ helix.BeforeToolEvent) error {
				return note("BeforeTool", c)
			},
			AfterTool: func(_ context.Context, c *helix.HookContext, _ helix.AfterToolEvent) error {
				return note("AfterTool", c)
			},
			AfterSubAgent: func(_ context.Context, c *helix.HookContext, _ helix.AfterToolEvent) error {
				return note("AfterSubAgent", c)
			},
			OnStateChange: func(_ context.Context, c *helix.HookContext, _ helix.StateChangeEvent) error {
				return note("OnStateChange", c)
			},
			OnAgentStart: func(_ context.Context, c *helix.HookContext, _ helix.AgentStartEvent) error {
				return note("OnAgentStart", c)
			},
			OnAgentResumed: func(_ context.Context, c *helix.HookContext, _ helix.AgentResumedEvent) error {
				return note("OnAgentResumed", c)
			},
			OnAgentComplete: func(_ context.Context, c *helix.HookContext, _ helix.AgentCompleteEvent) error {
				return note("OnAgentComplete", c)
			},
			OnAgentFail: func(_ context.Context, c *helix.HookContext, _ helix.AgentFailEvent) error {
				return note("OnAgentFail", c)
			},
			OnAgentSuspended: func(_ context.Context, c *helix.HookContext, _ helix.AgentSuspendedEvent) error {
				return note("OnAgentSuspended", c)
			},
		}
	}
}

// state is the log that hooks wrote.
func state(t *testing.T, writes session.Writes) string {
	t.Helper()
	var doc session.CustomState
	if err := doc.Apply(writes); err != nil {
		t.Fatal(err)
	}
	raw, err := doc.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Sets are called in their order, and each sees what those before it wrote; what one
// that fails wrote is dropped, and that alone.
func TestHooksObserve(t *testing.T) {
	t.Parallel()
	h := newHooked(t, noting("a"), noting("b", "OnMessage"), noting("c", "OnMessage panics"), noting("d"))
	h.onMessage(t.Context(), "k", session.UserText("hi"))
	if got, want := fmt.Sprint(h.calls), "[a.OnMessage k b.OnMessage k c.OnMessage k d.OnMessage k]"; got != want {
		t.Errorf("called were %s, want %s", got, want)
	}
	if got := state(t, h.written); got != `{"log":["a.OnMessage","d.OnMessage"]}` {
		t.Errorf("they wrote %s", got)
	}
	for _, want := range []string{"hook.failed", "b refuses", "c panics", "stack="} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, h.log.String())
		}
	}
}

// The first hook that refuses a call vetoes it; the others are called all the same.
func TestHooksVeto(t *testing.T) {
	t.Parallel()
	h := newHooked(t, noting("a"), noting("b", "BeforeTool"), noting("c", "BeforeTool"))
	draft := h.draft()
	err := h.beforeTool(t.Context(), "k", &call{}, draft)
	if e := session.AsError(err); err == nil || e.Code != session.CodeToolVetoed || !strings.Contains(err.Error(), "b refuses") || len(h.calls) != 3 {
		t.Errorf("%v after %v", err, h.calls)
	}
	if _, err := draft.Close(); err != nil {
		t.Error(err)
	}
}

// A call of a client tool that is vetoed becomes one that is rejected.
func TestHooksVetoClientTools(t *testing.T) {
	t.Parallel()
	h := newHooked(t, noting("a", "BeforeTool"))
	f := &flight{step: 2, calls: []*call{
		{Call: session.Call{ID: "c1", Kind: session.CallServer}}, {Call: session.Call{ID: "c2", Kind: session.CallClient}},
	}}
	h.beforeClientTools(t.Context(), "run", f)
	if got := fmt.Sprint(h.calls); got != "[a.BeforeTool run/2/tool/c2]" {
		t.Errorf("called were %s", got)
	}
	if c := f.calls[1]; c.Kind != session.CallServer || c.Rejected == nil || c.Rejected.Code != session.CodeToolVetoed {
		t.Errorf("the call is %s, rejected with %v", c.Kind, c.Rejected)
	}
}

// OnMessage comes before AfterTool, for every kind of call; a call that was not
// carried out has no AfterTool.
func TestHooksAfterCall(t *testing.T) {
	t.Parallel()
	denied := &settled{err: toolError(session.CodeToolDenied, "no")}
	for name, c := range map[string]struct {
		call *call
		want string
	}{
		"a tool":          {&call{Call: session.Call{ID: "c", Kind: session.CallServer}, settled: &settled{}}, "[a.OnMessage k/c a.AfterTool k/c]"},
		"a finish call":   {&call{Call: session.Call{ID: "c", Kind: session.CallFinish}, settled: &settled{}}, "[a.OnMessage k/c]"},
		"a denied call":   {&call{Call: session.Call{ID: "c", Kind: session.CallApproval}, settled: denied}, "[a.OnMessage k/c]"},
		"a sub-agent":     {&call{Call: session.Call{ID: "c", Kind: session.CallSubAgent}, settled: &settled{}}, "[a.OnMessage k/c a.AfterSubAgent k/c]"},
		"a spawned agent": {&call{Call: session.Call{ID: "c", Kind: session.CallCompanion, Tool: helix.SpawnAgentTool}, settled: &settled{}}, "[a.OnMessage k/c a.AfterSubAgent k/c]"},
		"a list of them":  {&call{Call: session.Call{ID: "c", Kind: session.CallCompanion, Tool: helix.ListChildrenTool}, settled: &settled{}}, "[a.OnMessage k/c]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHooked(t, noting("a"))
			h.afterCall(t.Context(), "k", c.call, nil)
			if got := fmt.Sprint(h.calls); got != c.want {
				t.Errorf("called were %s, want %s", got, c.want)
			}
		})
	}
}

// Which hook hears of a run's beginning and end.
func TestHooksOfARun(t *testing.T) {
	t.Parallel()
	for kind, want := range map[session.RunKind]string{
		session.RunExecute: "[a.OnAgentStart r/open]", session.RunResume: "[a.OnAgentResumed r/open]", session.RunRetry: "[a.OnAgentResumed r/open]",
	} {
		h := newHooked(t, noting("a"))
		h.runStarted(t.Context(), &session.Run{ID: "r", Kind: kind}, nil)
		if got := fmt.Sprint(h.calls); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	for status, want := range map[session.RunStatus]string{
		session.RunCompleted: "[a.OnAgentComplete r/close]", session.RunFailed: "[a.OnAgentFail r/close]",
		session.RunSuspendedClientTool: "[a.OnAgentSuspended r/close]", session.RunInterrupted: "[]",
	} {
		h := newHooked(t, noting("a"))
		h.runEnded(t.Context(), &session.Run{ID: "r"}, &session.Outcome{Status: status}, 1, 0)
		if got := fmt.Sprint(h.calls); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}

// A turn without hooks costs nothing.
func TestNoHooks(t *testing.T) {
	t.Parallel()
	h := newHooked(t, func(*hooked) *helix.Hooks { return nil }, func(*hooked) *helix.Hooks { return &helix.Hooks{} })
	if !h.none() {
		t.Error("sets without hooks are kept")
	}
}
