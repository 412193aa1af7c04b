package helixtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/helixtest"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// recorder is a test that notes what it was failed with.
type recorder struct {
	*testing.T
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

func (r *recorder) saw(t *testing.T, want ...string) {
	t.Helper()
	if len(r.failures) != len(want) {
		t.Fatalf("the test was failed with %q, want %d failures", r.failures, len(want))
	}
	for i := range want {
		if !strings.Contains(r.failures[i], want[i]) {
			t.Errorf("failure %q does not say %q", r.failures[i], want[i])
		}
	}
}

type counter struct {
	Count int `json:"count"`
}

// tally counts calls, emits each count, and refuses to go beyond three.
func tally() *helix.Agent {
	return &helix.Agent{
		Name:  "tally",
		State: helix.StateOf(counter{}),
		Tools: []helix.Tool{{
			Name: "count",
			Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (int, error) {
				n := helix.State[counter](call).Count + 1
				if n > 3 {
					return 0, errors.New("enough")
				}
				helix.Update(call, func(c *counter) { c.Count = n })
				call.Emit("counted", n)
				return n, nil
			}),
		}},
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	agent := tally()
	res := helixtest.Run(t, agent, helixtest.With(scripted.New(
		scripted.Call("count", nil), scripted.Call("count", nil), scripted.Text("Three and four."),
	)), "Count.",
		helixtest.Session("s-1"), helixtest.InitialState(counter{Count: 2}),
		helixtest.User(helix.User{ID: "u-1", Tenant: "acme"}),
		helixtest.Input(func(in *helix.Input) { in.Tags = []string{"demo"} }),
	)
	if res.Status != helix.Completed || res.Text != "Three and four." || res.SessionID != "s-1" {
		t.Errorf("result %+v", res.Result)
	}
	if got := helixtest.State[counter](t, res).Count; got != 3 {
		t.Errorf("state holds %d, want 3", got)
	}
	if len(res.Messages) != 6 {
		t.Errorf("%d messages, want 6", len(res.Messages))
	}
	calls := res.CallsOf("count")
	if len(calls) != 2 || len(res.Calls) != 2 || len(res.CallsOf("other")) != 0 {
		t.Fatalf("calls %+v", res.Calls)
	}
	if string(calls[0].Output) != "3" || calls[0].Error != nil || calls[0].ID == "" {
		t.Errorf("first call %+v", calls[0])
	}
	if calls[1].Output != nil || calls[1].Error == nil || calls[1].Error.Message != "enough" {
		t.Errorf("second call %+v", calls[1])
	}
	if events := res.Events("counted"); len(events) != 1 || string(events[0]) != "3" {
		t.Errorf("events %s", events)
	}
	state, err := res.Backend.Sessions().Tenant("acme").Load(t.Context(), "s-1")
	if err != nil || state.UserID != "u-1" || len(state.Tags) != 1 {
		t.Errorf("session %+v, %v", state, err)
	}
	if agent.Model != nil {
		t.Error("the agent was changed")
	}
	again := helixtest.Run(t, agent, helixtest.With(scripted.New(scripted.Text("Yes."))), "Sure?", helixtest.Continue(res))
	if len(again.Messages) != 8 || len(again.Calls) != 0 {
		t.Errorf("continued: %d messages, %d calls", len(again.Messages), len(again.Calls))
	}
}

func TestRunOnABackendOfTheTest(t *testing.T) {
	t.Parallel()
	backend := memory.New(memory.Config{})
	defer backend.Close()
	helixtest.Run(t, tally(), helixtest.With(scripted.New(scripted.Text("Hi."))), "Hello",
		helixtest.Backend(backend), helixtest.Session("s-1"))
	if ok, err := backend.Sessions().Exists(t.Context(), "s-1"); err != nil || !ok {
		t.Errorf("the session is not in the backend: %v, %v", ok, err)
	}
}

func TestFailedRunIsAResult(t *testing.T) {
	t.Parallel()
	res := helixtest.Run(t, tally(), helixtest.With(scripted.New(
		scripted.Fail(session.CodeProvider, true, "overloaded"), // retried, without the usual wait
		scripted.Fail(session.CodeProvider, false, "no such model"),
	)), "Count.")
	if res.Status != helix.Failed || res.Error.Message != "no such model" {
		t.Errorf("result %+v", res.Result)
	}
	r := &recorder{T: t}
	helixtest.Output[report](r, res)
	r.saw(t, "no such model")
}

func TestScriptMustFit(t *testing.T) {
	t.Parallel()
	r := &recorder{T: t}
	helixtest.Run(r, tally(), helixtest.With(scripted.New(scripted.Text("Hi."), scripted.Text("Never said."))), "Hello")
	r.saw(t, `step 2 of 2: says "Never said."`)

	r = &recorder{T: t}
	helixtest.Run(r, tally(), helixtest.With(scripted.New(scripted.Call("count", nil))), "Hello")
	r.saw(t, `the script is too short: agent "tally" asked for reply 2, but its script has 1`)
}

func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	script := helixtest.With(scripted.New())
	for want, run := range map[string]func(t helixtest.TB){
		"the agent is nil":        func(t helixtest.TB) { helixtest.Run(t, nil, script, "Hello") },
		"tally: Model is not set": func(t helixtest.TB) { helixtest.Run(t, tally(), nil, "Hello") },
		"has an empty text":       func(t helixtest.TB) { helixtest.Run(t, tally(), script, "") },
		"state.other is not a field": func(t helixtest.TB) {
			helixtest.Run(t, tally(), script, "Hello", helixtest.InitialState(map[string]int{"other": 1}))
		},
		"does not fit []int": func(t helixtest.TB) {
			helixtest.State[[]int](t, helixtest.Run(t, tally(), helixtest.With(scripted.New(scripted.Text("Hi."))), "Hello"))
		},
		"has no output": func(t helixtest.TB) {
			helixtest.Output[report](t, helixtest.Run(t, tally(), helixtest.With(scripted.New(scripted.Text("Hi."))), "Hello"))
		},
	} {
		r := &recorder{T: t}
		run(r)
		r.saw(t, want)
	}
}

// A turn that hangs fails the test instead of holding it up.
func TestHangingTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{T: t}
		helixtest.Run(r, tally(), helixtest.With(scripted.New(scripted.Reply(scripted.Until(nil)))), "Hello")
		r.saw(t, "the turn did not end within 1m0s")
	})
}
