package dbos_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/dbos"
)

// TestPostgresRestarts kills Postgres, which holds the sessions and DBOS's workflows,
// under 50 turns that run, and starts it again: all complete.
func TestPostgresRestarts(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	const turns, steps = 50, 6
	server := testserver.StartPostgres(t)
	backend := testbackend.Open(t, server.URL()+"&schema=helix")
	var mu sync.Mutex
	calls := map[string]int{}
	halfway := make(chan struct{})
	script := make([]scripted.Step, 0, steps+1)
	for range steps {
		script = append(script, scripted.Reply(scripted.Calling("pay", struct{}{}), scripted.Calling("pay", struct{}{})))
	}
	agent := &helix.Agent{
		Name: "agent", Model: scripted.New(append(script, scripted.Text("Done."))...).ByPosition(),
		Tools: []helix.Tool{{Name: "pay", Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[call.IdempotencyKey()]++
			if len(calls) == turns*steps {
				close(halfway)
			}
			return "paid", nil
		})}},
	}
	rt, err := dbos.New(dbos.Config{
		RuntimeOptions: helix.RuntimeOptions{
			Backend: backend, Agents: []*helix.Agent{agent}, LeaseTTL: 2 * time.Second, Sweep: 200 * time.Millisecond,
		},
		DatabaseURL: server.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, rt) })
	var runs []helix.Run
	for i := range turns {
		runs = append(runs, begin(t, rt, agent, fmt.Sprintf("s-%d", i)))
	}
	eventually.Receive(t, "the turns are halfway", halfway)
	server.Kill()
	server.Start()
	unknown := 0
	for _, run := range runs {
		completed(t, run)
		messages, err := backend.Sessions().AllMessages(t.Context(), run.SessionID())
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) != 2+3*steps {
			t.Errorf("session %s has %d messages, want %d", run.SessionID(), len(messages), 2+3*steps)
		}
		for i := range messages {
			for _, p := range messages[i].Parts {
				if p.Error != nil && strings.Contains(string(p.Error.Code), "unknown") {
					unknown++
				}
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for key, n := range calls {
		if n != 1 {
			t.Errorf("%s was started %d times", key, n)
		}
	}
	t.Logf("%d calls were made, and %d cut off", len(calls), unknown)
}
