package lite

import (
	"bytes"
	"context"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
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

	// A replaced reference keeps its position.
	upsertChild = `
INSERT INTO children (tenant, session_id, child_id, awaited, doc) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET awaited = excluded.awaited, doc = excluded.doc`
)

// children lists references of a session.
func (s *sessions) children(c Conn, query, id string) ([]session.ChildRef, error) {
	var out []session.ChildRef
	for r, err := range c.Query(query, s.tenant, id) {
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

func decodeChild(id string, r *Row) (*session.ChildRef, error) {
	return stored.DecodeChild(id, r.Text(), r.Bytes())
}

// child reads one reference, or returns nil.
func (s *sessions) child(c Conn, id, childID string) (*session.ChildRef, error) {
	r, err := c.One(selectChild, s.tenant, id, childID)
	if err != nil || r == nil {
		return nil, err
	}
	return decodeChild(id, r)
}

func (s *sessions) putChild(t *Tx, id string, ref *session.ChildRef) error {
	doc, err := stored.EncodeChild(ref, func(*session.ChildRef) {})
	if err != nil {
		return err
	}
	_, err = t.Exec(upsertChild, s.tenant, id, ref.SessionID, ref.Awaited, doc)
	return err
}

// putChildNow adds a reference or replaces the one to the same session.
func (s *sessions) putChildNow(t *Tx, id string, ref session.ChildRef, now time.Time) error {
	old, err := s.child(t.Conn, id, ref.SessionID)
	if err != nil {
		return err
	}
	if old != nil {
		ref.Replace(old)
	}
	if ref.CreatedAt.IsZero() {
		ref.CreatedAt = now
	}
	ref.UpdatedAt = now
	return s.putChild(t, id, &ref)
}

// UpdateChild implements [session.Children]. The function runs outside the writer,
// because it may use the store, and runs again if the reference has changed in the
// meantime.
func (s *sessions) UpdateChild(ctx context.Context, id, childID string, change func(*session.ChildRef) error) (*session.ChildRef, error) {
	for {
		var read []byte
		err := s.read(ctx, id, "read child", func(c Conn, h *header) (err error) {
			read, err = s.childDoc(c, h, childID)
			return err
		})
		if err != nil {
			return nil, err
		}
		ref, err := stored.DecodeChild(id, childID, read)
		if err != nil {
			return nil, err
		}
		if err := ref.Update(change); err != nil {
			return nil, err
		}
		ref.UpdatedAt = s.b.Now()
		swapped, err := s.swapChild(ctx, id, read, ref)
		if err != nil {
			return nil, err
		}
		if swapped {
			return ref, nil
		}
	}
}

// childDoc reads the stored form of a reference, which must exist.
func (s *sessions) childDoc(c Conn, h *header, childID string) ([]byte, error) {
	r, err := c.One(selectChild, s.tenant, h.ID, childID)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, notFound("session %s: child %s", h.ID, childID)
	}
	r.next++ // its id
	return r.Bytes(), nil
}

// swapChild replaces a reference if it has not changed since it was read.
func (s *sessions) swapChild(ctx context.Context, id string, read []byte, ref *session.ChildRef) (swapped bool, err error) {
	err = s.write(ctx, id, "update child", func(t *Tx, h *header) error {
		doc, err := s.childDoc(t.Conn, h, ref.SessionID)
		if err != nil {
			return err
		}
		if swapped = bytes.Equal(doc, read); !swapped {
			return nil
		}
		return s.putChild(t, id, ref)
	})
	return swapped && err == nil, err
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) (out []session.ChildRef, err error) {
	err = s.read(ctx, id, "list children", func(c Conn, _ *header) error {
		out, err = s.children(c, selectChildren, id)
		return err
	})
	return out, err
}
