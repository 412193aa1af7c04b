package sqlite

import (
	"errors"
	"slices"

	"github.com/helixagents/helix/session"
)

const deleteMessages = `
DELETE FROM messages WHERE key > ? AND key <= ?`

// truncate keeps a session's first messages and ends what hung on the others:
// checkpoints that count more, calls, waits and children. What is waited for on
// behalf of a message that is not in the transcript could never be taken in.
func (s *sessions) truncate(t *tx, h *header, keep int) error {
	undone, err := s.callsAfter(t.conn, h, keep)
	if err != nil {
		return err
	}
	if _, err := t.exec(deleteMessages, rowKey(h.number, int64(keep)), lastKey(h.number)); err != nil {
		return err
	}
	h.MessageCount = keep
	if err := s.undoCheckpoints(t, h, keep); err != nil {
		return err
	}
	if err := s.undoCalls(t, h); err != nil {
		return err
	}
	if err := s.undoPending(t, h); err != nil {
		return err
	}
	return s.undoChildren(t, h, undone)
}

const selectMessagesBack = `
SELECT body FROM messages WHERE key > ? AND key <= ? ORDER BY key DESC`

// callsAfter lists the calls that the messages after the first keep ones make. A
// message that cannot be decoded is passed over: dropping it is the way to be rid
// of it.
func (s *sessions) callsAfter(c *conn, h *header, keep int) ([]string, error) {
	var calls []string
	for r, err := range c.query(selectMessagesBack, rowKey(h.number, int64(keep)), lastKey(h.number)) {
		if err != nil {
			return nil, err
		}
		found, err := callsOf(r.bytes())
		if unlessCorrupt(err) != nil {
			return nil, err
		}
		calls = append(calls, found...)
	}
	return calls, nil
}

// callsOf lists the calls that a stored message makes.
func callsOf(body []byte) ([]string, error) {
	var m session.Message
	if err := session.Decode("message", body, &m); err != nil {
		return nil, err
	}
	var calls []string
	for _, part := range m.Calls() {
		calls = append(calls, part.CallID)
	}
	return calls, nil
}

const selectMessageKey = `
SELECT key FROM messages WHERE key >> 32 = ? AND message_id = ? AND message_id <> ''`

// holds reports whether a message is in the transcript.
func (s *sessions) holds(c *conn, h *header, messageID string) (bool, error) {
	r, err := c.one(selectMessageKey, h.number, messageID)
	return r != nil, err
}

// makes reports whether a message of the transcript makes a call. It looks at the
// end first, where the calls asked for are.
func (s *sessions) makes(c *conn, h *header, callID string) (bool, error) {
	for r, err := range c.query(selectMessagesBack, rowKey(h.number, 0), lastKey(h.number)) {
		if err != nil {
			return false, err
		}
		calls, err := callsOf(r.bytes())
		if unlessCorrupt(err) != nil {
			return false, err
		}
		if slices.Contains(calls, callID) {
			return true, nil
		}
	}
	return false, nil
}

// undoCalls drops the rows of calls whose message is gone.
func (s *sessions) undoCalls(t *tx, h *header) error {
	var messageIDs []string
	for r, err := range t.query("SELECT DISTINCT message_id FROM calls WHERE session = ?", h.number) {
		if err != nil {
			return err
		}
		messageIDs = append(messageIDs, r.text())
	}
	for _, messageID := range messageIDs {
		held, err := s.holds(t.conn, h, messageID)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		if _, err := t.exec(deleteCalls, h.number, messageID); err != nil {
			return err
		}
	}
	return nil
}

// undoPending ends the waits for calls whose message is gone.
func (s *sessions) undoPending(t *tx, h *header) error {
	open, err := s.pending(t.conn, h.ID, false)
	if err != nil {
		return err
	}
	for i := range open {
		held, err := s.holds(t.conn, h, open[i].MessageID)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		open[i].State = session.PendingSuperseded
		if err := s.storePending(t, updatePending, h.ID, &open[i]); err != nil {
			return err
		}
	}
	return nil
}

// undoChildren gives up children that work for undone calls, and those awaited
// for a call that no message makes.
func (s *sessions) undoChildren(t *tx, h *header, undone []string) error {
	refs, err := s.children(t.conn, selectChildren, h.ID)
	if err != nil {
		return err
	}
	now := s.b.now()
	for i := range refs {
		ref := &refs[i]
		superseded := slices.Contains(undone, ref.CallID)
		if !superseded && ref.Awaited {
			made, err := s.makes(t.conn, h, ref.CallID)
			if err != nil {
				return err
			}
			superseded = !made
		}
		if !superseded {
			continue
		}
		ref.Status, ref.Awaited, ref.UpdatedAt = session.ChildSuperseded, false, now
		if err := s.putChild(t, h.ID, ref); err != nil {
			return err
		}
	}
	return nil
}

// unlessCorrupt passes over what cannot be decoded, where that fails alone.
func unlessCorrupt(err error) error {
	if errors.Is(err, session.ErrCorrupt) {
		return nil
	}
	return err
}
