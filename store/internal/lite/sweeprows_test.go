package lite

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/helixagents/helix/internal/testshare"
)

// countVisits registers the function visit, once, and returns how often it was called. In the condition
// of a query, it is called for each row that the query visits. Connections know it that are opened
// after that.
var countVisits = sync.OnceValue(func() *atomic.Int64 {
	var visited atomic.Int64
	sqlite.MustRegisterScalarFunction("visit", 1, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		visited.Add(1)
		return int64(1), nil
	})
	return &visited
})

// TestSweepsReadWhatTheyReturn requires of each list of a sweep that it visits at most one row
// more than it returns, however many sessions there are, and however many are due later.
func TestSweepsReadWhatTheyReturn(t *testing.T) {
	t.Parallel()
	sessions := 1_000
	if testshare.Soak() {
		sessions = 100_000
	}
	const due = 70
	visited := countVisits()
	db := openTest(t)
	seedSweeps(t, db, sessions, due)
	now := time.Now().UnixNano()
	for name, query := range map[string]string{
		"deadlines": sweepDeadlines, "leases": sweepLeases, "expired sessions": sweepExpired, "pending closes": sweepPendingCloses, "wakes": sweepWakes,
	} {
		counted := strings.Replace(query, "WHERE ", "WHERE visit(1) AND ", 1)
		switch name { // what is visited has a column of the first table as an argument
		case "deadlines":
			counted = strings.Replace(counted, "visit(1)", "visit(p.deadline)", 1)
		case "wakes":
			counted = strings.Replace(counted, "visit(1)", "visit(at)", 1)
		default:
			counted = strings.Replace(counted, "visit(1)", "visit(s.number)", 1)
		}
		var lastAt, lastTenant, lastID, lastCall any = int64(-1 << 63), "", "", ""
		for page, size := range []int{25, 25, 512} {
			args := []any{now, lastAt, lastTenant, lastID, lastCall, nil, nil, "", size}
			at, tenant, id, call := 10, 0, 1, 11
			if name == "wakes" {
				args = []any{lastAt, lastTenant, lastID, lastCall, size}
				at, call = 4, 2
			}
			visited.Store(0)
			rows := queryAll(t, db, counted, args...)
			want := []int{25, 25, due - 50}[page]
			if name == "wakes" {
				want = []int{25, 25, min(512, sessions-50)}[page]
			}
			if n := visited.Load(); len(rows) != want || n > int64(want)+1 {
				t.Errorf("%s, page %d: visited %d rows to return %d, not %d", name, page+1, n, len(rows), want)
			}
			if len(rows) == 0 {
				break
			}
			last := rows[len(rows)-1]
			lastAt, lastTenant, lastID, lastCall = last[at], last[tenant], last[id], last[call]
		}
	}
}

// seedSweeps fills the tables with sessions that have all that can become due, which is due of
// the given number only.
func seedSweeps(t *testing.T, db *sql.DB, sessions, due int) {
	t.Helper()
	const session = `tenant, id, version, step_count, resume_count, message_count, last_commit, checkpoint_id, checkpoint_newest, checkpoint_number,
			checkpoint_source, snapshot_bytes, delta_bytes, run_steps, run_reason, updated_at, status, owner, epoch, turn, current_run, run_status, run_runtime,
			agent, user_id, parent_id, root_id, stream_id, created_at`
	from := fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < %d) ", sessions)
	// In nanoseconds; of every other one the next is at the same time.
	when := fmt.Sprintf("(CASE WHEN n <= %d THEN %d ELSE %d END + n / 2)", due, time.Now().Add(-time.Hour).UnixNano(), time.Now().Add(time.Hour).UnixNano())
	for _, statement := range []string{
		from + `INSERT INTO sessions (` + session + `, lease_until, expires_at)
			SELECT 't', 's' || n, 1, 0, 0, 0, '', '', '', 0, '', 0, 0, 0, '', 0, 'active', 'o', 1, 1, 'r', 'running', 'local', 'a', '', '', '', 's', 0, ` + when + `, ` + when + ` FROM c`,
		from + `INSERT INTO sessions (` + session + `, close_owed_at)
			SELECT 't', 'closed' || n, 1, 0, 0, 0, '', '', '', 0, '', 0, 0, 0, '', 0, 'completed', '', 1, 1, 'r', 'completed', 'local', 'a', '', '', '', 's', 0, ` + when + ` FROM c`,
		from + `INSERT INTO pending (tenant, session_id, call_id, state, deadline, message_id, doc)
			SELECT 't', 's' || n, 'c', 'waiting', ` + when + `, 'm', CAST('{}' AS BLOB) FROM c`,
		from + `INSERT INTO wakes (tenant, session_id, child_id, run_id, at) SELECT 't', 's' || n, 'x', '', n FROM c`,
		"ANALYZE",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
}

// queryAll returns the rows of a query.
func queryAll(t *testing.T, db *sql.DB, query string, args ...any) (out [][]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
