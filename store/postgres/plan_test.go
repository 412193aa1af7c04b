package postgres

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
)

// queries lists the queries of listings, sweeps and turns by name. None may scan a
// table.
func queries(s *sessions) map[string]string {
	out := map[string]string{
		"header": selectHeader, "lock": lockHeader, "renew leases": renewLeases, "holders of leases": selectHolders,
		"renew tree": renewTree, "release tree": releaseTree, "child sessions": selectChildSessions,
		"due deadlines": sweepDeadlines, "expired leases": sweepLeases, "expired sessions": sweepExpired, "pending closes": sweepPendingCloses,
		"wakes": sweepWakes, "old calls": selectOldCalls, "open pending": selectPendingOpen, "all pending": selectPendingAll,
		"children": selectChildren, "awaited children": selectAwaited, "inbox": selectInbox, "calls": selectCalls,
		"run by id": byID, "run by request": byRequest, "current run": current, "runs": selectRuns, "messages": selectMessages, "messages within": selectMessagesWithin,
		"message by id": selectDuplicate, "state": selectState, "document": selectDoc, "checkpoint": selectCheckpoint,
		"checkpoints": selectCheckpoints, "checkpoint within": selectWithin, "owner": selectOwnership, "tags": selectTags,
		"metadata": selectMetadata, "stream": selectStream, "batches": selectBatches, "streams that changed": selectRevisions,
		"trim": trimStream, "repeated batch": selectBatchesOf, "undo calls": undoCalls, "undo pending": undoPending,
		"delete sessions": deleteSessions, "delete streams": selectDoomed, "claim": claimCall, "settle": settleCall, "append": appendBatch,
		"snapshot": addSnapshot, "ready": writeNothing,
	}
	for _, query := range slices.Concat(ownedByNumber, ownedByStream, ownedByID) {
		out[query] = query
	}
	for name, query := range coldsql.BlobQueries() {
		out[name] = query.Postgres
	}
	for name, q := range listings() {
		l := newListing(s.tenant, &q)
		out["count "+name] = l.count()
		out["list "+name] = l.page(50, 0)
		l = newListing(s.tenant, &q)
		l.after(session.Position{N: time.Now().UnixNano(), ID: "x"})
		out["list on "+name] = l.page(50, 0)
	}
	for name, q := range inboxQueries() {
		x := newInbox(s.tenant, &q)
		out["waiting "+name], _ = x.page(&q, nil, 51, 0)
		out["waiting on "+name], _ = x.page(&q, &session.Position{N: 1, ID: "1"}, 51, 0)
		out["count waiting "+name] = x.count()
	}
	out["links"] = selectLinks
	for name, query := range coldsql.TaskQueries() {
		out[name] = query.Postgres
	}
	out["tenants of tasks"] = coldsql.TenantsQuery().Postgres
	for name, change := range changes() {
		d, err := newDraft(&change, "s50", "run", time.Now())
		if err != nil {
			panic(err)
		}
		on := guard{Commit: &session.Commit{Change: change}}
		out["commit of "+name], _ = s.changeStatement(d, on, true)
		on.batch = &batchGuard{}
		out["commit with chunks of "+name], _ = s.changeStatement(d, on, true)
	}
	return out
}

func inboxQueries() map[string]session.WaitingQuery {
	return map[string]session.WaitingQuery{
		"all": {}, "newest": {NewestFirst: true}, "user": {UserID: "u7"}, "user's newest": {UserID: "u7", NewestFirst: true},
	}
}

// changes are commits with parts of every kind, with one row and with several.
func changes() map[string]session.Change {
	message := func(id string) session.Message { return session.Message{ID: id, Role: session.RoleUser} }
	op := func(kind session.OpKind, key string) session.Op {
		return session.Op{Kind: kind, Key: key, Value: []byte("1"), Items: []json.RawMessage{[]byte("1")}}
	}
	all := session.Change{
		Status: session.Completed, Messages: []session.Message{message("a")}, StepCount: new(1),
		Writes:  session.Writes{Ops: []session.Op{op(session.OpAppend, "a"), op(session.OpDelete, "b")}},
		Calls:   []session.Call{{MessageID: "m", ID: "a"}},
		Promote: &session.Promotion{MessageID: "n", Results: []session.Promoted{{CallID: "a"}}},
		Pending: []session.Pending{{CallID: "a"}}, Resolve: []session.Resolution{{CallID: "b"}}, Waits: []string{"c"},
		Own: []session.Ownership{{CallID: "a"}}, Disown: []string{"b"}, Children: []session.ChildRef{{SessionID: "a"}}, Consume: []string{"a"},
		Wake: &session.Wake{SessionID: "s100", ChildID: "x"}, Checkpoint: &session.NewCheckpoint{ID: "c"},
		Run:     &session.RunChange{CompletionReason: session.ReasonReply, Usage: session.Usage{ModelCalls: 1}},
		Outcome: &session.Outcome{Status: session.RunCompleted},
		Tasks:   []session.Task{{ID: "a"}},
	}
	many := all
	many.Messages = []session.Message{message("a"), message("b")}
	many.Writes.Ops = []session.Op{op(session.OpAppend, "a"), op(session.OpReplace, "b"), op(session.OpDelete, "c")}
	many.Calls = []session.Call{{MessageID: "n", ID: "a"}, {MessageID: "n", ID: "b"}}
	many.Promote = &session.Promotion{MessageID: "n", Results: []session.Promoted{{CallID: "a"}, {CallID: "b"}}}
	many.Pending, many.Resolve = []session.Pending{{CallID: "a"}, {CallID: "b"}}, []session.Resolution{{CallID: "b"}, {CallID: "c"}}
	many.Own = []session.Ownership{{CallID: "a"}, {CallID: "b"}}
	many.Children = []session.ChildRef{{SessionID: "a"}, {SessionID: "b"}}
	many.Tasks = []session.Task{{ID: "a"}, {ID: "b"}}
	return map[string]session.Change{"nothing": {}, "everything": all, "several of everything": many}
}

func listings() map[string]session.Query {
	return map[string]session.Query{
		"all":           {},
		"user":          {UserID: "u7"},
		"agent":         {Agent: "a7"},
		"parent":        {ParentID: "s7"},
		"status":        {Statuses: []session.Status{session.Failed}},
		"statuses":      {Statuses: session.Statuses()},
		"roots":         {RootsOnly: true},
		"tag":           {Tags: []string{"t7"}},
		"tags":          {Tags: []string{"t7", "u"}, Metadata: map[string]string{"k": "v7"}},
		"metadata":      {Metadata: map[string]string{"k": "v7", "l": "w"}},
		"dates":         {CreatedAfter: time.Now().Add(-time.Hour), CreatedBefore: time.Now()},
		"user, status":  {UserID: "u7", Statuses: []session.Status{session.Active}, Agent: "a7"},
		"tag and dates": {Tags: []string{"t7"}, CreatedAfter: time.Now().Add(-time.Hour), UserID: "u7"},
		"user's tags":   {UserID: "u7", Tags: []string{"t7", "u"}},
		"user's values": {UserID: "u7", Metadata: map[string]string{"k": "v7", "l": "w"}},
		"user's runs":   {UserID: "u7", Activity: session.ActivityRunning, RootsOnly: true},
		"all runs":      {Activity: session.ActivityRunning, RootsOnly: true},
		"user's waits":  {UserID: "u7", Activity: session.ActivityWaiting},
		"all waits":     {Activity: session.ActivityWaiting, RootsOnly: true},
	}
}

// populate fills the tables like those of a deployment in use: many tenants,
// sessions with rows of every kind, few of them due. SESSIONS stands for how many.
var populate = []string{
	`
INSERT INTO helix.sessions
SELECT n, CASE WHEN n % 50 = 0 THEN 'default' ELSE 'tenant' || n % 50 END, 's' || n, 1, 0, 0, 0, 10, '', 'c10', 10, '', now(), 0, 0, 0, '', '', NULL, 0, '{}', '', now(),
       (ARRAY['active', 'completed', 'completed', 'failed', 'interrupted'])[1 + n % 5], CASE WHEN n % 100 = 0 THEN 'o' || n ELSE '' END, 1,
       CASE WHEN n % 100 = 0 THEN now() + n * interval '1 second' END, 1, 'r', CASE WHEN n % 100 = 0 THEN 'running' ELSE 'completed' END, '',
       CASE WHEN n % 500 = 0 THEN now() END, 'a' || n % 20, 'u' || n % 100, CASE WHEN n % 4 = 0 THEN 's' || n / 4 ELSE '' END,
       CASE WHEN n % 4 = 0 THEN 's' || n / 4 ELSE '' END, '', CASE WHEN n % 300 = 0 THEN now() + n * interval '1 second' END, now() - n * interval '1 second'
FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.blobs (tenant, ref, size, unused_at)
SELECT 'tenant' || n % 50, 'r' || n, 100, CASE WHEN n % 100 = 0 THEN now() END FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.blob_pieces SELECT n, 0, 'x' FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.blob_refs SELECT n / 10, n FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.blob_totals SELECT n, 1000 FROM generate_series(1, 2000) n`,
	`INSERT INTO helix.session_docs SELECT n, '{}', NULL, '', NULL FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.session_tags SELECT number, tenant, id, 1, 't' || number / 50 % 10, created_at FROM helix.sessions`,
	`INSERT INTO helix.session_metadata SELECT number, tenant, id, 'k', 'v' || number / 50 % 10, created_at FROM helix.sessions`,
	`INSERT INTO helix.messages SELECT s, n, 'm' || n, NULL, '{}' FROM generate_series(1, 3000) s, generate_series(1, 10) n`,
	`INSERT INTO helix.state_log SELECT s, n, '{}' FROM generate_series(1, 3000) s, generate_series(1, 10) n`,
	`INSERT INTO helix.state_snapshots SELECT s, 5, '{}' FROM generate_series(1, SESSIONS) s`,
	`INSERT INTO helix.state_keys SELECT s, decode(md5(n::text), 'hex'), true FROM generate_series(1, 3000) s, generate_series(1, 5) n`,
	`INSERT INTO helix.runs SELECT s, n, 'r' || n, 'q' || n, 'completed', 0, 0, 0, '', '{}', NULL, '{}', NULL, NULL FROM generate_series(1, 5000) s, generate_series(1, 3) n`,
	`INSERT INTO helix.checkpoints SELECT s, n, 'c' || n, 'r', 1, n, 'active', '', n, n, 0, now(), false FROM generate_series(1, 3000) s, generate_series(1, 10) n`,
	`INSERT INTO helix.calls SELECT s, 'm', 'c' || n, n, 'open', '{}', NULL, NULL, NULL, NULL, NULL, NULL, now() - s * interval '1 second' FROM generate_series(1, 5000) s, generate_series(1, 3) n`,
	`INSERT INTO helix.pending (session, tenant, session_id, call_id, state, late_noticed, deadline, message_id, created_at, doc)
SELECT n, 'default', 's' || n, 'c', CASE WHEN n % 20 = 0 THEN 'waiting' ELSE 'consumed' END, false, now() + n * interval '1 second', 'm', now(), '{}' FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.ownership SELECT n, 'c', 'x', NULL FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.children (session, child_id, awaited, revision, doc, created_at, updated_at) SELECT n, 'x', n % 20 = 0, 1, '{}', now(), now() FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.inbox (session, entry_id, consumed, sender, kind, at) SELECT n, 'e', n % 20 <> 0, '', '', now() FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.wakes SELECT 'default', 's' || n, 'x', '', now() FROM generate_series(1, 5000) n`,
	`INSERT INTO helix.streams (tenant, stream_id, revision, status, floor, last_sequence, run_id, writer, writer_epoch, writer_next, created_at, updated_at)
SELECT 'default', 's' || n, 1, 'active', 0, 10, '', 'x', 1, 11, now(), now() FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.stream_batches SELECT s, n, n, 'x', 1, n + 1, '', 1, now(), NULL, '{}' FROM generate_series(1, 3000) s, generate_series(1, 10) n`,
	`INSERT INTO helix.stream_producers SELECT n, 'y', 1, 1 FROM generate_series(1, SESSIONS) n`,
	`INSERT INTO helix.tasks SELECT 'tenant' || n % 50, 's' || n, 't' || n, 'k' || n % 3, 'a' || n % 20, '', NULL, now() + n * interval '1 second', now(), '', 0, '',
       CASE WHEN n % 100 = 0 THEN now() END FROM generate_series(1, SESSIONS) n`,
	`ANALYZE helix.tasks, helix.sessions, helix.blobs, helix.blob_pieces, helix.blob_refs, helix.blob_totals, helix.session_docs, helix.session_tags, helix.session_metadata, helix.messages, helix.state_log, helix.state_snapshots,
helix.state_keys, helix.runs, helix.checkpoints, helix.calls, helix.pending, helix.ownership, helix.children, helix.inbox, helix.wakes,
helix.streams, helix.stream_batches, helix.stream_producers`,
}

// openPopulated opens a backend whose tables are filled.
func openPopulated(t *testing.T) *Backend {
	t.Helper()
	b := openTest(t)
	sessions := "20000"
	if testshare.Soak() {
		sessions = "100000"
	}
	for _, text := range populate {
		text = strings.ReplaceAll(text, "SESSIONS", sessions)
		if _, err := b.pool.Exec(t.Context(), b.sql(text)); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return b
}

// TestPlans checks plans on tables that are filled once.
func TestPlans(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 2)
	b := openPopulated(t)
	t.Run("listings of a user", func(t *testing.T) { checkListingsOfAUser(t, b) })
	t.Run("waiting calls", func(t *testing.T) { checkWaitingPlans(t, b) })
	t.Run("sweeps", func(t *testing.T) { checkSweepPlans(t, b) })
	t.Run("all queries", func(t *testing.T) { checkQueryPlans(t, b) })
	t.Run("rows that sweeps read", func(t *testing.T) { checkSweepRows(t, b) })
}

// checkSweepRows requires of each list of a sweep that it reads at most one row more than it
// returns, however many sessions there are, and however many are due later.
func checkSweepRows(t *testing.T, b *Backend) {
	t.Helper()
	const due = 40
	for _, statement := range []string{
		"UPDATE helix.sessions SET lease_until = now() + number * interval '1 second', run_status = 'running', owner = 'o' WHERE number % 10 = 1",
		"UPDATE helix.sessions SET lease_until = now() - interval '1 hour' WHERE number IN (SELECT number FROM helix.sessions WHERE number % 10 = 1 ORDER BY number LIMIT 40)",
		"UPDATE helix.sessions SET expires_at = now() - interval '1 hour' WHERE number IN (SELECT number FROM helix.sessions WHERE expires_at IS NOT NULL AND status IN ('active', 'interrupted') ORDER BY number LIMIT 40)",
		"UPDATE helix.sessions SET close_owed_at = now() + number * interval '1 second' WHERE close_owed_at IS NOT NULL",
		"UPDATE helix.sessions SET close_owed_at = now() - interval '1 hour', run_status = 'completed' WHERE number IN (SELECT number FROM helix.sessions WHERE number % 10 = 2 ORDER BY number LIMIT 40)",
		"UPDATE helix.pending SET deadline = now() - interval '1 hour' WHERE number IN (SELECT p.number FROM helix.pending p JOIN helix.sessions s ON s.number = p.session WHERE p.state = 'waiting' AND s.status <> 'paused' ORDER BY p.number LIMIT 40)",
		"ANALYZE helix.sessions, helix.pending",
	} {
		if _, err := b.pool.Exec(t.Context(), b.sql(statement)); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	for name, c := range map[string]struct{ query, table string }{
		"deadlines": {sweepDeadlines, "pending"}, "leases": {sweepLeases, "sessions"}, "expired sessions": {sweepExpired, "sessions"},
		"pending closes": {sweepPendingCloses, "sessions"},
	} {
		for _, size := range []int{25, 512} {
			returned, read, plan := analyze(t, b, c.query, c.table, fmt.Sprintf("NULL, '-infinity', '', '', '', %d, NULL, 0, ''", size))
			if want := min(size, due); returned != want || read > want+1 {
				t.Errorf("%s: it reads %d rows to return %d, not %d\n%s", name, read, returned, want, plan)
			}
		}
	}
	returned, read, plan := analyze(t, b, sweepWakes, "wakes", "'-infinity', '', '', '', 25")
	if returned != 25 || read > 26 {
		t.Errorf("wakes: it reads %d rows to return %d\n%s", read, returned, plan)
	}
}

// planNode is a step of a plan that was carried out.
type planNode struct {
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Checked  float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

// read returns how many rows of a table were read.
func (n planNode) read(table string) (rows int) {
	if n.Relation == table {
		rows = int((n.Rows + n.Removed + n.Checked) * n.Loops)
	}
	for _, below := range n.Plans {
		rows += below.read(table)
	}
	return rows
}

// analyze carries a query out with its generic plan, and returns how many rows it has returned, and
// how many of the given table it has read.
func analyze(t *testing.T, b *Backend, text, table, args string) (returned, read int, plan string) {
	t.Helper()
	err := b.pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		for _, statement := range []string{"PREPARE analyzed AS " + b.sql(text), "SET plan_cache_mode = force_generic_plan"} {
			if _, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		execute := "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE analyzed(" + args + ")"
		if err := conn.QueryRow(t.Context(), execute, pgx.QueryExecModeSimpleProtocol).Scan(&plan); err != nil {
			return err
		}
		_, err := conn.Exec(t.Context(), "RESET plan_cache_mode; DEALLOCATE analyzed", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var out []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(plan), &out); err != nil {
		t.Fatal(err)
	}
	return int(out[0].Plan.Rows), out[0].Plan.read(table), plan
}

// checkSweepPlans requires that the time bounds what a sweep reads of its index.
func checkSweepPlans(t *testing.T, b *Backend) {
	t.Helper()
	for name, query := range map[string]string{
		"deadlines": sweepDeadlines, "leases": sweepLeases, "expired sessions": sweepExpired, "pending closes": sweepPendingCloses,
	} {
		plan := explain(t, b, query)
		bound := false
		for line := range strings.Lines(plan) {
			bound = bound || strings.Contains(line, "Index Cond") && strings.Contains(line, "statement_timestamp()")
		}
		if !bound || strings.Contains(plan, "Sort") {
			t.Errorf("%s: the time does not bound the index, or the order is not that of the index\n%s\n%s", name, query, plan)
		}
	}
}

// checkListingsOfAUser requires that listings of one user's sessions read no
// sessions of other users, and that listings by activity read only sessions with
// that activity.
func checkListingsOfAUser(t *testing.T, b *Backend) {
	t.Helper()
	for name, index := range map[string]string{
		"user's tags": "sessions_by_user", "user's values": "sessions_by_user", "tag and dates": "sessions_by_user",
		"user's runs": "sessions_by_user_activity", "all runs": "sessions_by_activity",
		"user's waits": "sessions_by_user_activity", "all waits": "sessions_by_activity",
	} {
		q := listings()[name]
		l := newListing("default", &q)
		for _, query := range []string{l.count(), l.page(21, 0)} {
			plan := explain(t, b, query)
			if !strings.Contains(plan, index) || strings.Contains(plan, "_by_tag") || strings.Contains(plan, "_by_value") ||
				strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Join") {
				t.Errorf("%s: the plan does not read only %s\n%s\n%s", name, index, query, plan)
			}
		}
	}
}

// checkWaitingPlans requires that waiting calls are read from their indexes, in
// their order.
func checkWaitingPlans(t *testing.T, b *Backend) {
	t.Helper()
	for name, q := range inboxQueries() {
		index := "pending_waiting "
		if q.UserID != "" {
			index = "pending_waiting_by_user "
		}
		x := newInbox("default", &q)
		first, _ := x.page(&q, nil, 51, 0)
		next, _ := x.page(&q, &session.Position{N: 1, ID: "1"}, 51, 0)
		for _, query := range []string{first, next} {
			plan := explain(t, b, query)
			if !strings.Contains(plan, index) || strings.Contains(plan, "Sort") || strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s: the plan does not read %s in its order\n%s\n%s", name, index, query, plan)
			}
		}
	}
}

// TestCommitsIgnoreRunning requires that commits find their session by its id,
// even before the tables were analyzed, when all indexes look alike.
func TestCommitsIgnoreRunning(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	for name, query := range queries(b.Sessions().(tenantStore).sessions) {
		if !strings.HasPrefix(name, "commit ") {
			continue
		}
		if plan := explain(t, b, query); strings.Contains(plan, "sessions_running") || strings.Contains(plan, "activity") || !strings.Contains(plan, "sessions_by_id") {
			t.Errorf("%s: it does not find the session by its id\n%s\n%s", name, query, plan)
		}
	}
}

// checkQueryPlans checks the plans that the backend's connections use.
func checkQueryPlans(t *testing.T, b *Backend) {
	t.Helper()
	s := b.Sessions().(tenantStore).sessions
	all := queries(s)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		query := all[name]
		plan := explain(t, b, query)
		for _, bad := range []string{"Seq Scan", "Sort Key: s.created_at"} {
			if strings.Contains(plan, bad) {
				t.Errorf("%s: %s\n%s\n%s", name, bad, query, plan)
			}
		}
	}
}

var place = regexp.MustCompile(`\$(\d+)`)

// explain returns the generic plan of a query.
func explain(t *testing.T, b *Backend, text string) string {
	t.Helper()
	places := 0
	for _, match := range place.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1])
		places = max(places, n)
	}
	execute := "EXPLAIN EXECUTE planned"
	if places > 0 {
		execute += "(NULL" + strings.Repeat(", NULL", places-1) + ")"
	}
	var plan strings.Builder
	err := b.pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(t.Context(), "PREPARE planned AS "+b.sql(text), pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, err := conn.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		err = eachRow(rows, func(rows pgx.Rows) error {
			var line string
			err := rows.Scan(&line)
			fmt.Fprintln(&plan, line)
			return err
		})
		if err != nil {
			return err
		}
		_, err = conn.Exec(t.Context(), "DEALLOCATE planned")
		return err
	})
	if err != nil {
		t.Fatalf("explain: %v\n%s", err, text)
	}
	return plan.String()
}
