package stored

import "github.com/helixagents/helix/session"

// WithUniqueTags is a start whose new session has no tag twice. It is called before
// the transaction, which holds up others.
func WithUniqueTags(start *session.StartRun) *session.StartRun {
	if start.Create == nil {
		return start
	}
	out, create := *start, *start.Create
	create.Tags = session.UniqueTags(create.Tags)
	out.Create = &create
	return &out
}
