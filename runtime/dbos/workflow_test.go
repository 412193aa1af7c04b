package dbos_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// launch starts a runtime that ends with the test.
func (p place) launch(t testing.TB, backend store.Backend, change func(*dbos.Config)) *dbos.Runtime {
	t.Helper()
	cfg := dbos.Config{
		RuntimeOptions: helix.RuntimeOptions{Backend: backend, LeaseTTL: 2 * time.Second, Sweep: 100 * time.Millisecond},
		DatabaseURL:    p.url, Schema: schema, Prefix: p.prefix,
	}
	change(&cfg)
	rt, err := dbos.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, rt) })
	return rt
}

// stop closes a runtime without waiting for its turns.
func stop(t testing.TB, rt *dbos.Runtime) {
	t.Helper()
	if err := rt.Close(); err != nil {
		t.Error(err)
	}
}

// client looks at DBOS's records.
func (p place) client(t testing.TB) transact.Client {
	t.Helper()
	c, err := transact.NewClient(context.Background(), transact.ClientConfig{DatabaseURL: p.url, DatabaseSchema: schema, AppName: p.prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transact.Shutdown(c, time.Minute); err != nil {
			t.Error(err)
		}
	})
	return c
}

// workflows lists workflows as "id STATUS".
func workflows(t testing.TB, c transact.Client) []string {
	t.Helper()
	rows, err := transact.ListWorkflows(c)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range rows {
		out = append(out, rows[i].ID+" "+string(rows[i].Status))
	}
	slices.Sort(out)
	return out
}

func sayer(says ...string) *helix.Agent {
	steps := make([]scripted.Step, len(says))
	for i := range says {
		steps[i] = scripted.Text(says[i])
	}
	return &helix.Agent{Name: "agent", Model: scripted.New(steps...).ByPosition()}
}

// caller is an agent that calls a tool and says so.
func caller(tool helix.Callable) *helix.Agent {
	return &helix.Agent{
		Name: "agent", Tools: []helix.Tool{{Name: "pay", Execute: tool}},
		Model: scripted.New(scripted.Call("pay", struct{}{}), scripted.Text("Done.")).ByPosition(),
	}
}

func begin(t testing.TB, x helix.Executor, agent *helix.Agent, id string) helix.Run {
	t.Helper()
	run, err := x.Execute(t.Context(), agent, helix.Input{SessionID: id, Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func say(t testing.TB, x helix.Executor, agent *helix.Agent, id string) *helix.Result {
	t.Helper()
	return completed(t, begin(t, x, agent, id))
}

// completed waits until a run has completed.
func completed(t testing.TB, run helix.Run) *helix.Result {
	t.Helper()
	ctx := eventually.Context(t)
	res, err := run.Result(ctx)
	if err != nil {
		t.Fatalf("run %s: %v", run.ID(), err)
	}
	if res.Status != helix.Completed {
		t.Fatalf("run %s is %s: %v", run.ID(), res.Status, res.Error)
	}
	return res
}

// onBoth runs a test on Postgres and on SQLite.
func onBoth(t *testing.T, test func(t *testing.T, at place, backend func() store.Backend)) {
	t.Parallel()
	for _, kind := range kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			address := kind.Address(t)
			test(t, newPlace(t, kind, t.TempDir(), session.NewID()), func() store.Backend { return testbackend.Open(t, address) })
		})
	}
}

func TestWorkflows(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		sub := &helix.Agent{Name: "sub", Description: "helps", Model: scripted.New(scripted.Text("Five.")).ByPosition()}
		agent := &helix.Agent{
			Name: "agent", SubAgents: []helix.SubAgent{{Agent: sub}},
			Model: scripted.New(scripted.Call("subagent__sub", map[string]string{"task": "count"}), scripted.Text("It is five."), scripted.Text("Bye.")).ByPosition(),
		}
		rt := at.launch(t, backend(), func(*dbos.Config) {})
		say(t, rt, agent, "s-1")
		say(t, rt, agent, "s-1")
		c := at.client(t)
		got := workflows(t, c)
		want := []string{at.prefix + "__agent__s-1 SUCCESS", at.prefix + "__agent__s-1__turn-2 SUCCESS", at.prefix + "__sub__s-1-sub-"}
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], want[2]) || !strings.HasSuffix(got[2], " SUCCESS") {
			t.Errorf("the workflows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		steps, err := transact.GetWorkflowSteps(c, at.prefix+"__agent__s-1")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range steps {
			_, name, _ := strings.Cut(steps[i].StepName, "/") // the run's id
			if name, _, _ = strings.Cut(name, "/call"); name != "" {
				names = append(names, name)
			}
		}
		// The commit includes the model's next reply.
		if steps := strings.Join(names, " "); steps != "1/model 1/child 1/gather/1 1/commit 2/close" {
			t.Errorf("a turn of two steps with one call has the steps %s", steps)
		}
	})
}

// TestNeverStarted has a process die between opening a turn and starting its
// workflow.
func TestNeverStarted(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		var calls atomic.Int32
		agent := caller(helix.Func(func(context.Context, *helix.Call, struct{}) (int32, error) { return calls.Add(1), nil }))
		dead := engine.NewHandler(engine.Config{Backend: backend(), Runtime: dbos.Name, LeaseTTL: 300 * time.Millisecond})
		if _, err := dead.Register(agent); err != nil {
			t.Fatal(err)
		}
		opened, err := dead.Open(t.Context(), engine.OpenRequest{
			Kind: session.RunExecute, Agent: agent, Tenant: session.DefaultTenant, SessionID: "s-1", RunID: session.NewRunID(),
			Input: helix.Input{Message: helix.UserText("Hi!")},
		})
		if err != nil {
			t.Fatal(err)
		}
		dead.Drop(opened.Run.ID)
		rts := []*dbos.Runtime{}
		for range 2 {
			rts = append(rts, at.launch(t, backend(), func(c *dbos.Config) { c.Agents = []*helix.Agent{agent} }))
		}
		run, err := rts[0].Attach(t.Context(), "s-1")
		if err != nil {
			t.Fatal(err)
		}
		if res := completed(t, run); res.RunID != opened.Run.ID || res.Text != "Done." || calls.Load() != 1 {
			t.Errorf("run %s said %q after %d calls, want run %s and one call", res.RunID, res.Text, calls.Load(), opened.Run.ID)
		}
		c := at.client(t)
		eventually.Poll(t, "one workflow", func() bool { return slices.Equal(workflows(t, c), []string{at.prefix + "__agent__s-1 SUCCESS"}) })
	})
}

// TestExecutorReturns has a process come back under the id of one that has died: it
// does not wait for leases to expire.
func TestExecutorReturns(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		var calls atomic.Int32
		entered := make(chan struct{})
		agent := caller(helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (int32, error) {
			if n := calls.Add(1); n > 1 {
				return n, nil
			}
			close(entered)
			<-ctx.Done()
			return 0, ctx.Err()
		}))
		long := func(id string) func(*dbos.Config) {
			return func(c *dbos.Config) {
				c.Agents, c.LeaseTTL, c.ExecutorID = []*helix.Agent{agent}, time.Hour, id
			}
		}
		mortal, kill := runtimetest.Mortal(backend())
		first := at.launch(t, mortal, long("one"))
		run := begin(t, first, agent, "s-1")
		eventually.Receive(t, "the call in flight", entered)
		kill()
		stop(t, first)
		other := at.launch(t, backend(), long("two"))
		if state, err := other.Attach(t.Context(), "s-1"); err != nil || state.ID() != run.ID() {
			t.Fatalf("the run is %v: %v", state, err)
		}
		at.launch(t, backend(), long("one"))
		run, err := other.Attach(t.Context(), "s-1")
		if err != nil {
			t.Fatal(err)
		}
		completed(t, run)
		if calls.Load() != 1 {
			t.Errorf("a call that may not be repeated was started %d times", calls.Load())
		}
		c := at.client(t)
		eventually.Poll(t, "one workflow", func() bool { return slices.Equal(workflows(t, c), []string{at.prefix + "__agent__s-1 SUCCESS"}) })
	})
}

// TestTamperedWith has an operator cancel or delete the workflow of a turn that runs.
func TestTamperedWith(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		for name, tamper := range map[string]func(c transact.Client, id string) error{
			"cancelled": func(c transact.Client, id string) error { return transact.CancelWorkflow(c, id) },
			"deleted":   func(c transact.Client, id string) error { return transact.DeleteWorkflows(c, []string{id}) },
			"resumed": func(c transact.Client, id string) error {
				_, err := transact.ResumeWorkflow[any](c, id)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				var calls atomic.Int32
				entered, leave := make(chan struct{}), make(chan struct{})
				agent := caller(helix.Func(func(context.Context, *helix.Call, struct{}) (int32, error) {
					n := calls.Add(1)
					close(entered)
					<-leave
					return n, nil
				}))
				rt := at.launch(t, backend(), func(*dbos.Config) {})
				run := begin(t, rt, agent, name)
				eventually.Receive(t, "the call in flight", entered)
				c := at.client(t)
				id := at.prefix + "__agent__" + name
				if err := tamper(c, id); err != nil {
					t.Fatal(err)
				}
				close(leave)
				completed(t, run)
				if calls.Load() != 1 {
					t.Errorf("a call that may not be repeated was started %d times", calls.Load())
				}
				eventually.Poll(t, "the workflow has ended", func() bool { return slices.Contains(workflows(t, c), id+" SUCCESS") })
				stop(t, rt)
			})
		}
	})
}

// TestRetention has DBOS forget turns that have ended.
func TestRetention(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		agent := sayer("Hello!")
		rt := at.launch(t, backend(), func(c *dbos.Config) { c.Retention = 100 * time.Millisecond })
		say(t, rt, agent, "s-1")
		c := at.client(t)
		eventually.Poll(t, "the workflow is deleted", func() bool { return len(workflows(t, c)) == 0 })
	})
}

// TestEndedRun has DBOS forget a turn whose process has died and whose session was
// deleted: nobody will end it.
func TestEndedRun(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		entered := make(chan struct{})
		agent := caller(helix.Func(func(ctx context.Context, _ *helix.Call, _ struct{}) (string, error) {
			close(entered)
			<-ctx.Done()
			return "", ctx.Err()
		}))
		mortal, kill := runtimetest.Mortal(backend())
		rt := at.launch(t, mortal, func(*dbos.Config) {})
		begin(t, rt, agent, "s-1")
		<-entered
		kill()
		_ = rt.Close()
		if _, err := backend().Sessions().Delete(t.Context(), "s-1"); err != nil {
			t.Fatal(err)
		}
		c := at.client(t)
		if rows := workflows(t, c); len(rows) != 1 || !strings.HasSuffix(rows[0], " PENDING") {
			t.Fatalf("the workflows are %q", rows)
		}
		at.launch(t, backend(), func(c *dbos.Config) { c.Retention = 100 * time.Millisecond })
		eventually.Poll(t, "the workflow is deleted", func() bool { return len(workflows(t, c)) == 0 })
	})
}

// TestSmallValues sends large results through a turn: DBOS sees none of them.
func TestSmallValues(t *testing.T) {
	onBoth(t, func(t *testing.T, at place, backend func() store.Backend) {
		const size = 5 << 20
		agent := caller(helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) {
			return strings.Repeat("x", size), nil
		}))
		rt := at.launch(t, backend(), func(c *dbos.Config) { c.MaxResult = 2 * size })
		say(t, rt, agent, "s-1")
		c := at.client(t)
		id := at.prefix + "__agent__s-1"
		rows, err := transact.ListWorkflows(c, transact.WithFilterLoadInput(true), transact.WithFilterLoadOutput(true))
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d workflows: %v", len(rows), err)
		}
		steps, err := transact.GetWorkflowSteps(c, id, transact.WithStepsLoadOutput(true))
		if err != nil {
			t.Fatal(err)
		}
		bytes := len(fmt.Sprint(rows[0].Input, rows[0].Output))
		for i := range steps {
			out := fmt.Sprint(steps[i].Output)
			if !strings.Contains(out, "result") {
				t.Errorf("step %s has the output %q", steps[i].StepName, out)
			}
			bytes += len(steps[i].StepName) + len(out)
		}
		t.Logf("a result of %d bytes leaves %d bytes in %d steps", size, bytes, len(steps))
		if bytes > 4096 {
			t.Errorf("DBOS holds %d bytes", bytes)
		}
	})
}
