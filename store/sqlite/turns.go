package sqlite

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
)

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	return s.commitAfter(ctx, commit, func(*tx) error { return nil })
}

// Commit implements [store.Backend]. The batch and the commit are one operation.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	s := &streams{b, tenantName(commit.Tenant)}
	chunks, err := stored.EncodeBatch(commit.Stream, &commit.Batch, s.b.config.MaxChunk)
	if err != nil {
		return nil, 0, err
	}
	var last int64
	sessions := &sessions{b, s.tenant}
	committed, err := sessions.commitAfter(ctx, commit.Commit, func(t *tx) (err error) {
		last, err = s.append(t, commit.Stream, commit.Batch.Producer, commit.Batch.First, chunks)
		return err
	})
	return committed, last, err
}

// commitAfter makes a commit behind what first writes.
func (s *sessions) commitAfter(ctx context.Context, commit *session.Commit, first func(*tx) error) (committed *session.Committed, err error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	d, err := newDraft(&commit.Change, commit.RunID)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, commit.SessionID, "commit", func(t *tx, h *header) error {
		if err := first(t); err != nil {
			return err
		}
		repeated, err := commit.Guard(&h.State)
		if err != nil {
			return err
		}
		if repeated {
			outcome := h.committed()
			outcome.Repeated = true
			if h.stop != nil { // also one that it has consumed
				outcome.Stop = new(*h.stop)
			}
			committed = &outcome
			return nil
		}
		committed, err = s.commit(t, h, commit, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return committed, nil
}

func (s *sessions) commit(t *tx, h *header, commit *session.Commit, d *draft) (*session.Committed, error) {
	if err := h.hold(commit.Fence); err != nil { // a lease that was given back has no owner to match
		return nil, err
	}
	if h.runStatus.Ended() {
		return nil, session.ErrStale.WithMessage("session %s: run %s is %s", h.ID, commit.RunID, h.runStatus).WithSaw(h.Saw())
	}
	now, stop := s.b.now(), h.stop
	p, err := s.planChange(t.conn, h, d, now)
	if err != nil {
		return nil, err
	}
	h.Version++
	h.LastCommit = commit.Key
	h.UpdatedAt = now
	if commit.StepCount != nil {
		h.StepCount, h.runSteps = *commit.StepCount, *commit.StepCount
	}
	if err := s.applyChange(t, h, p); err != nil {
		return nil, err
	}
	if err := s.writeHeader(t, h); err != nil {
		return nil, err
	}
	outcome := h.committed()
	if outcome.Stop == nil && stop != nil { // the commit has consumed it
		outcome.Stop = new(*stop)
	}
	outcome.Warnings = p.state.writes.Warnings
	return &outcome, nil
}

// StartRun implements [session.Turns].
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (started *session.Started, err error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	start = stored.WithUniqueTags(start)
	change := start.Change
	if change.State == nil && start.Create != nil && start.Create.Custom.Len() > 0 {
		change.State = &start.Create.Custom
	}
	d, err := newDraft(&change, start.Run.ID)
	if err != nil {
		return nil, err
	}
	err = s.b.write(ctx, what(start.SessionID, "start run"), func(t *tx) error {
		h, err := s.header(t.conn, start.SessionID)
		if err != nil {
			return err
		}
		if h != nil && start.Run.RequestID != "" {
			run, err := s.runBy(t.conn, h, byRequest, start.Run.RequestID)
			if err != nil {
				return err
			}
			if run != nil {
				started = &session.Started{
					Committed: h.committed(), Lease: h.Lease, Turn: run.Turn, Run: *run, Existing: true,
				}
				return nil
			}
		}
		started, err = s.start(t, h, start, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// start opens a turn on a session, h, or on a new one if h is nil.
func (s *sessions) start(t *tx, h *header, start *session.StartRun, d *draft) (*session.Started, error) {
	now := s.b.now()
	if err := s.guardStart(t.conn, h, start, now); err != nil {
		return nil, err
	}
	created := start.Create != nil
	if created {
		h = s.newHeader(start.Create)
	} else {
		if err := s.loadDoc(t.conn, h); err != nil {
			return nil, err
		}
	}
	p, err := s.planChange(t.conn, h, d, now)
	if err != nil {
		return nil, err
	}
	if created {
		if err := s.insert(t, h); err != nil {
			return nil, err
		}
	} else {
		h.Version++
	}
	if h.stop != nil { // of the run before
		if _, err := t.exec(deleteStop, s.tenant, h.ID, h.CurrentRunID); err != nil {
			return nil, err
		}
	}
	run := h.begin(start, now)
	if err := s.insertRun(t, h, &run); err != nil {
		return nil, err
	}
	if err := s.applyChange(t, h, p); err != nil {
		return nil, err
	}
	if err := s.writeDoc(t, h); err != nil {
		return nil, err
	}
	if err := s.writeHeader(t, h); err != nil {
		return nil, err
	}
	outcome := h.committed()
	outcome.Warnings = p.state.writes.Warnings
	return &session.Started{Committed: outcome, Lease: h.Lease, Turn: h.Turn, Run: run}, nil
}

// begin gives the session a new run and its lease.
func (h *header) begin(start *session.StartRun, now time.Time) session.Run {
	h.Reopen()
	h.CloseOwed, h.closeOwedAt = false, time.Time{}
	h.Turn++
	epoch := max(h.Lease.Epoch, session.FirstEpoch(h.number)) + 1
	h.Lease = session.Lease{Owner: start.Owner, Epoch: epoch, ExpiresAt: expiry(now, start.TTL)}
	h.Status, h.StepCount = session.Active, 0
	if start.StepCount != nil {
		h.StepCount = *start.StepCount
	}
	if start.Resumes {
		h.ResumeCount++
	}
	h.LastCommit, h.UpdatedAt, h.stop = "", now, nil

	run := start.Run
	run.SessionID, run.Turn, run.Status, run.StepCount = h.ID, h.Turn, session.RunRunning, h.StepCount
	run.Outcome, run.StartedAt, run.EndedAt = nil, now, time.Time{}
	h.CurrentRunID, h.runStatus, h.runRuntime = run.ID, run.Status, run.Runtime
	h.runSteps, h.runUsage, h.runReason = run.StepCount, nil, run.CompletionReason
	return run
}

// guardStart decides whether a run may start.
func (s *sessions) guardStart(c *conn, h *header, start *session.StartRun, now time.Time) error {
	switch {
	case start.Create != nil && h != nil:
		return h.exists()
	case start.Create != nil && start.Status != "":
		return session.Transition(start.Create.Status, start.Status)
	case start.Create != nil:
		return nil
	case h == nil:
		return notFound("session %s", start.SessionID)
	}
	run, err := s.runBy(c, h, byID, start.Run.ID)
	if err != nil {
		return err
	}
	if run != nil {
		return session.ErrExists.WithMessage("session %s: run %s already exists", h.ID, run.ID).WithSaw(h.Saw())
	}
	return start.Guard(&h.State, h.run(), now)
}

// expiry is when a lease taken now ends; 0 is never.
func expiry(now time.Time, ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return now.Add(ttl)
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (taken *session.TakenOver, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	err = s.write(ctx, take.SessionID, "take over", func(t *tx, h *header) error {
		now := s.b.now()
		if err := take.Guard(&h.State, h.run(), now); err != nil {
			return err
		}
		run, err := s.runRecord(t.conn, h, byID, take.RunID)
		if err != nil {
			return err
		}
		if run == nil {
			return notFound("session %s: run %s", h.ID, take.RunID)
		}
		take.Count(&h.State, run)
		if err := s.updateRun(t, h, run); err != nil {
			return err
		}
		h.Lease = session.Lease{Owner: take.Owner, Epoch: h.Lease.Epoch + 1, ExpiresAt: expiry(now, take.TTL)}
		taken = &session.TakenOver{Lease: h.Lease, Version: h.Version, Attempts: run.Attempts}
		return s.writeCold(t, h)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

const renewTree = `
UPDATE sessions INDEXED BY sessions_by_owner SET lease_until = ?
WHERE tenant = ? AND root_id = ? AND root_id <> '' AND owner = ? AND owner <> ''`

// RenewLease implements [session.Turns].
func (s *sessions) RenewLease(ctx context.Context, id string, fence session.Fence, ttl time.Duration) error {
	return s.write(ctx, id, "renew lease", func(t *tx, h *header) error {
		if err := h.hold(fence); err != nil {
			return err
		}
		h.Lease.ExpiresAt = expiry(s.b.now(), ttl)
		n, err := t.exec(renewTree, h.Lease.ExpiresAt, s.tenant, id, fence.Owner)
		if err != nil {
			return err
		}
		if n > 0 {
			t.cache.clear()
		}
		return s.writeCold(t, h)
	})
}

// hold refuses a fence that is not that of the session's lease.
func (h *header) hold(fence session.Fence) error {
	if fence.Owner != "" && h.Lease.Fence() == fence {
		return nil
	}
	return session.ErrStale.WithMessage("session %s: another owner holds the lease", h.ID).WithSaw(h.Saw())
}

const releaseTree = `
UPDATE sessions INDEXED BY sessions_by_owner
SET owner = '', lease_until = CASE run_status WHEN 'running' THEN ? END
WHERE tenant = ? AND root_id = ? AND root_id <> '' AND owner = ? AND owner <> ''`

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	return s.write(ctx, id, "close run", func(t *tx, h *header) error {
		if err := h.hold(fence); err != nil {
			return err
		}
		h.Lease.Owner, h.Lease.ExpiresAt = "", time.Time{}
		if h.runStatus == session.RunRunning {
			h.Lease.ExpiresAt = s.b.now() // the run goes on elsewhere: it may be taken over at once
			n, err := t.exec(releaseTree, h.Lease.ExpiresAt, s.tenant, id, fence.Owner)
			if err != nil {
				return err
			}
			if n > 0 {
				t.cache.clear()
			}
		}
		if settled {
			h.CloseOwed, h.closeOwedAt = false, time.Time{}
		}
		return s.writeCold(t, h)
	})
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	return s.write(ctx, id, "settle close", func(t *tx, h *header) error {
		if h.CurrentRunID != runID || h.runStatus == session.RunRunning {
			return nil
		}
		h.CloseOwed, h.closeOwedAt = false, time.Time{}
		return s.writeCold(t, h)
	})
}
