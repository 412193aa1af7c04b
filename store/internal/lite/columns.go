package lite

import (
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// columnNames lists the columns, each with the prefix and suffix.
func columnNames(prefix, suffix string) string {
	var names []string
	for _, c := range stored.Columns {
		names = append(names, prefix+c.Name+suffix)
	}
	return strings.Join(names, ", ")
}

// cells are the values of the columns, in a form that can be compared.
type cells [len(stored.Columns)]cell

// cell is a text or a time.
type cell struct {
	text string
	time instant
}

// cellsOf returns the cells of a document.
func cellsOf(s *session.State) (out cells) {
	for i := range stored.Columns {
		switch field := stored.Columns[i].Field(s).(type) {
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
	out := make([]any, len(stored.Columns))
	for i := range stored.Columns {
		switch field := stored.Columns[i].Field(s).(type) {
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
	for i := range stored.Columns {
		switch field := stored.Columns[i].Field(s).(type) {
		case *string:
			*field = r.Text()
		case *time.Time:
			*field = r.Time()
		}
	}
}
