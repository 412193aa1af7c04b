package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
	"github.com/helixagents/helix/store/internal/stored"
)

// newHeader returns the row of a session to create.
func (s *sessions) newHeader(state *session.State, number int64, now time.Time) *header {
	h := &header{State: state.AsNew(s.tenant, now), number: number, now: now}
	h.Version = 1
	return h
}

const nextNumberAt = `SELECT nextval('helix.session_numbers'), coalesce($1::timestamptz, clock_timestamp())`

// created repeats a creation if another process has created the session first: the
// repetition then finds it.
func (s *sessions) created(err error) error {
	if isDuplicate(err, "sessions_by_id") {
		return errAgain
	}
	return err
}

// insert queues the rows of a session, without its custom state.
func (s *sessions) insert(t *tx, h *header) error {
	s.insertHeader(t, h)
	if err := s.writeDoc(t, h); err != nil {
		return err
	}
	s.writeLabels(t, h, h.Tags, h.Metadata)
	return nil
}

// Exists implements [session.Lifecycle].
func (s *sessions) Exists(ctx context.Context, id string) (found bool, err error) {
	err = s.b.query(ctx, what(id, "exists"), func(pgx.Rows) error {
		found = true
		return nil
	}, "SELECT 1 FROM helix.sessions WHERE tenant = $1 AND id = $2", s.tenant, id)
	return found, err
}

// Load implements [session.Lifecycle]. It is one round trip.
func (s *sessions) Load(ctx context.Context, id string) (state *session.State, err error) {
	var custom *rebuilt
	var h *header
	err = s.b.read(ctx, what(id, "load"), func(ctx context.Context, t *tx) error {
		var (
			pending []session.Pending
			awaited []session.ChildRef
			damage  error
		)
		h = nil
		s.askHeader(t, id, &h)
		doc := s.askDoc(t, id)
		custom = s.askState(t, id, nil)
		labels := s.askLabels(t, id)
		t.ask(func(rows pgx.Rows) error {
			p, err := scanPending(id, rows)
			if p != nil {
				pending = append(pending, *p)
			}
			return noteDamage(&damage, err)
		}, selectPendingOpen, s.tenant, id)
		t.ask(func(rows pgx.Rows) error { return noteDamage(&damage, appendChild(&awaited, id, rows)) }, selectAwaited, s.tenant, id)
		if err := t.finish(ctx); err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		if err := cmp.Or(doc.fill(h), custom.err, damage); err != nil {
			return err
		}
		h.Custom, h.Tags, h.Metadata = custom.doc, labels.tags[id], labels.metadata[id]
		h.Pending, h.AwaitingChildren = pending, awaited
		state = &h.State
		state.Activity = session.ActivityOf(h.Status, h.runStatus)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.b.snapshots.consider(h.number, s.tenant, id, custom.snapshot, custom.delta)
	return state, nil
}

// noteDamage keeps the error of a row that cannot be decoded until everything was
// read.
func noteDamage(damage *error, err error) error {
	if err != nil && stored.UnlessCorrupt(err) == nil {
		*damage = err
		return nil
	}
	return err
}

const copyMessages = `
INSERT INTO helix.messages (session, number, message_id, calls, body)
SELECT $1, number, message_id, calls, body FROM helix.messages
WHERE session = $2 AND number <= $3`

// Clone implements [session.Lifecycle].
func (s *sessions) Clone(ctx context.Context, clone *session.Clone) (state *session.State, err error) {
	if err := clone.Check(); err != nil {
		return nil, err
	}
	err = s.write(ctx, clone.From, "clone", func(ctx context.Context, t *tx, from *header) error {
		to, err := clone.Complete(&from.State)
		if err != nil {
			return err
		}
		count, version, err := s.cloned(ctx, t, from, clone)
		if err != nil {
			return err
		}
		var (
			found  *header
			number int64
		)
		custom := s.askState(t, from.ID, version)
		doc := s.askDoc(t, from.ID)
		s.askHeader(t, to.ID, &found)
		t.ask(func(rows pgx.Rows) error { return rows.Scan(&number) }, nextNumber)
		if err := t.flush(ctx); err != nil {
			return err
		}
		if custom.err != nil {
			return custom.err
		}
		if found != nil {
			return session.Exists(&found.State)
		}
		if err := doc.fill(from); err != nil {
			return err
		}
		h := s.newHeader(&to, number, from.now)
		h.Marks = from.Marks.Within(count)
		h.Custom, h.StepCount, h.ResumeCount, h.MessageCount = custom.doc, 0, 0, count
		if h.Custom.Len() > 0 {
			if err := s.writeWhole(t, h, h.Version, &h.Custom); err != nil {
				return err
			}
		}
		t.exec(copyMessages, h.number, from.number, count)
		if err := coldsql.CopyBlobs(cold{ctx, t}, &from.State, from.number, h.number); err != nil {
			return err
		}
		s.writeCheckpoint(t, h, ownCheckpoint(h))
		state = &h.State
		state.Activity = session.ActivityOf(h.Status, h.runStatus)
		if err := s.insert(t, h); err != nil {
			return err
		}
		return s.created(t.flush(ctx))
	})
	if err != nil {
		return nil, err
	}
	return state, nil
}

// cloned returns the number of messages that a clone copies, and the version of
// the custom state.
func (s *sessions) cloned(ctx context.Context, t *tx, from *header, clone *session.Clone) (count int, version int64, err error) {
	count, version = from.MessageCount, from.Version
	switch n := clone.MessageCount; {
	case clone.CheckpointID != "":
		point, err := s.checkpoint(ctx, t, from.ID, selectCheckpoint, clone.CheckpointID)
		switch {
		case err != nil:
			return 0, 0, err
		case point == nil:
			return 0, 0, notFound("session %s: checkpoint %s", from.ID, clone.CheckpointID)
		case point.Undone:
			return 0, 0, session.ErrNotFound.WithMessage(
				"session %s: a rewind has dropped messages of checkpoint %s", from.ID, point.ID)
		}
		return point.MessageCount, point.Version, nil
	case n != nil:
		if *n < 0 || *n > count {
			return 0, 0, session.Invalid("message count", "%d is not within 0 and %d", *n, count)
		}
		point, err := s.checkpoint(ctx, t, from.ID, selectWithin, *n)
		if err != nil || point == nil {
			return *n, 0, err
		}
		return *n, point.Version, nil
	}
	return count, version, nil
}

// ownedByNumber are the tables whose rows have the session's number as their key,
// ownedByID those that have its id, ownedByStream those that have a stream's
// number.
var (
	ownedByNumber = []string{
		"DELETE FROM helix.session_docs WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.session_tags WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.session_metadata WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.messages WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.state_log WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.state_snapshots WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.state_keys WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.runs WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.checkpoints WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.calls WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.pending WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.ownership WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.children WHERE session = ANY ($1::bigint[])",
		"DELETE FROM helix.inbox WHERE session = ANY ($1::bigint[])",
	}
	ownedByID = []string{
		"DELETE FROM helix.wakes WHERE tenant = $1 AND session_id = ANY ($2::text[])",
		"DELETE FROM helix.tasks WHERE tenant = $1 AND session_id = ANY ($2::text[])",
	}
	ownedByStream = []string{
		"DELETE FROM helix.streams WHERE number = ANY ($1::bigint[])",
		"DELETE FROM helix.stream_batches WHERE stream = ANY ($1::bigint[])",
		"DELETE FROM helix.stream_producers WHERE stream = ANY ($1::bigint[])",
	}
)

// Delete implements [session.Lifecycle]. It deletes the sessions' rows first,
// which waits for whoever has locked one; then nobody can add to what belongs to
// them, and that is deleted. The stream that all of them write to is locked
// before, because a commit with chunks locks both in this order.
func (s *sessions) Delete(ctx context.Context, id string) (deleted []string, err error) {
	err = s.b.transactBulk(ctx, what(id, "delete"), func(ctx context.Context, t *tx) error {
		t.exec(lockStream, s.tenant, id)
		h, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		numbers, ids, err := s.deleteTree(ctx, t, h)
		if err != nil {
			return err
		}
		for _, query := range ownedByNumber {
			t.exec(query, numbers)
		}
		for _, query := range ownedByID {
			t.exec(query, s.tenant, ids)
		}
		if err := coldsql.DropBlobs(cold{ctx, t}, h.now, numbers...); err != nil {
			return err
		}
		deleted = ids
		_, err = (&streams{s.b, s.tenant}).delete(ctx, t, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

const (
	deleteSessions = `
DELETE FROM helix.sessions WHERE number = ANY ($1::bigint[])`

	selectChildSessions = `
SELECT number, id FROM helix.sessions
WHERE tenant = $1 AND parent_id = ANY ($2::text[]) AND parent_id <> ''
ORDER BY created_at, id`
)

// deleteTree deletes the rows of a session and of all sessions below it, level by
// level, without relying on their statuses.
func (s *sessions) deleteTree(ctx context.Context, t *tx, h *header) (numbers []int64, ids []string, err error) {
	numbers, ids = []int64{h.number}, []string{h.ID}
	for level := 0; level < len(ids); {
		parents, doomed := ids[level:], numbers[level:]
		level = len(ids)
		t.exec(deleteSessions, doomed)
		t.ask(func(rows pgx.Rows) error {
			var (
				number int64
				id     string
			)
			err := rows.Scan(&number, &id)
			numbers, ids = append(numbers, number), append(ids, id)
			return err
		}, selectChildSessions, s.tenant, parents)
		if err := t.flush(ctx); err != nil {
			return nil, nil, err
		}
	}
	return numbers, ids, nil
}
