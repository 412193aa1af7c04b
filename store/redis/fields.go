package redis

import (
	"time"

	"github.com/helixagents/helix/session"
)

// documentField is a field of a session's header that holds one of its document.
type documentField struct {
	name string
	// of is a *string or a *time.Time of a document.
	of func(*session.State) any
	// index is the index of sessions by the field's value; "" if there is none.
	index string
	// listed is set for what a summary shows or a query selects by.
	listed bool
}

// documentFields are those of the document that callers write and lists select by or
// show, beside status and labels. A field that lists are to know is added here, and
// in the domain: [session.State], [session.Summary], [session.Query] and
// [session.Edit.Apply]. One that lists are to be fast for also gets an index, which
// narrowest then chooses.
var documentFields = [...]documentField{
	{name: "agent", of: func(s *session.State) any { return &s.Agent }, index: indexAgent, listed: true},
	{name: "user", of: func(s *session.State) any { return &s.UserID }, index: indexUser, listed: true},
	{name: "parent", of: func(s *session.State) any { return &s.ParentID }, index: indexParent, listed: true},
	{name: "root", of: func(s *session.State) any { return &s.RootID }, index: indexRoot},
	{name: "stream", of: func(s *session.State) any { return &s.StreamID }},
	{name: "expires", of: func(s *session.State) any { return &s.ExpiresAt }},
}

// readFields reads the fields of a header.
func readFields(s *session.State, raw map[string]string) {
	for i := range documentFields {
		switch field := documentFields[i].of(s).(type) {
		case *string:
			*field = raw[documentFields[i].name]
		case *time.Time:
			*field = moment(raw[documentFields[i].name])
		}
	}
}

// writtenFields are the fields as a script is given them: name by name with the
// value.
func writtenFields(s *session.State) []any {
	out := make([]any, 0, 2*len(documentFields))
	for i := range documentFields {
		out = append(out, documentFields[i].name, documentFields[i].value(s))
	}
	return out
}

// value is what the header holds of a document's field.
func (f *documentField) value(s *session.State) string {
	if at, ok := f.of(s).(*time.Time); ok {
		return micros(*at)
	}
	return *f.of(s).(*string)
}

// listed are the fields of a header that a summary shows or a query selects by.
var listed = listedFields()

func listedFields() []string {
	out := []string{"v", "status", "tags", "meta", "turn", "msgs", "created", "updated", "rstatus", "run"}
	for _, f := range documentFields {
		if f.listed {
			out = append(out, f.name)
		}
	}
	return out
}
