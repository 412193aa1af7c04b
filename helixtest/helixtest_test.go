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
		"into []int": func(t helixtest.TB) {
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

// clerk waits for people in each of the ways there are.
func clerk() *helix.Agent {
	type order struct {
		Order int `json:"order"`
	}
	refund := helix.Tool{
		Name: "refund", Description: "Refund an order.", Approval: helix.RequireApproval,
		Approver: func(_ context.Context, a *helix.Answer) error {
			if a.By.ID == "intern" {
				return errors.New("not an intern")
			}
			return nil
		},
		Execute: helix.Func(func(context.Context, *helix.Call, order) (string, error) { return "refunded", nil }),
	}
	return &helix.Agent{Name: "clerk", Tools: []helix.Tool{
		refund, {Name: "sign", Description: "Have it signed.", Execute: helix.OnClient[order]()},
	}}
}

func TestResume(t *testing.T) {
	t.Parallel()
	m := scripted.New(
		scripted.Reply(
			scripted.Calling("refund", map[string]int{"order": 1}), scripted.Calling("refund", map[string]int{"order": 2}),
			scripted.Calling("sign", map[string]int{"order": 3}), scripted.Calling("sign", map[string]int{"order": 4}),
		),
		scripted.Text("Done."),
	)
	res := helixtest.Run(t, clerk(), helixtest.With(m), "Hi!", helixtest.User(helix.User{ID: "u", Tenant: "acme"}))
	if !res.Status.Suspended() || len(res.Pending) != 4 {
		t.Fatalf("the run is %s with %d calls that wait", res.Status, len(res.Pending))
	}
	intern := helixtest.Approve("refund").By(helix.User{ID: "intern", Tenant: "acme"})
	if err := helixtest.Submit(t, res, intern); !errors.Is(err, helix.ErrNotAllowed) {
		t.Errorf("the intern's approval: %v", err)
	}
	res = helixtest.Resume(t, res, helixtest.Approve("refund"), helixtest.Reply("sign", "yes"))
	if !res.Status.Suspended() || len(res.Pending) != 2 {
		t.Fatalf("the run is %s with %d calls that wait", res.Status, len(res.Pending))
	}
	if err := helixtest.Submit(t, res, helixtest.Fail("sign", "no pen")); err != nil {
		t.Error(err)
	}
	res = helixtest.Resume(t, res, helixtest.Deny("refund", "too much"))
	if res.Status != helix.Completed || res.Text != "Done." || len(res.Calls) != 4 {
		t.Fatalf("the run is %s, says %q, and made %d calls", res.Status, res.Text, len(res.Calls))
	}
	refunds, signs := res.CallsOf("refund"), res.CallsOf("sign")
	if string(refunds[0].Output) != `"refunded"` || !strings.Contains(refunds[1].Error.Error(), "too much") {
		t.Errorf("the refunds are %s and %v", refunds[0].Output, refunds[1].Error)
	}
	if string(signs[0].Output) != `"yes"` || !strings.Contains(signs[1].Error.Error(), "no pen") {
		t.Errorf("the signatures are %s and %v", signs[0].Output, signs[1].Error)
	}
	next := helixtest.Run(t, clerk(), helixtest.With(scripted.New(scripted.Text("Hello."))), "Hi again!", helixtest.Continue(res))
	if next.Text != "Hello." || len(next.Messages) != 9 || len(next.Calls) != 0 {
		t.Errorf("the next turn says %q, after %d messages, with %d calls", next.Text, len(next.Messages), len(next.Calls))
	}
}

func TestResumeMistakesAreNamed(t *testing.T) {
	t.Parallel()
	m := scripted.New(scripted.Call("sign", map[string]int{"order": 3}), scripted.Text("Done."), scripted.Text("Left over."))
	res := helixtest.Run(t, clerk(), helixtest.With(m), "Hi!")
	r := &recorder{T: t}
	helixtest.Resume(r, res, helixtest.Approve("refund"))
	_ = helixtest.Submit(r, res, helixtest.Deny("refund", ""))
	helixtest.Resume(r, res)
	res = helixtest.Resume(r, res, helixtest.Reply("sign", true))
	helixtest.Resume(r, res, helixtest.Reply("sign", true))
	r.saw(t,
		"no call of refund waits for an answer; these do: sign", "these do: sign", "waiting for 1 answer", "step 3 of 3",
		"no call waits for an answer: the run is completed")
}

// TestWithModel gives models to the agents below, which may call each other in a circle.
func TestWithModel(t *testing.T) {
	t.Parallel()
	boss, clerk := &helix.Agent{Name: "boss"}, &helix.Agent{Name: "clerk"}
	boss.SubAgents, clerk.Companions = []helix.SubAgent{{Agent: clerk}}, []helix.Companion{{Agent: boss}}
	script := func() *scripted.Model {
		return scripted.New(scripted.Call("subagent__clerk", map[string]string{"task": "file it"}), scripted.Text("Done."))
	}
	res := helixtest.Run(t, boss, helixtest.With(script()), "File this.", helixtest.WithModel("clerk", scripted.New(scripted.Text("Filed."))))
	if calls := res.CallsOf("subagent__clerk"); res.Text != "Done." || len(calls) != 1 || string(calls[0].Output) != `"Filed."` {
		t.Errorf("%s, %+v", res.Text, calls)
	}
	if boss.SubAgents[0].Agent != clerk || clerk.Model != nil || boss.Model != nil {
		t.Error("the agents were changed")
	}
	r := &recorder{T: t}
	helixtest.Run(r, boss, helixtest.With(script()), "File this.", helixtest.WithModel("clerk", scripted.New(scripted.Text("Filed."), scripted.Text("Twice."))))
	r.saw(t, "was not played to its end")
	r = &recorder{T: t}
	helixtest.Run(r, boss, helixtest.With(script()), "File this.", helixtest.WithModel("nobody", script()))
	r.saw(t, `WithModel: boss calls no agent named "nobody"`)
}
