package lite

import (
	"fmt"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// minSnapshot is how many bytes of writes may accumulate before a full snapshot is
// considered: below it, replaying them costs less than a snapshot.
const minSnapshot = 4 << 10

const selectStateLog = `
SELECT key, snapshot, body FROM state_log
WHERE key > ? AND key <= ?
ORDER BY key DESC`

// stateAt returns the custom state at a version: the last snapshot before it, with
// the writes since. Snapshots are taken so that these writes never outweigh the
// snapshot.
func (s *sessions) stateAt(c Conn, h *header, version int64) (session.CustomState, error) {
	var doc session.CustomState
	var since []session.Writes
	for r, err := range c.Query(selectStateLog, rowKey(h.number, 0), rowKey(h.number, version)) {
		if err != nil {
			return doc, err
		}
		at, snapshot, body := r.Int64()-rowKey(h.number, 0), r.Bool(), r.Bytes()
		name := fmt.Sprintf("session %s: custom state at version %d", h.ID, at)
		if snapshot {
			if err := session.Decode(name, body, &doc); err != nil {
				return doc, err
			}
			break
		}
		var w session.Writes
		if err := session.Decode(name, body, &w); err != nil {
			return doc, err
		}
		since = append(since, w)
	}
	for _, w := range slices.Backward(since) {
		if err := doc.Apply(w); err != nil {
			return doc, session.ErrCorrupt.WithCause(err, "session %s: custom state cannot be rebuilt", h.ID)
		}
	}
	return doc, nil
}

// stateChange is a change of custom state that was validated.
type stateChange struct {
	whole  *session.CustomState // replaces the state; it includes the writes
	writes session.Writes
	keys   map[string]stored.KeyKind // what writes changes about the keys
}

const selectStateKey = `
SELECT is_list FROM state_keys WHERE session = ? AND name = ?`

// planState plans a change of custom state and refuses an impossible one before
// anything is written.
func (s *sessions) planState(c Conn, h *header, replace *session.CustomState, w session.Writes) (*stateChange, error) {
	plan := &stateChange{}
	if replace != nil {
		doc := replace.Clone()
		if err := doc.Apply(w); err != nil {
			return nil, err
		}
		plan.whole, plan.writes = &doc, w
		return plan, nil
	}
	plan.keys = make(map[string]stored.KeyKind, len(w.Ops))
	for i := range w.Ops {
		if err := s.planOp(c, h, plan.keys, &w.Ops[i]); err != nil {
			return nil, err
		}
	}
	plan.writes = session.Compose(w)
	return plan, nil
}

// planOp records in keys the kind of value that an operation leaves under its key.
func (s *sessions) planOp(c Conn, h *header, keys map[string]stored.KeyKind, op *session.Op) error {
	if op.Kind == session.OpAppend && len(op.Items) == 0 {
		return nil // it does nothing; composing omits it
	}
	was, ok := keys[op.Key]
	if !ok {
		var err error
		if was, err = s.keyKind(c, h, op.Key); err != nil {
			return err
		}
	}
	now := stored.KeyGone
	switch op.Kind {
	case session.OpAppend:
		if was == stored.KeyValue {
			return session.Invalid("state key", "%q is not a list, so nothing can be appended to it", op.Key)
		}
		now = stored.KeyList
	case session.OpReplace:
		now = stored.KindOf(op.Value)
	}
	if ok || now != was {
		keys[op.Key] = now
	}
	return nil
}

func (s *sessions) keyKind(c Conn, h *header, name string) (stored.KeyKind, error) {
	r, err := c.One(selectStateKey, h.number, name)
	switch {
	case err != nil || r == nil:
		return stored.KeyGone, err
	case r.Bool():
		return stored.KeyList, nil
	}
	return stored.KeyValue, nil
}

const (
	insertStateLog = `
INSERT INTO state_log (key, snapshot, body) VALUES (?, ?, ?)`

	upsertStateKey = `
INSERT INTO state_keys (session, name, is_list) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET is_list = excluded.is_list`

	deleteStateKey = `
DELETE FROM state_keys WHERE session = ? AND name = ?`

	deleteStateKeys = `
DELETE FROM state_keys WHERE session = ?`
)

// writeState performs a planned change under the session's new version.
func (s *sessions) writeState(t *Tx, h *header, plan *stateChange) error {
	if plan.whole != nil {
		return s.writeWholeState(t, h, plan.whole)
	}
	if plan.writes.Empty() {
		return nil
	}
	for name, kind := range plan.keys {
		if err := s.writeStateKey(t, h, name, kind); err != nil {
			return err
		}
	}
	body, err := stored.EncodeWrites(plan.writes)
	if err != nil {
		return err
	}
	if h.deltaBytes+int64(len(body)) > max(h.snapshotBytes, minSnapshot) {
		doc, err := s.stateAt(t.Conn, h, h.Version)
		if err != nil {
			return err
		}
		if err := doc.Apply(plan.writes); err != nil {
			return err
		}
		return s.writeSnapshot(t, h, &doc)
	}
	h.deltaBytes += int64(len(body))
	_, err = t.Exec(insertStateLog, rowKey(h.number, h.Version), false, body)
	return err
}

func (s *sessions) writeStateKey(t *Tx, h *header, name string, kind stored.KeyKind) error {
	var err error
	if kind == stored.KeyGone {
		_, err = t.Exec(deleteStateKey, h.number, name)
	} else {
		_, err = t.Exec(upsertStateKey, h.number, name, kind == stored.KeyList)
	}
	return err
}

// writeWholeState replaces custom state.
func (s *sessions) writeWholeState(t *Tx, h *header, doc *session.CustomState) error {
	if _, err := t.Exec(deleteStateKeys, h.number); err != nil {
		return err
	}
	for name, value := range doc.All() {
		if err := s.writeStateKey(t, h, name, stored.KindOf(value)); err != nil {
			return err
		}
	}
	return s.writeSnapshot(t, h, doc)
}

func (s *sessions) writeSnapshot(t *Tx, h *header, doc *session.CustomState) error {
	body, err := doc.MarshalJSON()
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s: custom state cannot be encoded", h.ID)
	}
	h.snapshotBytes, h.deltaBytes = int64(len(body)), 0
	_, err = t.Exec(insertStateLog, rowKey(h.number, h.Version), true, body)
	return err
}
