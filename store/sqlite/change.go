package sqlite

import (
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// plan is a change of a session that was found possible. Everything that can be
// refused is refused while it is made; after that, it is only written.
type plan struct {
	*session.Change
	runID    string
	now      time.Time
	state    *stateChange
	messages []messageRow // to be appended, results of calls included
	resolved []session.Pending
}

// planChange checks a change against what the database holds, without writing.
func (s *sessions) planChange(c *conn, h *header, change *session.Change, runID string, now time.Time) (*plan, error) {
	p := &plan{Change: change, runID: runID, now: now}
	if err := s.checkWaits(c, h, change.Waits); err != nil {
		return nil, err
	}
	if keep := change.KeepMessages; keep != nil && *keep > h.MessageCount {
		return nil, session.Invalid("message count", "%d is more than the session's %d messages", *keep, h.MessageCount)
	}
	var err error
	if p.messages, err = encodeMessages(change.Messages); err != nil {
		return nil, err
	}
	if change.Promote != nil {
		if err := s.planPromotion(c, h, p); err != nil {
			return nil, err
		}
	}
	if p.state, err = s.planState(c, h, change.State, change.Writes); err != nil {
		return nil, err
	}
	if p.resolved, err = s.planResolutions(c, h, change); err != nil {
		return nil, err
	}
	return p, nil
}

// checkWaits refuses a change that relies on calls being unanswered if one is not.
func (s *sessions) checkWaits(c *conn, h *header, waits []string) error {
	var answered []string
	for _, callID := range waits {
		r, err := c.one("SELECT state FROM pending WHERE tenant = ? AND session_id = ? AND call_id = ?", s.tenant, h.ID, callID)
		if err != nil {
			return err
		}
		if r != nil && session.PendingState(r.text()) != session.PendingWaiting {
			answered = append(answered, callID)
		}
	}
	if len(answered) == 0 {
		return nil
	}
	err := session.ErrAnswered.WithMessage("session %s: answered meanwhile: %s", h.ID, strings.Join(answered, ", ")).
		WithSaw(h.Saw())
	err.Calls = answered
	return err
}

// applyChange writes a planned change. The session already has its new version;
// its row is written last, by the caller.
func (s *sessions) applyChange(t *tx, h *header, p *plan) error {
	if p.KeepMessages != nil {
		if err := s.rewind(t, h, *p.KeepMessages); err != nil {
			return err
		}
	}
	if err := s.insertMessages(t, h, p.messages); err != nil {
		return err
	}
	if p.Promote != nil {
		if _, err := t.exec(deleteCalls, h.number, p.Promote.MessageID); err != nil {
			return err
		}
	}
	if err := s.writeState(t, h, p.state); err != nil {
		return err
	}
	for _, write := range []func(*tx, *header, *plan) error{
		s.insertCalls, s.writePendings, s.writeOwnership, s.writeChildren, s.writeInbox, s.writeRunChange,
	} {
		if err := write(t, h, p); err != nil {
			return err
		}
	}
	if p.Status != "" {
		h.Status = p.Status
	}
	if p.Checkpoint != nil {
		if err := s.writeCheckpoint(t, h, &checkpointRow{NewCheckpoint: *p.Checkpoint, runID: p.runID, at: p.now}); err != nil {
			return err
		}
	}
	if p.Outcome != nil {
		return s.endRun(t, h, p)
	}
	return nil
}

// rewind takes a session back to its first messages. What was going on beyond
// them ends: calls in flight, open waits, awaited children.
func (s *sessions) rewind(t *tx, h *header, keep int) error {
	if err := s.truncate(t, h, keep); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM calls WHERE session = ?", h.number); err != nil {
		return err
	}
	open, err := s.pending(t.conn, h.ID, false)
	if err != nil {
		return err
	}
	for i := range open {
		open[i].State = session.PendingSuperseded
		if err := s.updatePending(t, h.ID, &open[i]); err != nil {
			return err
		}
	}
	awaited, err := s.children(t.conn, selectAwaited, h.ID)
	if err != nil {
		return err
	}
	for i := range awaited {
		awaited[i].Status, awaited[i].Awaited = session.ChildSuperseded, false
		awaited[i].UpdatedAt = s.b.now()
		if err := s.putChild(t, h.ID, &awaited[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeOwnership adds and completes ownership of calls.
func (s *sessions) writeOwnership(t *tx, h *header, p *plan) error {
	if err := s.own(t, h.ID, p.Own); err != nil {
		return err
	}
	return s.disown(t, h.ID, p.Disown, p.now)
}

// writeChildren adds or replaces child references.
func (s *sessions) writeChildren(t *tx, h *header, p *plan) error {
	for i := range p.Children {
		if err := s.putChildNow(t, h.ID, p.Children[i], p.now); err != nil {
			return err
		}
	}
	return nil
}

// writeInbox takes entries in and wakes the parent.
func (s *sessions) writeInbox(t *tx, h *header, p *plan) error {
	if len(p.Consume) > 0 {
		for _, id := range p.Consume {
			if _, err := t.exec(consumeInbox, s.tenant, h.ID, id); err != nil {
				return err
			}
		}
		r, err := t.one(inboxWaits, s.tenant, h.ID)
		if err != nil {
			return err
		}
		h.inbox = r.bool()
	}
	if p.Wake == nil {
		return nil
	}
	// A parent that was deleted meanwhile needs no waking.
	_, err := s.putWake(t, *p.Wake)
	return err
}
