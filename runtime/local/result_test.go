package local_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// unreadable is a backend whose records of runs cannot be read for some times.
type unreadable struct {
	store.Backend
	times   atomic.Int64
	skipped atomic.Int64 // reads that succeed before that
}

func (u *unreadable) Sessions() session.Store { return unreadableSessions{u.Backend.Sessions(), u} }

type unreadableSessions struct {
	session.Store
	u *unreadable
}

func (s unreadableSessions) Tenant(name string) session.Store {
	return unreadableSessions{s.Store.Tenant(name), s.u}
}

func (s unreadableSessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	if s.u.skipped.Add(-1) < 0 && s.u.times.Add(-1) >= 0 {
		return nil, session.ErrUnavailable
	}
	return s.Store.Run(ctx, id, runID)
}

// A store that is away for a moment does not end the wait for a result; one that stays away does.
func TestResultOfAnUnreadableStore(t *testing.T) {
	t.Parallel()
	db := &unreadable{Backend: memory.New(memory.Config{})}
	sign := helix.Tool{Name: "sign", Approval: helix.RequireApproval, Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) {
		return "signed", nil
	})}
	agent := &helix.Agent{Name: "clerk", Tools: []helix.Tool{sign}, Model: scripted.New(scripted.Call("sign", struct{}{}), scripted.Text("Hello!"))}
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Submit(t.Context(), "s", helix.Approve(res.Pending[0], helix.User{ID: "ann"})); err != nil {
		t.Fatal(err)
	}
	if run, err = rt.Resume(t.Context(), "s", helix.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	res, err = run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	total := res.Usage
	for skipped := range int64(2) { // the run, or the one that it continues, whose usage is part of the result
		db.times.Store(3)
		db.skipped.Store(skipped)
		if res, err := run.Result(t.Context()); err != nil || res.Text != "Hello!" || res.Usage != total {
			t.Errorf("%d read: got %+v, %v", skipped, res, err)
		}
		db.times.Store(1000)
		db.skipped.Store(skipped)
		if res, err := run.Result(t.Context()); !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("%d read: got %+v, %v", skipped, res, err)
		}
		db.times.Store(0)
	}
}
