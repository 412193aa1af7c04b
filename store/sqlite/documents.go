package sqlite

import (
	"context"

	"github.com/helixagents/helix/session"
)

// writeDocument is a direct write of a document: refused while a run holds the
// session, and a new version of it, which h already has when run is called.
func (s *sessions) writeDocument(ctx context.Context, id, verb string, run func(*tx, *header) error) error {
	return s.write(ctx, id, verb, func(t *tx, h *header) error {
		return s.writeFree(t, h, run)
	})
}

func (s *sessions) writeFree(t *tx, h *header, run func(*tx, *header) error) error {
	now := s.b.now()
	if err := h.Free(h.run(), now); err != nil {
		return err
	}
	h.touch(now)
	if err := run(t, h); err != nil {
		return err
	}
	return s.writeHeader(t, h)
}

// Save implements [session.Documents].
func (s *sessions) Save(ctx context.Context, state *session.State) error {
	if err := state.Check(); err != nil {
		return err
	}
	tags := session.UniqueTags(state.Tags)
	var version int64
	err := s.write(ctx, state.ID, "save", func(t *tx, h *header) error {
		if err := h.Free(h.run(), s.b.now()); err != nil {
			return err
		}
		if state.Version != h.Version {
			return session.ErrStale.WithMessage("session %s: version %d was expected", h.ID, state.Version).WithSaw(h.Saw())
		}
		if err := session.Transition(h.Status, state.Status); err != nil {
			return err
		}
		if err := s.loadDoc(t.conn, h); err != nil {
			return err
		}
		version = h.Version + 1
		was := h.UserID
		if err := s.writeFree(t, h, func(t *tx, h *header) error { return s.replace(t, h, state, tags) }); err != nil {
			return err
		}
		return s.giveBelow(t, h, was)
	})
	if err != nil {
		return err
	}
	state.Version = version
	return nil
}

const updateUser = `
UPDATE sessions SET user_id = ? WHERE number = ? AND user_id = ?`

// giveBelow gives the sessions below one to its new user, if it was given to one, as far
// as they were the former user's.
func (s *sessions) giveBelow(t *tx, h *header, was string) error {
	if h.UserID == was {
		return nil
	}
	tree, err := s.tree(t.conn, h)
	if err != nil {
		return err
	}
	for _, m := range tree[1:] {
		t.cache.forget(s.tenant, m.id)
		if _, err := t.exec(updateUser, h.UserID, m.number, was); err != nil {
			return err
		}
	}
	return nil
}

// replace takes a whole document over, except for what is the store's own:
// counters, the lease, the age and what lives in rows. Its tags are given without
// repetitions.
func (s *sessions) replace(t *tx, h *header, state *session.State, tags []string) error {
	h.takeDoc(state)
	h.Agent, h.StreamID, h.ParentID, h.RootID = state.Agent, state.StreamID, state.ParentID, state.RootID
	h.Status, h.UserID, h.ExpiresAt = state.Status, state.UserID, state.ExpiresAt
	if err := s.writeDoc(t, h); err != nil {
		return err
	}
	if err := s.deleteLabels(t, h.ID); err != nil {
		return err
	}
	if err := s.writeLabels(t, h.ID, tags, state.Metadata, h.CreatedAt); err != nil {
		return err
	}
	if err := s.writeWholeState(t, h, &state.Custom); err != nil {
		return err
	}
	return s.writeCheckpoint(t, h, ownCheckpoint(h))
}

// Merge implements [session.Documents].
func (s *sessions) Merge(ctx context.Context, id string, w session.Writes) (out session.Committed, err error) {
	if err := w.Check(); err != nil {
		return out, err
	}
	err = s.writeDocument(ctx, id, "merge", func(t *tx, h *header) error {
		plan, err := s.planState(t.conn, h, nil, w)
		if err != nil {
			return err
		}
		out = h.committed()
		out.Warnings = plan.writes.Warnings
		return s.writeState(t, h, plan)
	})
	if err != nil {
		return session.Committed{}, err
	}
	return out, nil
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (result session.StatusResult, err error) {
	err = s.write(ctx, id, "set status", func(t *tx, h *header) error {
		now := s.b.now()
		if err := change.Free(&h.State, h.run(), now); err != nil {
			return err
		}
		if err := s.loadDoc(t.conn, h); err != nil {
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

// PatchMetadata implements [session.Documents].
func (s *sessions) PatchMetadata(ctx context.Context, id string, patch map[string]*string) error {
	if err := session.CheckMetadata(patch); err != nil {
		return err
	}
	set := map[string]string{}
	for name, value := range patch {
		if value != nil {
			set[name] = *value
		}
	}
	return s.write(ctx, id, "patch metadata", func(t *tx, h *header) error {
		var err error
		if _, h.Metadata, err = s.labels(t.conn, id); err != nil {
			return err
		}
		if _, err := h.PatchedMetadata(patch); err != nil {
			return err
		}
		for name, value := range patch {
			if value != nil {
				continue
			}
			if _, err := t.exec(deleteMetadata, s.tenant, id, name); err != nil {
				return err
			}
		}
		if err := s.writeLabels(t, id, nil, set, h.CreatedAt); err != nil {
			return err
		}
		_, err = t.exec("UPDATE sessions SET updated_at = ? WHERE number = ?", s.b.now(), h.number)
		return err
	})
}

// IncrementSteps implements [session.Documents].
func (s *sessions) IncrementSteps(ctx context.Context, id string) (steps int, err error) {
	err = s.writeDocument(ctx, id, "count step", func(_ *tx, h *header) error {
		h.StepCount++
		steps = h.StepCount
		return nil
	})
	return steps, err
}

// IncrementResumes implements [session.Documents].
func (s *sessions) IncrementResumes(ctx context.Context, id string) (resumes int, err error) {
	err = s.writeDocument(ctx, id, "count resume", func(_ *tx, h *header) error {
		h.ResumeCount++
		resumes = h.ResumeCount
		return nil
	})
	return resumes, err
}
