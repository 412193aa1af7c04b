package lite

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeCall encodes a call as a row, whose document also contains the fields of
// its columns.
func encodeCall(call *session.Call) (*stored.Call, error) {
	return stored.EncodeCall(call, func(*session.Call) {})
}

// decodeCall reads a call from the next columns of a row.
func decodeCall(id, callID string, r *Row) (session.Call, error) {
	body := stored.Call{Doc: r.Bytes(), Result: r.Bytes(), Writes: r.Bytes()}
	return body.Decode(id, callID)
}

const insertCall = `
INSERT INTO calls (session, message_id, call_id, position, status, doc, result, writes, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    position = excluded.position, status = excluded.status, doc = excluded.doc, result = excluded.result,
    writes = excluded.writes, created_at = excluded.created_at
WHERE status <> 'settled'`

// insertCalls adds the rows of a reply's calls, or replaces rows that have no
// result.
func (s *sessions) insertCalls(t *Tx, h *header, p *plan) error {
	for i := range p.Calls {
		call := p.Calls[i]
		call.Begin(p.now)
		row, err := encodeCall(&call)
		if err != nil {
			return err
		}
		_, err = t.Exec(insertCall, h.number, call.MessageID, call.ID, call.Index, call.Status,
			row.Doc, row.Result, row.Writes, p.now)
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	selectCall = `
SELECT doc, result, writes FROM calls
WHERE session = ? AND message_id = ? AND call_id = ?`

	selectCalls = `
SELECT call_id, doc, result, writes FROM calls
WHERE session = ? AND message_id = ?
ORDER BY position, call_id`

	updateCall = `
UPDATE calls SET status = ?, doc = ?, result = ?, writes = ?
WHERE session = ? AND message_id = ? AND call_id = ?`

	deleteCalls = `
DELETE FROM calls WHERE session = ? AND message_id = ?`

	selectSettled = `
SELECT status, result FROM calls
WHERE session = ? AND message_id = ? AND call_id = ?`
)

// planPromotion adds the results of settled calls to the messages of a change,
// with the bytes in which they were settled.
func (s *sessions) planPromotion(c Conn, h *header, p *plan) error {
	for i, promoted := range p.Promote.Results {
		if inline := p.inline[i]; inline != nil {
			p.messages = append(p.messages, *inline)
			continue
		}
		r, err := c.One(selectSettled, h.number, p.Promote.MessageID, promoted.CallID)
		if err != nil {
			return err
		}
		if r == nil || session.CallStatus(r.Text()) != session.CallSettled {
			err := session.Invalid("promoted call", "%q has not been settled", promoted.CallID)
			err.Calls = []string{promoted.CallID}
			return err
		}
		body := r.Bytes()
		var m session.Message
		if err := session.Decode("session "+h.ID+": result of call "+promoted.CallID, body, &m); err != nil {
			return err
		}
		p.messages = append(p.messages, stored.Message{ID: m.ID, Body: body})
	}
	return nil
}

// call reads a row that must exist.
func (s *sessions) call(c Conn, h *header, messageID, callID string) (session.Call, error) {
	r, err := c.One(selectCall, h.number, messageID, callID)
	if err != nil {
		return session.Call{}, err
	}
	if r == nil {
		return session.Call{}, notFound("session %s: call %s of message %s", h.ID, callID, messageID)
	}
	return decodeCall(h.ID, callID, r)
}

func (s *sessions) updateCall(t *Tx, h *header, call *session.Call) error {
	row, err := encodeCall(call)
	if err != nil {
		return err
	}
	_, err = t.Exec(updateCall, call.Status, row.Doc, row.Result, row.Writes, h.number, call.MessageID, call.ID)
	return err
}

// Claim implements [session.Calls].
func (s *sessions) Claim(ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string) (call session.Call, fresh bool, err error) {
	err = s.write(ctx, id, "claim call", func(t *Tx, h *header) error {
		fresh = false
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		if h.Version != version {
			return session.ErrStale.WithMessage("session %s: expected version %d", id, version).WithSaw(h.Saw())
		}
		if call, err = s.call(t.Conn, h, messageID, callID); err != nil || call.Status != session.CallOpen {
			return err
		}
		call.Status, call.BegunAt, fresh = session.CallBegun, s.b.Now(), true
		return s.updateCall(t, h, &call)
	})
	if err != nil {
		return session.Call{}, false, err
	}
	return call, fresh, nil
}

// Settle implements [session.Calls].
func (s *sessions) Settle(ctx context.Context, id string, fence session.Fence, settled session.Call) (call session.Call, err error) {
	settled.Status = session.CallSettled
	if err := settled.Check(); err != nil {
		return call, err
	}
	err = s.write(ctx, id, "settle call", func(t *Tx, h *header) error {
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		if call, err = s.call(t.Conn, h, settled.MessageID, settled.ID); err != nil || call.Status == session.CallSettled {
			return err
		}
		call.Status, call.Result, call.Writes = session.CallSettled, settled.Result, settled.Writes
		call.SettledAt = s.b.Now()
		if settled.Extra != nil {
			call.Extra = settled.Extra
		}
		return s.updateCall(t, h, &call)
	})
	if err != nil {
		return session.Call{}, err
	}
	return call, nil
}

// Ask implements [session.Calls].
func (s *sessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := ask.Check(); err != nil {
		return err
	}
	return s.write(ctx, id, "ask", func(t *Tx, h *header) error {
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		calls, err := s.calls(t.Conn, h, ask.Call.MessageID)
		if err != nil {
			return err
		}
		changed, err := ask.Apply(id, calls)
		if err != nil || len(changed) == 0 {
			return err
		}
		for _, i := range changed {
			if err := s.updateCall(t, h, &calls[i]); err != nil {
				return err
			}
		}
		entry := ask.Pending
		entry.Begin(id, h.CurrentRunID, s.b.Now())
		if err := s.addPending(t, id, &entry); err != nil {
			return err
		}
		for _, resolution := range ask.Resolve {
			if err := s.resolve(t, h, resolution); err != nil {
				return err
			}
		}
		return nil
	})
}

// Calls implements [session.Calls].
func (s *sessions) Calls(ctx context.Context, id, messageID string) (calls []session.Call, err error) {
	err = s.read(ctx, id, "list calls", func(c Conn, h *header) error {
		calls, err = s.calls(c, h, messageID)
		return err
	})
	return calls, err
}

// calls lists the rows of a message.
func (s *sessions) calls(c Conn, h *header, messageID string) (calls []session.Call, err error) {
	for r, err := range c.Query(selectCalls, h.number, messageID) {
		if err != nil {
			return nil, err
		}
		call, err := decodeCall(h.ID, r.Text(), r)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// selectOldCalls lists steps in the order of the primary key, so that a page is a
// part of one pass over the table. That has little but the calls of unfinished
// steps, and an index by age would make every call dearer.
const selectOldCalls = `
SELECT c.session, s.id, c.message_id
FROM calls c CROSS JOIN sessions s ON s.number = c.session
WHERE (c.session, c.message_id) > (?, ?) AND s.tenant = ? AND c.created_at < ?
GROUP BY c.session, c.message_id ORDER BY c.session, c.message_id LIMIT ?`

// oldStep is a step that has old calls.
type oldStep struct {
	session     int64
	id, message string
}

// CleanCalls implements [session.Calls]. It looks for steps page by page while
// others write, and cleans each in a short write of its own.
func (s *sessions) CleanCalls(ctx context.Context, before time.Time) (n int, err error) {
	const page = 100
	var after oldStep
	for {
		listed, obsolete, err := s.oldSteps(ctx, after, before, page)
		if err != nil {
			return n, err
		}
		for _, step := range obsolete {
			deleted, err := s.cleanStep(ctx, step, before)
			if err != nil {
				return n, err
			}
			n += deleted
		}
		if len(listed) < page {
			return n, nil
		}
		after = listed[page-1]
	}
}

// oldSteps returns a page of steps that have old calls, and which of them are
// obsolete.
func (s *sessions) oldSteps(ctx context.Context, after oldStep, before time.Time, limit int) (listed, obsolete []oldStep, err error) {
	err = s.b.Read(ctx, "list old calls", func(c Conn) error {
		listed, obsolete = nil, nil
		for r, err := range c.Query(selectOldCalls, after.session, after.message, s.tenant, before, limit) {
			if err != nil {
				return err
			}
			listed = append(listed, oldStep{r.Int64(), r.Text(), r.Text()})
		}
		for _, step := range listed {
			over, err := s.isObsolete(ctx, c, step.id, step.message)
			if err != nil {
				return err
			}
			if over {
				obsolete = append(obsolete, step)
			}
		}
		return nil
	})
	return listed, obsolete, err
}

// cleanStep deletes the old calls of a step that is still obsolete: a rewind may
// have changed that.
func (s *sessions) cleanStep(ctx context.Context, step oldStep, before time.Time) (n int, err error) {
	err = s.b.Write(ctx, what(step.id, "clean calls"), func(t *Tx) error {
		n = 0
		over, err := s.isObsolete(ctx, t.Conn, step.id, step.message)
		if err != nil || !over {
			return err
		}
		deleted, err := t.Exec(deleteCalls+" AND created_at < ?", step.session, step.message, before)
		n = int(deleted)
		return err
	})
	return n, err
}

// isObsolete reports whether no step will ever use the calls of a message: its
// session was deleted or has ended, or its transcript has continued past the
// message.
func (s *sessions) isObsolete(ctx context.Context, c Conn, id, messageID string) (bool, error) {
	h, err := s.header(c, id)
	if err != nil || h == nil {
		return h == nil, err
	}
	if err := s.loadDoc(c, h); err != nil || h.SuspendedStep == messageID {
		return false, stored.UnlessCorrupt(err)
	}
	if h.Status == session.Completed || h.Status == session.Failed {
		return true, nil
	}
	r, err := c.One(selectMessageKey, h.number, messageID)
	if err != nil || r == nil {
		return err == nil, err
	}
	return s.continuedPast(ctx, c, h, int(r.Int64()-rowKey(h.number, 0)))
}

// continuedPast reports whether anything but tool results follows a message.
func (s *sessions) continuedPast(ctx context.Context, c Conn, h *header, number int) (bool, error) {
	const batch = 100
	for {
		later, err := s.messages(ctx, c, h, number, batch, session.PageRequest{})
		if err != nil {
			return false, stored.UnlessCorrupt(err)
		}
		for i := range later {
			if later[i].Role != session.RoleTool {
				return true, nil
			}
		}
		if len(later) < batch {
			return false, nil
		}
		number += batch
	}
}
