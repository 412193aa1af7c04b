package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// pendingRow is the stored form of an entry.
type pendingRow struct {
	stored.Pending
	callID, messageID   string
	state               session.PendingState
	lateNoticed         bool
	deadline, createdAt time.Time
}

func encodePending(p *session.Pending) (*pendingRow, error) {
	row, err := stored.EncodePending(p, func(p *session.Pending) { p.CreatedAt = time.Time{} })
	if err != nil {
		return nil, err
	}
	return &pendingRow{
		Pending: *row, callID: p.CallID, messageID: p.MessageID, state: p.State, lateNoticed: p.LateNoticed, deadline: p.Deadline, createdAt: p.CreatedAt,
	}, nil
}

// decode returns the entry. The column of its state may be newer than its
// document.
func (r *pendingRow) decode(id string) (*session.Pending, error) {
	p, err := r.Decode(id, r.callID)
	if err != nil {
		return nil, err
	}
	p.State, p.LateNoticed, p.CreatedAt = r.state, r.lateNoticed, r.createdAt
	return p, nil
}

// encodePending encodes the entries that a change adds. An entry that the change
// also ends is added in its final state.
func (d *draft) encodePending() error {
	for i := range d.Pending {
		entry := d.Pending[i]
		entry.Begin(d.sessionID, d.runID, entry.CreatedAt)
		row, err := encodePending(&entry)
		if err != nil {
			return err
		}
		for _, resolution := range d.Resolve {
			if resolution.CallID != entry.CallID {
				continue
			}
			if resolution.State != "" {
				row.state = resolution.State
			}
			row.lateNoticed = row.lateNoticed || resolution.Noticed
		}
		d.pending = append(d.pending, row)
	}
	return nil
}

// encodeResolutions collects how waits end; a repeated call counts once.
func (d *draft) encodeResolutions() error {
	place := map[string]int{}
	for _, r := range d.Resolve {
		at, seen := place[r.CallID]
		if !seen {
			place[r.CallID] = len(d.resolve)
			d.resolve = append(d.resolve, r)
			continue
		}
		if r.State != "" {
			d.resolve[at].State = r.State
		}
		d.resolve[at].Noticed = d.resolve[at].Noticed || r.Noticed
	}
	return nil
}

// pendingParts adds entries, or replaces those that still wait, and ends others. An
// entry that the change both replaces and ends is replaced by one that has ended.
func (s *sessions) pendingParts(q *statement, d *draft) {
	if q.shape.pending > 0 {
		q.add(`,
asked AS (
    INSERT INTO helix.pending AS pending (session, tenant, session_id, call_id, state, late_noticed, deadline, message_id, created_at, doc, input, result, late)
    SELECT ok.number, `, q.tenant, `, `, q.id, `, p.call_id, p.state, p.late_noticed, p.deadline, p.message_id, coalesce(p.created_at, `, q.now, `),
           p.doc, p.input, p.result, p.late
    FROM ok, `, pendingRows(q, d))
		if q.shape.resolve > 0 { // a statement may change a row only once
			q.add(`
    WHERE NOT EXISTS (SELECT FROM helix.pending x WHERE x.session = ok.number AND x.call_id = p.call_id AND x.state <> 'waiting')`)
		}
		q.add(`
    ORDER BY p.n
    ON CONFLICT (session, call_id) DO UPDATE
    SET state = excluded.state, late_noticed = excluded.late_noticed, deadline = excluded.deadline, message_id = excluded.message_id,
        doc = excluded.doc, input = excluded.input, result = excluded.result, late = excluded.late
    WHERE pending.state = 'waiting'
)`)
	}
	if q.shape.resolve > 0 {
		n := len(d.resolve)
		callIDs, states, noticed := make([]string, n), make([]string, n), make([]bool, n)
		for i, r := range d.resolve {
			callIDs[i], states[i], noticed[i] = r.CallID, string(r.State), r.Noticed
		}
		q.add(`,
resolved AS (
    UPDATE helix.pending p
    SET state = coalesce(nullif(r.state, ''), p.state), late_noticed = p.late_noticed OR r.noticed
    FROM ok, `, q.rows("r", q.shape.resolve, col("call_id", "text", callIDs), col("state", "text", states), col("noticed", "boolean", noticed)), `
    WHERE p.session = ok.number AND p.call_id = r.call_id`)
		if q.shape.pending > 0 {
			added := make([]string, len(d.pending))
			for i, row := range d.pending {
				added[i] = row.callID
			}
			q.add(" AND (p.state <> 'waiting' OR p.call_id <> ALL (", q.arg(added), "::text[]))")
		}
		q.add("\n)")
	}
}

// pendingRows returns entries as a table.
func pendingRows(q *statement, d *draft) string {
	n := len(d.pending)
	callIDs, states, noticed, messageIDs := make([]string, n), make([]string, n), make([]bool, n), make([]string, n)
	deadlines, created := make([]any, n), make([]any, n)
	docs, inputs, results, lates := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i, row := range d.pending {
		callIDs[i], states[i], noticed[i], messageIDs[i] = row.callID, string(row.state), row.lateNoticed, row.messageID
		deadlines[i], created[i] = when(row.deadline), when(row.createdAt)
		docs[i], inputs[i], results[i], lates[i] = row.Doc, row.Input, row.Result, row.Late
	}
	return q.rows("p", q.shape.pending, col("call_id", "text", callIDs), col("state", "text", states), col("late_noticed", "boolean", noticed),
		col("deadline", "timestamptz", deadlines), col("message_id", "text", messageIDs), col("created_at", "timestamptz", created),
		col("doc", "bytea", docs), col("input", "bytea", inputs), col("result", "bytea", results), col("late", "bytea", lates))
}

const (
	pendingColumns = `
       p.call_id, p.message_id, p.state, p.late_noticed, p.deadline, p.created_at, p.doc, p.input, p.result, p.late`

	selectPendingCall = `
SELECT` + pendingColumns + `
FROM helix.pending p WHERE p.session = $1 AND p.call_id = $2`

	selectPendingAll = `
SELECT` + pendingColumns + `
FROM helix.sessions s LEFT JOIN helix.pending p ON p.session = s.number
WHERE s.tenant = $1 AND s.id = $2
ORDER BY p.number`

	selectPendingOpen = `
SELECT` + pendingColumns + `
FROM helix.sessions s LEFT JOIN helix.pending p ON p.session = s.number AND p.state IN ('waiting', 'answered')
WHERE s.tenant = $1 AND s.id = $2
ORDER BY p.number`

	updatePending = `
UPDATE helix.pending SET state = $3, late_noticed = $4, doc = $5, result = $6, late = $7
WHERE session = $1 AND call_id = $2`
)

// scanPending reads an entry; nil if there is none in the row.
func scanPending(id string, rows pgx.Rows) (*session.Pending, error) {
	row, state := &pendingRow{}, ""
	var noticed *bool
	err := rows.Scan(word{&row.callID}, word{&row.messageID}, word{&state}, &noticed, instant{&row.deadline}, instant{&row.createdAt},
		&row.Doc, &row.Input, &row.Result, &row.Late)
	if err != nil || noticed == nil {
		return nil, err
	}
	row.state, row.lateNoticed = session.PendingState(state), *noticed
	return row.decode(id)
}

const (
	insertQuestion = `
INSERT INTO helix.pending (session, tenant, session_id, call_id, state, late_noticed, deadline, message_id, created_at, doc, input, result, late)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (session, call_id) DO NOTHING`

	resolvePending = `
UPDATE helix.pending SET state = coalesce(nullif($3, ''), state), late_noticed = late_noticed OR $4
WHERE session = $1 AND call_id = $2`
)

// addQuestion queues the entry of a question and ends the waits that it consumes.
func (s *sessions) addQuestion(t *tx, h *header, ask *session.Ask) error {
	entry := ask.Pending
	entry.Begin(h.ID, h.CurrentRunID, h.now)
	row, err := encodePending(&entry)
	if err != nil {
		return err
	}
	t.exec(insertQuestion, h.number, s.tenant, h.ID, row.callID, string(row.state), row.lateNoticed, when(row.deadline), row.messageID,
		when(row.createdAt), row.Doc, row.Input, row.Result, row.Late)
	for _, r := range ask.Resolve {
		t.exec(resolvePending, h.number, r.CallID, string(r.State), r.Noticed)
	}
	return nil
}

// Submit implements [session.Submissions].
func (s *sessions) Submit(ctx context.Context, id string, submission session.Submission) (outcome session.SubmitOutcome, err error) {
	if err := submission.Check(); err != nil {
		return "", err
	}
	err = s.touch(ctx, id, "submit", func(ctx context.Context, t *tx, h *header) error {
		var p *session.Pending
		t.ask(func(rows pgx.Rows) (err error) {
			p, err = scanPending(id, rows)
			return err
		}, selectPendingCall, h.number, submission.CallID)
		if err := t.flush(ctx); err != nil {
			return err
		}
		if p == nil {
			outcome = session.SubmitUnknownCall
			return nil
		}
		if outcome, err = p.Accept(&submission, h.now); err != nil || outcome == session.SubmitAlreadyCompleted {
			return err
		}
		row, err := encodePending(p)
		if err != nil {
			return err
		}
		t.exec(updatePending, h.number, row.callID, row.state, row.lateNoticed, row.Doc, row.Result, row.Late)
		return nil
	})
	if err != nil {
		return "", err
	}
	return outcome, nil
}

// PendingCalls implements [session.Submissions].
func (s *sessions) PendingCalls(ctx context.Context, id string, all bool) (out []session.Pending, err error) {
	query := selectPendingOpen
	if all {
		query = selectPendingAll
	}
	err = s.list(ctx, id, "list pending calls", func(rows pgx.Rows) error {
		p, err := scanPending(id, rows)
		if err == nil && p != nil {
			out = append(out, *p)
		}
		return err
	}, query)
	return out, err
}

const (
	// A completed call stays completed. The placeholders are the root's number, the
	// time, and the ownerships.
	upsertOwnership = `
INSERT INTO helix.ownership AS o (session, call_id, owner_id, completed_at)
SELECT %s, x.call_id, x.owner_id, coalesce(x.completed_at, CASE WHEN x.done THEN %s END)
FROM %s
ON CONFLICT (session, call_id) DO UPDATE SET
    owner_id     = excluded.owner_id,
    completed_at = coalesce(o.completed_at, excluded.completed_at)`

	selectOwnership = `
SELECT o.owner_id, o.completed_at
FROM helix.sessions s JOIN helix.ownership o ON o.session = s.number AND o.call_id = $3
WHERE s.tenant = $1 AND s.id = $2`
)

// ownershipRow is an ownership to write; done completes it now.
type ownershipRow struct {
	session.Ownership
	done bool
}

// ownershipRows collects ownerships; of several for one call the last one counts.
// Calls that are disowned at the same time are completed immediately.
func ownershipRows(owned []session.Ownership, disowned []string) (out []ownershipRow) {
	place := map[string]int{}
	for _, o := range owned {
		at, seen := place[o.CallID]
		if !seen {
			place[o.CallID] = len(out)
			out = append(out, ownershipRow{o, slices.Contains(disowned, o.CallID)})
			continue
		}
		out[at].SessionID = o.SessionID
		if out[at].CompletedAt.IsZero() {
			out[at].CompletedAt = o.CompletedAt
		}
	}
	return out
}

// encodeOwnership collects the ownerships of a change, and the other calls that it
// disowns, because a statement may change a row only once.
func (d *draft) encodeOwnership() error {
	d.owned = ownershipRows(d.Own, d.Disown)
	for _, callID := range d.Disown {
		if !slices.ContainsFunc(d.Own, func(o session.Ownership) bool { return o.CallID == callID }) {
			d.disowned = append(d.disowned, callID)
		}
	}
	return nil
}

func ownershipColumns(rows []ownershipRow) (callIDs, owners []string, completed []any, done []bool) {
	n := len(rows)
	callIDs, owners, completed, done = make([]string, n), make([]string, n), make([]any, n), make([]bool, n)
	for i, o := range rows {
		callIDs[i], owners[i], completed[i], done[i] = o.CallID, o.SessionID, when(o.CompletedAt), o.done
	}
	return callIDs, owners, completed, done
}

var ownCalls = fmt.Sprintf(upsertOwnership, "$1::bigint", "$2::timestamptz",
	"unnest($3::text[], $4::text[], $5::timestamptz[], $6::boolean[]) x(call_id, owner_id, completed_at, done)")

// Own implements [session.Submissions].
func (s *sessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	for i := range owned {
		if err := owned[i].Check(); err != nil {
			return err
		}
	}
	callIDs, owners, completed, done := ownershipColumns(ownershipRows(owned, nil))
	return s.touch(ctx, rootID, "own calls", func(_ context.Context, t *tx, h *header) error {
		t.exec(ownCalls, h.number, when(h.now), callIDs, owners, completed, done)
		return nil
	})
}

// Owner implements [session.Submissions].
func (s *sessions) Owner(ctx context.Context, rootID, callID string) (out session.Ownership, err error) {
	found := false
	err = s.b.query(ctx, what(rootID, "find owner"), func(rows pgx.Rows) error {
		found = true
		out.CallID = callID
		return rows.Scan(&out.SessionID, instant{&out.CompletedAt})
	}, selectOwnership, s.tenant, rootID, callID)
	if err == nil && !found {
		err = notFound("session %s: the owner of call %s", rootID, callID)
	}
	return out, err
}

// Disown implements [session.Submissions].
func (s *sessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	return s.touch(ctx, rootID, "disown calls", func(_ context.Context, t *tx, h *header) error {
		t.exec("UPDATE helix.ownership SET completed_at = coalesce(completed_at, $3) WHERE session = $1 AND call_id = ANY ($2::text[])",
			h.number, callIDs, when(h.now))
		return nil
	})
}
