package engine_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/storetest"
)

// echo is an agent that calls its one tool twice in one reply; ran counts how often
// that ran.
func echo(ran *atomic.Int64) *helix.Agent {
	return &helix.Agent{
		Name:  "echo",
		Model: scripted.New(scripted.Reply(scripted.Calling("echo", struct{}{}), scripted.Calling("echo", struct{}{})), scripted.Text("done")),
		Tools: []helix.Tool{{Name: "echo", Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) {
			ran.Add(1)
			return "ok", nil
		})}},
	}
}

// turn opens a turn of an agent and drives it with handle, to its end.
func turn(t *testing.T, h *engine.Handler, agent *helix.Agent, handle func(machine.Effect) (machine.Result, error)) {
	t.Helper()
	drive(t, openTurn(t, h, agent), handle)
}

// openTurn opens a turn of an agent, whose session is s.
func openTurn(t *testing.T, h *engine.Handler, agent *helix.Agent) *engine.Opened {
	t.Helper()
	if _, err := h.Register(agent); err != nil {
		t.Fatal(err)
	}
	opened, err := h.Open(t.Context(), engine.OpenRequest{
		Kind: session.RunExecute, Agent: agent, SessionID: "s", RunID: "run-1", Input: helix.Input{Message: helix.UserText("hi")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// drive drives a turn with handle, to its end.
func drive(t *testing.T, opened *engine.Opened, handle func(machine.Effect) (machine.Result, error)) {
	t.Helper()
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	for wave != nil {
		var results []machine.Result
		for _, e := range wave {
			r, err := handle(e)
			if err != nil {
				t.Fatalf("%s: %v", e.Key(), err)
			}
			results = append(results, r)
		}
		wave, _ = m.Next(results)
	}
}

// A call whose result cannot be settled is delivered again while it runs: the second
// delivery settles the result, and the tool does not run again. The call is the first
// of two, because the result of a step's last call is written by the step's commit.
func TestUnsettledCallDeliveredTwice(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	faults := storetest.NewFaults(db)
	faults.Fail(func(op storetest.Op) storetest.When {
		if op.Name == "Settle" && op.Nth <= 7 { // as often as one write is tried
			return storetest.Before
		}
		return storetest.Pass
	})
	var ran atomic.Int64
	h := engine.NewHandler(engine.Config{Backend: faults, Runtime: "test"})
	turn(t, h, echo(&ran), func(e machine.Effect) (machine.Result, error) {
		if e.Kind != machine.CallTool || ran.Load() > 0 {
			return h.Handle(t.Context(), e)
		}
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := h.Handle(t.Context(), e); !session.IsRetryable(err) {
				t.Errorf("the first delivery: %v", err)
			}
		})
		eventually.Poll(t, "the first is at it", func() bool { return ran.Load() > 0 })
		defer first.Wait()
		return h.Handle(t.Context(), e)
	})
	messages, err := db.Sessions().AllMessages(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool && string(m.Parts[0].ResultJSON()) != `"ok"` {
			t.Errorf("the model was told %s", m.Parts[0].ResultJSON())
		}
	}
	if ran.Load() != 2 {
		t.Errorf("the tool ran %d times for 2 calls", ran.Load())
	}
}

// panicking is a backend whose first commit panics.
type panicking struct {
	store.Backend
	once sync.Once
}

func (p *panicking) Commit(ctx context.Context, c *store.Commit) (*session.Committed, int64, error) {
	p.once.Do(func() { panic("a fault of the store") })
	return p.Backend.Commit(ctx, c)
}

// A store that panics fails the run; it does not hang it.
func TestCommitThatPanics(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	ctx := eventually.Context(t)
	h := engine.NewHandler(engine.Config{Backend: &panicking{Backend: db}, Runtime: "test"})
	turn(t, h, echo(new(atomic.Int64)), func(e machine.Effect) (machine.Result, error) { return h.Handle(ctx, e) })
	state, err := db.Sessions().Load(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if state.Status != session.Failed || !errors.Is(state.Error, session.ErrInternal) {
		t.Errorf("the session is %s: %v", state.Status, state.Error)
	}
}

// finishing is an extension that counts how often it is asked for tasks after a run.
type finishing struct{ asked atomic.Int64 }

func (f *finishing) Name() string { return "finishing" }

func (f *finishing) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (f *finishing) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	f.asked.Add(1)
	return []session.Task{{Kind: "k"}}, nil
}

// An effect whose last commit fails is delivered again: extensions are not asked again for
// the tasks of the run, whether it suspends, completes, fails or is stopped.
func TestTasksOfCommitThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step   scripted.Step
		commit int // the run's last commit
		stop   bool
	}{
		"suspends":  {scripted.Call("choose", struct{}{}), 2, false},
		"completes": {scripted.Text("done"), 1, false},
		"fails":     {scripted.Fail("provider_error", false, "no"), 1, false},
		"stopped":   {scripted.Text("done"), 1, true},
		"calls":     {scripted.Call("finish", struct{}{}), 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := storetest.NewFaults(memory.New(memory.Config{}))
			faults.Fail(func(op storetest.Op) storetest.When {
				if op.Name == "Commit" && op.Nth >= c.commit && op.Nth < c.commit+10 { // more often than one write is tried
					return storetest.Before
				}
				return storetest.Pass
			})
			x := &finishing{}
			agent := &helix.Agent{
				Name: "agent", Model: scripted.New(c.step), Extensions: []helix.Extension{x},
				Tools: []helix.Tool{
					{Name: "choose", Execute: helix.OnClient[struct{}]()},
					{Name: "finish", FinishWith: true, Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (int, error) { return 1, nil })},
				},
			}
			h := engine.NewHandler(engine.Config{Backend: faults, Runtime: "test"})
			tried := 0
			turn(t, h, agent, func(e machine.Effect) (machine.Result, error) {
				if c.stop {
					h.Signal(e.RunID, session.Stop{RunID: e.RunID, Kind: session.StopInterrupt})
				}
				r, err := h.Handle(t.Context(), e)
				for ; session.IsRetryable(err) && tried < 10; tried++ {
					r, err = h.Handle(t.Context(), e)
				}
				return r, err
			})
			if tried == 0 || x.asked.Load() != 1 {
				t.Errorf("the extension was asked %d times, and an effect was repeated %d times", x.asked.Load(), tried)
			}
		})
	}
}

// A call that was approved is carried out once, though the claim with which it begins was
// applied and its answer lost: no other turn can have begun it.
func TestApprovedCallWhoseClaimIsLost(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	faults := storetest.NewFaults(db)
	var lost atomic.Int64
	faults.Fail(func(op storetest.Op) storetest.When {
		if op.Name == "Claim" && lost.Add(1) <= 9 { // more often than one write is tried
			return storetest.After
		}
		return storetest.Pass
	})
	var ran atomic.Int64
	agent := echo(&ran)
	agent.Tools[0].Approval = helix.RequireApproval
	h := engine.NewHandler(engine.Config{Backend: faults, Runtime: "test"})
	handle := func(e machine.Effect) (r machine.Result, err error) {
		for range 10 { // as runtimes do
			if r, err = h.Handle(t.Context(), e); !session.IsRetryable(err) {
				return r, err
			}
		}
		return r, err
	}
	turn(t, h, agent, handle)
	key := session.Key{Tenant: session.DefaultTenant, ID: "s"}
	pending, err := h.Waiting(t.Context(), key)
	if err != nil || len(pending) != 2 {
		t.Fatalf("%d calls wait: %v", len(pending), err)
	}
	for i := range pending {
		if _, err := h.Submit(t.Context(), key, helix.Approve(pending[i], helix.User{ID: "ann"})); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := h.Open(t.Context(), engine.OpenRequest{Kind: session.RunResume, Agent: agent, SessionID: "s", RunID: "run-2"})
	if err != nil {
		t.Fatal(err)
	}
	drive(t, opened, handle)
	messages, err := db.Sessions().AllMessages(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if last := messages[len(messages)-1]; ran.Load() != 2 || lost.Load() <= 9 || last.Parts[0].Text != "done" {
		t.Errorf("the tool ran %d times for 2 calls, after %d claims; the reply is %q", ran.Load(), lost.Load(), last.Parts[0].Text)
	}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool && string(m.Parts[0].ResultJSON()) != `"ok"` {
			t.Errorf("the model was told %s: %v", m.Parts[0].ResultJSON(), m.Parts[0].Error)
		}
	}
}
