package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// Edit implements [session.Documents]. It takes two round trips, and one more if
// it depends on rows other than the session's own.
func (s *sessions) Edit(ctx context.Context, edit *session.Edit) (edited *session.Edited, err error) {
	if err := edit.Check(); err != nil {
		return nil, err
	}
	change := edit.Change
	if change.State == nil && edit.Create != nil && edit.Create.Custom.Len() > 0 {
		change.State = &edit.Create.Custom
	}
	d, err := newDraft(&change, edit.SessionID, "", time.Now())
	if err != nil {
		return nil, err
	}
	err = s.b.transact(ctx, what(edit.SessionID, "edit"), func(ctx context.Context, t *tx) (err error) {
		h, err := s.findEdited(ctx, t, edit)
		if err != nil {
			return err
		}
		edited, err = s.edit(ctx, t, h, edit, d)
		return s.created(err)
	})
	if err := s.conflict(ctx, err, edit.SessionID, d); err != nil {
		return nil, err
	}
	return edited, nil
}

// findEdited reads the row of the session to edit, with its metadata if that is to
// change, or returns the row of a new session.
func (s *sessions) findEdited(ctx context.Context, t *tx, e *session.Edit) (*header, error) {
	var (
		h      *header
		number int64
		now    time.Time
		labels *labels
		doc    *docRow
	)
	if e.Create != nil {
		s.askHeader(t, e.SessionID, &h)
		t.ask(func(rows pgx.Rows) error { return rows.Scan(&number, instant{&now}) }, nextNumberAt, s.b.clock())
	} else {
		s.askLocked(t, e.SessionID, &h)
	}
	if e.Metadata != nil {
		labels = s.askLabels(t, e.SessionID)
	}
	if e.Document != nil {
		doc = s.askDoc(t, e.SessionID)
	}
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	if h != nil {
		now = h.now
	}
	if err := e.Guard(h.state(), h.run(), now); err != nil {
		return nil, err
	}
	if e.Create != nil {
		h = s.newHeader(e.Create, number, now)
	} else if labels != nil {
		h.Metadata = labels.metadata[e.SessionID]
	}
	if doc != nil { // the edit replaces the rest of it
		var was session.State
		if err := stored.UnlessCorrupt(doc.Fill(&was)); err != nil {
			return nil, err
		}
		h.Marks = was.Marks
	}
	return h, nil
}

// edit applies an edit that the session's row allows.
func (s *sessions) edit(ctx context.Context, t *tx, h *header, e *session.Edit, d *draft) (*session.Edited, error) {
	was, user := h.Saw(), h.UserID
	if err := e.Apply(&h.State, h.now); err != nil {
		return nil, err
	}
	if e.AllowedDuringRun() {
		s.editBeside(t, h, e, d)
		return &session.Edited{Committed: h.committed(), StepCount: h.StepCount, ResumeCount: h.ResumeCount}, nil
	}
	d.runID = h.CurrentRunID
	version, raise := h.Version, e.Create == nil
	if raise {
		version++
	}
	d, err := s.rewinds(ctx, t, h, d, version)
	if err != nil {
		return nil, err
	}
	if err := s.writeEdited(t, h, e); err != nil {
		return nil, err
	}
	if h.UserID != user {
		t.exec(reassignBelow, s.tenant, h.ID, h.number, h.UserID, user)
	}
	c, err := s.changeLast(ctx, t, d, raise, was)
	if err != nil {
		return nil, err
	}
	t.done = append(t.done, func() {
		s.b.snapshots.consider(h.number, s.tenant, h.ID, c.is.snapshotBytes, c.is.deltaBytes)
	})
	out := &session.Edited{Committed: *c.committed(d), StepCount: h.StepCount, ResumeCount: h.ResumeCount}
	out.Stop = nil // the request in the row was for a run that has ended
	return out, nil
}

// editBeside queues an edit of rows that may change during a turn.
func (s *sessions) editBeside(t *tx, h *header, e *session.Edit, d *draft) {
	t.exec("UPDATE helix.sessions SET touched = touched + 1 WHERE number = $1", h.number)
	s.putChildren(t, h, d.children)
	if e.Metadata != nil {
		s.patchMetadata(t, h, e.Metadata)
		t.exec("UPDATE helix.sessions SET updated_at = $2 WHERE number = $1", h.number, when(h.now))
	}
}

// writeEdited queues the document of an edited session, without its new version.
func (s *sessions) writeEdited(t *tx, h *header, e *session.Edit) error {
	switch {
	case e.Create != nil:
		return s.insert(t, h)
	case e.Document != nil:
		if err := s.writeDoc(t, h); err != nil {
			return err
		}
		s.deleteLabels(t, h)
		s.writeLabels(t, h, h.Tags, h.Metadata)
	default:
		s.patchMetadata(t, h, e.Metadata)
	}
	s.writeHeader(t, h)
	return nil
}

func (s *sessions) patchMetadata(t *tx, h *header, patch map[string]*string) {
	set, deleted := map[string]string{}, []string{}
	for name, value := range patch {
		if value != nil {
			set[name] = *value
		} else {
			deleted = append(deleted, name)
		}
	}
	if len(deleted) > 0 {
		t.exec("DELETE FROM helix.session_metadata WHERE session = $1 AND name = ANY ($2::text[])", h.number, deleted)
	}
	s.writeLabels(t, h, nil, set)
}

// reassignBelow assigns the sessions below one to its new user, as far as they
// belonged to the former user. It visits each session once, even if links form a
// cycle.
const reassignBelow = `
WITH RECURSIVE below AS (
    SELECT c.number, c.id FROM helix.sessions c WHERE c.tenant = $1 AND c.parent_id = $2 AND c.parent_id <> ''
    UNION
    SELECT c.number, c.id FROM below b JOIN helix.sessions c ON c.tenant = $1 AND c.parent_id = b.id AND c.parent_id <> ''
)
UPDATE helix.sessions s SET user_id = $4 FROM below b WHERE s.number = b.number AND s.number <> $3 AND s.user_id = $5`

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (result session.StatusResult, err error) {
	err = s.write(ctx, id, "set status", func(ctx context.Context, t *tx, h *header) error {
		if err := change.CheckIdle(&h.State, h.run(), h.now); err != nil {
			return err
		}
		doc := s.askDoc(t, id)
		if err := t.flush(ctx); err != nil {
			return err
		}
		if err := doc.fill(h); err != nil {
			return err
		}
		if result, err = change.Swap(&h.State); err != nil || !result.OK {
			return err
		}
		h.LastCommit, h.UpdatedAt = "", h.now
		if err := s.writeDoc(t, h); err != nil {
			return err
		}
		s.writeHeader(t, h)
		return nil
	})
	if err != nil {
		return session.StatusResult{}, err
	}
	return result, nil
}
