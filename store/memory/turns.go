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
	var initial session.Document
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
	created := rec == nil && start.Create != nil
	if created {
		rec = s.b.newRecord(s.tenant, start.Create, initial, now)
	}
	if err := guardStart(start, rec, created, now); err != nil {
		return nil, err
	}
	if err := c.check(rec); err != nil {
		return nil, err
	}
	if err := c.perform(rec); err != nil {
		return nil, err
	}
	if created {
		s.b.shelf(s.tenant).add(rec)
	}
	run := rec.begin(start, now)
	c.apply(s.b, rec, now)
	rec.state.LastCommit = ""
	s.b.mark(rec)
	out := rec.started(run, false)
	out.Warnings = c.writes.Warnings
	return out, nil
}

// guardStart decides whether the run may be started on rec, which is nil if there
// is no session.
func guardStart(start *session.StartRun, rec *record, created bool, now time.Time) error {
	switch {
	case rec == nil:
		return notFound(start.SessionID)
	case created:
		if start.Status != "" {
			return session.Transition(rec.state.Status, start.Status)
		}
		return nil
	case start.Create != nil:
		return exists(&rec.state)
	case rec.runs.get(start.Run.ID) != nil:
		return session.ErrExists.WithMessage("session %s: run %s already exists", start.SessionID, start.Run.ID).WithSaw(rec.state.Saw())
	}
	return start.Guard(&rec.state, rec.currentRun(), now)
}

// begin writes the run's record and takes the lease.
func (r *record) begin(start *session.StartRun, now time.Time) *session.Run {
	st := &r.state
	st.Reopen()
	st.Status = session.Active
	st.StepCount, st.CloseOwed = 0, false
	st.Turn++
	st.CurrentRunID = start.Run.ID
	if start.Resumes {
		st.ResumeCount++
	}
	st.Lease = session.Lease{Owner: start.Owner, Epoch: st.Lease.Epoch + 1, ExpiresAt: expiry(now, start.TTL)}
	r.stop = nil

	run := cloneRun(&start.Run)
	run.SessionID, run.Turn, run.Status = st.ID, st.Turn, session.RunRunning
	run.StepCount = 0
	run.Outcome, run.StartedAt, run.EndedAt = nil, now, time.Time{}
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

// expiry is when a lease of that length ends; one of length 0 never does.
func expiry(now time.Time, ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return now.Add(ttl)
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (*session.TakenOver, error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	rec, done, err := s.edit(ctx, take.SessionID)
	if err != nil {
		return nil, err
	}
	defer done()
	now, run := s.b.now(), rec.currentRun()
	if err := take.Guard(&rec.state, run, now); err != nil {
		return nil, err
	}
	st := &rec.state
	take.Count(st, run)
	st.Lease = session.Lease{Owner: take.Owner, Epoch: st.Lease.Epoch + 1, ExpiresAt: expiry(now, take.TTL)}
	return &session.TakenOver{Lease: st.Lease, Version: st.Version, Attempts: run.Attempts}, nil
}

// RenewLease implements [session.Turns].
func (s *sessions) RenewLease(ctx context.Context, id string, fence session.Fence, ttl time.Duration) error {
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if err := rec.checkFence(fence); err != nil {
		return err
	}
	expires := expiry(s.b.now(), ttl)
	rec.state.Lease.ExpiresAt = expires
	for _, member := range s.b.shelf(s.tenant).byRoot.get(id) {
		if member.state.Lease.Owner == fence.Owner {
			member.state.Lease.ExpiresAt = expires
		}
	}
	return nil
}

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if err := rec.checkFence(fence); err != nil {
		return err
	}
	now := s.b.now()
	if rec.isRunning() {
		for _, member := range s.b.shelf(s.tenant).byRoot.get(id) {
			if member.state.Lease.Owner == fence.Owner {
				member.release(now)
			}
		}
	}
	rec.release(now)
	if settled {
		rec.state.CloseOwed = false
	}
	return nil
}

// release gives the lease back. A run that has not ended is left to whoever takes
// it over: from now on.
func (r *record) release(now time.Time) {
	r.state.Lease = session.Lease{Epoch: r.state.Lease.Epoch}
	if r.isRunning() {
		r.state.Lease.ExpiresAt = now
	}
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if rec.state.CurrentRunID == runID {
		rec.state.CloseOwed = false
	}
	return nil
}

// checkFence refuses whoever does not hold the lease.
func (r *record) checkFence(fence session.Fence) error {
	if fence.Owner == "" || r.state.Lease.Fence() != fence {
		return session.ErrStale.WithMessage("session %s: another owner holds the lease", r.state.ID).WithSaw(r.state.Saw())
	}
	return nil
}
