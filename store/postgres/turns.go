package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// change applies a change in a transaction that has locked the session. A refusal
// reports the session's state before the transaction.
func (s *sessions) change(ctx context.Context, t *tx, d *draft, raise bool, was session.Saw) (*changed, error) {
	return s.changeBy(ctx, t, d, nil, raise, was)
}

func (s *sessions) changeBy(ctx context.Context, t *tx, d *draft, commit *session.Commit, raise bool, was session.Saw) (*changed, error) {
	c := &changed{}
	text, args := s.changeStatement(d, guard{Commit: commit}, raise)
	t.ask(c.scan, text, args...)
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	if err := c.refused(d, was); err != nil {
		return nil, err
	}
	return c, nil
}

// changeLast is change as the last part of its transaction. If nothing can refuse
// the change, it is committed in the same round trip.
func (s *sessions) changeLast(ctx context.Context, t *tx, d *draft, raise bool, was session.Saw) (*changed, error) {
	if d.doubtful() {
		return s.change(ctx, t, d, raise, was)
	}
	c := &changed{}
	text, args := s.changeStatement(d, guard{}, raise)
	t.ask(c.scan, text, args...)
	if err := t.finish(ctx); err != nil {
		return nil, err
	}
	if err := c.refused(d, was); err != nil {
		return nil, err
	}
	return c, nil
}

// doubtful reports whether other rows may prevent the change.
func (d *draft) doubtful() bool {
	return len(d.Waits) > 0 || d.fromRows || len(d.children) > 0 || len(d.Consume) > 0 || len(d.appended) > 0
}

// refused returns why a change was not applied, or nil if it was.
func (c *changed) refused(d *draft, was session.Saw) error {
	if c.ok {
		return nil
	}
	if err := c.err(d, was); err != nil {
		return err
	}
	return session.ErrInternal.WithMessage("session %s: a change was refused without a reason", d.sessionID)
}

// rewinds applies the part of a change that is not in its statement, because it
// needs more than one read of the session: it drops messages, replaces custom state
// and moves marks. It returns the rest of the change. version is the version of the
// change.
func (s *sessions) rewinds(ctx context.Context, t *tx, h *header, d *draft, version int64) (*draft, error) {
	keep := d.KeepMessages
	if keep != nil && *keep > h.MessageCount {
		return nil, session.Invalid("message count", "%d is more than the session's %d messages", *keep, h.MessageCount)
	}
	if d.MovesMarks() {
		if err := s.moveMarks(ctx, t, h, d.Change); err != nil {
			return nil, err
		}
	}
	if keep != nil {
		rest, err := s.beforehand(ctx, t, h, d)
		if err != nil {
			return nil, err
		}
		d = rest
		if err := s.truncate(ctx, t, h, *keep); err != nil {
			return nil, err
		}
	}
	if d.whole != nil {
		return d, s.writeWhole(t, h, version, d.whole)
	}
	return d, nil
}

const (
	selectAnswered = `
SELECT call_id FROM helix.pending WHERE session = $1 AND call_id = ANY ($2::text[]) AND state <> 'waiting'
UNION
SELECT call_id FROM helix.ownership WHERE session = $1 AND call_id = ANY ($2::text[]) AND completed_at IS NOT NULL`

	selectSettled = `
SELECT call_id, result_id, result FROM helix.calls
WHERE session = $1 AND message_id = $2 AND call_id = ANY ($3::text[]) AND status = 'settled'`
)

// beforehand reads what a change relies on and its own rewind would delete: waits
// and the results of calls. The returned draft contains the results.
func (s *sessions) beforehand(ctx context.Context, t *tx, h *header, d *draft) (*draft, error) {
	var found refusal
	results := map[string]stored.Message{}
	if len(d.Waits) > 0 {
		t.ask(func(rows pgx.Rows) error {
			var callID string
			err := rows.Scan(&callID)
			found.answered = append(found.answered, callID)
			return err
		}, selectAnswered, h.number, d.Waits)
	}
	if d.fromRows {
		t.ask(func(rows pgx.Rows) error {
			var (
				callID string
				row    stored.Message
			)
			err := rows.Scan(&callID, word{&row.ID}, &row.Body)
			results[callID] = row
			return err
		}, selectSettled, h.number, d.Promote.MessageID, d.callIDs)
	}
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	change, rest := *d.Change, *d
	change.Waits = nil
	rest.Change, rest.promoted, rest.fromRows = &change, nil, false
	rest.messages = slices.Clip(d.messages)
	for i, row := range d.promoted {
		if row.Body == nil {
			row = results[d.callIDs[i]]
		}
		if row.Body == nil {
			found.unsettled = append(found.unsettled, d.callIDs[i])
		}
		rest.messages = append(rest.messages, row)
	}
	return &rest, found.err(d, h.Saw())
}

// rewind makes a commit that drops messages, replaces custom state or appends a
// marker, the only kind that is a transaction of several statements. Turns rewind
// when they start, and append a marker once in many steps.
func (s *sessions) rewind(ctx context.Context, commit *session.Commit, d *draft) (committed *session.Committed, err error) {
	err = s.write(ctx, commit.SessionID, "commit", func(ctx context.Context, t *tx, h *header) error {
		repeated, err := commit.Guard(&h.State, h.run())
		if err != nil {
			return err
		}
		if repeated {
			committed = h.repeated(commit)
			return nil
		}
		rest, err := s.rewinds(ctx, t, h, d, h.Version+1)
		if err != nil {
			return err
		}
		s.writeHeader(t, h)
		c, err := s.changeBy(ctx, t, rest, commit, true, h.Saw())
		if err == nil {
			committed = c.committed(d)
			t.done = append(t.done, func() { s.signalWake(d) })
		}
		return err
	})
	if err := s.conflict(ctx, err, commit.SessionID, d); err != nil {
		return nil, err
	}
	return committed, nil
}

// StartRun implements [session.Turns].
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	return s.startRun(ctx, start, nil)
}

func (s *sessions) startRun(ctx context.Context, start *session.StartRun, o *streamOpening) (started *session.Started, err error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	change := start.Change
	if change.State == nil && start.Create != nil && start.Create.Custom.Len() > 0 {
		change.State = &start.Create.Custom
	}
	d, err := newDraft(&change, start.SessionID, start.Run.ID, time.Now())
	if err != nil {
		return nil, err
	}
	err = s.b.transact(ctx, what(start.SessionID, "start run"), func(ctx context.Context, t *tx) (err error) {
		started, err = s.start(ctx, t, start, d, o)
		if err == nil && !started.Existing {
			t.done = append(t.done, func() { s.signalWake(d) })
		}
		if isDuplicate(err, "sessions_by_id") || isDuplicate(err, "streams_by_id") {
			return errAgain // another process has just created it
		}
		return err
	})
	if err := s.conflict(ctx, err, start.SessionID, d); err != nil {
		return nil, err
	}
	return started, nil
}

const nextNumber = `SELECT nextval('helix.session_numbers')`

// start opens a turn on an existing or a new session, in two round trips, or three if
// other rows may prevent the change.
func (s *sessions) start(
	ctx context.Context, t *tx, start *session.StartRun, d *draft, o *streamOpening,
) (_ *session.Started, err error) {
	var (
		h                  *header
		existing, sameID   *session.Run
		damage             error
		number             int64
		now                time.Time
		id, created, raise = start.SessionID, start.Create != nil, start.Create == nil
	)
	o.ask(t)
	s.askLocked(t, id, &h)
	t.ask(s.runInto(id, &existing, &damage), byRequest, s.tenant, id, start.Run.RequestID)
	t.ask(s.runInto(id, &sameID, &damage), byID, s.tenant, id, start.Run.ID)
	if created {
		t.ask(func(rows pgx.Rows) error { return rows.Scan(&number, instant{&now}) }, nextNumberAt, s.b.clock())
	}
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	if h == nil && (existing != nil || sameID != nil) {
		return nil, errAgain // it was created after the lock was requested: runs are read in a newer snapshot
	}
	if damage != nil {
		return nil, damage
	}
	if existing != nil {
		return &session.Started{
			Committed: h.committed(), Lease: h.Lease, Turn: existing.Turn, Run: *existing, Existing: true,
		}, nil
	}
	if h != nil {
		now = h.now
	}
	if err := start.Guard(h.state(), h.run(), sameID, now); err != nil {
		return nil, err
	}
	if created {
		h = s.newHeader(start.Create, number, now)
	}
	version := h.Version
	if raise {
		version++
	}
	if d, err = s.rewinds(ctx, t, h, d, version); err != nil {
		return nil, err
	}
	was := h.Saw()
	run, err := s.begin(t, h, start)
	if err != nil {
		return nil, err
	}
	if err := o.open(t, h, run.ID); err != nil {
		return nil, err
	}
	c, err := s.changeLast(ctx, t, d, raise, was)
	if err != nil {
		return nil, err
	}
	return &session.Started{Committed: *c.committed(d), Lease: h.Lease, Turn: h.Turn, Run: *run}, nil
}

// runInto reads a run from a row and records an error of decoding.
func (s *sessions) runInto(id string, run **session.Run, damage *error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found, err := scanRun(id, rows)
		if stored.UnlessCorrupt(err) != nil {
			return err
		}
		*run = found
		if err != nil {
			*damage = err
		}
		return nil
	}
}

// begin queues everything about a run's start except its change.
func (s *sessions) begin(t *tx, h *header, start *session.StartRun) (*session.Run, error) {
	run := h.begin(start)
	if err := s.insertRun(t, h, &run); err != nil {
		return nil, err
	}
	if start.Create != nil {
		return &run, s.insert(t, h)
	}
	t.exec("UPDATE helix.session_docs SET ending = NULL WHERE session = $1 AND ending IS NOT NULL", h.number) // as in State.Reopen
	s.writeHeader(t, h)
	return &run, nil
}

// begin adds the new run and its lease to the session.
func (h *header) begin(start *session.StartRun) session.Run {
	run := start.Begin(&h.State, session.FirstEpoch(h.number), h.now)
	h.closePendingAt, h.stop = time.Time{}, nil
	h.runStatus, h.runRuntime = run.Status, run.Runtime
	h.runSteps, h.runUsage, h.runReason = run.StepCount, usageArray(run.Usage), run.CompletionReason
	return run
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (taken *session.TakenOver, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	err = s.b.transact(ctx, what(take.SessionID, "take over"), func(ctx context.Context, t *tx) error {
		var (
			h      *header
			run    *session.Run
			damage error
		)
		if !take.Force { // a sweep goes on with other sessions, and comes back
			t.exec(limitMoment)
		}
		s.askLocked(t, take.SessionID, &h)
		t.ask(s.runInto(take.SessionID, &run, &damage), byID, s.tenant, take.SessionID, take.RunID)
		if err := t.flush(ctx); err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(take.SessionID)
		}
		if err := take.Guard(&h.State, h.run(), h.now); err != nil {
			return err
		}
		if damage != nil {
			return damage
		}
		if run == nil {
			return notFound("session %s: run %s", h.ID, take.RunID)
		}
		taken = take.Apply(&h.State, run, h.now)
		t.exec("UPDATE helix.runs SET attempts = $3, progress_version = $4 WHERE session = $1 AND turn = $2",
			h.number, run.Turn, run.Attempts, run.ProgressVersion)
		s.writeLease(t, h)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

const (
	updateLease = `
UPDATE helix.sessions SET owner = $2, epoch = $3, lease_until = $4, close_owed_at = $5 WHERE number = $1`

	releaseTree = `
UPDATE helix.sessions SET owner = '', lease_until = CASE run_status WHEN 'running' THEN $4::timestamptz END
WHERE tenant = $1 AND root_id = $2 AND root_id <> '' AND owner = $3 AND owner <> ''`
)

func (s *sessions) writeLease(t *tx, h *header) {
	t.exec(updateLease, h.number, h.Lease.Owner, h.Lease.Epoch, when(h.Lease.ExpiresAt), when(h.closePendingAt))
}

// CloseRun implements [session.Turns].
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	return s.write(ctx, id, "close run", func(_ context.Context, t *tx, h *header) error {
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		h.Release(h.run(), h.now)
		if h.runStatus == session.RunRunning {
			t.exec(releaseTree, s.tenant, id, fence.Owner, when(h.Lease.ExpiresAt))
		}
		if settled {
			h.closePendingAt = time.Time{}
		}
		s.writeLease(t, h)
		return nil
	})
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	return s.write(ctx, id, "settle close", func(_ context.Context, t *tx, h *header) error {
		if !h.CanSettleClose(runID, h.run()) {
			return nil
		}
		h.closePendingAt = time.Time{}
		s.writeLease(t, h)
		return nil
	})
}
