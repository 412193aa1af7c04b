package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// muted has a client never start a workflow: it says that it was about to, and waits
// until the process is killed.
func muted(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/StartWorkflowExecution") {
		fmt.Println("opened")
		select {}
	}
	return call(ctx, method, req, reply, c, opts...)
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
	c, err := dialTemporal(words[1], grpc.WithChainUnaryInterceptor(muted))
	if err != nil {
		return err
	}
	agent := fleetAgent(dir)
	cfg := temporalConfig(c, words[2], options(db, agent))
	cfg.NoWorker = slices.Contains(words, "noworker")
	rt, err := temporal.New(cfg)
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	_, err = rt.Execute(ctx, agent, helix.Input{SessionID: killSession, RequestID: "the-request", Message: helix.UserText("Work.")})
	return err
}

// TestNeverStarted kills a process between the opening of a turn and the start of its
// workflow: one that holds the turn's lease, and one that has left the turn to others.
// The turn is run, once.
func TestNeverStarted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"worker", "noworker"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testNeverStarted(t, kind)
		})
	}
}

func testNeverStarted(t *testing.T, kind string) {
	dir := onPostgres(t)
	address := testserver.Temporal(t)
	write(t, dir, "runtime", "temporal "+address+" "+t.Name()+" "+kind)
	end(t, dir) // with its first reply
	c := startChild(t, "beginner", dir)
	if line := c.line(); line != "opened" {
		t.Fatalf("the beginner said %q", line)
	}
	c.kill()
	db := openFor(t, dir)
	endLeases(t, db)
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
// again. All complete. A server of its own costs as much as many other tests, so it takes turns.
func TestTemporalRestarted(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	server := testserver.StartTemporal(t)
	c, err := dialTemporal(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	dir := onPostgres(t)
	sessions, steps := 10, 3
	if testshare.Soak() {
		sessions, steps = 50, 20
	}
	o := openOffice(t, sessions, steps, func() (store.Backend, error) { return open(dir) })
	o.runtime = func(db store.Backend, agent *helix.Agent) (helix.Runtime, error) {
		return temporal.New(temporalConfig(c, "restarted", options(db, agent)))
	}
	o.work(func(ctx context.Context, done func() float64) bool {
		if !until(ctx, done, 0.3) {
			return false
		}
		server.Kill()
		time.Sleep(2 * silence) // waits: the server is away for longer than a process may be silent
		server.Start()
		t.Logf("the server was restarted after %.0f %% of the work", 100*done())
		return false
	})
	t.Logf("all are done; %d payments were cut off", o.verify(o.backends[0]))
}
