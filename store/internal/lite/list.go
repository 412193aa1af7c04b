package lite

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// listing is the SQL of a [session.Query]: it reads one index, newest first, and
// tests the other conditions on the rows it finds. It uses the index that leaves
// the fewest rows to test.
type listing struct {
	from  string // the index to read; its rows are called d
	where []string
	args  []any
}

func (l *listing) add(condition string, args ...any) {
	l.where = append(l.where, condition)
	l.args = append(l.args, args...)
}

const (
	// CROSS JOIN keeps the order of the tables.
	fromTags     = "session_tags d INDEXED BY session_tags_by_tag CROSS JOIN sessions s ON s.tenant = d.tenant AND s.id = d.session_id"
	fromMetadata = "session_metadata d INDEXED BY session_metadata_by_value CROSS JOIN sessions s ON s.tenant = d.tenant AND s.id = d.session_id"
	fromSessions = "sessions s INDEXED BY "

	// The unary + makes SQLite search the session's own rows instead of all rows with
	// the tag or value.
	hasTag      = "EXISTS (SELECT 1 FROM session_tags x WHERE x.tenant = s.tenant AND x.session_id = s.id AND +x.tag = ?)"
	hasMetadata = "EXISTS (SELECT 1 FROM session_metadata x WHERE x.tenant = s.tenant AND x.session_id = s.id AND x.name = ? AND +x.value = ?)"
)

// newListing chooses the index for a query and builds its conditions.
func newListing(tenant string, q *session.Query) *listing {
	l := &listing{}
	tags, names := q.Tags, slices.Sorted(maps.Keys(q.Metadata))
	index := sessionIndex(q)
	switch {
	case index != "": // sessions of others with the same tags cost nothing then
		l.from = fromSessions + index
		l.add("s.tenant = ?", tenant)
	case len(tags) > 0:
		l.from = fromTags
		l.add("d.tenant = ? AND d.tag = ?", tenant, tags[0])
		tags = tags[1:]
	case len(names) > 0:
		l.from = fromMetadata
		l.add("d.tenant = ? AND d.name = ? AND d.value = ?", tenant, names[0], q.Metadata[names[0]])
		names = names[1:]
	default:
		l.from = fromSessions + commonIndex(q)
		l.add("s.tenant = ?", tenant)
	}
	for _, tag := range tags {
		l.add(hasTag, tag)
	}
	for _, name := range names {
		l.add(hasMetadata, name, q.Metadata[name])
	}
	if q.Activity != "" {
		l.add("s.activity = ?", string(q.Activity))
	}
	for i := range stored.Columns {
		l.addColumn(&stored.Columns[i], q)
	}
	switch len(q.Statuses) {
	case 0:
	case 1:
		l.add("s.status = ?", q.Statuses[0])
	default:
		condition := "+s.status IN (" + placeholders(len(q.Statuses)) + ")" // the unary + keeps the order of the index
		args := make([]any, len(q.Statuses))
		for i := range q.Statuses {
			args[i] = q.Statuses[i]
		}
		l.add(condition, args...)
	}
	if q.RootsOnly {
		l.add("s.parent_id = ''")
	}
	if !q.CreatedAfter.IsZero() {
		l.add(l.created()+" > ?", q.CreatedAfter)
	}
	if !q.CreatedBefore.IsZero() {
		l.add(l.created()+" < ?", bound(q.CreatedBefore))
	}
	return l
}

// addColumn adds the condition of a query on a column. The comparison with the
// literal allows SQLite to use a sparse index.
func (l *listing) addColumn(c *stored.Column, q *session.Query) {
	if c.Asked == nil || c.Asked(q) == "" {
		return
	}
	condition := "s." + c.Name + " = ?"
	if c.Sparse {
		condition += " AND s." + c.Name + " <> ''"
	}
	l.add(condition, c.Asked(q))
}

// sessionIndex returns the index for a query by parent, user or activity, or ""
// for any other query.
func sessionIndex(q *session.Query) string {
	switch {
	case q.ParentID != "":
		return "sessions_by_parent"
	case q.UserID != "" && q.Activity != "":
		return "sessions_by_user_activity"
	case q.UserID != "":
		return "sessions_by_user"
	case q.Activity != "":
		return "sessions_by_activity"
	}
	return ""
}

// commonIndex returns the best of the other indexes.
func commonIndex(q *session.Query) string {
	switch {
	case q.Agent != "":
		return "sessions_by_agent"
	case len(q.Statuses) == 1:
		return "sessions_by_status"
	}
	return "sessions_by_age"
}

// created and id are the columns that order the index.
func (l *listing) created() string {
	if strings.HasPrefix(l.from, "sessions ") {
		return "s.created_at"
	}
	return "d.created_at"
}

func (l *listing) id() string {
	if strings.HasPrefix(l.from, "sessions ") {
		return "s.id"
	}
	return "d.session_id"
}

// page returns the query for one page; its parameters are the listing's args, a
// limit and an offset.
func (l *listing) page() string {
	return `
SELECT s.id, s.status, s.run_status, s.turn, s.message_count, s.created_at, s.updated_at, ` + columnNames("s.", "") + `
FROM ` + l.from + `
WHERE ` + strings.Join(l.where, " AND ") + `
ORDER BY ` + l.created() + ` DESC, ` + l.id() + ` DESC
LIMIT ? OFFSET ?`
}

func (l *listing) count() string {
	return "SELECT count(*) FROM " + l.from + " WHERE " + strings.Join(l.where, " AND ")
}

// List implements [session.Lister].
func (s *sessions) List(ctx context.Context, query session.Query) (page session.Page[session.Summary], err error) {
	at, ok, err := query.Position()
	if err != nil {
		return page, err
	}
	page = session.Page[session.Summary]{Items: []session.Summary{}, Limit: query.Size(), Offset: query.Skip()}
	err = s.b.Read(ctx, "list sessions", func(c Conn) error {
		l := newListing(s.tenant, &query)
		if query.Total {
			r, err := c.One(l.count(), l.args...)
			if err != nil {
				return err
			}
			total := r.Int()
			page.Total = &total
		}
		if ok {
			l.add("("+l.created()+", "+l.id()+") < (?, ?)", time.Unix(0, at.N), at.ID)
		}
		for r, err := range c.Query(l.page(), append(l.args, page.Limit+1, query.Skip())...) {
			if err != nil {
				return err
			}
			is := session.State{Tenant: s.tenant, ID: r.Text(), Status: session.Status(r.Text())}
			run := session.RunStatus(r.Text())
			is.Turn, is.MessageCount, is.CreatedAt, is.UpdatedAt = r.Int(), r.Int(), r.Time(), r.Time()
			r.columns(&is)
			page.Items = append(page.Items, is.Summary(run))
		}
		return s.finishListing(c, &page)
	})
	if err != nil {
		return session.Page[session.Summary]{}, err
	}
	return page, nil
}

// finishListing removes the extra item that shows whether there are more, and adds
// tags and metadata to the others.
func (s *sessions) finishListing(c Conn, page *session.Page[session.Summary]) (err error) {
	if len(page.Items) > page.Limit {
		page.Items = page.Items[:page.Limit]
		last := &page.Items[page.Limit-1]
		page.HasMore = true
		page.Next = session.Position{N: last.CreatedAt.UnixNano(), ID: last.ID}.Cursor()
	}
	for i := range page.Items {
		item := &page.Items[i]
		if item.Tags, item.Metadata, err = s.labels(c, item.ID); err != nil {
			return err
		}
	}
	return nil
}
