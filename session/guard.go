package session

import "time"

// The rules of runs and leases are here, once for all stores. A store reads the
// session, asks a guard, and writes what the other functions made of the document;
// atomicity is its part.
//
// Two stores decide a part of this in their servers, and have to agree with it:
//
//   - Postgres makes a commit with one statement, whose conditions (statement.go,
//     guards) are those of [Commit.Guard]; it asks the guard itself to explain a
//     refusal. The leases of a tree are renewed and given back by SQL (turns.go).
//   - Redis does the same in scripts: the guards of session_write.lua and
//     session_commit.lua, the lease's operations raise, renew, follow and release.
//     Its epochs begin at the server's time.
//
// The store suite proves that they agree: each case runs on every store.

// NotFound is the refusal of an operation on a session that does not exist.
func NotFound(id string) error { return ErrNotFound.WithMessage("session %s: not found", id) }

// Exists is the refusal of a new session in the place of one that exists.
func Exists(state *State) error {
	return ErrExists.WithMessage("session %s already exists", state.ID).WithSaw(state.Saw())
}

// Born is the document of a new session, at version 0, whose tags do not repeat.
// Whatever a new session cannot have yet is not taken from s.
func (s *State) Born(tenant string, now time.Time) State {
	out := *s
	out.Tenant, out.Version = tenant, 0
	out.Turn, out.MessageCount, out.CurrentRunID = 0, 0, ""
	out.LastCommit, out.CloseOwed, out.Lease = "", false, Lease{}
	out.CheckpointID, out.CheckpointSource, out.CheckpointedAt = "", "", time.Time{}
	out.Pending, out.AwaitingChildren = nil, nil
	out.Tags = UniqueTags(s.Tags)
	if out.CreatedAt.IsZero() {
		out.CreatedAt = now
	}
	out.UpdatedAt = now
	return out
}

// LeaseEnd is when a lease ends that is taken or renewed now, in whole
// microseconds, which every store keeps. One with a ttl of 0 never ends: that is
// the zero time.
func LeaseEnd(now time.Time, ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return now.Add(ttl).Truncate(time.Microsecond)
}

// Holds refuses a fence that is not that of the session's lease. A lease that was
// given back has no owner, and no fence matches it.
func (s *State) Holds(fence Fence) error {
	if fence.Owner != "" && s.Lease.Fence() == fence {
		return nil
	}
	return ErrStale.WithMessage("session %s: another owner holds the lease", s.ID).WithSaw(s.Saw())
}

// Release gives the lease back. A run that has not ended is left to whoever takes
// it over: from now on.
func (s *State) Release(run *Run, now time.Time) {
	s.Lease = Lease{Epoch: s.Lease.Epoch}
	if run != nil && run.Status == RunRunning {
		s.Lease.ExpiresAt = now
	}
}

// Settles reports whether the close of the stream of a run, which has ended, is
// still the session's to record.
func (s *State) Settles(runID string, run *Run) bool {
	return s.CurrentRunID == runID && (run == nil || run.Status != RunRunning)
}

// Guard decides whether a commit may be applied to a session, whose current run is
// run or nil: nil if it may, repeated if it already was, else the error that reports
// what the store holds.
func (c *Commit) Guard(state *State, run *Run) (repeated bool, err error) {
	if c.Key != "" && state.LastCommit == c.Key {
		return true, nil
	}
	if err := state.Holds(c.Fence); err != nil {
		return false, err
	}
	switch {
	case state.Version != c.Version:
		return false, ErrStale.WithMessage("session %s: version %d was expected", c.SessionID, c.Version).WithSaw(state.Saw())
	case state.CurrentRunID != c.RunID || run == nil || run.Status != RunRunning:
		return false, ErrStale.WithMessage("session %s: run %s is over", c.SessionID, c.RunID).WithSaw(state.Saw())
	}
	return false, transition(state.Status, c.Status)
}

// Guard decides whether a run may be started at the store's time now. state is nil
// if there is no session. run is the session's current run, or nil; same is the run
// that has the id of the new one, or nil.
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
		return ErrStale.WithMessage("session %s: it has changed since it was read", s.SessionID).WithSaw(state.Saw())
	case run != nil && run.Status == RunRunning:
		return ErrAlreadyRunning.WithMessage("session %s: run %s is running", s.SessionID, run.ID).WithSaw(state.Saw())
	case state.Lease.Live(now) && (run == nil || !run.Status.Ended()):
		return ErrAlreadyRunning.WithMessage("session %s: its lease is held", s.SessionID).WithSaw(state.Saw())
	}
	return transition(state.Status, s.Status)
}

// Begin gives a session its new run and the lease, and returns the run's record.
// The epoch is above the session's last one, and above first: see [FirstEpoch]. The
// change that the run starts with, and the version, are the store's to write.
func (s *StartRun) Begin(state *State, first int64, now time.Time) Run {
	state.Reopen()
	state.Status, state.CloseOwed, state.LastCommit, state.UpdatedAt = Active, false, "", now
	state.Turn++
	state.StepCount = 0
	if s.StepCount != nil {
		state.StepCount = *s.StepCount
	}
	if s.Resumes {
		state.ResumeCount++
	}
	state.CurrentRunID = s.Run.ID
	state.Lease = Lease{Owner: s.Owner, Epoch: max(state.Lease.Epoch, first) + 1, ExpiresAt: LeaseEnd(now, s.TTL)}

	run := s.Run
	run.SessionID, run.Turn, run.Status, run.StepCount = state.ID, state.Turn, RunRunning, state.StepCount
	run.Outcome, run.StartedAt, run.EndedAt = nil, now, time.Time{}
	return run
}

// Guard decides whether a run may be taken over at the store's time now.
func (t *TakeOver) Guard(state *State, run *Run, now time.Time) error {
	switch {
	case run == nil || run.ID != t.RunID || state.CurrentRunID != t.RunID:
		return ErrStale.WithMessage("session %s: run %s is not its current run", t.SessionID, t.RunID).WithSaw(state.Saw())
	case run.Status != RunRunning:
		return ErrStale.WithMessage("session %s: run %s is %s", t.SessionID, t.RunID, run.Status).WithSaw(state.Saw())
	case state.Lease.Epoch != t.Epoch:
		return ErrStale.WithMessage("session %s: another taker was faster", t.SessionID).WithSaw(state.Saw())
	case state.Status == Paused:
		return ErrPaused.WithMessage("session %s: it is paused", t.SessionID).WithSaw(state.Saw())
	case !t.Force && state.Lease.Live(now):
		return ErrAlreadyRunning.WithMessage("session %s: its lease has not expired", t.SessionID).WithSaw(state.Saw())
	}
	return nil
}

// Take gives the lease of a run to the taker and notes the takeover in the run's
// record. A run that has made progress since it was taken last begins to count anew;
// one whose lease was given back was not lost, and does not count.
func (t *TakeOver) Take(state *State, run *Run, now time.Time) *TakenOver {
	if run.ProgressVersion != state.Version {
		run.Attempts, run.ProgressVersion = 0, state.Version
	}
	if state.Lease.Owner != "" {
		run.Attempts++
	}
	state.Lease = Lease{Owner: t.Owner, Epoch: state.Lease.Epoch + 1, ExpiresAt: LeaseEnd(now, t.TTL)}
	return &TakenOver{Lease: state.Lease, Version: state.Version, Attempts: run.Attempts}
}

// Free refuses a write outside a run while the current run, or nil, is running: only
// the holder of its lease writes the document then. Once the lease has expired that
// is whoever takes the run over, for a write in between would land in the middle of
// a step.
func (s *State) Free(run *Run, now time.Time) error {
	if s.Lease.Live(now) || (run != nil && run.Status == RunRunning) {
		return ErrAlreadyRunning.WithMessage("session %s: a run holds it", s.ID).WithSaw(s.Saw())
	}
	return nil
}

// Free is [State.Free] for a change of status. An operator may pause a session
// whose run has no holder, and release it from the pause.
func (c *StatusChange) Free(state *State, run *Run, now time.Time) error {
	if c.To == Paused || (state.Status == Paused && c.To == Active) {
		run = nil
	}
	return state.Free(run, now)
}

// Finish applies an outcome to the session's document. A run that only stopped
// leaves the output of an earlier one.
func (s *State) Finish(o *Outcome) {
	if o.Status == RunCompleted || o.Status == RunFailed {
		s.Output = o.Output
	}
	s.Error, s.FailureReason = o.Error, o.FailureReason
	s.Interrupt, s.SuspendedStep = o.Interrupt, o.SuspendedStep
	s.CloseOwed = true
}

// Reopen clears what an earlier run left behind when a new one starts. The
// output stays until the new run has one of its own.
func (s *State) Reopen() {
	s.Error, s.FailureReason, s.Interrupt = nil, "", nil
}
