package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// deaf is a client whose workflows are never started.
type deaf struct{ client.Client }

func (d deaf) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	fmt.Println("opened")
	select {} // until the process is killed
}

// beginner opens a turn on Temporal and comes no further.
func beginner(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	raw, err := os.ReadFile(filepath.Join(dir, "runtime"))
	if err != nil {
		return err
	}
	words := strings.Fields(string(raw))
	c, err := dialTemporal(words[1])
	if err != nil {
		return err
	}
	agent := fleetAgent(dir)
	cfg := temporalConfig(deaf{c}, words[2], db, agent)
	cfg.NoWorker = true
	rt, err := temporal.New(cfg)
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	_, err = rt.Execute(ctx, agent, helix.Input{SessionID: killSession, RequestID: "the-request", Message: helix.UserText("Work.")})
	return err
}

// TestNeverStarted kills a process between the opening of a turn and the start of its
// workflow. The turn is run, once.
func TestNeverStarted(t *testing.T) {
	t.Parallel()
	dir := onPostgres(t)
	address := testserver.Temporal(t)
	write(t, dir, "runtime", "temporal "+address+" "+t.Name())
	end(t, dir) // with its first reply
	c := startChild(t, "beginner", dir)
	if line := c.line(); line != "opened" {
		t.Fatalf("the beginner said %q", line)
	}
	c.kill()
	db := openFor(t, dir)
	run, err := db.Sessions().CurrentRun(t.Context(), killSession)
	if err != nil || run.Status != session.RunRunning {
		t.Fatalf("the turn is not open: %+v, %v", run, err)
	}
	heir := startChild(t, "fleet", dir)
	for line := heir.line(); line != "ended completed <nil>"; line = heir.line() {
		if line != "running" {
			t.Fatalf("the heir said %q", line)
		}
	}
	messages, err := db.Sessions().AllMessages(t.Context(), killSession)
	if err != nil || len(messages) != 2 {
		t.Errorf("the session has %d messages (%v)", len(messages), err)
	}
	runs, err := db.Sessions().Runs(t.Context(), killSession, session.PageRequest{})
	if err != nil || len(runs.Items) != 1 || runs.Items[0].ID != run.ID {
		t.Errorf("the session has the runs %+v (%v)", runs.Items, err)
	}
}

// TestTemporalRestarted kills the Temporal server under running turns, and starts it
// again. All complete.
func TestTemporalRestarted(t *testing.T) {
	t.Parallel()
	server := testserver.StartTemporal(t)
	c, err := dialTemporal(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	dir := onPostgres(t)
	steps := 3
	if soak() {
		steps = 20
	}
	o := openOffice(t, 50, steps, func() (store.Backend, error) { return open(dir) })
	o.runtime = func(db store.Backend, agent *helix.Agent) (executor, error) {
		return startTemporal(c, "restarted", db, agent)
	}
	o.work(func(ctx context.Context, done func() float64) bool {
		if !until(ctx, done, 0.3) {
			return false
		}
		server.Kill()
		time.Sleep(2 * silence) // the server is away for longer than a process may be silent
		server.Start()
		t.Logf("the server was restarted after %.0f %% of the work", 100*done())
		return false
	})
	t.Logf("all are done; %d payments were cut off", o.verify(o.backends[0]))
}
