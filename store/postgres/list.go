package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// listing is the SQL of a [session.Query]: it reads one index, newest first, and
// tests the other conditions on the rows it finds. It uses the index that leaves
// the fewest rows to test.
type listing struct {
	from  string // what is read; creation times and ids come from its first table
	first string // the name of that table
	where []string
	args  []any
}

// arg adds a parameter and returns its placeholder.
func (l *listing) arg(v any) string {
	l.args = append(l.args, v)
	return fmt.Sprintf("$%d", len(l.args))
}

func (l *listing) add(format string, args ...any) {
	places := make([]any, len(args))
	for i, v := range args {
		places[i] = l.arg(v)
	}
	l.where = append(l.where, fmt.Sprintf(format, places...))
}

const (
	fromTags     = "helix.session_tags d JOIN helix.sessions s ON s.number = d.session"
	fromMetadata = "helix.session_metadata d JOIN helix.sessions s ON s.number = d.session"
	fromSessions = "helix.sessions s"

	// The planner could turn EXISTS into a join that reads the tags of all sessions.
	// The array is built for each session from its own tags.
	hasTag      = "%s = ANY (ARRAY(SELECT x.tag FROM helix.session_tags x WHERE x.session = s.number))"
	hasMetadata = "%[2]s = ANY (ARRAY(SELECT x.value FROM helix.session_metadata x WHERE x.session = s.number AND x.name = %[1]s))"
	isMetadata  = "d.tenant = %s AND d.name = %s AND left(d.value, 100) = left(%s, 100) AND d.value = %s"
)

// activity is a session's activity, as [session.ActivityOf] defines it. Indexes
// have exactly this expression.
const activity = `CASE s.status WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'failed' WHEN 'active' THEN CASE s.run_status ` +
	`WHEN '' THEN 'new' WHEN 'running' THEN 'running' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'failed' ` +
	`WHEN 'interrupted' THEN 'stopped' ELSE 'waiting' END ELSE 'stopped' END`

// newListing builds the conditions of a query.
func newListing(tenant string, q *session.Query) *listing {
	l := &listing{from: fromSessions, first: "s"}
	tags, names := q.Tags, slices.Sorted(maps.Keys(q.Metadata))
	own := q.Activity != "" || q.UserID != "" || q.ParentID != ""
	switch {
	case own: // sessions of others with the same tags cost nothing then
		l.add("s.tenant = %s", tenant)
	case len(tags) > 0:
		l.from, l.first = fromTags, "d"
		l.add("d.tenant = %s AND d.tag = %s", tenant, tags[0])
		tags = tags[1:]
	case len(names) > 0:
		l.from, l.first = fromMetadata, "d"
		value := q.Metadata[names[0]]
		l.add(isMetadata, tenant, names[0], value, value)
		names = names[1:]
	default:
		l.add("s.tenant = %s", tenant)
	}
	for _, tag := range tags {
		l.add(hasTag, tag)
	}
	for _, name := range names {
		l.add(hasMetadata, name, q.Metadata[name])
	}
	l.addColumns(q)
	return l
}

// addColumns adds the conditions on the session's own row.
func (l *listing) addColumns(q *session.Query) {
	if q.Activity != "" {
		l.add(activity+" = %s AND s.number > 0", string(q.Activity))
	}
	for i := range stored.Columns {
		l.addColumn(&stored.Columns[i], q)
	}
	switch len(q.Statuses) {
	case 0:
	case 1:
		l.add("s.status = %s", string(q.Statuses[0]))
	default:
		l.add("s.status = ANY (%s::text[])", q.Statuses)
	}
	if q.RootsOnly {
		l.where = append(l.where, "s.parent_id = ''")
	}
	if !q.CreatedAfter.IsZero() {
		l.add(l.created()+" > %s", when(q.CreatedAfter))
	}
	if !q.CreatedBefore.IsZero() {
		l.add(l.created()+" < %s", q.CreatedBefore.Add(time.Microsecond-1).Truncate(time.Microsecond))
	}
}

// addColumn adds the condition of a query on a column. The comparison with the
// literal allows the planner to use a sparse index.
func (l *listing) addColumn(c *stored.Column, q *session.Query) {
	if c.Asked == nil || c.Asked(q) == "" {
		return
	}
	condition := "s." + c.Name + " = %s"
	if c.Sparse {
		condition += " AND s." + c.Name + " <> ''"
	}
	l.add(condition, c.Asked(q))
}

// created and id are the columns that order the listing.
func (l *listing) created() string { return l.first + ".created_at" }

func (l *listing) id() string {
	if l.first == "s" {
		return "s.id"
	}
	return "d.session_id"
}

// after makes the listing continue after a position.
func (l *listing) after(at session.Position) {
	l.add("("+l.created()+", "+l.id()+") < (%s, %s)", time.Unix(0, at.N).UTC(), at.ID)
}

// page returns the query for one page, with one extra item that shows whether
// there are more. The limit is part of the text: a plan for any limit would sort
// the rows instead of reading the index in its order.
func (l *listing) page(limit, offset int) string {
	text := `
SELECT s.id, s.status, s.run_status, s.turn, s.message_count, s.created_at, s.updated_at, ` + columnNames("s.") + `
FROM ` + l.from + `
WHERE ` + strings.Join(l.where, " AND ") + `
ORDER BY ` + l.created() + ` DESC, ` + l.id() + ` DESC
LIMIT ` + strconv.Itoa(limit+1)
	if offset > 0 {
		text += ` OFFSET ` + l.arg(offset)
	}
	return text
}

func (l *listing) count() string {
	return "SELECT count(*) FROM " + l.from + " WHERE " + strings.Join(l.where, " AND ")
}

// List implements [session.Lister].
func (s *sessions) List(ctx context.Context, query session.Query) (page session.Page[session.Summary], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	err = s.b.read(ctx, "list sessions", func(ctx context.Context, t *tx) error {
		page = session.Page[session.Summary]{Items: []session.Summary{}, Limit: query.Size(), Offset: query.Skip()}
		l := newListing(s.tenant, &query)
		if query.Total {
			page.Total = new(int)
			t.ask(func(rows pgx.Rows) error { return rows.Scan(page.Total) }, l.count(), slices.Clone(l.args)...)
		}
		if resumed {
			l.after(at)
		}
		text := l.page(page.Limit, query.Skip())
		t.ask(func(rows pgx.Rows) error {
			is := session.State{Tenant: s.tenant}
			var run session.RunStatus
			err := rows.Scan(append([]any{
				&is.ID, &is.Status, &run, &is.Turn, &is.MessageCount, instant{&is.CreatedAt}, instant{&is.UpdatedAt},
			}, scanColumns(&is)...)...)
			page.Items = append(page.Items, is.Summary(run))
			return err
		}, text, l.args...)
		if err := t.flush(ctx); err != nil {
			return err
		}
		return s.finishListing(ctx, t, &page)
	})
	if err != nil {
		return session.Page[session.Summary]{}, err
	}
	return page, nil
}

// finishListing removes the extra item that shows whether there are more, and adds
// tags and metadata to the others.
func (s *sessions) finishListing(ctx context.Context, t *tx, page *session.Page[session.Summary]) error {
	if len(page.Items) > page.Limit {
		page.Items = page.Items[:page.Limit]
		last := &page.Items[page.Limit-1]
		page.HasMore = true
		page.Next = session.Position{N: last.CreatedAt.UnixNano(), ID: last.ID}.Cursor()
	}
	if len(page.Items) == 0 {
		return nil
	}
	ids := make([]string, len(page.Items))
	for i := range page.Items {
		ids[i] = page.Items[i].ID
	}
	labels := s.askLabels(t, ids...)
	if err := t.finish(ctx); err != nil {
		return err
	}
	for i := range page.Items {
		item := &page.Items[i]
		item.Tags, item.Metadata = labels.tags[item.ID], labels.metadata[item.ID]
	}
	return nil
}
