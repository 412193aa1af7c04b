package helix

import (
	"context"

	"github.com/helixagents/helix/session"
)

// PutBlob stores bytes that belong to the conversation but not into a message, such as a
// file, an image or a long output, and returns the reference by which a result names
// them. They have at most 16 MiB, count against the size of the session, and live until
// the conversation is deleted; branches of it have them, too. To put the same bytes again
// costs nothing more, so a tool that is carried out again does no harm.
func (s *Scope) PutBlob(ctx context.Context, data []byte) (ref string, err error) {
	if s.env == nil {
		return "", errNoRun
	}
	return s.env.PutBlob(ctx, data)
}

// Blob returns bytes that an agent of the conversation, or of the one that it was
// branched from, has put. Others' bytes are [ErrNotFound], also to those who know the
// reference.
func (s *Scope) Blob(ctx context.Context, ref string) ([]byte, error) {
	if s.env == nil {
		return nil, errNoRun
	}
	return s.env.Blob(ctx, ref)
}

var errNoRun = session.ErrNotSupported.WithMessage("blobs exist only within a run")
