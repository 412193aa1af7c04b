package lite

import (
	"context"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
)

// newHeader returns the row of a session to create.
func (s *sessions) newHeader(state *session.State) *header {
	h := &header{State: state.AsNew(s.tenant, s.b.Now()), doc: &docRow{}}
	h.Version = 1
	return h
}

// insert adds the rows of a session, without its custom state.
func (s *sessions) insert(t *Tx, h *header) error {
	if err := s.insertHeader(t, h); err != nil {
		return err
	}
	if err := s.writeDoc(t, h); err != nil {
		return err
	}
	return s.writeLabels(t, h.ID, h.Tags, h.Metadata, h.CreatedAt)
}

// absent returns an error if the id already exists.
func (s *sessions) absent(c Conn, id string) error {
	h, err := s.header(c, id)
	if err == nil && h != nil {
		err = session.Exists(&h.State)
	}
	return err
}

func (s *sessions) exists(c Conn, id string) (bool, error) {
	r, err := c.One("SELECT 1 FROM sessions WHERE tenant = ? AND id = ?", s.tenant, id)
	return r != nil, err
}

// Exists implements [session.Lifecycle].
func (s *sessions) Exists(ctx context.Context, id string) (found bool, err error) {
	err = s.b.Read(ctx, what(id, "exists"), func(c Conn) error {
		found, err = s.exists(c, id)
		return err
	})
	return found, err
}

// Load implements [session.Lifecycle].
func (s *sessions) Load(ctx context.Context, id string) (state *session.State, err error) {
	err = s.read(ctx, id, "load", func(c Conn, h *header) error {
		state, err = s.assemble(c, h)
		return err
	})
	return state, err
}

// assemble reads all parts of a session's document.
func (s *sessions) assemble(c Conn, h *header) (*session.State, error) {
	if err := s.loadDoc(c, h); err != nil {
		return nil, err
	}
	state := h.State
	state.Activity = session.ActivityOf(h.Status, h.runStatus)
	var err error
	if state.Custom, err = s.stateAt(c, h, h.Version); err != nil {
		return nil, err
	}
	if state.Tags, state.Metadata, err = s.labels(c, h.ID); err != nil {
		return nil, err
	}
	if state.Pending, err = s.pending(c, h.ID, false); err != nil {
		return nil, err
	}
	if state.AwaitingChildren, err = s.children(c, selectAwaited, h.ID); err != nil {
		return nil, err
	}
	return &state, nil
}

const copyMessages = `
INSERT INTO messages (key, message_id, calls, body)
SELECT key + ?, message_id, calls, body FROM messages
WHERE key > ? AND key <= ?`

// Clone implements [session.Lifecycle].
func (s *sessions) Clone(ctx context.Context, clone *session.Clone) (state *session.State, err error) {
	if err := clone.Check(); err != nil {
		return nil, err
	}
	err = s.write(ctx, clone.From, "clone", func(t *Tx, from *header) error {
		to, err := clone.Complete(&from.State)
		if err != nil {
			return err
		}
		custom, count, err := s.cloned(t.Conn, from, clone)
		if err != nil {
			return err
		}
		if err := s.absent(t.Conn, to.ID); err != nil {
			return err
		}
		if err := s.loadDoc(t.Conn, from); err != nil {
			return err
		}
		h := s.newHeader(&to)
		h.Marks = from.Marks.Within(count)
		h.Custom, h.StepCount, h.ResumeCount, h.MessageCount = custom, 0, 0, count
		if err := s.insert(t, h); err != nil {
			return err
		}
		_, err = t.Exec(copyMessages, rowKey(h.number-from.number, 0),
			rowKey(from.number, 0), rowKey(from.number, int64(count)))
		if err != nil {
			return err
		}
		if err := coldsql.CopyBlobs(cold{t.Conn, s.b}, &from.State, from.number, h.number); err != nil {
			return err
		}
		if h.Custom.Len() > 0 {
			if err := s.writeWholeState(t, h, &h.Custom); err != nil {
				return err
			}
		}
		if err := s.writeCheckpoint(t, h, ownCheckpoint(h)); err != nil {
			return err
		}
		state = &h.State
		state.Activity = session.ActivityOf(h.Status, h.runStatus)
		return s.writeHeader(t, h)
	})
	return state, err
}

// cloned returns the custom state and the number of messages that a clone copies.
func (s *sessions) cloned(c Conn, from *header, clone *session.Clone) (session.CustomState, int, error) {
	count, version := from.MessageCount, from.Version
	switch n := clone.MessageCount; {
	case clone.CheckpointID != "":
		point, err := s.checkpoint(c, from, clone.CheckpointID)
		if err == nil && point.Undone {
			err = session.ErrNotFound.WithMessage(
				"session %s: a rewind has dropped messages of checkpoint %s", from.ID, point.ID)
		}
		if err != nil {
			return session.CustomState{}, 0, err
		}
		count, version = point.MessageCount, point.Version
	case n != nil:
		if *n < 0 || *n > count {
			return session.CustomState{}, 0, session.Invalid("message count", "%d is not within 0 and %d", *n, count)
		}
		count = *n
		var err error
		if version, err = s.versionWithin(c, from, count); err != nil {
			return session.CustomState{}, 0, err
		}
	}
	doc, err := s.stateAt(c, from, version)
	return doc, count, err
}

// versionWithin returns the version of the last standing checkpoint with at most n
// messages, or 0.
func (s *sessions) versionWithin(c Conn, h *header, n int) (int64, error) {
	for point, err := range s.chain(c, h, h.CheckpointID) {
		if err != nil {
			return 0, err
		}
		if point.MessageCount <= n && !point.Undone {
			return point.Version, nil
		}
	}
	return 0, nil
}

// ownedByNumber are the tables whose rows have the session's number as their key,
// ownedByID those that have its id.
var (
	ownedByNumber = []string{
		"DELETE FROM sessions WHERE number = ?1",
		"DELETE FROM session_docs WHERE session = ?1",
		"DELETE FROM messages WHERE key > ?1 << 32 AND key < (?1 + 1) << 32",
		"DELETE FROM state_log WHERE key > ?1 << 32 AND key < (?1 + 1) << 32",
		"DELETE FROM state_keys WHERE session = ?1",
		"DELETE FROM runs WHERE key > ?1 << 32 AND key < (?1 + 1) << 32",
		"DELETE FROM checkpoints WHERE session = ?1",
		"DELETE FROM calls WHERE session = ?1",
	}
	ownedByID = []string{
		"DELETE FROM session_tags WHERE tenant = ? AND session_id = ?",
		"DELETE FROM session_metadata WHERE tenant = ? AND session_id = ?",
		"DELETE FROM pending WHERE tenant = ? AND session_id = ?",
		"DELETE FROM ownership WHERE tenant = ? AND root_id = ?",
		"DELETE FROM children WHERE tenant = ? AND session_id = ?",
		"DELETE FROM inbox WHERE tenant = ? AND session_id = ?",
		"DELETE FROM wakes WHERE tenant = ? AND session_id = ?",
		"DELETE FROM stops WHERE tenant = ? AND session_id = ?",
		"DELETE FROM tasks WHERE tenant = ? AND session_id = ?",
	}
)

// Delete implements [session.Lifecycle].
func (s *sessions) Delete(ctx context.Context, id string) (deleted []string, err error) {
	err = s.write(ctx, id, "delete", func(t *Tx, h *header) error {
		deleted = nil
		tree, err := s.tree(t.Conn, h)
		if err != nil {
			return err
		}
		for _, member := range tree {
			if err := s.deleteRows(t, member); err != nil {
				return err
			}
			deleted = append(deleted, member.id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// member is a session of a tree.
type member struct {
	number int64
	id     string
}

func (s *sessions) deleteRows(t *Tx, m member) error {
	t.cache.forget(s.tenant, m.id)
	for _, query := range ownedByNumber {
		if _, err := t.Exec(query, m.number); err != nil {
			return err
		}
	}
	for _, query := range ownedByID {
		if _, err := t.Exec(query, s.tenant, m.id); err != nil {
			return err
		}
	}
	if err := coldsql.DropBlobs(cold{t.Conn, s.b}, s.b.Now(), m.number); err != nil {
		return err
	}
	_, err := deleteStream(t, StreamKey{s.tenant, m.id})
	return err
}

const selectChildSessions = `
SELECT number, id FROM sessions INDEXED BY sessions_by_parent
WHERE tenant = ? AND parent_id = ? AND parent_id <> ''`

// tree lists a session and all sessions below it, without relying on their
// statuses.
func (s *sessions) tree(c Conn, h *header) ([]member, error) {
	tree, seen := []member{{h.number, h.ID}}, map[string]bool{h.ID: true}
	for i := 0; i < len(tree); i++ {
		for r, err := range c.Query(selectChildSessions, s.tenant, tree[i].id) {
			if err != nil {
				return nil, err
			}
			if child := (member{r.Int64(), r.Text()}); !seen[child.id] {
				seen[child.id] = true
				tree = append(tree, child)
			}
		}
	}
	return tree, nil
}
