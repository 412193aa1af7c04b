package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// treeParts adds what a change sends to other sessions of its tree, and what it
// consumes of their messages.
func (s *sessions) treeParts(q *statement, d *draft) {
	if q.shape.own > 0 {
		callIDs, owners, completed, done := ownershipColumns(d.owned)
		rows := q.rows("x", q.shape.own, col("call_id", "text", callIDs), col("owner_id", "text", owners),
			col("completed_at", "timestamptz", completed), col("done", "boolean", done))
		q.add(",\nowned AS (", fmt.Sprintf(upsertOwnership, "ok.number", q.now, "ok, "+rows), "\n)")
	}
	if q.shape.disown {
		q.add(`,
disowned AS (
    UPDATE helix.ownership o SET completed_at = coalesce(o.completed_at, `, q.now, `)
    FROM ok
    WHERE o.session = ok.number AND o.call_id = ANY (`, q.arg(d.disowned), `::text[])
)`)
	}
	if q.shape.children > 0 {
		q.add(",\nparented AS (", fmt.Sprintf(putChildren, "ok.number", q.now, "ok CROSS JOIN "+childRows(q, q.shape.children, d.children)), "\n)")
	}
	if q.shape.consume {
		q.add(`,
consumed AS (
    UPDATE helix.inbox i SET consumed = true, body = NULL
    FROM ok
    WHERE i.session = ok.number AND i.entry_id = ANY (`, q.arg(d.Consume), `::text[]) AND NOT i.consumed
)`)
	}
	if q.shape.wake { // a parent that was deleted in the meantime needs no wake
		q.add(",\nwoken AS (", fmt.Sprintf(upsertWake, q.arg(d.Wake.ChildID), q.arg(d.Wake.RunID), q.arg(when(d.Wake.At)), q.now, "ok,",
			q.tenant, q.arg(d.Wake.SessionID)), "\n)")
	}
}

const (
	// A later run of the same child renews the wake, so that delivering the earlier
	// one does not lose it. The lock on the session to wake prevents its deletion from
	// leaving a wake in the table.
	upsertWake = `
INSERT INTO helix.wakes AS w (tenant, session_id, child_id, run_id, at)
SELECT s.tenant, s.id, %s::text, %s::text, coalesce(%s::timestamptz, %s)
FROM %s (SELECT tenant, id FROM helix.sessions WHERE tenant = %s AND id = %s FOR KEY SHARE) s
ON CONFLICT (tenant, session_id, child_id) DO UPDATE SET run_id = excluded.run_id, at = excluded.at WHERE w.run_id <> excluded.run_id`

	deleteWake = `
DELETE FROM helix.wakes
WHERE tenant = $1 AND session_id = $2 AND child_id = $3 AND ($4 = '' OR run_id = $4)`
)

var putWake = fmt.Sprintf(upsertWake, "$3", "$4", "$5", "coalesce($6::timestamptz, clock_timestamp())", "", "$1", "$2") + `
RETURNING 1`

const insertInbox = `
INSERT INTO helix.inbox (session, entry_id, consumed, sender, kind, body, at) VALUES ($1, $2, false, $3, $4, $5, $6)
ON CONFLICT (session, entry_id) DO NOTHING`

// An entry that was sent before does not change, even if it was consumed since.
const sendInbox = `
WITH sent AS (` + insertInbox + ` RETURNING 1)
UPDATE helix.sessions SET inbox_waiting = inbox_waiting + 1 FROM sent WHERE number = $1`

// Send implements [session.Inboxes].
func (s *sessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	return s.touch(ctx, id, "send", func(_ context.Context, t *tx, h *header) error {
		at := entry.At
		if at.IsZero() {
			at = h.now
		}
		t.exec(sendInbox, h.number, entry.ID, entry.From, entry.Kind, []byte(entry.Body), when(at))
		return nil
	})
}

const selectInbox = `
SELECT i.entry_id, i.sender, i.kind, i.body, i.at
FROM helix.sessions s LEFT JOIN helix.inbox i ON i.session = s.number AND NOT i.consumed
WHERE s.tenant = $1 AND s.id = $2
ORDER BY i.number`

// Inbox implements [session.Inboxes].
func (s *sessions) Inbox(ctx context.Context, id string) (out []session.InboxEntry, err error) {
	err = s.list(ctx, id, "read inbox", func(rows pgx.Rows) error {
		var (
			entry session.InboxEntry
			body  []byte
		)
		err := rows.Scan(word{&entry.ID}, word{&entry.From}, word{&entry.Kind}, &body, instant{&entry.At})
		if err == nil && entry.ID != "" {
			entry.Body = body
			out = append(out, entry)
		}
		return err
	}, selectInbox)
	return out, err
}

// PutWake implements [session.Inboxes].
func (s *sessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := wake.Check(); err != nil {
		return err
	}
	found := false
	err := s.b.query(ctx, what(wake.SessionID, "put wake"), func(rows pgx.Rows) error { return rows.Scan(&found) },
		putWakeOf, s.tenant, wake.SessionID, wake.ChildID, wake.RunID, when(wake.At), s.b.clock())
	if err == nil && !found {
		err = session.NotFound(wake.SessionID)
	}
	if err == nil {
		s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: wake.SessionID}})
	}
	return err
}

var putWakeOf = `
WITH woken AS (` + putWake + `)
SELECT EXISTS (SELECT FROM woken) OR EXISTS (SELECT FROM helix.sessions WHERE tenant = $1 AND id = $2)`

// DeleteWake implements [session.Inboxes].
func (s *sessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	return s.b.query(ctx, what(wake.SessionID, "delete wake"), func(pgx.Rows) error { return nil },
		deleteWake, s.tenant, wake.SessionID, wake.ChildID, wake.RunID)
}
