package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
)

// notary is an extension that has a line written elsewhere after every run.
type notary struct{ dir string }

func (notary) Name() string { return "notary" }

func (notary) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (notary) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return []session.Task{{Kind: "note"}}, nil
}

func (notary) TaskKinds() []string { return []string{"note"} }

func (n notary) HandleTask(ctx context.Context, task *session.Task) error {
	if rand.IntN(4) == 0 { // so that processes are killed while they carry tasks out, too
		select {
		case <-time.After(10 * time.Millisecond): // waits: see above
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return record(n.dir, task.ID+" "+task.RunID)
}

// notes is a process that runs one session after the other until it is enough, and then
// waits until nothing is left to do.
func notes(ctx context.Context, dir string) error {
	db, err := open(dir)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := &helix.Agent{
		Name: "clerk", Model: scripted.New(scripted.Text("Done.")).ByPosition(), Extensions: []helix.Extension{notary{dir}},
	}
	rt, err := local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease, Sweep: sweep,
		Tasks: helix.TaskOptions{Poll: 20 * time.Millisecond, Hold: lease, Backoff: 10 * time.Millisecond, Workers: 2},
	})
	if err != nil {
		return err
	}
	defer rt.Shutdown(ctx)
	for !exists(dir, "enough") {
		run, err := rt.Execute(ctx, agent, helix.Input{SessionID: session.NewID(), Message: helix.UserText("Work.")})
		if err != nil {
			return err
		}
		fmt.Println("began")
		if _, err := run.Result(ctx); err != nil {
			return err
		}
	}
	// Runs are taken over, and holds expire.
	late := eventually.PollContext(ctx, func() bool {
		var page session.Page[session.Summary]
		if page, err = db.Sessions().List(ctx, session.Query{Activity: session.ActivityRunning}); err != nil {
			return true
		}
		var tasks session.Page[session.Task]
		if tasks, err = db.Sessions().ListTasks(ctx, session.TaskQuery{}); err != nil {
			return true
		}
		return len(page.Items) == 0 && len(tasks.Items) == 0
	})
	if err := errors.Join(late, err); err != nil {
		return err
	}
	fmt.Println("ended")
	return nil
}

// TestTasksKilled kills processes whose every run ends with a task that writes a line
// elsewhere, at random, again and again. Once repetitions are removed by the task's id,
// there must be exactly one line per run.
func TestTasksKilled(t *testing.T) { onStores(t, testTasksKilled) }

func testTasksKilled(t *testing.T, dir string) {
	kills := 6
	if testshare.Soak() {
		kills = 50
	}
	db, began := openFor(t, dir), 0
	for range kills {
		c := startChild(t, "notes", dir)
		for range 1 + rand.IntN(6) {
			began++
			if line := c.line(); line != "began" {
				t.Fatalf("the process said %q", line)
			}
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // waits: anywhere in a run or a task
		c.kill()
		endLeases(t, db)
		endHolds(t, db)
	}
	end(t, dir)
	c := startChild(t, "notes", dir)
	if line := c.line(); line != "ended" {
		t.Fatalf("the last process said %q", line)
	}

	raw, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	lines, runOf, noted := 0, map[string]string{}, map[string]int{}
	for line := range strings.Lines(string(raw)) {
		lines++
		id, run, _ := strings.Cut(strings.TrimSpace(line), " ")
		if runOf[id] == "" {
			runOf[id] = run
			noted[run]++
		}
	}
	runs := 0
	sessions := db.Sessions()
	for query := (session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}}); ; {
		page, err := sessions.List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			all, err := sessions.Runs(t.Context(), item.ID, session.PageRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range all.Items {
				runs++
				if run := &all.Items[i]; noted[run.ID] != 1 {
					t.Errorf("run %s, which is %s, has %d lines", run.ID, run.Status, noted[run.ID])
				}
			}
		}
		if query.Cursor = page.Next; !page.HasMore {
			break
		}
	}
	if len(noted) != runs {
		t.Errorf("there are lines of %d runs, and %d runs", len(noted), runs)
	}
	if runs < began {
		t.Errorf("%d runs began, and there are only %d", began, runs)
	}
	t.Logf("killed %d times over %d runs; %d of %d lines are repetitions", kills, runs, lines-len(runOf), lines)
}
