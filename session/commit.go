package session

import (
	"slices"
	"time"
)

// Change is what a run start or a commit does to a session. All of it happens in
// one atomic write, or nothing of it. Zero fields leave things as they are.
type Change struct {
	// Status is the session's new status.
	Status Status
	// KeepMessages truncates the transcript to its first n messages before
	// Messages are appended: a rewind.
	KeepMessages *int
	Messages     []Message
	// State replaces the whole custom state before Writes are performed: a rewind.
	State  *Document
	Writes Writes
	// StepCount is the session's and the run's new step count.
	StepCount *int

	// Calls are the rows of a reply's calls, written by a reply commit. A row with
	// status begun is a claim.
	Calls []Call
	// Promote appends settled results to the transcript, in this order, after
	// Messages, and deletes the rows of their assistant message.
	Promote *Promotion

	// Pending adds entries that wait for people, Resolve ends some.
	Pending []Pending
	Resolve []Resolution
	// Waits names calls that a suspending commit relies on being unanswered. If
	// one was answered meanwhile the commit is refused with [ErrAnswered].
	Waits []string
	// Own adds ownership rows to this session, which is then a root.
	Own []Ownership
	// Disown marks calls of this root as completed.
	Disown []string
	// Children adds or replaces child references.
	Children []ChildRef
	// Consume deletes inbox entries that the commit takes in.
	Consume []string
	// Wake is delivered to a parent that may wait for this session.
	Wake *Wake

	Checkpoint *NewCheckpoint
	// Run changes the record of the run that commits.
	Run *RunChange
	// Outcome ends the run: it is written to the run's record, and its output,
	// error, failure reason, interrupt and suspended step to the session. It also
	// consumes the run's stop request and owes the stream its close.
	Outcome *Outcome
}

// Promotion takes the results of an assistant message's calls into the
// transcript.
type Promotion struct {
	MessageID string
	Results   []Promoted
}

// Promoted is one result: the row's own, or, when Message is set, one that was
// never settled in the store.
type Promoted struct {
	CallID  string
	Message *Message
}

// Resolution ends the wait for a call.
type Resolution struct {
	CallID string
	State  PendingState
	// Noticed marks a late answer as told to the model.
	Noticed bool
}

// NewCheckpoint is the checkpoint that a change writes.
type NewCheckpoint struct {
	ID             string
	Step           int
	Source         CheckpointSource
	StreamSequence int64
}

// RunChange updates a run's record.
type RunChange struct {
	CompletionReason CompletionReason
	// Usage is added to the run's.
	Usage Usage
}

// Commit is one atomic advance of a turn by the holder of its lease.
type Commit struct {
	SessionID string
	RunID     string
	// Key is the effect that commits. A commit whose key is already the session's
	// last one succeeds again without doing anything.
	Key string
	// Version and Fence must be what the session holds.
	Version int64
	Fence   Fence
	Change
}

// Committed is the outcome of a commit or a run start.
type Committed struct {
	Version      int64
	MessageCount int
	CheckpointID string
	// Repeated is set when the same commit had been applied before.
	Repeated bool
	// Stop is a request to stop the run, if there is one, so that the next step
	// need not ask.
	Stop *Stop
	// Inbox reports whether messages wait to be taken in.
	Inbox bool
	// Warnings tell of state writes that could not be performed as meant.
	Warnings []string
}

// StartRun opens a turn: it creates the session if asked to, writes the run's
// record, takes the lease and applies the change, all in one atomic write.
type StartRun struct {
	SessionID string
	// Create is the new session's document; the start is refused with [ErrExists]
	// if there is one. Otherwise the session must exist.
	Create *State
	// ExpectVersion and ExpectRun are the version and current run that the caller
	// saw. If either has changed the start is refused with [ErrStale].
	ExpectVersion int64
	ExpectRun     string
	// Run is the record to write; its turn number is the store's to give.
	Run   Run
	Owner string
	// TTL is how long the lease holds without renewal; 0 is for ever.
	TTL time.Duration
	// Resumes adds one to the session's resume count.
	Resumes bool
	Change
}

// Started is the outcome of a run start.
type Started struct {
	Committed
	Lease Lease
	Turn  int
	Run   Run
	// Existing is set when the session has a run with the same request id: nothing
	// was written and Run is that run.
	Existing bool
}

// TakeOver claims a run whose lease has expired.
type TakeOver struct {
	SessionID string
	RunID     string
	Owner     string
	TTL       time.Duration
	// Epoch is the epoch of the lease that is taken; a second taker is refused.
	Epoch int64
	// Force takes a lease that has not expired: the holder of a root's lease may,
	// for its children, and so may a process for its own earlier claim.
	Force bool
}

// TakenOver is the outcome of a takeover.
type TakenOver struct {
	Lease    Lease
	Version  int64
	Attempts int
}

// Clone copies a session, up to a checkpoint or a message, into a new one.
type Clone struct {
	From string
	// CheckpointID is where the copy ends; empty is the latest state.
	CheckpointID string
	// MessageCount, when set, is the number of messages to copy; custom state is
	// that of the last checkpoint within them.
	MessageCount *int
	// To is the new session's document. Its custom state is ignored, as are its
	// counters.
	To State
}

// StatusChange is a compare-and-set of a session's status.
type StatusChange struct {
	// Expect lists the statuses the session may have now.
	Expect []Status
	To     Status
	// ExpectVersion, when not 0, is the version the session must have.
	ExpectVersion int64
	Interrupt     *InterruptContext
	Error         *Error
	FailureReason string
}

// StatusResult reports what a compare-and-set saw and did.
type StatusResult struct {
	// OK reports whether the status was set; Version is then the new version.
	OK      bool
	Status  Status
	Version int64
}

// Swap decides the compare-and-set against what the store holds and, if it
// applies, changes state. Stores share it so that they agree on every case.
func (c *StatusChange) Swap(state *State) (StatusResult, error) {
	if !c.To.Valid() {
		return StatusResult{}, Invalid("status", "%q is none of %v", c.To, Statuses())
	}
	if !slices.Contains(c.Expect, state.Status) || (c.ExpectVersion != 0 && c.ExpectVersion != state.Version) {
		return StatusResult{Status: state.Status, Version: state.Version}, nil
	}
	if err := Transition(state.Status, c.To); err != nil {
		return StatusResult{}, err
	}
	state.Status = c.To
	if c.Interrupt != nil {
		state.Interrupt = c.Interrupt
	}
	if c.Error != nil {
		state.Error = c.Error
	}
	if c.FailureReason != "" {
		state.FailureReason = c.FailureReason
	}
	state.Version++
	return StatusResult{OK: true, Status: state.Status, Version: state.Version}, nil
}

// Check reports what is wrong with a change before a store touches anything.
func (c *Change) Check() error {
	if c.Status != "" && !c.Status.Valid() {
		return Invalid("status", "%q is none of %v", c.Status, Statuses())
	}
	if c.KeepMessages != nil && *c.KeepMessages < 0 {
		return Invalid("message count", "%d is negative", *c.KeepMessages)
	}
	for i := range c.Messages {
		if err := c.Messages[i].Check(); err != nil {
			return err
		}
	}
	if c.Outcome != nil && !c.Outcome.Status.Ended() {
		return Invalid("outcome", "%q does not end a run", c.Outcome.Status)
	}
	return c.Writes.Check()
}

// Guard decides whether a commit may be applied to a session: nil if it may,
// repeated if it already was, else the error that reports what the store holds.
func (c *Commit) Guard(state *State) (repeated bool, err error) {
	if c.Key != "" && state.LastCommit == c.Key {
		return true, nil
	}
	switch {
	case c.Fence.Owner == "" || state.Lease.Owner != c.Fence.Owner || state.Lease.Epoch != c.Fence.Epoch:
		return false, ErrStale.WithMessage("session %s: another owner holds the lease", c.SessionID).WithSaw(state.Saw())
	case state.Version != c.Version:
		return false, ErrStale.WithMessage("session %s: version %d was expected", c.SessionID, c.Version).WithSaw(state.Saw())
	case state.CurrentRunID != c.RunID:
		return false, ErrStale.WithMessage("session %s: run %s is over", c.SessionID, c.RunID).WithSaw(state.Saw())
	}
	if c.Status != "" {
		return false, Transition(state.Status, c.Status)
	}
	return false, nil
}

// Guard decides whether a run may be started on a session that exists. now is
// the store's time; run is the session's current run, or nil.
func (s *StartRun) Guard(state *State, run *Run, now time.Time) error {
	if state.Version != s.ExpectVersion || state.CurrentRunID != s.ExpectRun {
		return ErrStale.WithMessage("session %s: it has changed since it was read", s.SessionID).WithSaw(state.Saw())
	}
	if run != nil && run.Status == RunRunning {
		return ErrAlreadyRunning.WithMessage("session %s: run %s is running", s.SessionID, run.ID).WithSaw(state.Saw())
	}
	if state.Lease.Live(now) && (run == nil || !run.Status.Ended()) {
		return ErrAlreadyRunning.WithMessage("session %s: its lease is held", s.SessionID).WithSaw(state.Saw())
	}
	if s.Status != "" {
		return Transition(state.Status, s.Status)
	}
	return nil
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

// Free refuses a direct write of the document while a live run holds the lease:
// only the lease's holder writes it then.
func (s *State) Free(now time.Time) error {
	if s.Lease.Live(now) {
		return ErrAlreadyRunning.WithMessage("session %s: a run holds it", s.ID).WithSaw(s.Saw())
	}
	return nil
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
