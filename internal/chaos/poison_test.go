package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// poisonSession is the one whose model call ends the process, innocents the others.
const (
	poisonSession = "poison"
	innocents     = 3
)

// ward is a model that ends the process when it is asked for the poison, a moment
// later, and takes longer than that for all others.
type ward struct{}

func (ward) Generate(ctx context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	name := r.Messages[0].Content()
	limit := 600 * time.Millisecond
	if name == poisonSession {
		limit = 200 * time.Millisecond
	}
	select {
	case <-time.After(limit): // waits: the other runs are under way when the process ends
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if name == poisonSession {
		os.Exit(3)
	}
	text := "I am well."
	emit(llm.Delta{Kind: llm.DeltaText, Text: text})
	return &llm.Response{Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop, Model: "ward"}, nil
}

// patient is a process with all the sessions, until the poison ends it or it is told
// that all is over.
func patient(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := &helix.Agent{Name: "ward", Model: ward{}}
	rt, err := startRuntime(dir, options(db, agent))
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	for _, id := range wardSessions() {
		_, err := rt.Execute(ctx, agent, helix.Input{SessionID: id, RequestID: "first", Message: helix.UserText(id)})
		if err != nil && !errors.Is(err, session.ErrAlreadyRunning) {
			return err
		}
	}
	for !exists(dir, "enough") {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func wardSessions() []string {
	ids := []string{poisonSession}
	for i := range innocents {
		ids = append(ids, fmt.Sprintf("innocent-%d", i))
	}
	return ids
}

// TestPoison has one session end every process that works on it. The sessions beside
// it complete, and only the one fails.
func TestPoison(t *testing.T) {
	onRuntimes(t, func(t *testing.T, dir string) {
		db := openFor(t, dir)
		const lives = 10
		kills := 0
		for range lives {
			c := startChild(t, "patient", dir)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_ = c.cmd.Wait() // how it ended the sessions tell
			}()
			if awaitWard(t, db, gone) {
				end(t, dir)
				<-gone
				break
			}
			endLeases(t, db)
			kills++
		}
		for _, id := range wardSessions() {
			state, err := db.Sessions().Load(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case id != poisonSession && state.Status != session.Completed:
				t.Errorf("session %s is %s: %v", id, state.Status, state.Error)
			case id == poisonSession && (state.Status != session.Failed || !errors.Is(state.Error, session.ErrCrashLoop)):
				t.Errorf("session %s is %s: %v", id, state.Status, state.Error)
			}
		}
		least := 4
		if strings.HasSuffix(t.Name(), temporal.Name) {
			least = 1 // Temporal also takes a process for dead that is too slow
		}
		if kills < least {
			t.Errorf("the run failed after the poison had ended %d processes, want %d", kills, least)
		}
		t.Logf("the poison ended %d processes", kills)
	})
}

// awaitWard waits until no session runs any more, or the process is gone.
func awaitWard(t *testing.T, db store.Backend, gone <-chan struct{}) bool {
	t.Helper()
	over := false
	eventually.Poll(t, "the process or its sessions end", func() bool {
		select {
		case <-gone:
			return true
		default:
		}
		for _, id := range wardSessions() {
			if run, err := db.Sessions().CurrentRun(t.Context(), id); err != nil || !run.Status.Ended() {
				return false
			}
		}
		over = true
		return true
	})
	return over
}
