package lite

import (
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// draft is a change that was checked, and encoded as far as possible without the
// session, so that the writer, which all operations share, has less to do.
type draft struct {
	*session.Change
	runID    string
	messages []stored.Message
	inline   []*stored.Message // for each promoted result: the one that the change contains, or nil
}

func newDraft(c *session.Change, runID string) (*draft, error) {
	d := &draft{Change: c, runID: runID}
	var err error
	if d.messages, err = stored.EncodeMessages(c.Messages); err != nil || c.Promote == nil {
		return d, err
	}
	d.inline = make([]*stored.Message, len(c.Promote.Results))
	for i, result := range c.Promote.Results {
		if result.Message == nil {
			continue
		}
		if d.inline[i], err = stored.EncodeMessage(result.Message); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// plan is a change of a session that was validated. Nearly everything that can be
// refused is refused while the plan is made; afterwards it is only written.
type plan struct {
	*draft
	now      time.Time
	state    *stateChange
	messages []stored.Message // to be appended, results of calls included
}

// planChange checks a change against the database, without writing.
func (s *sessions) planChange(c Conn, h *header, d *draft, now time.Time) (*plan, error) {
	p := &plan{draft: d, now: now, messages: slices.Clip(d.messages)}
	if err := s.checkWaits(c, h, d.Waits); err != nil {
		return nil, err
	}
	if keep := d.KeepMessages; keep != nil && *keep > h.MessageCount {
		return nil, session.Invalid("message count", "%d is more than the session's %d messages", *keep, h.MessageCount)
	}
	if d.Promote != nil {
		if err := s.planPromotion(c, h, p); err != nil {
			return nil, err
		}
	}
	var err error
	p.state, err = s.planState(c, h, d.State, d.Writes)
	return p, err
}

// selectAnswered finds an answered call of a session or of a root's tree.
const selectAnswered = `
SELECT 1 FROM pending WHERE tenant = ? AND session_id = ? AND call_id = ? AND state <> 'waiting'
UNION ALL
SELECT 1 FROM ownership WHERE tenant = ? AND root_id = ? AND call_id = ? AND completed_at IS NOT NULL
LIMIT 1`

// checkWaits returns an error if one of the calls that a change requires to be
// unanswered has an answer.
func (s *sessions) checkWaits(c Conn, h *header, waits []string) error {
	var answered []string
	for _, callID := range waits {
		r, err := c.One(selectAnswered, s.tenant, h.ID, callID, s.tenant, h.ID, callID)
		if err != nil {
			return err
		}
		if r != nil {
			answered = append(answered, callID)
		}
	}
	if len(answered) == 0 {
		return nil
	}
	err := session.ErrAnswered.WithMessage("session %s: answered in the meantime: %s", h.ID, strings.Join(answered, ", ")).
		WithSaw(h.Saw())
	err.Calls = answered
	return err
}

// applyChange writes a planned change. The session already has its new version;
// its row is written last, by the caller.
func (s *sessions) applyChange(t *Tx, h *header, p *plan) error {
	if err := s.moveMarks(t, h, p.Change); err != nil {
		return err
	}
	if p.KeepMessages != nil {
		if err := s.truncate(t, h, *p.KeepMessages); err != nil {
			return err
		}
	}
	if err := s.insertMessages(t, h, p.messages); err != nil {
		return err
	}
	if p.Promote != nil {
		if _, err := t.Exec(deleteCalls, h.number, p.Promote.MessageID); err != nil {
			return err
		}
	}
	if err := s.writeState(t, h, p.state); err != nil {
		return err
	}
	for _, write := range []func(*Tx, *header, *plan) error{
		s.insertCalls, s.writePendings, s.writeOwnership, s.writeChildren, s.writeInbox, s.insertTasks, s.writeRunChange,
	} {
		if err := write(t, h, p); err != nil {
			return err
		}
	}
	if p.Status != "" {
		h.Status = p.Status
	}
	if p.ExpiresAt != nil {
		h.ExpiresAt = *p.ExpiresAt
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

// writeOwnership adds and completes ownership of calls.
func (s *sessions) writeOwnership(t *Tx, h *header, p *plan) error {
	if err := s.own(t, h.ID, p.Own); err != nil {
		return err
	}
	return s.disown(t, h.ID, p.Disown, p.now)
}

// writeChildren adds or replaces child references.
func (s *sessions) writeChildren(t *Tx, h *header, p *plan) error {
	for i := range p.Children {
		if err := s.putChildNow(t, h.ID, p.Children[i], p.now); err != nil {
			return err
		}
	}
	return nil
}

// writeInbox deletes consumed entries and wakes the parent.
func (s *sessions) writeInbox(t *Tx, h *header, p *plan) error {
	if len(p.Consume) > 0 {
		for _, id := range p.Consume {
			if _, err := t.Exec(consumeInbox, s.tenant, h.ID, id); err != nil {
				return err
			}
		}
		r, err := t.One(inboxWaits, s.tenant, h.ID)
		if err != nil {
			return err
		}
		h.inbox = r.Bool()
	}
	if p.Wake == nil {
		return nil
	}
	// A parent that was deleted in the meantime needs no wake.
	return s.putWake(t, *p.Wake)
}
