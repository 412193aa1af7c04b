package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

const (
	selectCallsMade = `
SELECT number, calls FROM helix.messages WHERE session = $1 AND calls IS NOT NULL`

	undoCheckpoints = `
UPDATE helix.checkpoints SET undone = true WHERE session = $1 AND number > $2 AND NOT undone`

	// The rows of calls, and the waits for them, whose message was dropped. The
	// entries are not decoded: an entry that cannot be decoded must not prevent a
	// rewind.
	undoCalls = `
DELETE FROM helix.calls c
WHERE c.session = $1
  AND NOT EXISTS (SELECT FROM helix.messages m WHERE m.session = $1 AND m.message_id = c.message_id AND m.message_id <> '')`

	undoPending = `
UPDATE helix.pending p SET state = 'superseded'
WHERE p.session = $1 AND p.state IN ('waiting', 'answered')
  AND NOT EXISTS (SELECT FROM helix.messages m WHERE m.session = $1 AND m.message_id = p.message_id AND m.message_id <> '')`
)

// truncate keeps a session's first messages and ends whatever depends on the
// others: checkpoints that count more messages, calls, waits and children. A wait
// for a message that is not in the transcript could never be consumed.
func (s *sessions) truncate(ctx context.Context, t *tx, h *header, keep int) error {
	var (
		undone, made []string // calls
		refs         []*childRow
		damage       error
	)
	t.ask(func(rows pgx.Rows) error {
		var (
			number int
			body   []byte
			calls  []string
		)
		if err := rows.Scan(&number, &body); err != nil {
			return err
		}
		if err := session.Decode("session "+h.ID+": the calls of a message", body, &calls); err != nil {
			damage = err
		}
		if number > keep {
			undone = append(undone, calls...)
		} else {
			made = append(made, calls...)
		}
		return nil
	}, selectCallsMade, h.number)
	t.ask(func(rows pgx.Rows) error {
		row, err := scanChild(rows)
		if row != nil {
			refs = append(refs, row)
		}
		return err
	}, selectChildren, s.tenant, h.ID)
	last, err := s.checkpoint(ctx, t, h.ID, selectWithin, keep)
	if err := errors.Join(err, damage); err != nil {
		return err
	}
	if last == nil {
		last = &storedCheckpoint{}
	}
	h.MessageCount = keep
	h.CheckpointID, h.CheckpointSource, h.CheckpointedAt = last.ID, last.Source, last.At
	t.exec("DELETE FROM helix.messages WHERE session = $1 AND number > $2", h.number, keep)
	t.exec(undoCheckpoints, h.number, last.number)
	t.exec(undoCalls, h.number)
	t.exec(undoPending, h.number)
	return s.undoChildren(t, h, refs, undone, made)
}

// undoChildren discards children that work for undone calls, and children awaited
// for a call that no message makes. A reference that cannot be decoded is no
// longer awaited.
func (s *sessions) undoChildren(t *tx, h *header, refs []*childRow, undone, made []string) error {
	for _, was := range refs {
		ref, err := was.decode(h.ID)
		if err != nil {
			t.exec(updateChild, h.number, was.childID, was.revision, false, was.doc, was.remote, when(was.createdAt), when(was.updatedAt))
			continue
		}
		if !slices.Contains(undone, ref.CallID) && (!ref.Awaited || slices.Contains(made, ref.CallID)) {
			continue
		}
		ref.Status, ref.Awaited, ref.UpdatedAt = session.ChildSuperseded, false, h.now
		row, err := encodeChild(ref)
		if err != nil {
			return err
		}
		t.exec(updateChild, h.number, row.childID, was.revision, row.awaited, row.doc, row.remote, when(row.createdAt), when(row.updatedAt))
	}
	return nil
}
