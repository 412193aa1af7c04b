package lite

import (
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
)

// queries lists the queries of listings, sweeps and turns by name. None may scan a
// table.
func queries() map[string]string {
	out := map[string]string{
		"header": selectHeader, "stream": selectStream, "renew tree": renewTree, "tree's stops": selectTreeStops, "children": selectChildSessions,
		"due deadlines": sweepDeadlines, "expired leases": sweepLeases, "expired sessions": sweepExpired,
		"pending closes": sweepPendingCloses, "wakes": sweepWakes, "release tree": releaseTree, "open pending": selectPendingOpen, "awaited children": selectAwaited,
		"inbox": selectInbox, "run by id": byID, "run by request": byRequest, "message by id": selectMessageKey,
		"state": selectStateLog, "batches": selectBatches, "batch at": selectBatchAt, "trim": deleteBatches, "measure": measureBatches,
		"delete pending": ownedByID[2], "answered": selectAnswered, "old calls": selectOldCalls,
	}
	for _, query := range ownedByNumber {
		out[query] = query
	}
	for name, query := range coldsql.BlobQueries() {
		out[name] = query.SQLite
	}
	for name, q := range map[string]session.Query{
		"all":           {},
		"user":          {UserID: "u"},
		"agent":         {Agent: "a"},
		"parent":        {ParentID: "p"},
		"status":        {Statuses: []session.Status{session.Active}},
		"statuses":      {Statuses: session.Statuses()},
		"roots":         {RootsOnly: true},
		"tag":           {Tags: []string{"t"}},
		"tags":          {Tags: []string{"t", "u"}, Metadata: map[string]string{"k": "v"}},
		"metadata":      {Metadata: map[string]string{"k": "v", "l": "w"}},
		"dates":         {CreatedAfter: time.Unix(1, 0), CreatedBefore: time.Unix(2, 0)},
		"user, status":  {UserID: "u", Statuses: []session.Status{session.Active}, Agent: "a"},
		"tag and dates": {Tags: []string{"t"}, CreatedAfter: time.Unix(1, 0), UserID: "u"},
		"user's tags":   {Tags: []string{"t", "v"}, UserID: "u"},
		"user's values": {Metadata: map[string]string{"k": "v", "l": "w"}, UserID: "u"},
		"user's runs":   {UserID: "u", Activity: session.ActivityRunning, RootsOnly: true},
		"waiting":       {Activity: session.ActivityWaiting},
	} {
		l := newListing("tenant", &q)
		out["list "+name] = l.page()
		out["count "+name] = l.count()
		l.add("("+l.created()+", "+l.id()+") < (?, ?)", 1, "id")
		out["list on "+name] = l.page()
	}
	for name, q := range map[string]session.WaitingQuery{"all": {}, "a user's": {UserID: "u"}} {
		for _, q.NewestFirst = range []bool{false, true} {
			out[fmt.Sprintf("waiting %s, newest first %v", name, q.NewestFirst)] = waitingQuery(&q, false)
			out[fmt.Sprintf("waiting on %s, newest first %v", name, q.NewestFirst)] = waitingQuery(&q, true)
		}
	}
	out["count waiting"], out["count a user's waiting"] = "SELECT count(*) "+waitingCalls, "SELECT count(*) "+waitingCallsOfUser
	out["link"] = selectLink
	for name, query := range coldsql.TaskQueries() {
		out[name] = query.SQLite
	}
	return out
}

// TestListingsOfAUser requires that listings of one user's sessions read no
// sessions of other users, and that listings by activity read only sessions with
// that activity.
func TestListingsOfAUser(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	for name, c := range map[string]struct {
		q    session.Query
		want []string
	}{
		"tags": {
			session.Query{UserID: "u", Tags: []string{"t", "v"}},
			[]string{"SEARCH s USING INDEX sessions_by_user (tenant=? AND user_id=?)", "SEARCH x USING PRIMARY KEY (tenant=? AND session_id=?)"},
		},
		"metadata": {
			session.Query{UserID: "u", Metadata: map[string]string{"k": "v"}},
			[]string{"SEARCH s USING INDEX sessions_by_user (tenant=? AND user_id=?)", "SEARCH x USING PRIMARY KEY (tenant=? AND session_id=? AND name=?)"},
		},
		"running": {
			session.Query{UserID: "u", Activity: session.ActivityRunning, RootsOnly: true},
			[]string{"SEARCH s USING INDEX sessions_by_user_activity (tenant=? AND user_id=? AND activity=?)"},
		},
		"running, tags": {
			session.Query{UserID: "u", Activity: session.ActivityRunning, Tags: []string{"t"}},
			[]string{"sessions_by_user_activity (tenant=? AND user_id=? AND activity=?)", "SEARCH x USING PRIMARY KEY"},
		},
		"all waiting": {
			session.Query{Activity: session.ActivityWaiting}, []string{"SEARCH s USING INDEX sessions_by_activity (tenant=? AND activity=?)"},
		},
	} {
		l := newListing("tenant", &c.q)
		for _, query := range []string{l.page(), l.count()} {
			plan := strings.NewReplacer("COVERING ", "", "EXISTS ", "").Replace(strings.Join(explain(t, db, query), "\n"))
			for _, want := range c.want {
				if !strings.Contains(plan, want) {
					t.Errorf("%s: the plan does not contain %q\n%s\n%s", name, want, query, plan)
				}
			}
			if strings.Contains(plan, "SCAN") || strings.Contains(plan, "_by_tag") || strings.Contains(plan, "_by_value") {
				t.Errorf("%s: other users' sessions are read\n%s\n%s", name, query, plan)
			}
		}
	}
}

func TestQueryPlans(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	for _, name := range slices.Sorted(maps.Keys(queries())) {
		query := queries()[name]
		for _, step := range explain(t, db, query) {
			constant := strings.HasPrefix(step, "SCAN CONSTANT") || strings.HasPrefix(step, "SCAN json_each VIRTUAL") // or a parameter
			if strings.HasPrefix(step, "SCAN") && !constant || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s: %s\n%s", name, step, query)
			}
		}
	}
}

// TestTenantsOfTasks requires that the tenants of due tasks are visited through the index.
func TestTenantsOfTasks(t *testing.T) {
	t.Parallel()
	plan := strings.Join(explain(t, openTest(t), coldsql.TenantsQuery().SQLite), "\n")
	if strings.Contains(plan, "SCAN x") || strings.Contains(plan, "SCAN t") || !strings.Contains(plan, "SEARCH x USING INDEX tasks_by_kind") ||
		!strings.Contains(plan, "SEARCH t USING PRIMARY KEY (tenant=? AND session_id=? AND id=?)") {
		t.Errorf("the plan is\n%s", plan)
	}
}

// openTest opens a database with empty tables.
func openTest(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "helix.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	steps, err := Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if _, err := db.ExecContext(t.Context(), step.Text); err != nil {
			t.Fatalf("migration %s: %v", step.Name, err)
		}
	}
	return db
}

// explain returns the steps of a query's plan.
func explain(t *testing.T, db *sql.DB, query string) (plan []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatalf("explain %s: %v", query, err)
		}
		plan = append(plan, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	return plan
}
