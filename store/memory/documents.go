package memory

import (
	"context"

	"github.com/helixagents/helix/session"
)

// Save implements [session.Documents].
func (s *sessions) Save(ctx context.Context, state *session.State) error {
	if err := state.Check(); err != nil {
		return err
	}
	doc := cloneDocument(&state.Custom)
	saved := cloneState(state)
	rec, now, done, err := s.editFree(ctx, state.ID)
	if err != nil {
		return err
	}
	defer done()
	if rec.state.Version != state.Version {
		return session.ErrStale.WithMessage("session %s: version %d was expected", state.ID, state.Version).WithSaw(rec.state.Saw())
	}
	if err := session.Transition(rec.state.Status, state.Status); err != nil {
		return err
	}
	shelf, was := s.b.shelf(s.tenant), rec.state.UserID
	shelf.unindex(rec)
	rec.replace(saved, doc)
	shelf.index(rec)
	if user := rec.state.UserID; user != was {
		for _, below := range shelf.tree(rec)[1:] {
			if below.state.UserID == was {
				shelf.unindex(below)
				below.state.UserID = user
				shelf.index(below)
				s.b.mark(below)
			}
		}
	}
	rec.touchDirectly(now)
	rec.writeCheckpoint(session.NewCheckpoint{Step: rec.state.StepCount, Source: session.FromSave}, now)
	state.Version = rec.state.Version
	return nil
}

// replace takes a whole document over, except for what is the store's own:
// counters, the lease, the place in the order of sessions and what lives in rows.
func (r *record) replace(saved session.State, doc session.Document) {
	was := r.state
	saved.Tenant, saved.Version = was.Tenant, was.Version
	saved.StepCount, saved.ResumeCount = was.StepCount, was.ResumeCount
	saved.Turn, saved.MessageCount, saved.CurrentRunID = was.Turn, was.MessageCount, was.CurrentRunID
	saved.LastCommit, saved.CloseOwed, saved.Lease = was.LastCommit, was.CloseOwed, was.Lease
	saved.CheckpointID, saved.CheckpointedAt, saved.CheckpointSource = was.CheckpointID, was.CheckpointedAt, was.CheckpointSource
	saved.CreatedAt, saved.UpdatedAt = was.CreatedAt, was.UpdatedAt
	r.state = saved
	r.custom = newCustom(doc)
}

// Merge implements [session.Documents].
func (s *sessions) Merge(ctx context.Context, id string, w session.Writes) (session.Committed, error) {
	return s.changeDirectly(ctx, id, &session.Change{Writes: w})
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	change.Interrupt, change.Error = cloneInterrupt(change.Interrupt), cloneError(change.Error)
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return session.StatusResult{}, err
	}
	defer done()
	now := s.b.now()
	if err := change.Free(&rec.state, rec.currentRun(), now); err != nil {
		return session.StatusResult{}, err
	}
	result, err := change.Swap(&rec.state)
	if err == nil && result.OK {
		rec.state.LastCommit, rec.state.UpdatedAt = "", now
	}
	return result, err
}

// PatchMetadata implements [session.Documents].
func (s *sessions) PatchMetadata(ctx context.Context, id string, patch map[string]*string) error {
	if err := session.CheckMetadata(patch); err != nil {
		return err
	}
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	metadata, err := rec.state.PatchedMetadata(patch) // a new map: readers may be looking at the old one
	if err != nil {
		return err
	}
	rec.state.Metadata, rec.state.UpdatedAt = metadata, s.b.now()
	return nil
}

// IncrementSteps implements [session.Documents].
func (s *sessions) IncrementSteps(ctx context.Context, id string) (int, error) {
	return s.increment(ctx, id, func(st *session.State) *int { return &st.StepCount })
}

// IncrementResumes implements [session.Documents].
func (s *sessions) IncrementResumes(ctx context.Context, id string) (int, error) {
	return s.increment(ctx, id, func(st *session.State) *int { return &st.ResumeCount })
}

func (s *sessions) increment(ctx context.Context, id string, counter func(*session.State) *int) (int, error) {
	rec, now, done, err := s.editFree(ctx, id)
	if err != nil {
		return 0, err
	}
	defer done()
	n := counter(&rec.state)
	*n++
	rec.touchDirectly(now)
	return *n, nil
}
