package server

import (
	"net/url"
	"strconv"
	"time"

	"github.com/helixagents/helix/session"
)

// query reads parameters and keeps the first error.
type query struct {
	url.Values
	err error
}

func (x *exchange) query() *query { return &query{Values: x.r.URL.Query()} }

func (q *query) refuse(name, format string, args ...any) {
	if name == "" {
		name = "query"
	}
	if q.err == nil {
		q.err = session.Invalid(name, format, args...)
	}
}

func (q *query) flag(name string) bool { return q.flagOr(name, false) }

// flagOr reads a flag with a default.
func (q *query) flagOr(name string, otherwise bool) bool {
	text := q.Get(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		q.refuse(name, "%.40q is neither true nor false", text)
	}
	return value
}

// number reads a whole number between least and most; a most of 0 means no limit.
func (q *query) number(name string, least, most int) int {
	text := q.Get(name)
	if text == "" {
		return 0
	}
	value, err := strconv.Atoi(text)
	switch {
	case err != nil:
		q.refuse(name, "%.40q is not a number", text)
	case most > 0 && (value < least || value > most):
		q.refuse(name, "is %d, but must be from %d to %d", value, least, most)
	case value < least:
		q.refuse(name, "is %d, but must be at least %d", value, least)
	}
	return value
}

func (q *query) time(name string) time.Time {
	text := q.Get(name)
	if text == "" {
		return time.Time{}
	}
	value, err := time.Parse(time.RFC3339, text)
	if err != nil {
		q.refuse(name, "%.40q is not a time such as 2006-01-02T15:04:05Z", text)
	}
	if year := value.UTC().Year(); year < 1 || year > 9999 { // the offset from UTC may exceed them
		q.refuse(name, "must be within the years 1 and 9999 in UTC")
	}
	return value
}

// maxOffset is the maximum number of skipped items, because stores read what they skip.
// Cursors have no such limit.
const maxOffset = 1_000_000

// page reads the parameters of every listing.
func (q *query) page() session.PageRequest {
	return session.PageRequest{
		Limit: q.number("limit", 1, session.MaxPageSize), Cursor: q.Get("cursor"), Offset: q.number("offset", 0, maxOffset), Total: q.flag("total"),
	}
}

// paging are the parameters of every listing.
var paging = []parameter{
	{name: "limit", kind: "integer", about: "How many items, at most 200. Defaults to 50."},
	{name: "cursor", kind: "string", about: "The next of the previous page."},
	{name: "offset", kind: "integer", about: "How many items to skip, without a cursor; at most 1000000."},
	{name: "total", kind: "boolean", about: "Also return the number of all items; the cost grows with it."},
}
