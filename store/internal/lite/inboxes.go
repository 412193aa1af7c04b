package lite

import (
	"context"

	"github.com/helixagents/helix/session"
)

const (
	// An entry that was sent before does not change, even if it was consumed since.
	insertInbox = `
INSERT INTO inbox (tenant, session_id, entry_id, consumed, sender, kind, body, at) VALUES (?, ?, ?, 0, ?, ?, ?, ?)
ON CONFLICT DO NOTHING`

	consumeInbox = `
UPDATE inbox SET consumed = 1, body = NULL
WHERE tenant = ? AND session_id = ? AND entry_id = ?`

	selectInbox = `
SELECT entry_id, sender, kind, body, at FROM inbox INDEXED BY inbox_waiting
WHERE tenant = ? AND session_id = ? AND consumed = 0
ORDER BY number`

	inboxWaits = `
SELECT EXISTS (SELECT 1 FROM inbox WHERE tenant = ? AND session_id = ? AND consumed = 0)`
)

// Send implements [session.Inboxes].
func (s *sessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	return s.write(ctx, id, "send", func(t *Tx, _ *header) error {
		if entry.At.IsZero() {
			entry.At = s.b.Now()
		}
		t.cache.forget(s.tenant, id)
		_, err := t.Exec(insertInbox, s.tenant, id, entry.ID, entry.From, entry.Kind, entry.Body, entry.At)
		return err
	})
}

// Inbox implements [session.Inboxes].
func (s *sessions) Inbox(ctx context.Context, id string) (out []session.InboxEntry, err error) {
	err = s.read(ctx, id, "read inbox", func(c Conn, _ *header) error {
		for r, err := range c.Query(selectInbox, s.tenant, id) {
			if err != nil {
				return err
			}
			out = append(out, session.InboxEntry{ID: r.Text(), From: r.Text(), Kind: r.Text(), Body: r.Bytes(), At: r.Time()})
		}
		return nil
	})
	return out, err
}

const (
	// A later run of the same child renews the wake, so that delivering the earlier
	// one does not lose it.
	upsertWake = `
INSERT INTO wakes (tenant, session_id, child_id, run_id, at)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1 AND id = ?2)
ON CONFLICT DO UPDATE SET run_id = excluded.run_id, at = excluded.at WHERE run_id <> excluded.run_id`

	deleteWake = `
DELETE FROM wakes
WHERE tenant = ?1 AND session_id = ?2 AND child_id = ?3 AND (?4 = '' OR run_id = ?4)`
)

// putWake records a wake, if the session to wake exists.
func (s *sessions) putWake(t *Tx, wake session.Wake) error {
	if wake.At.IsZero() {
		wake.At = s.b.Now()
	}
	t.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: wake.SessionID}})
	_, err := t.Exec(upsertWake, s.tenant, wake.SessionID, wake.ChildID, wake.RunID, wake.At)
	return err
}

// PutWake implements [session.Inboxes].
func (s *sessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := wake.Check(); err != nil {
		return err
	}
	return s.write(ctx, wake.SessionID, "put wake", func(t *Tx, _ *header) error { return s.putWake(t, wake) })
}

// DeleteWake implements [session.Inboxes].
func (s *sessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	return s.b.Write(ctx, what(wake.SessionID, "delete wake"), func(t *Tx) error {
		_, err := t.Exec(deleteWake, s.tenant, wake.SessionID, wake.ChildID, wake.RunID)
		return err
	})
}
