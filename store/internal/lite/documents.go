package lite

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Edit implements [session.Documents].
func (s *sessions) Edit(ctx context.Context, edit *session.Edit) (edited *session.Edited, err error) {
	if err := edit.Check(); err != nil {
		return nil, err
	}
	change := edit.Change
	if change.State == nil && edit.Create != nil && edit.Create.Custom.Len() > 0 {
		change.State = &edit.Create.Custom
	}
	d, err := newDraft(&change, "")
	if err != nil {
		return nil, err
	}
	err = s.b.Write(ctx, what(edit.SessionID, "edit"), func(t *Tx) error {
		h, err := s.find(t, edit.SessionID)
		if err != nil {
			return err
		}
		now := s.b.Now()
		if err := edit.Guard(h.state(), h.run(), now); err != nil {
			return err
		}
		edited, err = s.edit(t, h, edit, d, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return edited, nil
}

// edit applies an edit to a session, h, or to the one that it creates.
func (s *sessions) edit(t *Tx, h *header, e *session.Edit, d *draft, now time.Time) (*session.Edited, error) {
	if e.Create != nil {
		h = s.newHeader(e.Create)
	}
	if err := s.loadEdited(t.Conn, h, e); err != nil {
		return nil, err
	}
	user := h.UserID
	if err := e.Apply(&h.State, now); err != nil {
		return nil, err
	}
	d.runID = h.CurrentRunID
	p, err := s.planChange(t.Conn, h, d, now)
	if err != nil {
		return nil, err
	}
	if e.Create != nil {
		err = s.insert(t, h)
	} else {
		err = s.writeEdited(t, h, e)
	}
	if err != nil {
		return nil, err
	}
	if err := s.applyChange(t, h, p); err != nil {
		return nil, err
	}
	if e.Metadata != nil || !e.AllowedDuringRun() {
		if err := s.writeHeader(t, h); err != nil {
			return nil, err
		}
	}
	out := &session.Edited{Committed: h.committed(), StepCount: h.StepCount, ResumeCount: h.ResumeCount}
	out.Warnings = p.state.writes.Warnings
	return out, s.reassignBelow(t, h, user)
}

// loadEdited reads the parts of a document that an edit changes and that are not
// columns of its row.
func (s *sessions) loadEdited(c Conn, h *header, e *session.Edit) (err error) {
	if e.Document != nil {
		return s.loadDoc(c, h)
	}
	if e.Metadata != nil && e.Create == nil {
		_, h.Metadata, err = s.labels(c, h.ID)
	}
	return err
}

// writeEdited writes these parts and sets the session's new version.
func (s *sessions) writeEdited(t *Tx, h *header, e *session.Edit) error {
	if !e.AllowedDuringRun() {
		h.Version++
	}
	if e.Document == nil {
		return s.patchMetadata(t, h, e.Metadata)
	}
	if err := s.writeDoc(t, h); err != nil {
		return err
	}
	if err := s.deleteLabels(t, h.ID); err != nil {
		return err
	}
	return s.writeLabels(t, h.ID, h.Tags, h.Metadata, h.CreatedAt)
}

func (s *sessions) patchMetadata(t *Tx, h *header, patch map[string]*string) error {
	set := map[string]string{}
	for name, value := range patch {
		if value != nil {
			set[name] = *value
			continue
		}
		if _, err := t.Exec(deleteMetadata, s.tenant, h.ID, name); err != nil {
			return err
		}
	}
	return s.writeLabels(t, h.ID, nil, set, h.CreatedAt)
}

const updateUser = `
UPDATE sessions SET user_id = ? WHERE number = ? AND user_id = ?`

// reassignBelow assigns the sessions below one to its new user, if the user has
// changed, as far as they belonged to the former user.
func (s *sessions) reassignBelow(t *Tx, h *header, was string) error {
	if h.UserID == was {
		return nil
	}
	tree, err := s.tree(t.Conn, h)
	if err != nil {
		return err
	}
	for _, m := range tree[1:] {
		t.cache.forget(s.tenant, m.id)
		if _, err := t.Exec(updateUser, h.UserID, m.number, was); err != nil {
			return err
		}
	}
	return nil
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (result session.StatusResult, err error) {
	err = s.write(ctx, id, "set status", func(t *Tx, h *header) error {
		now := s.b.Now()
		if err := change.CheckIdle(&h.State, h.run(), now); err != nil {
			return err
		}
		if err := s.loadDoc(t.Conn, h); err != nil {
			return err
		}
		if result, err = change.Swap(&h.State); err != nil || !result.OK {
			return err
		}
		h.LastCommit, h.UpdatedAt = "", now
		if err := s.writeDoc(t, h); err != nil {
			return err
		}
		return s.writeHeader(t, h)
	})
	if err != nil {
		return session.StatusResult{}, err
	}
	return result, nil
}
