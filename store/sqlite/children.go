package sqlite

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

const (
	selectChild = `
SELECT child_id, doc FROM children WHERE tenant = ? AND session_id = ? AND child_id = ?`

	selectChildren = `
SELECT child_id, doc FROM children WHERE tenant = ? AND session_id = ? ORDER BY number`

	selectAwaited = `
SELECT child_id, doc FROM children INDEXED BY children_awaited
WHERE tenant = ? AND session_id = ? AND awaited = 1
ORDER BY number`

	// A reference that is replaced keeps its place.
	upsertChild = `
INSERT INTO children (tenant, session_id, child_id, awaited, doc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET awaited = excluded.awaited, doc = excluded.doc`
)

// children lists references of a session.
func (s *sessions) children(c *conn, query, id string) ([]session.ChildRef, error) {
	var out []session.ChildRef
	for r, err := range c.query(query, s.tenant, id) {
		if err != nil {
			return nil, err
		}
		ref, err := decodeChild(id, r)
		if err != nil {
			return nil, err
		}
		out = append(out, *ref)
	}
	return out, nil
}

func decodeChild(id string, r *row) (*session.ChildRef, error) {
	ref := &session.ChildRef{}
	return ref, session.Decode("session "+id+": child "+r.text(), r.bytes(), ref)
}

// child reads one reference; nil if there is none.
func (s *sessions) child(c *conn, id, childID string) (*session.ChildRef, error) {
	r, err := c.one(selectChild, s.tenant, id, childID)
	if err != nil || r == nil {
		return nil, err
	}
	return decodeChild(id, r)
}

func (s *sessions) putChild(t *tx, id string, ref *session.ChildRef) error {
	doc, err := session.Encode(ref)
	if err != nil {
		return session.ErrInvalid.WithCause(err, "child %s cannot be encoded", ref.SessionID)
	}
	_, err = t.exec(upsertChild, s.tenant, id, ref.SessionID, ref.Awaited, doc)
	return err
}

// putChildNow adds or replaces a reference. What a replacement leaves out about
// its age is kept, and a child that is remote stays remote.
func (s *sessions) putChildNow(t *tx, id string, ref session.ChildRef, now time.Time) error {
	old, err := s.child(t.conn, id, ref.SessionID)
	if err != nil {
		return err
	}
	if old != nil {
		if ref.CreatedAt.IsZero() {
			ref.CreatedAt = old.CreatedAt
		}
		if ref.Remote == nil {
			ref.Remote = old.Remote
		}
	}
	if ref.CreatedAt.IsZero() {
		ref.CreatedAt = now.UTC()
	}
	if ref.UpdatedAt.IsZero() {
		ref.UpdatedAt = now.UTC()
	}
	return s.putChild(t, id, &ref)
}

// PutChildren implements [session.Children].
func (s *sessions) PutChildren(ctx context.Context, id string, refs []session.ChildRef) error {
	for i := range refs {
		if refs[i].SessionID == "" {
			return session.Invalid("child session id", "must not be empty")
		}
	}
	return s.write(ctx, id, "put children", func(t *tx, _ *header) error {
		now := s.b.now()
		for i := range refs {
			if err := s.putChildNow(t, id, refs[i], now); err != nil {
				return err
			}
		}
		return nil
	})
}

// UpdateChild implements [session.Children].
func (s *sessions) UpdateChild(ctx context.Context, id, childID string, change func(*session.ChildRef) error) (out *session.ChildRef, err error) {
	err = s.write(ctx, id, "update child", func(t *tx, _ *header) error {
		ref, err := s.child(t.conn, id, childID)
		if err != nil {
			return err
		}
		if ref == nil {
			return notFound("session %s: child %s", id, childID)
		}
		if err := change(ref); err != nil {
			return &callerError{err}
		}
		ref.SessionID = childID
		ref.UpdatedAt = s.b.now().UTC()
		out = ref
		return s.putChild(t, id, ref)
	})
	if err != nil {
		return nil, ownError(err)
	}
	return out, nil
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) (out []session.ChildRef, err error) {
	err = s.read(ctx, id, "list children", func(c *conn, _ *header) error {
		out, err = s.children(c, selectChildren, id)
		return err
	})
	return out, err
}
