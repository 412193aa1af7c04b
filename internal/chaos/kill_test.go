package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/local"
)

const killSession = "long"

// workerAgent is a clerk that works until the file "enough" exists and says so
// whenever it is asked.
func workerAgent(dir string) *helix.Agent {
	return clerkAgent(clerk{
		enough: func(int) bool { return exists(dir, "enough") },
		asked:  func() { fmt.Println("asked") },
	}, func(start string) error { return record(dir, start) })
}

// record writes a line that survives the process.
func record(dir, line string) error {
	f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	return f.Close()
}

// worker is a process that works on the session.
func worker(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := workerAgent(dir)
	rt, err := local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease, Sweep: sweep,
	})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	return request(ctx, rt, agent)
}

// request executes the session's one request, or attaches to it, and waits.
func request(ctx context.Context, rt helix.Executor, agent *helix.Agent) error {
	run, err := rt.Execute(ctx, agent, helix.Input{
		SessionID: killSession, RequestID: "the-request", Message: helix.UserText("Work."),
	})
	if err != nil {
		return err
	}
	fmt.Println("running")
	res, err := run.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ended", res.Status, res.Error)
	return nil
}

// TestSIGKILL kills a process that runs a long session, at random, again and
// again, and requires that nothing is lost and nothing that may not be is done
// twice.
func TestSIGKILL(t *testing.T) { onStores(t, testSIGKILL) }

func testSIGKILL(t *testing.T, dir string) {
	kills := 8
	if testshare.Soak() {
		kills = 60
	}
	db := openFor(t, dir)
	killed, before := 0, 2
	for killed < kills {
		c := startChild(t, "worker", dir)
		c.awaitRunning()
		// Where the process stands after some model calls and a moment is anybody's
		// guess. A run that is killed three times before its first commit fails,
		// and rightly so, but not what is tested here.
		asks := 1 + rand.IntN(10)
		if before == 1 {
			asks++
		}
		before = asks
		for range asks {
			if line := c.line(); line != "asked" {
				t.Fatalf("after %d kills the worker said %q", killed, line)
			}
		}
		time.Sleep(rand.N(8 * time.Millisecond)) // waits: any moment will do, and others each time
		c.kill()
		endLeases(t, db)
		killed++
	}
	end(t, dir)
	c := startChild(t, "worker", dir)
	c.awaitRunning()
	c.awaitEnd()
	steps := verifyWorker(t, dir)
	t.Logf("killed %d times over %d steps", killed, steps)
}

// end tells workers that it is enough.
func end(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitRunning waits until the worker has its handle; the run may have been taken
// over and continued before that.
func (c *child) awaitRunning() {
	c.t.Helper()
	for {
		switch line := c.line(); line {
		case "running":
			return
		case "asked":
		default:
			c.t.Fatalf("the worker did not start: %q", line)
		}
	}
}

// awaitEnd waits until the worker's run has completed.
func (c *child) awaitEnd() {
	c.t.Helper()
	line := "asked"
	for line == "asked" {
		line = c.line()
	}
	if line != "ended completed <nil>" {
		c.t.Fatalf("the worker said %q", line)
	}
}

// verifyWorker requires that the workers' session is complete and valid.
func verifyWorker(t *testing.T, dir string) (steps int) {
	t.Helper()
	steps, unknown := verifyClerk(t, openFor(t, dir), killSession, startedCalls(t, dir))
	t.Logf("%d calls were cut off and answered as unknown", unknown)
	return steps
}

func startedCalls(t *testing.T, dir string) map[string]int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	starts := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		starts[strings.TrimSpace(line)]++
	}
	return starts
}
