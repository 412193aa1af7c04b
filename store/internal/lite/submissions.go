package lite

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// decodePending reads an entry from a row that begins with its columns.
func decodePending(id string, r *Row) (*session.Pending, error) {
	callID := r.Text()
	row := stored.Pending{Doc: r.Bytes()}
	state := session.PendingState(r.Text())
	row.Input, row.Result, row.Late = r.Bytes(), r.Bytes(), r.Bytes()
	p, err := row.Decode(id, callID)
	if err != nil {
		return nil, err
	}
	p.State = state // a rewind changes only this column
	return p, nil
}

const (
	selectPending = `
SELECT call_id, doc, state, input, result, late FROM pending`

	selectPendingCall = selectPending + `
WHERE tenant = ? AND session_id = ? AND call_id = ?`

	selectPendingAll = selectPending + `
WHERE tenant = ? AND session_id = ?
ORDER BY number`

	selectPendingOpen = selectPending + ` INDEXED BY pending_open
WHERE tenant = ? AND session_id = ? AND state IN ('waiting', 'answered')
ORDER BY number`

	insertPending = `
INSERT INTO pending (state, deadline, message_id, doc, input, result, late, tenant, session_id, call_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING`

	updatePending = `
UPDATE pending SET state = ?, deadline = ?, message_id = ?, doc = ?, input = ?, result = ?, late = ?
WHERE tenant = ? AND session_id = ? AND call_id = ?`
)

// pending lists a session's entries, all or the open ones, oldest first.
func (s *sessions) pending(c Conn, id string, all bool) ([]session.Pending, error) {
	query := selectPendingOpen
	if all {
		query = selectPendingAll
	}
	var out []session.Pending
	for r, err := range c.Query(query, s.tenant, id) {
		if err != nil {
			return nil, err
		}
		p, err := decodePending(id, r)
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// pendingCall reads one entry, or returns nil.
func (s *sessions) pendingCall(c Conn, id, callID string) (*session.Pending, error) {
	r, err := c.One(selectPendingCall, s.tenant, id, callID)
	if err != nil || r == nil {
		return nil, err
	}
	return decodePending(id, r)
}

// storePending writes an entry. It returns how many rows it has written.
func (s *sessions) storePending(t *Tx, query, id string, p *session.Pending) (int64, error) {
	row, err := stored.EncodePending(p, func(*session.Pending) {})
	if err != nil {
		return 0, err
	}
	return t.Exec(query, p.State, p.Deadline, p.MessageID, row.Doc, row.Input, row.Result, row.Late, s.tenant, id, p.CallID)
}

// addPending adds an entry, or replaces one that still waits.
func (s *sessions) addPending(t *Tx, id string, p *session.Pending) error {
	if added, err := s.storePending(t, insertPending, id, p); err != nil || added > 0 {
		return err
	}
	was, err := s.pendingCall(t.Conn, id, p.CallID)
	if err != nil || was == nil || !p.Replaces(was) {
		return err
	}
	_, err = s.storePending(t, updatePending, id, p)
	return err
}

// writePendings adds the entries of a change, or replaces those that still wait, and
// ends those that it resolves.
func (s *sessions) writePendings(t *Tx, h *header, p *plan) error {
	for i := range p.Pending {
		entry := p.Pending[i]
		entry.Begin(h.ID, p.runID, p.now)
		if err := s.addPending(t, h.ID, &entry); err != nil {
			return err
		}
	}
	for _, resolution := range p.Resolve {
		if err := s.resolve(t, h, resolution); err != nil {
			return err
		}
	}
	return nil
}

func (s *sessions) resolve(t *Tx, h *header, resolution session.Resolution) error {
	entry, err := s.pendingCall(t.Conn, h.ID, resolution.CallID)
	if err != nil || entry == nil {
		return err
	}
	if resolution.State != "" {
		entry.State = resolution.State
	}
	entry.LateNoticed = entry.LateNoticed || resolution.Noticed
	_, err = s.storePending(t, updatePending, h.ID, entry)
	return err
}

// Submit implements [session.Submissions].
func (s *sessions) Submit(ctx context.Context, id string, submission session.Submission) (outcome session.SubmitOutcome, err error) {
	if err := submission.Check(); err != nil {
		return "", err
	}
	err = s.write(ctx, id, "submit", func(t *Tx, _ *header) error {
		p, err := s.pendingCall(t.Conn, id, submission.CallID)
		if err != nil {
			return err
		}
		if p == nil {
			outcome = session.SubmitUnknownCall
			return nil
		}
		if outcome, err = p.Accept(&submission, s.b.Now()); err != nil {
			return err
		}
		if outcome == session.SubmitAlreadyCompleted {
			return nil
		}
		_, err = s.storePending(t, updatePending, id, p)
		return err
	})
	if err != nil {
		return "", err
	}
	return outcome, nil
}

// PendingCalls implements [session.Submissions].
func (s *sessions) PendingCalls(ctx context.Context, id string, all bool) (out []session.Pending, err error) {
	err = s.read(ctx, id, "list pending calls", func(c Conn, _ *header) error {
		out, err = s.pending(c, id, all)
		return err
	})
	return out, err
}

const (
	// A completed call stays completed.
	upsertOwnership = `
INSERT INTO ownership (tenant, root_id, call_id, session_id, completed_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    session_id   = excluded.session_id,
    completed_at = coalesce(completed_at, excluded.completed_at)`

	completeOwnership = `
UPDATE ownership SET completed_at = coalesce(completed_at, ?)
WHERE tenant = ? AND root_id = ? AND call_id = ?`

	selectOwnership = `
SELECT session_id, completed_at FROM ownership WHERE tenant = ? AND root_id = ? AND call_id = ?`
)

func (s *sessions) own(t *Tx, rootID string, owned []session.Ownership) error {
	for _, o := range owned {
		if _, err := t.Exec(upsertOwnership, s.tenant, rootID, o.CallID, o.SessionID, o.CompletedAt); err != nil {
			return err
		}
	}
	return nil
}

func (s *sessions) disown(t *Tx, rootID string, callIDs []string, now time.Time) error {
	for _, callID := range callIDs {
		if _, err := t.Exec(completeOwnership, now, s.tenant, rootID, callID); err != nil {
			return err
		}
	}
	return nil
}

// Own implements [session.Submissions].
func (s *sessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	for i := range owned {
		if err := owned[i].Check(); err != nil {
			return err
		}
	}
	return s.write(ctx, rootID, "own calls", func(t *Tx, _ *header) error { return s.own(t, rootID, owned) })
}

// Owner implements [session.Submissions].
func (s *sessions) Owner(ctx context.Context, rootID, callID string) (out session.Ownership, err error) {
	err = s.b.Read(ctx, what(rootID, "find owner"), func(c Conn) error {
		r, err := c.One(selectOwnership, s.tenant, rootID, callID)
		if err != nil {
			return err
		}
		if r == nil {
			return notFound("session %s: the owner of call %s", rootID, callID)
		}
		out = session.Ownership{CallID: callID, SessionID: r.Text(), CompletedAt: r.Time()}
		return nil
	})
	return out, err
}

// Disown implements [session.Submissions].
func (s *sessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	return s.write(ctx, rootID, "disown calls", func(t *Tx, _ *header) error {
		return s.disown(t, rootID, callIDs, s.b.Now())
	})
}
