package memory

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// StartRun implements [session.Turns].
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	c, err := prepare(&start.Change)
	if err != nil {
		return nil, err
	}
	var initial session.CustomState
	if start.Create != nil {
		initial = cloneDocument(&start.Create.Custom)
	}

	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now := s.b.now()
	rec := s.b.find(s.tenant, start.SessionID)
	if rec != nil && start.Run.RequestID != "" {
		if run := rec.requests[start.Run.RequestID]; run != nil {
			return rec.started(run, true), nil
		}
	}
	if err := start.Guard(rec.document(), rec.currentRun(), rec.run(start.Run.ID), now); err != nil {
		return nil, err
	}
	if start.Create != nil {
		rec = s.b.newRecord(s.tenant, start.Create, initial, now)
	}
	if err := c.check(rec); err != nil {
		return nil, err
	}
	if err := c.perform(rec); err != nil {
		return nil, err
	}
	if start.Create != nil {
		s.b.catalog(s.tenant).add(rec)
	}
	run := rec.begin(start, now)
	c.apply(s.b, rec, now)
	rec.state.LastCommit = ""
	s.b.mark(rec)
	out := rec.started(run, false)
	out.Warnings = c.writes.Warnings
	return out, nil
}

// begin writes the run's record and takes the lease.
func (r *record) begin(start *session.StartRun, now time.Time) *session.Run {
	begun := start.Begin(&r.state, 0, now)
	r.stop = nil
	run := cloneRun(&begun)
	r.runs.add(run.ID, &run)
	if run.RequestID != "" {
		if r.requests == nil {
			r.requests = map[string]*session.Run{}
		}
		r.requests[run.RequestID] = &run
	}
	return &run
}

func (r *record) started(run *session.Run, existing bool) *session.Started {
	return &session.Started{
		Committed: r.committed(),
		Lease:     r.state.Lease,
		Turn:      run.Turn,
		Run:       cloneRun(run),
		Existing:  existing,
	}
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (*session.TakenOver, error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	rec, err := s.edit(ctx, take.SessionID)
	if err != nil {
		return nil, err
	}
	defer s.b.release(rec)
	now, run := s.b.now(), rec.currentRun()
	if err := take.Guard(&rec.state, run, now); err != nil {
		return nil, err
	}
	return take.Apply(&rec.state, run, now), nil
}

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	rec, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	if err := rec.state.CheckFence(fence); err != nil {
		return err
	}
	now := s.b.now()
	if rec.isRunning() {
		for _, member := range s.b.catalog(s.tenant).byRoot.get(id) {
			if member.state.Lease.Owner == fence.Owner {
				member.state.Release(member.currentRun(), now)
			}
		}
	}
	rec.state.Release(rec.currentRun(), now)
	if settled {
		rec.state.ClosePending = false
	}
	return nil
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	rec, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	if rec.state.CanSettleClose(runID, rec.currentRun()) {
		rec.state.ClosePending = false
	}
	return nil
}
