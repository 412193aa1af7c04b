package sqlite

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// queries lists what a listing, a sweep or a turn asks, by name. None may look
// through a table.
func queries() map[string]string {
	out := map[string]string{
		"header": selectHeader, "stream": selectStream, "renew tree": renewTree, "children": selectChildSessions,
		"due deadlines": sweepDeadlines, "expired leases": sweepLeases, "expired sessions": sweepExpired,
		"owed closes": sweepOwing, "wakes": sweepWakes, "release tree": releaseTree, "open pending": selectPendingOpen, "awaited children": selectAwaited,
		"inbox": selectInbox, "run by id": byID, "run by request": byRequest, "message by id": selectMessageKey,
		"state": selectStateLog, "batches": selectBatches, "batch at": selectBatchAt, "trim": deleteBatches,
		"delete pending": ownedByID[2], "answered": selectAnswered,
	}
	for _, query := range ownedByNumber {
		out[query] = query
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
	} {
		l := newListing("tenant", &q)
		out["list "+name] = l.page()
		out["count "+name] = l.count()
		l.add("("+l.created()+", "+l.id()+") < (?, ?)", 1, "id")
		out["list on "+name] = l.page()
	}
	return out
}

func TestQueryPlans(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	for _, name := range slices.Sorted(maps.Keys(queries())) {
		query := queries()[name]
		for _, step := range explain(t, b, query) {
			if strings.HasPrefix(step, "SCAN") && !strings.HasPrefix(step, "SCAN CONSTANT") || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s: %s\n%s", name, step, query)
			}
		}
	}
}

// explain lists the steps of a query's plan.
func explain(t *testing.T, b *Backend, query string) (plan []string) {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	err := b.read(t.Context(), "explain", func(c *conn) error {
		for r, err := range c.query("EXPLAIN QUERY PLAN "+query, args...) {
			if err != nil {
				return err
			}
			r.next = 3 // after id, parent, notused
			plan = append(plan, r.text())
		}
		return nil
	})
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	return plan
}
