package chaos

import (
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// TestFleetStopped stops, again and again, the process that works on a session, in
// the middle of a wave, until another one continues; then it stops that one and resumes the first.
// It has lost the turn, and neither the session nor what the engine knows of it suffers.
func TestFleetStopped(t *testing.T) {
	onRuntimes(t, func(t *testing.T, dir string) {
		stops := 2
		if testshare.Soak() {
			stops = 20
		}
		db, lines := openFor(t, dir), make(chan said, 1000)
		for range 2 {
			sayTo(t, startChild(t, "fleet", dir), lines)
		}
		var stopped *child
		overtaken, ended := 0, 0
		for ended < 2 {
			s := eventually.Receive(t, "the turn ends", lines)
			switch {
			case s.line == "paying" && s.by != stopped && overtaken < stops:
				before := stopped
				stopped = s.by
				stopped.stop(db)
				if before == nil {
					continue
				}
				before.signal(syscall.SIGCONT)
				if overtaken++; overtaken == stops {
					end(t, dir)
					stopped.signal(syscall.SIGCONT)
				}
			case s.line == "ended completed <nil>":
				ended++
			case s.line != "running" && s.line != "paying":
				t.Fatalf("after %d stops a process said %q", overtaken, s.line)
			}
		}
		steps, unknown := verifyClerk(t, db, killSession, startedCalls(t, dir))
		t.Logf("overtaken %d times over %d steps; %d payments were cut off and answered as unknown", overtaken, steps, unknown)
	})
}

// TestStoppedForLong stops the process that works on a session until another one continues, and
// for 20 s at least, with the default settings. The first, when it goes on, writes nothing and does nothing
// twice.
func TestStoppedForLong(t *testing.T) {
	testshare.SkipUnless(t, 3, 16)
	onRuntimes(t, func(t *testing.T, dir string) {
		write(t, dir, "defaults", "")
		db, lines := openFor(t, dir), make(chan said, 1000)
		for range 2 {
			sayTo(t, startChild(t, "fleet", dir), lines)
		}
		awaitLine := func(line string, not *child) *child {
			t.Helper()
			for {
				s := eventually.Receive(t, "a process says "+line, lines)
				if s.line == line && s.by != not {
					return s.by
				}
			}
		}
		first := awaitLine("paying", nil)
		first.signal(syscall.SIGSTOP)
		stopped := time.Now()
		awaitLine("paying", first)
		took := time.Since(stopped)                           // waits: it is only logged
		time.Sleep(time.Until(stopped.Add(20 * time.Second))) // waits: for as long as the process is stopped
		before, err := db.Sessions().Load(t.Context(), killSession)
		if err != nil {
			t.Fatal(err)
		}
		first.signal(syscall.SIGCONT)
		time.Sleep(3 * time.Second) // waits: as long as it may do what it must not
		after, err := db.Sessions().Load(t.Context(), killSession)
		if err != nil || after.Version != before.Version || after.Lease.Fence() != before.Lease.Fence() {
			t.Errorf("the session changed from %+v to %+v, %v", before, after, err)
		}
		end(t, dir)
		awaitLine("ended completed <nil>", nil)
		awaitLine("ended completed <nil>", nil)
		steps, unknown := verifyClerk(t, db, killSession, startedCalls(t, dir))
		runs, err := db.Sessions().Runs(t.Context(), killSession, session.PageRequest{})
		if err != nil || len(runs.Items) != 1 || runs.Items[0].Attempts > 1 {
			t.Errorf("the session has the runs %+v, %v", runs.Items, err)
		}
		t.Logf("another process continued after %s; %d steps, %d payments were cut off", took.Round(100*time.Millisecond), steps, unknown)
	})
}
