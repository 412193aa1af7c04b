package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Now implements [session.Turns].
func (s *sessions) Now(ctx context.Context) (time.Time, error) { return s.b.now(), ctx.Err() }

// StartRun implements [session.Turns].
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	own := copied(start)
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now, rec := s.b.now(), s.find(start.SessionID)
	// The same request again gets the run that it started. This is asked before the
	// guard, which would refuse it.
	if run := rec.runOf(start.Run.RequestID); run != nil {
		return rec.started(run, true), nil
	}
	if err := own.Guard(rec.document(), rec.currentRun(), rec.run(start.Run.ID), now); err != nil {
		return nil, err
	}
	if own.Create != nil {
		rec = s.b.newRecord(s.tenant, own.Create, now)
	} else {
		rec = rec.draft()
	}
	if err := check(&own.Change, rec); err != nil {
		return nil, err
	}
	rec.runs = append(rec.runs, own.Begin(&rec.state, 0, now))
	rec.stop = nil
	if err := s.b.apply(&own.Change, rec, now); err != nil {
		return nil, err
	}
	s.put(rec)
	out := rec.started(rec.currentRun(), false)
	out.Warnings = own.Writes.Warnings
	return out, nil
}

// runOf returns the run that a request started, or nil.
func (r *record) runOf(requestID string) *session.Run {
	if r == nil || requestID == "" {
		return nil
	}
	for i := range r.runs {
		if r.runs[i].RequestID == requestID {
			return &r.runs[i]
		}
	}
	return nil
}

func (r *record) started(run *session.Run, existing bool) *session.Started {
	return &session.Started{Committed: r.committed(), Lease: r.state.Lease, Turn: run.Turn, Run: copied(*run), Existing: existing}
}

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (out *session.Committed, err error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	change := copied(&commit.Change)
	err = s.edit(ctx, commit.SessionID, func(rec *record, now time.Time) error {
		repeated, err := commit.Guard(&rec.state, rec.currentRun())
		if err != nil {
			return err
		}
		if !repeated {
			if err := check(change, rec); err != nil {
				return err
			}
			if err := s.b.apply(change, rec, now); err != nil {
				return err
			}
			rec.state.LastCommit = commit.Key
		}
		// A commit that ends the run also reports the stop request that it consumed, so
		// that none is lost on a run that only suspends.
		out = new(rec.committed())
		out.Repeated, out.Stop, out.Warnings = repeated, copied(rec.stop), change.Writes.Warnings
		return nil
	})
	return out, err
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (out *session.TakenOver, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	err = s.edit(ctx, take.SessionID, func(rec *record, now time.Time) error {
		if err := take.Guard(&rec.state, rec.currentRun(), now); err != nil {
			return err
		}
		out = take.Apply(&rec.state, rec.currentRun(), now)
		return nil
	})
	return out, err
}

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	return s.edit(ctx, id, func(rec *record, now time.Time) error {
		if err := rec.state.CheckFence(fence); err != nil {
			return err
		}
		if rec.runStatus() == session.RunRunning {
			s.eachMember(id, fence.Owner, func(member *record) { member.state.Release(member.currentRun(), now) })
		}
		rec.state.Release(rec.currentRun(), now)
		if settled {
			rec.state.ClosePending = false
		}
		return nil
	})
}

// eachMember changes the sessions that share the lease of a root.
func (s *sessions) eachMember(rootID, owner string, change func(member *record)) {
	for key, rec := range s.b.sessions {
		if key.Tenant == s.tenant && rec.state.RootID == rootID && rec.state.Lease.Owner == owner {
			draft := rec.draft()
			change(draft)
			s.put(draft)
		}
	}
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	return s.edit(ctx, id, func(rec *record, _ time.Time) error {
		if rec.state.CanSettleClose(runID, rec.currentRun()) {
			rec.state.ClosePending = false
		}
		return nil
	})
}

// RequestStop implements [session.Stops].
func (s *sessions) RequestStop(ctx context.Context, id string, stop session.Stop) (out session.Stop, err error) {
	if err := stop.Check(); err != nil {
		return out, err
	}
	err = s.edit(ctx, id, func(rec *record, now time.Time) error {
		if rec.state.CurrentRunID != stop.RunID || rec.runStatus() != session.RunRunning {
			return session.ErrStale.WithMessage("session %s: run %s is not running", id, stop.RunID).WithSaw(rec.state.Saw())
		}
		if rec.stop == nil || rec.stop.OverriddenBy(&stop) {
			if stop.At.IsZero() {
				stop.At = now
			}
			stop.At = utc(stop.At)
			rec.stop = &stop
			s.b.announce(session.Signal{Key: s.key(id), StopOf: stop.RunID})
		}
		out = *rec.stop
		return nil
	})
	return out, err
}

// StopRequest implements [session.Stops].
func (s *sessions) StopRequest(ctx context.Context, id, runID string) (out *session.Stop, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		if rec.stop != nil && rec.stop.RunID == runID && rec.runStatus() == session.RunRunning {
			out = copied(rec.stop)
		}
		return nil
	})
	return out, err
}
