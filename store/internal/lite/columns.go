package lite

import (
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// column is a column of a session's row that contains a field of its document.
type column struct {
	name string
	// field is a *string or a *time.Time of a document.
	field func(*session.State) any
	// asked returns the value that a query selects by; "" means any. It is nil if
	// listings do not select by the column.
	asked func(*session.Query) string
	// sparse is set if the column's index excludes empty values.
	sparse bool
}

// columns are the columns of document fields that callers write and listings
// select by or show. A new listed field is added here, with a migration that adds
// its column, and in the domain: [session.State], [session.Summary],
// [session.Query] and [session.Edit.Apply].
var columns = [...]column{
	{name: "agent", field: func(s *session.State) any { return &s.Agent }, asked: func(q *session.Query) string { return q.Agent }},
	{name: "user_id", field: func(s *session.State) any { return &s.UserID }, asked: func(q *session.Query) string { return q.UserID }, sparse: true},
	{name: "parent_id", field: func(s *session.State) any { return &s.ParentID }, asked: func(q *session.Query) string { return q.ParentID }, sparse: true},
	{name: "root_id", field: func(s *session.State) any { return &s.RootID }},
	{name: "stream_id", field: func(s *session.State) any { return &s.StreamID }},
	{name: "expires_at", field: func(s *session.State) any { return &s.ExpiresAt }},
}

// columnNames lists the columns, each with the prefix and suffix.
func columnNames(prefix, suffix string) string {
	var names []string
	for _, c := range columns {
		names = append(names, prefix+c.name+suffix)
	}
	return strings.Join(names, ", ")
}

// cells are the values of the columns, in a form that can be compared.
type cells [len(columns)]cell

// cell is a text or a time.
type cell struct {
	text string
	time instant
}

// cellsOf returns the cells of a document.
func cellsOf(s *session.State) (out cells) {
	for i := range columns {
		switch field := columns[i].field(s).(type) {
		case *string:
			out[i].text = *field
		case *time.Time:
			out[i].time = instantOf(*field)
		}
	}
	return out
}

// columnArgs returns the columns of a document as parameters.
func columnArgs(s *session.State) []any {
	out := make([]any, len(columns))
	for i := range columns {
		switch field := columns[i].field(s).(type) {
		case *string:
			out[i] = *field
		case *time.Time:
			out[i] = *field
		}
	}
	return out
}

// columns reads the columns, which are next in the row, into a document.
func (r *Row) columns(s *session.State) {
	for i := range columns {
		switch field := columns[i].field(s).(type) {
		case *string:
			*field = r.Text()
		case *time.Time:
			*field = r.Time()
		}
	}
}
