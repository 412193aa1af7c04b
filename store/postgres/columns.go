package postgres

import (
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// columnNames lists the columns, each with the prefix.
func columnNames(prefix string) string {
	names := make([]string, len(stored.Columns))
	for i, c := range stored.Columns {
		names[i] = prefix + c.Name
	}
	return strings.Join(names, ", ")
}

// columnPlaces lists parameters for the columns, numbered from first.
func columnPlaces(first int) string {
	places := make([]string, len(stored.Columns))
	for i := range stored.Columns {
		places[i] = "$" + strconv.Itoa(first+i)
	}
	return strings.Join(places, ", ")
}

// columnSets lists assignments of such parameters to the columns.
func columnSets(first int) string {
	sets := make([]string, len(stored.Columns))
	for i, c := range stored.Columns {
		sets[i] = c.Name + " = $" + strconv.Itoa(first+i)
	}
	return strings.Join(sets, ", ")
}

// scanColumns returns the scan targets of a row's columns.
func scanColumns(s *session.State) []any {
	out := make([]any, len(stored.Columns))
	for i := range stored.Columns {
		out[i] = stored.Columns[i].Field(s)
		if at, ok := out[i].(*time.Time); ok {
			out[i] = instant{at}
		}
	}
	return out
}

// columnArgs returns the columns' values as parameters.
func columnArgs(s *session.State) []any {
	out := make([]any, len(stored.Columns))
	for i := range stored.Columns {
		switch field := stored.Columns[i].Field(s).(type) {
		case *string:
			out[i] = *field
		case *time.Time:
			out[i] = when(*field)
		}
	}
	return out
}
