package lite

import (
	"iter"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

const deleteMessages = `
DELETE FROM messages WHERE key > ? AND key <= ?`

// truncate keeps a session's first messages and ends whatever depends on the
// others: checkpoints that count more messages, calls, waits and children. A wait
// for a message that is not in the transcript could never be consumed.
func (s *sessions) truncate(t *Tx, h *header, keep int) error {
	var undone []string
	for calls, err := range s.callsAfter(t.Conn, h, keep) {
		if err != nil {
			return err
		}
		undone = append(undone, calls...)
	}
	if _, err := t.Exec(deleteMessages, rowKey(h.number, int64(keep)), lastKey(h.number)); err != nil {
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

const selectCallsBack = `
SELECT calls FROM messages WHERE key > ? AND key <= ? AND calls IS NOT NULL ORDER BY key DESC`

// callsAfter yields, for each message after the first keep ones, the calls that it
// makes, last message first.
func (s *sessions) callsAfter(c Conn, h *header, keep int) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for r, err := range c.Query(selectCallsBack, rowKey(h.number, int64(keep)), lastKey(h.number)) {
			var calls []string
			if err == nil {
				err = session.Decode("session "+h.ID+": the calls of a message", r.Bytes(), &calls)
			}
			if !yield(calls, err) || err != nil {
				return
			}
		}
	}
}

const selectMessageKey = `
SELECT key FROM messages WHERE key >> 32 = ? AND message_id = ? AND message_id <> ''`

// holds reports whether a message is in the transcript.
func (s *sessions) holds(c Conn, h *header, messageID string) (bool, error) {
	r, err := c.One(selectMessageKey, h.number, messageID)
	return r != nil, err
}

// makes reports whether a message of the transcript makes a call. It searches from
// the end, where the requested calls usually are.
func (s *sessions) makes(c Conn, h *header, callID string) (bool, error) {
	for calls, err := range s.callsAfter(c, h, 0) {
		if err != nil || slices.Contains(calls, callID) {
			return err == nil, err
		}
	}
	return false, nil
}

// undoCalls deletes the rows of calls whose message was dropped.
func (s *sessions) undoCalls(t *Tx, h *header) error {
	var messageIDs []string
	for r, err := range t.Query("SELECT DISTINCT message_id FROM calls WHERE session = ?", h.number) {
		if err != nil {
			return err
		}
		messageIDs = append(messageIDs, r.Text())
	}
	for _, messageID := range messageIDs {
		held, err := s.holds(t.Conn, h, messageID)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		if _, err := t.Exec(deleteCalls, h.number, messageID); err != nil {
			return err
		}
	}
	return nil
}

const undoPending = `
UPDATE pending INDEXED BY pending_open SET state = 'superseded'
WHERE tenant = ? AND session_id = ? AND state IN ('waiting', 'answered')
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.key >> 32 = ? AND m.message_id = pending.message_id AND m.message_id <> '')`

// undoPending ends the waits for calls whose message was dropped. It does not
// decode the entries, because an entry that cannot be decoded must not prevent a
// rewind.
func (s *sessions) undoPending(t *Tx, h *header) error {
	_, err := t.Exec(undoPending, s.tenant, h.ID, h.number)
	return err
}

// undoChildren discards children that work for undone calls, and children awaited
// for a call that no message makes.
func (s *sessions) undoChildren(t *Tx, h *header, undone []string) error {
	refs, err := s.soundChildren(t, h)
	if err != nil {
		return err
	}
	now := s.b.Now()
	for i := range refs {
		ref := &refs[i]
		superseded := slices.Contains(undone, ref.CallID)
		if !superseded && ref.Awaited {
			made, err := s.makes(t.Conn, h, ref.CallID)
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

const neglectChild = `
UPDATE children SET awaited = 0 WHERE tenant = ? AND session_id = ? AND child_id = ?`

// soundChildren lists the references that can be decoded. The others are no longer
// awaited.
func (s *sessions) soundChildren(t *Tx, h *header) (refs []session.ChildRef, err error) {
	var damaged []string
	for r, err := range t.Query(selectChildren, s.tenant, h.ID) {
		if err != nil {
			return nil, err
		}
		childID := r.Text()
		r.next = 0
		ref, err := decodeChild(h.ID, r)
		switch {
		case err == nil:
			refs = append(refs, *ref)
		case stored.UnlessCorrupt(err) == nil:
			damaged = append(damaged, childID)
		default:
			return nil, err
		}
	}
	for _, childID := range damaged {
		if _, err := t.Exec(neglectChild, s.tenant, h.ID, childID); err != nil {
			return nil, err
		}
	}
	return refs, nil
}
