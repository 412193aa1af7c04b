package postgres

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Save implements [session.Documents].
func (s *sessions) Save(ctx context.Context, state *session.State) error {
	if err := state.Check(); err != nil {
		return err
	}
	tags := session.UniqueTags(state.Tags)
	var version int64
	err := s.write(ctx, state.ID, "save", func(_ context.Context, t *tx, h *header) error {
		if err := h.Free(h.run(), h.now); err != nil {
			return err
		}
		if state.Version != h.Version {
			return session.ErrStale.WithMessage("session %s: version %d was expected", h.ID, state.Version).WithSaw(h.Saw())
		}
		if err := session.Transition(h.Status, state.Status); err != nil {
			return err
		}
		h.advance()
		version = h.Version
		was := h.UserID
		if err := s.replace(t, h, state, tags); err != nil {
			return err
		}
		s.writeHeader(t, h)
		if h.UserID != was {
			t.exec(giveBelow, s.tenant, h.ID, h.number, h.UserID, was)
		}
		return nil
	})
	if err != nil {
		return err
	}
	state.Version = version
	return nil
}

// giveBelow gives the sessions below one to its new user, as far as they were the former
// user's. Links that go round in a circle are followed once.
const giveBelow = `
WITH RECURSIVE below AS (
    SELECT c.number, c.id FROM helix.sessions c WHERE c.tenant = $1 AND c.parent_id = $2 AND c.parent_id <> ''
    UNION
    SELECT c.number, c.id FROM below b JOIN helix.sessions c ON c.tenant = $1 AND c.parent_id = b.id AND c.parent_id <> ''
)
UPDATE helix.sessions s SET user_id = $4 FROM below b WHERE s.number = b.number AND s.number <> $3 AND s.user_id = $5`

// replace takes a whole document over, except for what is the store's own:
// counters, the lease, the age and what lives in rows. Its tags are given without
// repetitions.
func (s *sessions) replace(t *tx, h *header, state *session.State, tags []string) error {
	h.Output, h.Error, h.FailureReason, h.Interrupt = state.Output, state.Error, state.FailureReason, state.Interrupt
	h.SuspendedStep, h.Tracing, h.WorkspaceRef = state.SuspendedStep, state.Tracing, state.WorkspaceRef
	h.Mode, h.Extra = state.Mode, state.Extra
	h.Agent, h.StreamID, h.ParentID, h.RootID = state.Agent, state.StreamID, state.ParentID, state.RootID
	h.Status, h.UserID, h.ExpiresAt = state.Status, state.UserID, state.ExpiresAt
	if err := s.writeDoc(t, h); err != nil {
		return err
	}
	s.deleteLabels(t, h)
	s.writeLabels(t, h, tags, state.Metadata)
	if err := s.writeWhole(t, h, h.Version, &state.Custom); err != nil {
		return err
	}
	s.writeCheckpoint(t, h, ownCheckpoint(h))
	return nil
}

// Merge implements [session.Documents].
func (s *sessions) Merge(ctx context.Context, id string, w session.Writes) (out session.Committed, err error) {
	if err := w.Check(); err != nil {
		return out, err
	}
	d, err := newDraft(&session.Change{Writes: w}, id, "", time.Time{})
	if err != nil {
		return out, err
	}
	err = s.write(ctx, id, "merge", func(ctx context.Context, t *tx, h *header) error {
		if err := h.Free(h.run(), h.now); err != nil {
			return err
		}
		t.exec("UPDATE helix.sessions SET last_commit = '' WHERE number = $1", h.number)
		c, err := s.change(ctx, t, d, true, h.Saw())
		if err != nil {
			return err
		}
		out = *c.committed(d)
		t.done = append(t.done, func() {
			s.b.snapshots.consider(h.number, s.tenant, id, c.is.snapshotBytes, c.is.deltaBytes)
		})
		return nil
	})
	if err != nil {
		return session.Committed{}, err
	}
	return out, nil
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (result session.StatusResult, err error) {
	err = s.write(ctx, id, "set status", func(ctx context.Context, t *tx, h *header) error {
		if err := change.Free(&h.State, h.run(), h.now); err != nil {
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

// PatchMetadata implements [session.Documents].
func (s *sessions) PatchMetadata(ctx context.Context, id string, patch map[string]*string) error {
	if err := session.CheckMetadata(patch); err != nil {
		return err
	}
	set, deleted := map[string]string{}, []string{}
	for name, value := range patch {
		if value != nil {
			set[name] = *value
		} else {
			deleted = append(deleted, name)
		}
	}
	return s.touch(ctx, id, "patch metadata", func(ctx context.Context, t *tx, h *header) error {
		labels := s.askLabels(t, id)
		if err := t.flush(ctx); err != nil {
			return err
		}
		h.Metadata = labels.metadata[id]
		if _, err := h.PatchedMetadata(patch); err != nil {
			return err
		}
		t.exec("DELETE FROM helix.session_metadata WHERE session = $1 AND name = ANY ($2::text[])", h.number, deleted)
		s.writeLabels(t, h, nil, set)
		t.exec("UPDATE helix.sessions SET updated_at = $2 WHERE number = $1", h.number, when(h.now))
		return nil
	})
}

// IncrementSteps implements [session.Documents].
func (s *sessions) IncrementSteps(ctx context.Context, id string) (steps int, err error) {
	err = s.writeDocument(ctx, id, "count step", func(_ context.Context, _ *tx, h *header) error {
		h.StepCount++
		steps = h.StepCount
		return nil
	})
	return steps, err
}

// IncrementResumes implements [session.Documents].
func (s *sessions) IncrementResumes(ctx context.Context, id string) (resumes int, err error) {
	err = s.writeDocument(ctx, id, "count resume", func(_ context.Context, _ *tx, h *header) error {
		h.ResumeCount++
		resumes = h.ResumeCount
		return nil
	})
	return resumes, err
}
