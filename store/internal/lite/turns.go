package lite

import (
	"cmp"
	"context"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	return s.commitAfter(ctx, commit, func(*Tx) error { return nil })
}

// Commit is the Commit of [store.Backend]. The batch and the commit are one operation.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	s := &streams{b, cmp.Or(commit.Tenant, session.DefaultTenant)}
	chunks, err := stored.EncodeBatch(commit.Stream, &commit.Batch, s.b.MaxChunk)
	if err != nil {
		return nil, 0, err
	}
	var last int64
	sessions := &sessions{b, s.tenant}
	committed, err := sessions.commitAfter(ctx, commit.Commit, func(t *Tx) (err error) {
		last, err = s.append(t, commit.Stream, commit.Batch.Producer, commit.Batch.First, chunks)
		return err
	})
	return committed, last, err
}

// commitAfter applies a commit after the writes of first.
func (s *sessions) commitAfter(ctx context.Context, commit *session.Commit, first func(*Tx) error) (committed *session.Committed, err error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	d, err := newDraft(&commit.Change, commit.RunID)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, commit.SessionID, "commit", func(t *Tx, h *header) error {
		if err := first(t); err != nil {
			return err
		}
		repeated, err := commit.Guard(&h.State, h.run())
		if err != nil {
			return err
		}
		if repeated {
			outcome := h.committed()
			outcome.Repeated = true
			if h.stop != nil { // also a request that it has consumed
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

func (s *sessions) commit(t *Tx, h *header, commit *session.Commit, d *draft) (*session.Committed, error) {
	now, stop := s.b.Now(), h.stop
	p, err := s.planChange(t.Conn, h, d, now)
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
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	return s.startBefore(ctx, start, func(*Tx, *session.Started) error { return nil })
}

// StartRun is the StartRun of [store.Backend]. The run and its stream are one
// operation.
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	m := &streams{b, cmp.Or(start.Tenant, session.DefaultTenant)}
	chunks, err := stored.EncodeBatch(start.SessionID, &start.Batch, b.MaxChunk)
	if err != nil {
		return nil, nil, err
	}
	var info *stream.Info
	s := &sessions{b, m.tenant}
	started, err := s.startBefore(ctx, start.StartRun, func(t *Tx, started *session.Started) (err error) {
		if info, err = m.reactivate(t, start.SessionID, start.Producer(started)); err != nil {
			return err
		}
		info.Last, err = m.append(t, start.SessionID, start.Batch.Producer, start.Batch.First, chunks)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return started, info, nil
}

// startBefore starts a run before the writes of then, which are not made if the
// request has started the run before.
func (s *sessions) startBefore(
	ctx context.Context, start *session.StartRun, then func(*Tx, *session.Started) error,
) (started *session.Started, err error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	change := start.Change
	if change.State == nil && start.Create != nil && start.Create.Custom.Len() > 0 {
		change.State = &start.Create.Custom
	}
	d, err := newDraft(&change, start.Run.ID)
	if err != nil {
		return nil, err
	}
	err = s.b.Write(ctx, what(start.SessionID, "start run"), func(t *Tx) error {
		h, err := s.header(t.Conn, start.SessionID)
		if err != nil {
			return err
		}
		if h != nil && start.Run.RequestID != "" {
			run, err := s.runBy(t.Conn, h, byRequest, start.Run.RequestID)
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
		if started, err = s.start(t, h, start, d); err != nil {
			return err
		}
		return then(t, started)
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// start opens a turn on a session, h, or on a new one if h is nil.
func (s *sessions) start(t *Tx, h *header, start *session.StartRun, d *draft) (*session.Started, error) {
	now := s.b.Now()
	if err := s.guardStart(t.Conn, h, start, now); err != nil {
		return nil, err
	}
	created := start.Create != nil
	if created {
		h = s.newHeader(start.Create)
	} else {
		if err := s.loadDoc(t.Conn, h); err != nil {
			return nil, err
		}
	}
	p, err := s.planChange(t.Conn, h, d, now)
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
	if h.stop != nil { // of the previous run
		if _, err := t.Exec(deleteStop, s.tenant, h.ID, h.CurrentRunID); err != nil {
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

// begin adds the new run and its lease to the session.
func (h *header) begin(start *session.StartRun, now time.Time) session.Run {
	run := start.Begin(&h.State, session.FirstEpoch(h.number), now)
	h.closePendingAt, h.stop = time.Time{}, nil
	h.runStatus, h.runRuntime = run.Status, run.Runtime
	h.runSteps, h.runUsage, h.runReason = run.StepCount, nil, run.CompletionReason
	return run
}

// guardStart returns an error if a run may not start; h is nil if there is no
// session.
func (s *sessions) guardStart(c Conn, h *header, start *session.StartRun, now time.Time) error {
	var same *session.Run
	if h != nil && start.Create == nil {
		var err error
		if same, err = s.runBy(c, h, byID, start.Run.ID); err != nil {
			return err
		}
	}
	return start.Guard(h.state(), h.run(), same, now)
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (taken *session.TakenOver, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	err = s.write(ctx, take.SessionID, "take over", func(t *Tx, h *header) error {
		now := s.b.Now()
		if err := take.Guard(&h.State, h.run(), now); err != nil {
			return err
		}
		run, err := s.runRecord(t.Conn, h, byID, take.RunID)
		if err != nil {
			return err
		}
		if run == nil {
			return notFound("session %s: run %s", h.ID, take.RunID)
		}
		taken = take.Apply(&h.State, run, now)
		if err := s.updateRun(t, h, run); err != nil {
			return err
		}
		return s.writeCold(t, h)
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

const releaseTree = `
UPDATE sessions INDEXED BY sessions_by_owner
SET owner = '', lease_until = CASE run_status WHEN 'running' THEN ? END
WHERE tenant = ? AND root_id = ? AND root_id <> '' AND owner = ? AND owner <> ''`

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	return s.closeAfter(ctx, id, fence, settled, func(*Tx) error { return nil })
}

// CloseRun is the CloseRun of [store.Backend]. All of it is one operation.
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	s := &streams{b, cmp.Or(end.Tenant, session.DefaultTenant)}
	chunks, err := stored.EncodeBatch(end.Stream, &end.Batch, b.MaxChunk)
	if err != nil {
		return err
	}
	how, err := stored.CloseStream(end.Stream, end.End, end.Failure, b.MaxChunk)
	if err != nil {
		return err
	}
	sessions := &sessions{b, s.tenant}
	return sessions.closeAfter(ctx, end.SessionID, end.Fence, true, func(t *Tx) error {
		if _, err := s.append(t, end.Stream, end.Batch.Producer, end.Batch.First, chunks); err != nil || how == nil {
			return err
		}
		return s.close(t, end.Stream, end.By, how)
	})
}

// closeAfter closes a run after the writes of first.
func (s *sessions) closeAfter(ctx context.Context, id string, fence session.Fence, settled bool, first func(*Tx) error) error {
	return s.write(ctx, id, "close run", func(t *Tx, h *header) error {
		if err := first(t); err != nil {
			return err
		}
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		h.Release(h.run(), s.b.Now())
		if h.runStatus == session.RunRunning {
			n, err := t.Exec(releaseTree, h.Lease.ExpiresAt, s.tenant, id, fence.Owner)
			if err != nil {
				return err
			}
			if n > 0 {
				t.cache.Clear()
			}
		}
		if settled {
			h.ClosePending, h.closePendingAt = false, time.Time{}
		}
		return s.writeCold(t, h)
	})
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	return s.write(ctx, id, "settle close", func(t *Tx, h *header) error {
		if !h.CanSettleClose(runID, h.run()) {
			return nil
		}
		h.ClosePending, h.closePendingAt = false, time.Time{}
		return s.writeCold(t, h)
	})
}
