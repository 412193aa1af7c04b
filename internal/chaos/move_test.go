package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/enginetest"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// TestMove starts a session on the local runtime, where it is suspended on an
// approval, resumes it on Temporal, and continues it on DBOS.
func TestMove(t *testing.T) {
	t.Parallel()
	dir := onPostgres(t)
	db := openFor(t, dir)
	type order struct {
		N int `json:"n"`
	}
	agent := &helix.Agent{
		Name: "clerk", Model: scripted.New(
			scripted.Call("pay", order{1}), scripted.Text("Paid."), scripted.Call("look", order{2}), scripted.Text("Looked."),
		).ByPosition(),
		Tools: []helix.Tool{
			{Name: "pay", Approval: helix.RequireApproval, Execute: helix.Func(func(_ context.Context, _ *helix.Call, in order) (int, error) { return in.N, nil })},
			{Name: "look", ReadOnly: true, Execute: helix.Func(func(_ context.Context, _ *helix.Call, in order) (int, error) { return in.N, nil })},
		},
	}
	on := func(name string, do func(ctx context.Context, rt helix.Runtime) (helix.Run, error)) *helix.Result {
		t.Helper()
		write(t, dir, "runtime", name+" "+runtimes[name](t))
		rt, err := startRuntime(dir, options(db, agent))
		if err != nil {
			t.Fatal(err)
		}
		ctx := eventually.Context(t)
		defer rt.Shutdown(ctx)
		run, err := do(ctx, rt)
		if err != nil {
			t.Fatalf("on %s: %v", name, err)
		}
		result, err := run.Result(ctx)
		if err != nil {
			t.Fatalf("on %s: %v", name, err)
		}
		return result
	}
	const id = "moved"
	result := on("local", func(ctx context.Context, rt helix.Runtime) (helix.Run, error) {
		return rt.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Pay.")})
	})
	if len(result.Pending) != 1 {
		t.Fatalf("the run is %s and waits for %v", result.Status, result.Pending)
	}
	on("temporal", func(ctx context.Context, rt helix.Runtime) (helix.Run, error) {
		call := result.Pending[0]
		if _, err := rt.Submit(ctx, id, helix.Approve(call, helix.User{})); err != nil {
			return nil, err
		}
		return rt.Resume(ctx, id, helix.ResumeOptions{})
	})
	on("dbos", func(ctx context.Context, rt helix.Runtime) (helix.Run, error) {
		return rt.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Look.")})
	})

	messages, err := db.Sessions().AllMessages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the transcript:\n%s", strings.Join(enginetest.Lines(messages), "\n"))
	if roles := rolesOf(messages); roles != "user assistant tool assistant user assistant tool assistant" {
		t.Errorf("the transcript is %s", roles)
	}
	verifyFold(t, db, id, messages)
	runs, err := db.Sessions().Runs(t.Context(), id, session.PageRequest{})
	if err != nil || len(runs.Items) != 3 {
		t.Fatalf("the session has %d runs (%v)", len(runs.Items), err)
	}
	before := ""
	for i, want := range []string{"local", "temporal", "dbos"} {
		run := &runs.Items[i]
		if run.Turn != i+1 || run.Runtime != want || run.PreviousRunID != before {
			t.Errorf("run %d is turn %d on %s after %q, want turn %d on %s after %q", i+1, run.Turn, run.Runtime, run.PreviousRunID, i+1, want, before)
		}
		t.Logf("turn %d: %s on %s, %s", run.Turn, run.Kind, run.Runtime, run.Status)
		before = run.ID
	}
}

// TestMovedDeadline lets the deadline of a call pass that a session waits for, after
// its runtime has been exchanged for another. The new runtime continues it.
func TestMovedDeadline(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"temporal", "dbos", "local"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			dir := onPostgres(t)
			db := openFor(t, dir)
			from := "local"
			if to == from {
				from = "dbos"
			}
			agent := &helix.Agent{
				Name: "clerk", Model: scripted.New(scripted.Call("pick", struct{}{}), scripted.Text("Never mind.")).ByPosition(),
				Tools: []helix.Tool{{Name: "pick", Execute: helix.OnClient[struct{}](), Deadline: time.Second}},
			}
			ctx := eventually.Context(t)
			start := func(name string, opts helix.RuntimeOptions) helix.Runtime {
				write(t, dir, "runtime", name+" "+runtimes[name](t))
				rt, err := startRuntime(dir, opts)
				if err != nil {
					t.Fatal(err)
				}
				return rt
			}
			const id = "moved"
			blind := options(db, agent)
			blind.Sweep = time.Hour // it does not see that the deadline has passed
			rt := start(from, blind)
			result, err := execute(ctx, rt, agent, helix.Input{SessionID: id, Message: helix.UserText("Pick.")})
			if err != nil || !result.Status.Suspended() {
				t.Fatalf("%+v, %v", result, err)
			}
			if err := rt.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			rt = start(to, options(db, agent))
			defer rt.Shutdown(ctx)
			if !until(ctx, func() float64 { return completed(ctx, db, id) }, 1) {
				t.Fatal("no process continued the session")
			}
			runs, err := db.Sessions().Runs(t.Context(), id, session.PageRequest{})
			if err != nil || len(runs.Items) != 2 || runs.Items[1].Runtime != to {
				t.Errorf("the session has the runs %+v (%v)", runs.Items, err)
			}
		})
	}
}

// completed is 1 when the session has completed.
func completed(ctx context.Context, db store.Backend, id string) float64 {
	state, err := db.Sessions().Load(ctx, id)
	if err != nil || state.Status != session.Completed {
		return 0
	}
	return 1
}

func rolesOf(messages []session.Message) string {
	var roles []string
	for i := range messages {
		roles = append(roles, string(messages[i].Role))
	}
	return strings.Join(roles, " ")
}
