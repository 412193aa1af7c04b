package redis

import (
	"time"

	"github.com/helixagents/helix/session"
)

// documentField is a field of a session's header that contains a field of its
// document.
type documentField struct {
	name string
	// of is a *string or a *time.Time of a document.
	of func(*session.State) any
	// index is the index of sessions by the field's value; "" if there is none.
	index string
	// listed is set if a summary shows the field or a query selects by it.
	listed bool
}

// documentFields are the fields of the document that callers write and listings
// select by or show, beside status and labels. A new listed field is added here,
// and in the domain: [session.State], [session.Summary], [session.Query] and
// [session.Edit.Apply]. For fast listings it also gets an index, which narrowest
// then chooses.
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

// writtenFields returns the fields in the form that a script takes: each name
// followed by its value.
func writtenFields(s *session.State) []any {
	out := make([]any, 0, 2*len(documentFields))
	for i := range documentFields {
		out = append(out, documentFields[i].name, documentFields[i].value(s))
	}
	return out
}

// value returns the header's form of a document's field.
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
