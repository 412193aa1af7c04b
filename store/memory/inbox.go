package memory

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// inbox stores messages that arrive outside a run. It remembers the ids of
// consumed entries, so that a sender that does not know whether it succeeded can
// repeat.
type inbox struct {
	entries []session.InboxEntry
	seen    map[string]bool
}

func (i *inbox) add(entry session.InboxEntry) {
	if i.seen[entry.ID] {
		return
	}
	if i.seen == nil {
		i.seen = map[string]bool{}
	}
	i.seen[entry.ID] = true
	i.entries = append(i.entries, entry)
}

func (i *inbox) consume(ids []string) {
	if len(ids) == 0 {
		return
	}
	i.entries = slices.DeleteFunc(i.entries, func(e session.InboxEntry) bool { return slices.Contains(ids, e.ID) })
}

// Send implements [session.Inboxes].
func (s *sessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	entry = cloneEntry(&entry)
	rec, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	if entry.At.IsZero() {
		entry.At = s.b.now()
	}
	rec.inbox.add(entry)
	return nil
}

// Inbox implements [session.Inboxes].
func (s *sessions) Inbox(ctx context.Context, id string) ([]session.InboxEntry, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	out := make([]session.InboxEntry, len(rec.inbox.entries))
	for i := range rec.inbox.entries {
		out[i] = cloneEntry(&rec.inbox.entries[i])
	}
	return out, nil
}

// wakeKey identifies a wake: there is one per child.
type wakeKey struct {
	session session.Key
	child   string
}

// PutWake implements [session.Inboxes].
func (s *sessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := wake.Check(); err != nil {
		return err
	}
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	if s.b.find(s.tenant, wake.SessionID) == nil {
		return session.NotFound(wake.SessionID)
	}
	s.b.putWake(s.tenant, wake, s.b.now())
	return nil
}

// DeleteWake implements [session.Inboxes]. A wake that a later run of the child
// has stored since is not the one that was delivered, and is kept.
func (s *sessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	key := keyOf(s.tenant, &wake)
	if stands, ok := s.b.wakes[key]; ok && (wake.RunID == "" || wake.RunID == stands.RunID) {
		delete(s.b.wakes, key)
	}
	return nil
}

func (b *Backend) putWake(tenant string, wake session.Wake, now time.Time) {
	key := keyOf(tenant, &wake)
	if stands, ok := b.wakes[key]; ok && stands.RunID == wake.RunID {
		return
	}
	wake.Tenant, wake.At = tenant, utc(wake.At)
	if wake.At.IsZero() {
		wake.At = now
	}
	b.wakes[key] = wake
	b.signals.Announce(session.Signal{Key: key.session})
}

func keyOf(tenant string, wake *session.Wake) wakeKey {
	return wakeKey{session: session.Key{Tenant: tenant, ID: wake.SessionID}, child: wake.ChildID}
}
