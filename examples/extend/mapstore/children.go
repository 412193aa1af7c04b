package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// putChild adds a reference, or replaces the one to the same session in its place, and
// returns it.
func (r *record) putChild(ref session.ChildRef, now time.Time) *session.ChildRef {
	ref.UpdatedAt = now
	for i, was := range r.children {
		if was.SessionID == ref.SessionID {
			ref.Replace(was)
			r.children[i] = &ref
			return &ref
		}
	}
	if ref.CreatedAt.IsZero() {
		ref.CreatedAt = now
	}
	r.children = append(r.children, &ref)
	return &ref
}

// UpdateChild implements [session.Children]. The function may use the store, so it is
// called without the lock, and again if the reference has changed meanwhile. A
// reference is never changed in place, so its address tells whether it has.
func (s *sessions) UpdateChild(
	ctx context.Context, id, childID string, change func(*session.ChildRef) error,
) (*session.ChildRef, error) {
	for {
		var was *session.ChildRef
		err := s.view(ctx, id, func(rec *record) (err error) {
			was, err = rec.child(childID)
			return err
		})
		if err != nil {
			return nil, err
		}
		ref := copied(*was)
		if err := ref.Update(change); err != nil {
			return nil, err
		}
		swapped := false
		err = s.edit(ctx, id, func(rec *record, now time.Time) error {
			is, err := rec.child(childID)
			if err == nil && is == was {
				swapped = true
				ref = copied(*rec.putChild(copied(ref), now))
			}
			return err
		})
		if err != nil || swapped {
			return &ref, err
		}
	}
}

func (r *record) child(childID string) (*session.ChildRef, error) {
	for _, ref := range r.children {
		if ref.SessionID == childID {
			return ref, nil
		}
	}
	return nil, session.ErrNotFound.WithMessage("session %s: child %s not found", r.state.ID, childID)
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) (out []session.ChildRef, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		out = make([]session.ChildRef, len(rec.children))
		for i, ref := range rec.children {
			out[i] = copied(*ref)
		}
		return nil
	})
	return out, err
}

// Send implements [session.Inboxes]. The ids of all entries are kept, so that a sender
// which does not know whether it succeeded can repeat.
func (s *sessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	entry = copied(entry)
	return s.edit(ctx, id, func(rec *record, now time.Time) error {
		if rec.received[entry.ID] {
			return nil
		}
		if entry.At.IsZero() {
			entry.At = now
		}
		rec.received[entry.ID] = true
		rec.inbox = append(rec.inbox, entry)
		return nil
	})
}

// Inbox implements [session.Inboxes].
func (s *sessions) Inbox(ctx context.Context, id string) (out []session.InboxEntry, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		out = append([]session.InboxEntry{}, copied(rec.inbox)...)
		return nil
	})
	return out, err
}

// wakeKey is what a wake is kept under: a session has one per child.
type wakeKey struct {
	session session.Key
	child   string
}

// PutWake implements [session.Inboxes].
func (s *sessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := wake.Check(); err != nil {
		return err
	}
	return s.view(ctx, wake.SessionID, func(*record) error {
		s.b.putWake(s.tenant, wake, s.b.now())
		return nil
	})
}

// putWake records a wake, unless its session was deleted or the same run of the child
// has sent it already. The caller holds the lock.
func (b *Backend) putWake(tenant string, wake session.Wake, now time.Time) {
	key := wakeKey{session.Key{Tenant: tenant, ID: wake.SessionID}, wake.ChildID}
	if stands, ok := b.wakes[key]; b.sessions[key.session] == nil || ok && stands.RunID == wake.RunID {
		return
	}
	wake.Tenant, wake.At = tenant, utc(wake.At)
	if wake.At.IsZero() {
		wake.At = now
	}
	b.wakes[key] = wake
	b.announce(session.Signal{Key: key.session})
}

// DeleteWake implements [session.Inboxes]. A wake of a later run of the child is not
// the one that was delivered, and stays.
func (s *sessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	key := wakeKey{s.key(wake.SessionID), wake.ChildID}
	if stands, ok := s.b.wakes[key]; ok && (wake.RunID == "" || wake.RunID == stands.RunID) {
		delete(s.b.wakes, key)
	}
	return nil
}
