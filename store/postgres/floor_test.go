package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
)

// bareCommit writes only the rows of a step's commit: the cost of a commit without
// any decisions.
const bareCommit = `
WITH ok AS (
    UPDATE helix.sessions s
    SET version = s.version + 1, last_commit = $2, message_count = s.message_count + 1, step_count = $3, run_steps = $3,
        delta_bytes = s.delta_bytes + $4, checkpoint_id = $5, checkpoint_number = s.checkpoint_number + 1, updated_at = now()
    WHERE s.number = $1
    RETURNING s.number, s.version, s.message_count, s.checkpoint_number
),
said AS (
    INSERT INTO helix.messages (session, number, message_id, body) SELECT number, message_count, $6, $7 FROM ok
),
logged AS (
    INSERT INTO helix.state_log (session, version, body) SELECT number, version, $8 FROM ok
),
pointed AS (
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    SELECT number, checkpoint_number, $5, 'run', 1, $3, 'active', 'staging', version, message_count, 0, now() FROM ok
)
SELECT version FROM ok`

// runner makes the commits of one session, one after the other.
type runner struct {
	s       *sessions
	id      string
	number  int64
	fence   session.Fence
	version int64
	step    int
}

func newRunner(tb testing.TB, b *Backend, id string) *runner {
	tb.Helper()
	s := b.Sessions().(tenantStore).sessions
	state := &session.State{ID: id, Agent: "a", Status: session.Active}
	started, err := s.StartRun(tb.Context(), &session.StartRun{
		SessionID: id, Create: state, Run: session.Run{ID: "run", Kind: session.RunExecute}, Owner: "owner", TTL: time.Hour,
	})
	if err != nil {
		tb.Fatal(err)
	}
	r := &runner{s: s, id: id, fence: started.Lease.Fence(), version: started.Version}
	err = b.query(tb.Context(), "find", func(rows pgx.Rows) error { return rows.Scan(&r.number) },
		"SELECT number FROM helix.sessions WHERE tenant = $1 AND id = $2", s.tenant, id)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// message returns the reply of the next step.
func (r *runner) message() session.Message {
	r.step++
	return session.Message{
		ID: fmt.Sprintf("m%d", r.step), Role: session.RoleAssistant,
		Parts: []session.Part{session.Text("a reply of about a hundred bytes, as a model that has something to say might well give one, roughly")},
	}
}

func (r *runner) commit(ctx context.Context) error {
	m := r.message()
	out, err := r.s.Commit(ctx, &session.Commit{
		SessionID: r.id, RunID: "run", Key: fmt.Sprintf("run/%d", r.step), Version: r.version, Fence: r.fence,
		Change: session.Change{
			Messages: []session.Message{m}, StepCount: &r.step,
			Writes:     session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: []byte("1")}}},
			Checkpoint: &session.NewCheckpoint{ID: fmt.Sprintf("cp%d", r.step), Step: r.step, Source: session.FromStep},
		},
	})
	if err == nil {
		r.version = out.Version
	}
	return err
}

func (r *runner) bare(ctx context.Context) error {
	m := r.message()
	body, err := session.Encode(&m)
	if err != nil {
		return err
	}
	writes := []byte(`{"ops":[{"kind":"replace","key":"k","value":1}]}`)
	return r.s.b.pool.QueryRow(ctx, r.s.b.sql(bareCommit), r.number, fmt.Sprintf("run/%d", r.step), r.step, len(writes),
		fmt.Sprintf("cp%d", r.step), m.ID, body, writes).Scan(&r.version)
}

// median measures n calls of each function, alternating between them, and returns
// the median of each.
func median(tb testing.TB, n int, calls ...func(context.Context) error) []time.Duration {
	tb.Helper()
	times := make([][]time.Duration, len(calls))
	for range n {
		for i, call := range calls {
			begun := time.Now()
			if err := call(tb.Context()); err != nil {
				tb.Error(err)
				return make([]time.Duration, len(calls))
			}
			times[i] = append(times[i], time.Since(begun)) // waits: a measurement, which is printed
		}
	}
	out := make([]time.Duration, len(calls))
	for i := range times {
		slices.Sort(times[i])
		out[i] = times[i][n/2]
	}
	return out
}

// TestFloor compares commits with the bare statement, for one client and for many,
// and a long session with a short one. Times on a busy machine mean little, so it
// runs only on request.
func TestFloor(t *testing.T) {
	if os.Getenv("HELIX_TEST_FLOOR") == "" {
		t.Skip("SKIPPED: set HELIX_TEST_FLOOR to measure")
	}
	server := testserver.StartPostgres(t) // with a server that syncs commits
	b := openTest(t, func(c *Config) { c.URL = server.URL() })
	for _, clients := range []int{1, 16} {
		commits, bares := make([]time.Duration, clients), make([]time.Duration, clients)
		var wg sync.WaitGroup
		for i := range clients {
			r, floor := newRunner(t, b, fmt.Sprintf("r%d-%d", clients, i)), newRunner(t, b, fmt.Sprintf("f%d-%d", clients, i))
			wg.Go(func() {
				median(t, 50, r.commit, floor.bare) // to warm up
				m := median(t, 2000/clients, r.commit, floor.bare)
				commits[i], bares[i] = m[0], m[1]
			})
		}
		wg.Wait()
		slices.Sort(commits)
		slices.Sort(bares)
		c, f := commits[clients/2], bares[clients/2]
		t.Logf("%2d clients: commit %v, floor %v: %.2f", clients, c, f, float64(c)/float64(f))
	}
	long, short := newRunner(t, b, "long"), newRunner(t, b, "short")
	for range 10_000 {
		if err := long.commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		if err := short.commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m := median(t, 1000, long.commit, short.commit)
	t.Logf("at 10,000 steps %v, at 10 %v: %.2f", m[0], m[1], float64(m[0])/float64(m[1]))
}
