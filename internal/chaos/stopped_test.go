package chaos

import (
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
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
			c := startChild(t, "fleet", dir)
			done := make(chan struct{})
			t.Cleanup(func() { c.kill(); <-done })
			go func() {
				defer close(done)
				for line := c.line(); line != ""; line = c.line() {
					lines <- said{c, line}
				}
			}()
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
