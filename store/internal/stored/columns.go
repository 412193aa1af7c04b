package stored

import "github.com/helixagents/helix/session"

// Column is a column of a session's row that contains a field of its document.
type Column struct {
	Name string
	// Field returns a *string or a *time.Time of a document.
	Field func(*session.State) any
	// Asked returns the value that a query selects by; "" means any. It is nil if
	// listings do not select by the column.
	Asked func(*session.Query) string
	// Sparse is set if the column's index excludes empty values.
	Sparse bool
}

// Columns are the columns of document fields that callers write and listings
// select by or show, in every store that keeps sessions in tables. A new listed
// field is added here, with a migration of each of these stores that adds its
// column, and in the domain: [session.State], [session.Summary], [session.Query]
// and [session.Edit.Apply].
var Columns = [...]Column{
	{Name: "agent", Field: func(s *session.State) any { return &s.Agent }, Asked: func(q *session.Query) string { return q.Agent }},
	{Name: "user_id", Field: func(s *session.State) any { return &s.UserID }, Asked: func(q *session.Query) string { return q.UserID }, Sparse: true},
	{Name: "parent_id", Field: func(s *session.State) any { return &s.ParentID }, Asked: func(q *session.Query) string { return q.ParentID }, Sparse: true},
	{Name: "root_id", Field: func(s *session.State) any { return &s.RootID }},
	{Name: "stream_id", Field: func(s *session.State) any { return &s.StreamID }},
	{Name: "expires_at", Field: func(s *session.State) any { return &s.ExpiresAt }},
}
