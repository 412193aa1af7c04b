package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// callRow is the stored form of a call. The result and the writes are separate so
// that they keep their bytes: the result becomes a message unchanged.
type callRow struct {
	stored.Call
	status             session.CallStatus
	resultID           *string
	extra              []byte
	begunAt, settledAt time.Time
}

func encodeCall(call *session.Call) (*callRow, error) {
	row, err := stored.EncodeCall(call, func(c *session.Call) { c.BegunAt, c.SettledAt = time.Time{}, time.Time{} })
	if err != nil {
		return nil, err
	}
	out := &callRow{Call: *row, status: call.Status, begunAt: call.BegunAt, settledAt: call.SettledAt}
	if call.Result != nil {
		out.resultID = &call.Result.ID
	}
	return out, nil
}

// decode returns the call. The columns of status and times may be newer than its
// document.
func (r *callRow) decode(id, callID string) (session.Call, error) {
	call, err := r.Decode(id, callID)
	if err != nil {
		return call, err
	}
	if r.extra != nil {
		if err := session.Decode("session "+id+": call "+callID+": further fields", r.extra, &call.Extra); err != nil {
			return call, err
		}
	}
	call.Status, call.BegunAt, call.SettledAt = r.status, r.begunAt, r.settledAt
	return call, nil
}

// callParts adds the rows of a reply's calls and deletes those whose results
// become messages. A row with a result is kept, unless the same change consumes it;
// other rows are replaced.
func (s *sessions) callParts(q *statement, d *draft) {
	if q.shape.calls > 0 {
		q.add(`,
called AS (
    INSERT INTO helix.calls AS calls (session, message_id, call_id, position, status, doc, result_id, result, writes, begun_at, settled_at, created_at)
    SELECT ok.number, c.message_id, c.call_id, c.position, c.status, c.doc, c.result_id, c.result, c.writes,
           CASE WHEN c.status <> 'open' THEN coalesce(c.begun_at, `, q.now, `) END,
           CASE WHEN c.status = 'settled' THEN coalesce(c.settled_at, `, q.now, `) END, `, q.now, `
    FROM ok, `, callRows(q, d))
		q.add(`
    ON CONFLICT (session, message_id, call_id) DO UPDATE
    SET position = excluded.position, status = excluded.status, doc = excluded.doc, result_id = excluded.result_id, result = excluded.result,
        writes = excluded.writes, extra = NULL, begun_at = excluded.begun_at, settled_at = excluded.settled_at, created_at = excluded.created_at
    WHERE calls.status <> 'settled'`)
		if q.shape.renewed {
			q.add(" OR calls.message_id = ", q.arg(d.Promote.MessageID))
		}
		q.add("\n)")
	}
	if !q.shape.promote {
		return
	}
	q.add(`,
taken AS (
    DELETE FROM helix.calls c USING ok WHERE c.session = ok.number AND c.message_id = `, q.arg(d.Promote.MessageID))
	if q.shape.renewed {
		q.add(" AND c.call_id <> ALL (", q.arg(d.renewed), "::text[])")
	}
	q.add("\n)")
}

// callRows returns the rows of calls as a table.
func callRows(q *statement, d *draft) string {
	n := len(d.calls)
	messageIDs, callIDs, positions, statuses := make([]string, n), make([]string, n), make([]int32, n), make([]string, n)
	docs, resultIDs, results, writes := make([][]byte, n), make([]*string, n), make([][]byte, n), make([][]byte, n)
	begun, settled := make([]any, n), make([]any, n)
	for i, row := range d.calls {
		call := &d.Calls[i]
		messageIDs[i], callIDs[i], positions[i], statuses[i] = call.MessageID, call.ID, int32(call.Index), string(row.status)
		docs[i], resultIDs[i], results[i], writes[i] = row.Doc, row.resultID, row.Result, row.Writes
		begun[i], settled[i] = when(row.begunAt), when(row.settledAt)
	}
	return q.rows("c", q.shape.calls, col("message_id", "text", messageIDs), col("call_id", "text", callIDs), col("position", "integer", positions),
		col("status", "text", statuses), col("doc", "bytea", docs), col("result_id", "text", resultIDs), col("result", "bytea", results),
		col("writes", "bytea", writes), col("begun_at", "timestamptz", begun), col("settled_at", "timestamptz", settled))
}

// encodeCalls encodes the rows of a reply's calls.
func (d *draft) encodeCalls() error {
	for i := range d.Calls {
		call := d.Calls[i]
		if call.Status == "" {
			call.Status = session.CallOpen
		}
		row, err := encodeCall(&call)
		if err != nil {
			return err
		}
		d.calls = append(d.calls, row)
		if d.Promote != nil && call.MessageID == d.Promote.MessageID {
			d.renewed = append(d.renewed, call.ID)
		}
	}
	return nil
}

const callColumns = `c.status, c.doc, c.result, c.writes, c.extra, c.begun_at, c.settled_at`

// scanCall reads a row's columns; r is nil if there is no call.
func scanCall(rows pgx.Rows, before ...any) (r *callRow, err error) {
	row, status := &callRow{}, ""
	err = rows.Scan(append(before, word{&status}, &row.Doc, &row.Result, &row.Writes, &row.extra,
		instant{&row.begunAt}, instant{&row.settledAt})...)
	if err != nil || status == "" {
		return nil, err
	}
	row.status = session.CallStatus(status)
	return row, nil
}

// A claim or a settlement is one statement, like a commit. It changes the row of a
// call in its state under the lock, but a row that it does not change is returned
// in its earlier state; if that does not suffice, the statement is repeated after
// one that takes the lock. A settlement raises the counter that commits compare.
const (
	changedCall = `
SELECT cur.version, cur.status, cur.owner, cur.epoch, cur.current_run, x.status IS NOT NULL,
       coalesce(x.status, c.status), coalesce(x.doc, c.doc), coalesce(x.result, c.result), coalesce(x.writes, c.writes),
       coalesce(x.extra, c.extra), coalesce(x.begun_at, c.begun_at), coalesce(x.settled_at, c.settled_at)
FROM cur
LEFT JOIN changed x ON true
LEFT JOIN helix.calls c ON x.status IS NULL AND c.session = cur.number AND c.message_id = $3 AND c.call_id = $4`

	claimCall = `
WITH cur AS MATERIALIZED (
    SELECT number, version, status, owner, epoch, current_run FROM helix.sessions
    WHERE tenant = $1 AND id = $2
    FOR NO KEY UPDATE
),
changed AS (
    UPDATE helix.calls c SET status = 'begun', begun_at = coalesce($8::timestamptz, clock_timestamp())
    FROM cur
    WHERE c.session = cur.number AND c.message_id = $3 AND c.call_id = $4 AND c.status = 'open'
      AND cur.version = $5 AND cur.owner = $6 AND cur.epoch = $7
    RETURNING ` + callColumns + `
)` + changedCall

	settleCall = `
WITH cur AS MATERIALIZED (
    SELECT number, version, status, owner, epoch, current_run FROM helix.sessions
    WHERE tenant = $1 AND id = $2
    FOR NO KEY UPDATE
),
changed AS (
    UPDATE helix.calls c
    SET status = 'settled', settled_at = coalesce($7::timestamptz, clock_timestamp()), result_id = $8, result = $9, writes = $10,
        extra = coalesce($11, c.extra)
    FROM cur
    WHERE c.session = cur.number AND c.message_id = $3 AND c.call_id = $4 AND c.status <> 'settled'
      AND cur.owner = $5 AND cur.epoch = $6
    RETURNING ` + callColumns + `
),
touched AS (
    UPDATE helix.sessions s SET touched = touched + 1 FROM cur, changed WHERE s.number = cur.number
)` + changedCall
)

// changeCall runs one of these statements. guard returns an error if the session
// does not allow the change; done reports whether an unchanged status needs no
// change.
func (s *sessions) changeCall(ctx context.Context, id, verb, messageID, callID string, guard func(*header) error,
	done func(session.CallStatus) bool, query string, args ...any,
) (call session.Call, fresh bool, err error) {
	locked := false
	err = s.b.repeat(ctx, what(id, verb), func(ctx context.Context) error {
		var (
			h   *header
			row *callRow
		)
		scan := func(rows pgx.Rows) (err error) {
			h = &header{}
			h.ID = id
			row, err = scanCall(rows, &h.Version, &h.Status, &h.Lease.Owner, &h.Lease.Epoch, &h.CurrentRunID, &fresh)
			return err
		}
		all := append([]any{s.tenant, id, messageID, callID}, args...)
		if err := s.b.carry(ctx, locked, lockOnly, s.tenant, id, part{query: s.b.sql(query), args: all, row: scan}); err != nil {
			locked = locked || errors.Is(err, errAlone)
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		if err := guard(h); err != nil {
			return err
		}
		if !locked && (row == nil || (!fresh && !done(row.status))) {
			locked = true
			return errAgain
		}
		if row == nil {
			return notFound("session %s: call %s of message %s", id, callID, messageID)
		}
		call, err = row.decode(id, callID)
		return err
	})
	if err != nil {
		return session.Call{}, false, err
	}
	return call, fresh, nil
}

// Claim implements [session.Calls].
func (s *sessions) Claim(ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string) (call session.Call, fresh bool, err error) {
	guard := func(h *header) error {
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		if h.Version != version {
			return session.ErrStale.WithMessage("session %s: expected version %d", id, version).WithSaw(h.Saw())
		}
		return nil
	}
	begun := func(status session.CallStatus) bool { return status != session.CallOpen }
	return s.changeCall(ctx, id, "claim call", messageID, callID, guard, begun, claimCall,
		version, fence.Owner, fence.Epoch, s.b.clock())
}

// Settle implements [session.Calls].
func (s *sessions) Settle(ctx context.Context, id string, fence session.Fence, settled session.Call) (session.Call, error) {
	settled.Status = session.CallSettled
	if err := settled.Check(); err != nil {
		return session.Call{}, err
	}
	row, err := encodeCall(&settled)
	if err != nil {
		return session.Call{}, err
	}
	var extra []byte
	if settled.Extra != nil {
		if extra, err = session.Encode(settled.Extra); err != nil {
			return session.Call{}, session.ErrInvalid.WithCause(err, "call %s cannot be encoded", settled.ID)
		}
	}
	guard := func(h *header) error { return h.CheckFence(fence) }
	done := func(status session.CallStatus) bool { return status == session.CallSettled }
	call, _, err := s.changeCall(ctx, id, "settle call", settled.MessageID, settled.ID, guard, done, settleCall,
		fence.Owner, fence.Epoch, s.b.clock(), row.resultID, row.Result, row.Writes, extra)
	return call, err
}

const (
	selectStepCalls = `
SELECT c.call_id, ` + callColumns + `
FROM helix.calls c WHERE c.session = $1 AND c.message_id = $2
ORDER BY c.position, c.call_id`

	reopenCall = `
UPDATE helix.calls SET status = $4, doc = $5, extra = NULL, begun_at = NULL
WHERE session = $1 AND message_id = $2 AND call_id = $3`
)

// Ask implements [session.Calls].
func (s *sessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := ask.Check(); err != nil {
		return err
	}
	return s.touch(ctx, id, "ask", func(ctx context.Context, t *tx, h *header) error {
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		var calls []session.Call
		t.ask(func(rows pgx.Rows) error {
			var callID string
			row, err := scanCall(rows, &callID)
			if err != nil {
				return err
			}
			call, err := row.decode(id, callID)
			calls = append(calls, call)
			return err
		}, selectStepCalls, h.number, ask.Call.MessageID)
		if err := t.flush(ctx); err != nil {
			return err
		}
		changed, err := ask.Apply(id, calls)
		if err != nil || len(changed) == 0 {
			return err
		}
		for _, i := range changed {
			row, err := encodeCall(&calls[i])
			if err != nil {
				return err
			}
			t.exec(reopenCall, h.number, calls[i].MessageID, calls[i].ID, row.status, row.Doc)
		}
		return s.addQuestion(t, h, &ask)
	})
}

const selectCalls = `
SELECT c.call_id, ` + callColumns + `
FROM helix.sessions s LEFT JOIN helix.calls c ON c.session = s.number AND c.message_id = $3
WHERE s.tenant = $1 AND s.id = $2
ORDER BY c.position, c.call_id`

// Calls implements [session.Calls].
func (s *sessions) Calls(ctx context.Context, id, messageID string) (calls []session.Call, err error) {
	err = s.list(ctx, id, "list calls", func(rows pgx.Rows) error {
		var callID string
		row, err := scanCall(rows, word{&callID})
		if err != nil || row == nil {
			return err
		}
		call, err := row.decode(id, callID)
		calls = append(calls, call)
		return err
	}, selectCalls, messageID)
	return calls, err
}

const (
	selectOldCalls = `
SELECT DISTINCT s.id, c.message_id
FROM helix.calls c JOIN helix.sessions s ON s.number = c.session
WHERE s.tenant = $1 AND c.created_at < $2`

	deleteOldCalls = `
DELETE FROM helix.calls WHERE session = $1 AND message_id = $2 AND created_at < $3`

	// What follows a message of a transcript, without results. A result is recognised
	// by its role: it makes no calls and answers one.
	selectStep = `
SELECT d.suspended_step, m.number
FROM helix.session_docs d
LEFT JOIN helix.messages m ON m.session = d.session AND m.message_id = $2 AND m.message_id <> ''
WHERE d.session = $1`

	selectLater = `
SELECT body FROM helix.messages WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3`
)

// CleanCalls implements [session.Calls]. It examines and cleans each step under
// its session's lock.
func (s *sessions) CleanCalls(ctx context.Context, before time.Time) (n int, err error) {
	type step struct{ id, message string }
	var old []step
	err = s.b.query(ctx, "clean calls", func(rows pgx.Rows) error {
		var at step
		err := rows.Scan(&at.id, &at.message)
		old = append(old, at)
		return err
	}, selectOldCalls, s.tenant, when(before))
	if err != nil {
		return 0, err
	}
	for _, step := range old {
		var deleted int64
		err := s.touch(ctx, step.id, "clean calls", func(ctx context.Context, t *tx, h *header) error {
			deleted = 0
			over, err := s.isObsolete(ctx, t, h, step.message)
			if err == nil && over {
				t.count(&deleted, deleteOldCalls, h.number, step.message, when(before))
			}
			return err
		})
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return n, err
		}
		n += int(deleted)
	}
	return n, nil
}

// isObsolete reports whether no step will ever use the calls of a message: its
// session has ended, or its transcript has continued past the message.
func (s *sessions) isObsolete(ctx context.Context, t *tx, h *header, messageID string) (bool, error) {
	var (
		suspended string
		number    *int
	)
	t.ask(func(rows pgx.Rows) error { return rows.Scan(&suspended, &number) }, selectStep, h.number, messageID)
	if err := t.flush(ctx); err != nil {
		return false, err
	}
	switch {
	case suspended == messageID:
		return false, nil
	case h.Status == session.Completed || h.Status == session.Failed, number == nil:
		return true, nil
	}
	return s.continuedPast(ctx, t, h, *number)
}

// continuedPast reports whether anything but tool results follows a message. A
// message that cannot be decoded does not count.
func (s *sessions) continuedPast(ctx context.Context, t *tx, h *header, number int) (bool, error) {
	const some = 100
	for {
		rows, other, damaged := 0, false, false
		t.ask(func(r pgx.Rows) error {
			var body []byte
			if err := r.Scan(&body); err != nil {
				return err
			}
			rows++
			var m session.Message
			if session.Decode("message", body, &m) != nil {
				damaged = true
			} else if m.Role != session.RoleTool && !damaged {
				other = true
			}
			return nil
		}, selectLater, h.number, number, some)
		if err := t.flush(ctx); err != nil {
			return false, err
		}
		if other || damaged || rows < some {
			return other, nil
		}
		number += some
	}
}
