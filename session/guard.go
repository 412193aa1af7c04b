package session

import "time"

// This file has the rules of runs and leases, once for all stores. A store reads
// the session, asks a guard, and writes the document that the other functions
// return; the store is responsible for atomicity.
//
// Two stores decide a part of this in their servers and must agree with it:
//
//   - Postgres makes a commit with one statement, whose conditions (statement.go,
//     guards) are those of [Commit.Guard]; it asks the guard itself to explain a
//     refusal. SQL renews and releases the leases of a tree (turns.go).
//   - Redis does the same in scripts: the guards of session_write.lua and
//     session_commit.lua, the lease's operations raise, renew, follow and release.
//     Its epochs begin at the server's time.
//
// The store suite proves that they agree: each case runs on every store.

// NotFound returns the error for an operation on a session that does not exist.
func NotFound(id string) error { return ErrNotFound.WithMessage("session %s: not found", id) }

// Exists returns the error for the creation of a session that already exists.
func Exists(state *State) error {
	return ErrExists.WithMessage("session %s already exists", state.ID).WithSaw(state.Saw())
}

// AsNew returns the document of a new session, at version 0 and with unique tags.
// Fields that a new session cannot have yet are not copied from s.
func (s *State) AsNew(tenant string, now time.Time) State {
	out := *s
	out.Tenant, out.Version = tenant, 0
	out.Turn, out.MessageCount, out.Marks, out.CurrentRunID, out.Requires = 0, 0, nil, "", nil
	out.LastCommit, out.ClosePending, out.Lease = "", false, Lease{}
	out.CheckpointID, out.CheckpointSource, out.CheckpointedAt = "", "", time.Time{}
	out.Pending, out.AwaitingChildren = nil, nil
	out.Tags = UniqueTags(s.Tags)
	if out.CreatedAt.IsZero() {
		out.CreatedAt = now
	}
	out.UpdatedAt = now
	return out
}

// LeaseEnd returns when a lease that is taken or renewed now expires, in whole
// microseconds, the precision of every store. A ttl of 0 means never: the result
// is the zero time.
func LeaseEnd(now time.Time, ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return now.Add(ttl).Truncate(time.Microsecond)
}

// CheckFence returns an error unless fence is that of the session's lease. A released
// lease has no owner, and no fence matches it.
func (s *State) CheckFence(fence Fence) error {
	if fence.Owner != "" && s.Lease.Fence() == fence {
		return nil
	}
	return ErrStale.WithMessage("session %s: another owner holds the lease", s.ID).WithSaw(s.Saw())
}

// Release releases the lease. If the run has not ended, any process may take it
// over from now on.
func (s *State) Release(run *Run, now time.Time) {
	s.Lease = Lease{Epoch: s.Lease.Epoch}
	if run != nil && run.Status == RunRunning {
		s.Lease.ExpiresAt = now
	}
}

// CanSettleClose reports whether runID is the session's current run and has ended, so
// that the close of its stream can be recorded.
func (s *State) CanSettleClose(runID string, run *Run) bool {
	return s.CurrentRunID == runID && (run == nil || run.Status != RunRunning)
}

// Guard decides whether a commit may be applied to a session whose current run is
// run, or nil. repeated is true if this commit was already applied. err is nil if the
// commit may be applied or was; otherwise it carries the state of the session.
func (c *Commit) Guard(state *State, run *Run) (repeated bool, err error) {
	if c.Key != "" && state.LastCommit == c.Key {
		return true, nil
	}
	if err := state.CheckFence(c.Fence); err != nil {
		return false, err
	}
	switch {
	case state.Version != c.Version:
		return false, ErrStale.WithMessage("session %s: expected version %d", c.SessionID, c.Version).WithSaw(state.Saw())
	case state.CurrentRunID != c.RunID || run == nil || run.Status != RunRunning:
		return false, ErrStale.WithMessage("session %s: run %s has ended", c.SessionID, c.RunID).WithSaw(state.Saw())
	}
	return false, transition(state.Status, c.Status)
}

// Guard returns an error if the run may not be started at the store's time now.
// state is nil if the session does not exist. run is the session's current run, or
// nil; same is the run that already has the new run's id, or nil.
func (s *StartRun) Guard(state *State, run, same *Run, now time.Time) error {
	switch {
	case s.Create != nil && state != nil:
		return Exists(state)
	case s.Create != nil:
		return transition(s.Create.Status, s.Status)
	case state == nil:
		return NotFound(s.SessionID)
	case same != nil:
		return ErrExists.WithMessage("session %s: run %s already exists", s.SessionID, s.Run.ID).WithSaw(state.Saw())
	case state.Version != s.ExpectVersion || state.CurrentRunID != s.ExpectRun:
		return ErrStale.WithMessage("session %s has changed since it was read", s.SessionID).WithSaw(state.Saw())
	case run != nil && run.Status == RunRunning:
		return ErrAlreadyRunning.WithMessage("session %s: run %s is running", s.SessionID, run.ID).WithSaw(state.Saw())
	case state.Lease.Live(now) && (run == nil || !run.Status.Ended()):
		return ErrAlreadyRunning.WithMessage("session %s: another owner holds the lease", s.SessionID).WithSaw(state.Saw())
	}
	return transition(state.Status, s.Status)
}

// Begin adds the new run and its lease to the session and returns the run's
// record. The new epoch is above the session's last one and above first; see
// [FirstEpoch]. The store writes the change that the run starts with, and the
// version.
func (s *StartRun) Begin(state *State, first int64, now time.Time) Run {
	state.Reopen()
	state.Status, state.ClosePending, state.LastCommit, state.UpdatedAt = Active, false, "", now
	state.Turn++
	state.StepCount = 0
	if s.StepCount != nil {
		state.StepCount = *s.StepCount
	}
	if s.Resumes {
		state.ResumeCount++
	}
	state.CurrentRunID, state.Requires = s.Run.ID, s.Run.Requires
	state.Lease = Lease{Owner: s.Owner, Epoch: max(state.Lease.Epoch, first) + 1, ExpiresAt: LeaseEnd(now, s.TTL)}

	run := s.Run
	run.SessionID, run.Turn, run.Status, run.StepCount = state.ID, state.Turn, RunRunning, state.StepCount
	run.Outcome, run.StartedAt, run.EndedAt = nil, now, time.Time{}
	return run
}

// Guard returns an error if the run may not be taken over at the store's time now.
func (t *TakeOver) Guard(state *State, run *Run, now time.Time) error {
	switch {
	case run == nil || run.ID != t.RunID || state.CurrentRunID != t.RunID:
		return ErrStale.WithMessage("session %s: run %s is not its current run", t.SessionID, t.RunID).WithSaw(state.Saw())
	case run.Status != RunRunning:
		return ErrStale.WithMessage("session %s: run %s is %s", t.SessionID, t.RunID, run.Status).WithSaw(state.Saw())
	case state.Lease.Epoch != t.Epoch:
		return ErrStale.WithMessage("session %s: another process has taken the run over", t.SessionID).WithSaw(state.Saw())
	case state.Status == Paused:
		return ErrPaused.WithMessage("session %s is paused", t.SessionID).WithSaw(state.Saw())
	case !t.Force && !t.Expires.IsZero() && !state.Lease.ExpiresAt.Equal(t.Expires):
		return ErrAlreadyRunning.WithMessage("session %s: the lease was renewed", t.SessionID).WithSaw(state.Saw())
	case !t.Force && t.Expires.IsZero() && state.Lease.Live(now):
		return ErrAlreadyRunning.WithMessage("session %s: the lease has not expired", t.SessionID).WithSaw(state.Saw())
	}
	return nil
}

// Apply gives the lease to the new owner and records the takeover in the run. If
// the run has made progress since the last takeover, the count of attempts
// restarts. A released lease was not lost and does not count.
func (t *TakeOver) Apply(state *State, run *Run, now time.Time) *TakenOver {
	if run.ProgressVersion != state.Version {
		run.Attempts, run.ProgressVersion = 0, state.Version
	}
	if state.Lease.Owner != "" {
		run.Attempts++
	}
	state.Lease = Lease{Owner: t.Owner, Epoch: state.Lease.Epoch + 1, ExpiresAt: LeaseEnd(now, t.TTL)}
	return &TakenOver{Lease: state.Lease, Version: state.Version, Attempts: run.Attempts}
}

// CheckIdle returns an error if the current run, which may be nil, is running: only the
// holder of its lease may write the document then. After the lease has expired
// this is the process that takes the run over, because a write in between would
// fall into the middle of a step.
func (s *State) CheckIdle(run *Run, now time.Time) error {
	if s.Lease.Live(now) || (run != nil && run.Status == RunRunning) {
		return ErrAlreadyRunning.WithMessage("session %s: a run holds the session", s.ID).WithSaw(s.Saw())
	}
	return nil
}

// CheckIdle is [State.CheckIdle] for a change of status. An operator may pause and unpause a
// session whose run has no lease holder.
func (c *StatusChange) CheckIdle(state *State, run *Run, now time.Time) error {
	if c.To == Paused || (state.Status == Paused && c.To == Active) {
		run = nil
	}
	return state.CheckIdle(run, now)
}

// Finish applies an outcome to the session's document. A run that only stopped
// keeps the output of an earlier one.
func (s *State) Finish(o *Outcome) {
	if o.Status == RunCompleted || o.Status == RunFailed {
		s.Output = o.Output
	}
	s.Error, s.FailureReason = o.Error, o.FailureReason
	s.Interrupt, s.SuspendedStep = o.Interrupt, o.SuspendedStep
	s.ClosePending = true
}

// Reopen clears the results of an earlier run when a new one starts. The output
// stays until the new run has its own.
func (s *State) Reopen() {
	s.Error, s.FailureReason, s.Interrupt = nil, "", nil
}
