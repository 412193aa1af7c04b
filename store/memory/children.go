package memory

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// child is a reference to a sub-agent's session. A changed revision shows that the
// reference has changed since it was read.
type child struct {
	ref      session.ChildRef
	revision int
}

func (c *child) change(change func(*session.ChildRef)) {
	change(&c.ref)
	c.revision++
}

// putChild adds a reference, or replaces the one to the same session in its
// position.
func (r *record) putChild(ref session.ChildRef, now time.Time) {
	ref.UpdatedAt = now
	found := r.children.get(ref.SessionID)
	if found == nil {
		if ref.CreatedAt.IsZero() {
			ref.CreatedAt = now
		}
		r.children.add(ref.SessionID, &child{ref: ref})
		return
	}
	ref.Replace(&found.ref)
	found.change(func(was *session.ChildRef) { *was = ref })
}

// UpdateChild implements [session.Children]. The function runs outside the lock,
// because it may use the store, and runs again if the reference has changed in the
// meantime.
func (s *sessions) UpdateChild(
	ctx context.Context, id, childID string, change func(*session.ChildRef) error,
) (*session.ChildRef, error) {
	for {
		read, err := s.child(ctx, id, childID)
		if err != nil {
			return nil, err
		}
		ref := cloneChild(&read.ref)
		if err := ref.Update(change); err != nil {
			return nil, err
		}
		ref = cloneChild(&ref)
		swapped, err := s.swapChild(ctx, id, read.revision, &ref)
		if err != nil {
			return nil, err
		}
		if swapped {
			return &ref, nil
		}
	}
}

func (s *sessions) child(ctx context.Context, id, childID string) (child, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return child{}, err
	}
	defer s.b.mu.RUnlock()
	found := rec.children.get(childID)
	if found == nil {
		return child{}, noChild(id, childID)
	}
	return *found, nil
}

func (s *sessions) swapChild(ctx context.Context, id string, revision int, ref *session.ChildRef) (bool, error) {
	rec, err := s.edit(ctx, id)
	if err != nil {
		return false, err
	}
	defer s.b.release(rec)
	found := rec.children.get(ref.SessionID)
	if found == nil {
		return false, noChild(id, ref.SessionID)
	}
	if found.revision != revision {
		return false, nil
	}
	ref.UpdatedAt = s.b.now()
	found.change(func(was *session.ChildRef) { *was = cloneChild(ref) })
	return true, nil
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) ([]session.ChildRef, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	out := make([]session.ChildRef, len(rec.children.list))
	for i, c := range rec.children.list {
		out[i] = cloneChild(&c.ref)
	}
	return out, nil
}

func noChild(id, childID string) error {
	return session.ErrNotFound.WithMessage("session %s: child %s not found", id, childID)
}
