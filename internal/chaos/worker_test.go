package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// fleetAgent is a clerk whose payments say so when they are under way, and do not end before
// the process is killed, has lost the session, or is told that it is enough.
func fleetAgent(dir string) *helix.Agent {
	agent := clerkAgent(clerk{enough: func(int) bool { return exists(dir, "enough") }},
		func(start string) error { return record(dir, start) })
	pay := &agent.Tools[0]
	pay.Execute = slow{pay.Execute, dir}
	return agent
}

// slow is a tool that waits until it is enough.
type slow struct {
	helix.Callable
	dir string
}

func (s slow) Call(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
	out, err := s.Callable.Call(ctx, call, input)
	if !exists(s.dir, "enough") {
		fmt.Println("paying")
	}
	for !exists(s.dir, "enough") {
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	return out, err
}

// fleet is one of several processes that share a session: whichever has it works on
// it.
func fleet(ctx context.Context, dir string) error {
	start, defaults := open, exists(dir, "defaults")
	if defaults {
		start = openPlain
	}
	db, err := start(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := fleetAgent(dir)
	opts := options(db, agent)
	if defaults {
		opts = helix.RuntimeOptions{Backend: db, Agents: opts.Agents}
	}
	rt, err := startRuntime(dir, opts)
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	return request(ctx, rt, agent)
}

// said is a line of one process.
type said struct {
	by   *child
	line string
}

// sayTo sends what the child says until it ends.
func sayTo(t *testing.T, c *child, lines chan<- said) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { c.kill(); <-done })
	go func() {
		defer close(done)
		for line := c.line(); line != ""; line = c.line() {
			lines <- said{c, line}
		}
	}()
}

// TestFleetKilled kills, again and again, the process that works on a session, in
// the middle of a wave of parallel calls, and requires that another one continues, that
// nothing is lost, and that nothing is done twice that may not be.
func TestFleetKilled(t *testing.T) {
	onRuntimes(t, func(t *testing.T, dir string) {
		kills := 2
		if testshare.Soak() {
			kills = 20
		}
		db, lines := openFor(t, dir), make(chan said, 1000)
		start := func() { sayTo(t, startChild(t, "fleet", dir), lines) }
		start()
		start()
		killed, dead := 0, map[*child]bool{}
		ended := false
		for !ended {
			s := eventually.Receive(t, "the turn ends", lines)
			switch {
			case dead[s.by]:
			case s.line == "paying" && killed < kills:
				killed++
				dead[s.by] = true
				s.by.kill()
				endLeases(t, db)
				if killed == kills {
					end(t, dir)
				}
				start()
			case s.line == "ended completed <nil>":
				ended = true
			case s.line != "running" && s.line != "paying":
				t.Fatalf("after %d kills a process said %q", killed, s.line)
			}
		}
		steps, unknown := verifyClerk(t, db, killSession, startedCalls(t, dir))
		if unknown < kills {
			t.Errorf("%d kills in a payment cut off only %d payments", kills, unknown)
		}
		runs, err := db.Sessions().Runs(t.Context(), killSession, session.PageRequest{})
		if err != nil || len(runs.Items) != 1 {
			t.Errorf("the session has %d runs (%v)", len(runs.Items), err)
		}
		t.Logf("killed %d times over %d steps; %d payments were cut off and answered as unknown", killed, steps, unknown)
	})
}
