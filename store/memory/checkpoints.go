package memory

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/helixagents/helix/session"
)

// checkpoint is a stored checkpoint. It never changes, except that a rewind may
// undo it: outside the lock only a copy may be read.
type checkpoint struct {
	session.Checkpoint // without State
	number             int64
	state              *version
}

// withState returns the checkpoint with its custom state, for a caller.
func (c checkpoint) withState() *session.Checkpoint {
	out := c.Checkpoint
	shared := c.state.document()
	state := cloneDocument(&shared)
	out.State = &state
	return &out
}

// Checkpoint implements [session.Checkpoints].
func (s *sessions) Checkpoint(ctx context.Context, id, checkpointID string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, func(rec *record) string { return checkpointID })
}

// LatestCheckpoint implements [session.Checkpoints].
func (s *sessions) LatestCheckpoint(ctx context.Context, id string) (*session.Checkpoint, error) {
	return s.readCheckpoint(ctx, id, func(rec *record) string { return rec.state.CheckpointID })
}

func (s *sessions) readCheckpoint(ctx context.Context, id string, which func(*record) string) (*session.Checkpoint, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	checkpointID := which(rec)
	var cp checkpoint
	stored := rec.checkpointIDs[checkpointID]
	if stored != nil {
		cp = *stored
	}
	s.b.mu.RUnlock()
	if stored == nil {
		return nil, noCheckpoint(id, checkpointID)
	}
	return cp.withState(), nil
}

// Checkpoints implements [session.Checkpoints].
func (s *sessions) Checkpoints(ctx context.Context, id string, req session.PageRequest) (session.Page[session.Checkpoint], error) {
	pos, resumed, err := req.Position()
	if err != nil {
		return session.Page[session.Checkpoint]{}, err
	}
	rec, err := s.view(ctx, id)
	if err != nil {
		return session.Page[session.Checkpoint]{}, err
	}
	defer s.b.mu.RUnlock()
	end := len(rec.checkpoints)
	if resumed {
		end = sort.Search(end, func(i int) bool { return rec.checkpoints[i].number >= pos.N })
	}
	end = max(end-req.Skip(), 0)
	start := max(end-req.Size(), 0)
	items := make([]session.Checkpoint, 0, end-start)
	var last session.Position
	for i := end - 1; i >= start; i-- {
		items = append(items, rec.checkpoints[i].Checkpoint)
		last.N = rec.checkpoints[i].number
	}
	page := newPage(req, items, start > 0, last)
	if req.Total {
		page.Total = new(len(rec.checkpoints))
	}
	return page, nil
}

// checkCheckpoint returns an error if the id already exists.
func (r *record) checkCheckpoint(id string) error {
	if r.checkpointIDs[id] != nil {
		return session.ErrExists.WithMessage("session %s: checkpoint %s already exists", r.state.ID, id).WithSaw(r.state.Saw())
	}
	return nil
}

// writeCheckpoint writes a checkpoint of the session's current state and makes it
// the latest.
func (r *record) writeCheckpoint(n session.NewCheckpoint, now time.Time) {
	st := &r.state
	r.written++
	if n.ID == "" {
		n.ID = session.CheckpointID(st.ID, n.Step, now, fmt.Sprint(st.Version))
	}
	if n.Source == "" {
		n.Source = session.FromSave
	}
	cp := &checkpoint{
		Checkpoint: session.Checkpoint{
			ID: n.ID, SessionID: st.ID, RunID: st.CurrentRunID, Turn: st.Turn, Step: n.Step,
			Status: st.Status, Source: n.Source, Version: st.Version,
			MessageCount: st.MessageCount, StreamSequence: n.StreamSequence, At: now,
		},
		number: r.written,
		state:  r.custom.mark(),
	}
	r.checkpoints = append(r.checkpoints, cp)
	r.standing = append(r.standing, cp)
	if r.checkpointIDs == nil {
		r.checkpointIDs = map[string]*checkpoint{}
	}
	r.checkpointIDs[cp.ID] = cp
	r.point(cp)
}

// undoCheckpoints undoes the checkpoints that count messages past the first keep.
// They can still be read, but a rewind to one of them would restore other messages
// than it had. The message counts of standing checkpoints never decrease, so these
// are the last ones.
func (r *record) undoCheckpoints(keep int) {
	n := len(r.standing)
	for ; n > 0 && r.standing[n-1].MessageCount > keep; n-- {
		r.standing[n-1].Undone = true
	}
	if n == len(r.standing) {
		return
	}
	r.standing = r.standing[:n]
	if n == 0 {
		r.point(&checkpoint{})
		return
	}
	r.point(r.standing[n-1])
}

// point makes cp the session's latest checkpoint.
func (r *record) point(cp *checkpoint) {
	r.state.CheckpointID, r.state.CheckpointedAt, r.state.CheckpointSource = cp.ID, cp.At, cp.Source
}

// checkpointWithin returns the last checkpoint with no more than n messages, or
// nil.
func (r *record) checkpointWithin(n int) *checkpoint {
	i := sort.Search(len(r.standing), func(i int) bool { return r.standing[i].MessageCount > n })
	if i == 0 {
		return nil
	}
	return r.standing[i-1]
}

func noCheckpoint(id, checkpointID string) error {
	if checkpointID == "" {
		return session.ErrNotFound.WithMessage("session %s has no checkpoint", id)
	}
	return session.ErrNotFound.WithMessage("session %s: checkpoint %s not found", id, checkpointID)
}
