package postgres

import (
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// tableColumn is a column of a session's row that contains a field of its
// document.
type tableColumn struct {
	name string
	// field is a *string or a *time.Time of a document.
	field func(*session.State) any
	// asked returns the value that a query selects by; "" means any. It is nil if
	// listings do not select by the column.
	asked func(*session.Query) string
	// sparse is set if the column's index excludes empty values.
	sparse bool
}

// documentColumns are the columns of document fields that callers write and
// listings select by or show. A new listed field is added here, with a migration
// that adds its column, and in the domain: [session.State], [session.Summary],
// [session.Query] and [session.Edit.Apply].
var documentColumns = [...]tableColumn{
	{name: "agent", field: func(s *session.State) any { return &s.Agent }, asked: func(q *session.Query) string { return q.Agent }},
	{name: "user_id", field: func(s *session.State) any { return &s.UserID }, asked: func(q *session.Query) string { return q.UserID }, sparse: true},
	{name: "parent_id", field: func(s *session.State) any { return &s.ParentID }, asked: func(q *session.Query) string { return q.ParentID }, sparse: true},
	{name: "root_id", field: func(s *session.State) any { return &s.RootID }},
	{name: "stream_id", field: func(s *session.State) any { return &s.StreamID }},
	{name: "expires_at", field: func(s *session.State) any { return &s.ExpiresAt }},
}

// columnNames lists the columns, each with the prefix.
func columnNames(prefix string) string {
	names := make([]string, len(documentColumns))
	for i, c := range documentColumns {
		names[i] = prefix + c.name
	}
	return strings.Join(names, ", ")
}

// columnPlaces lists parameters for the columns, numbered from first.
func columnPlaces(first int) string {
	places := make([]string, len(documentColumns))
	for i := range documentColumns {
		places[i] = "$" + strconv.Itoa(first+i)
	}
	return strings.Join(places, ", ")
}

// columnSets lists assignments of such parameters to the columns.
func columnSets(first int) string {
	sets := make([]string, len(documentColumns))
	for i, c := range documentColumns {
		sets[i] = c.name + " = $" + strconv.Itoa(first+i)
	}
	return strings.Join(sets, ", ")
}

// scanColumns returns the scan targets of a row's columns.
func scanColumns(s *session.State) []any {
	out := make([]any, len(documentColumns))
	for i := range documentColumns {
		out[i] = documentColumns[i].field(s)
		if at, ok := out[i].(*time.Time); ok {
			out[i] = instant{at}
		}
	}
	return out
}

// columnArgs returns the columns' values as parameters.
func columnArgs(s *session.State) []any {
	out := make([]any, len(documentColumns))
	for i := range documentColumns {
		switch field := documentColumns[i].field(s).(type) {
		case *string:
			out[i] = *field
		case *time.Time:
			out[i] = when(*field)
		}
	}
	return out
}
