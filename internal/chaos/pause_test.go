package chaos

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
)

// TestSIGSTOP stops the process that holds the lease for longer than the lease
// lasts. Another takes the session over; when the first continues, in mid-step, it
// can no longer write.
func TestSIGSTOP(t *testing.T) { onStores(t, testSIGSTOP) }

func testSIGSTOP(t *testing.T, dir string) {
	rounds := 2
	if testshare.Soak() {
		rounds = 25
	}
	db := openFor(t, dir)
	workers := [2]*child{startChild(t, "worker", dir), startChild(t, "worker", dir)}
	for _, w := range workers {
		w.awaitRunning()
	}
	lines := [2]chan string{}
	for i, w := range workers {
		lines[i] = w.follow()
	}
	overtaken := 0
	for try := 0; overtaken < rounds; try++ {
		holder := whoWorks(t, lines)
		time.Sleep(rand.N(5 * time.Millisecond)) // waits: any moment will do, and others each time
		workers[holder].signal(syscall.SIGSTOP)
		drain(lines[holder])
		if overtakes(t, db, lines[1-holder], time.Duration(try+1)*500*time.Millisecond) {
			overtaken++
		} else if try > 20*rounds {
			t.Fatal("no process takes a stopped process's session over")
		}
		workers[holder].signal(syscall.SIGCONT)
	}
	end(t, dir)
	for i, w := range workers {
		for {
			line := eventually.Receive(t, "a worker ends", lines[i])
			if line == "ended completed <nil>" {
				break
			}
			if line != "asked" {
				t.Fatalf("worker %d said %q", w.cmd.Process.Pid, line)
			}
		}
	}
	verifyWorker(t, dir)
}

// overtakes ends the lease of a process that is stopped, and reports whether the other one does
// some steps then. It need not: a process that was stopped while it wrote to a SQLite file keeps
// the file locked.
func overtakes(t *testing.T, db store.Backend, lines <-chan string, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit) // waits: the file may be locked until the process goes on, and then there is another try
	defer cancel()
	if err := tryEndLeases(ctx, db); err != nil {
		return false
	}
	for range 3 {
		select {
		case <-lines:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// follow reads what the child says until it ends.
func (c *child) follow() chan string {
	lines := make(chan string, 1<<16)
	go func() {
		defer close(lines)
		for {
			line := c.line()
			if line == "" {
				return
			}
			lines <- line
		}
	}()
	return lines
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// whoWorks is the worker that is asking its model.
func whoWorks(t *testing.T, lines [2]chan string) int {
	t.Helper()
	drain(lines[0])
	drain(lines[1])
	select {
	case <-lines[0]:
		return 0
	case <-lines[1]:
		return 1
	case <-time.After(eventually.Patience):
		t.Fatal("no worker works")
		return 0
	}
}

// drain drops what was said already.
func drain(lines <-chan string) {
	for {
		select {
		case <-lines:
		default:
			return
		}
	}
}
