package session

import (
	"slices"
	"time"
)

// Change describes what a run start or a commit does to a session. A store applies
// all of it in one atomic write, or none of it. Zero fields leave the session as
// it is.
type Change struct {
	// Status is the session's new status.
	Status Status
	// KeepMessages truncates the transcript to its first n messages before
	// Messages are appended: a rewind. It also ends what depends on the others.
	// Checkpoints that count more messages are undone, and the session's latest
	// checkpoint becomes the last one that is not. Rows of calls are deleted, and
	// open pending entries superseded, if their message is no longer in the
	// transcript. Children that a dropped message called, or that are awaited on
	// behalf of a call which no message makes, are superseded and no longer awaited.
	KeepMessages *int
	Messages     []Message
	// State replaces the whole custom state before Writes are applied. A rewind sets
	// it.
	State  *CustomState
	Writes Writes
	// StepCount is the session's and the run's new step count.
	StepCount *int

	// Calls are the rows of a reply's calls, written by a reply commit. A row with
	// status begun is a claim. A row that exists is replaced, unless it is settled: a
	// result stands.
	Calls []Call
	// Promote appends settled results to the transcript, in this order, after
	// Messages, and deletes the rows of their assistant message.
	Promote *Promotion

	// Pending adds entries that wait for people; Resolve ends entries. An entry that
	// exists is replaced, in its place in the order, if it still waits; see
	// [Pending.Replaces].
	Pending []Pending
	Resolve []Resolution
	// Waits names calls that a suspending commit requires to be unanswered: the
	// session's own calls, which are in its pending entries, and, for a root, the
	// calls of its tree, which are in its ownership rows. If one of them was answered
	// in the meantime, so that its entry no longer waits or its ownership is
	// completed, the change is refused with [ErrAnswered], whose Calls name all such
	// calls. The check ignores the effects of this change. Calls without an entry or an
	// ownership row pass.
	Waits []string
	// Own adds ownership rows to this session, which must be a root.
	Own []Ownership
	// Disown marks calls of this root as completed; see [Submissions].
	Disown []string
	// Children adds or replaces child references.
	Children []ChildRef
	// Consume deletes inbox entries that the commit turns into messages.
	Consume []string
	// Wake is delivered to a parent that may be waiting for this session.
	Wake *Wake

	// Tasks are added, once per id, together with everything else. They become tasks
	// of the session, and are deleted with it.
	Tasks []Task

	// ExpiresAt moves the session's expiry; the zero time removes it.
	ExpiresAt *time.Time

	Checkpoint *NewCheckpoint
	// Run changes the record of the run that commits.
	Run *RunChange
	// Outcome ends the run: it is written to the run's record, and its output, error,
	// failure reason, interrupt and suspended step to the session. It also consumes
	// the run's stop request and records that the stream is still to be closed.
	Outcome *Outcome
}

// Promotion moves the results of an assistant message's calls into the transcript.
type Promotion struct {
	MessageID string
	Results   []Promoted
}

// Promoted is one result: the row's own, or, when Message is set, a result that
// was never settled in the store.
type Promoted struct {
	CallID  string
	Message *Message
}

// Resolution ends the wait for a call.
type Resolution struct {
	CallID string
	State  PendingState
	// Noticed records that the model has seen a late answer.
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
	// Usage is added to the run's usage.
	Usage Usage
}

// Commit is one atomic advance of a turn by the holder of its lease.
type Commit struct {
	SessionID string
	RunID     string
	// Key identifies the effect that commits. A commit whose key is already the
	// session's last one succeeds again and changes nothing.
	Key string
	// Version and Fence must match those of the session.
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
	// Stop is the request to stop the run, if there is one, so that the next step need
	// not read it. A commit that ends the run returns the request that it consumed, so
	// that a request accepted just before is not lost when the run only suspends.
	Stop *Stop
	// Inbox reports whether the inbox has entries that no commit has consumed yet.
	Inbox bool
	// Warnings describe state writes that could not be applied as intended.
	Warnings []string
}

// StartRun opens a turn: it creates the session if Create is set, writes the run's
// record, takes the lease and applies the change, all in one atomic write.
type StartRun struct {
	SessionID string
	// Create is the new session's document; the start is refused with [ErrExists] if
	// the session exists. Without Create the session must exist.
	Create *State
	// ExpectVersion and ExpectRun are the version and current run that the caller
	// read. If either has changed, the start is refused with [ErrStale].
	ExpectVersion int64
	ExpectRun     string
	// Run is the record to write; the store assigns its turn number.
	Run   Run
	Owner string
	// TTL is how long the lease is valid without renewal; 0 means for ever.
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
	// Existing is set when the session already has a run with the same request id:
	// nothing was written and Run is that run.
	Existing bool
}

// TakeOver claims a run whose lease has expired or was released.
type TakeOver struct {
	SessionID string
	RunID     string
	Owner     string
	TTL       time.Duration
	// Epoch is the epoch of the lease to take. Of several takeovers with the same
	// epoch only the first succeeds.
	Epoch int64
	// Expires, if it is set, is the [Lease.ExpiresAt] of the lease to take, as the caller
	// has read it. A lease that was renewed since is not taken. One that was not is taken
	// even if it has not expired: the store's clock may have been set back, and the caller
	// has found out by other means that its holder is dead.
	Expires time.Time
	// Force takes a lease that has not expired. It is for the holder of a root's lease,
	// which takes the leases of its children, and for a process that a workflow engine
	// chose.
	Force bool
}

// TakenOver is the outcome of a takeover.
type TakenOver struct {
	Lease   Lease
	Version int64
	// Attempts counts how often the run was lost without progress since. A released
	// lease was not lost: taking over that run does not count.
	Attempts int
}

// Clone copies a session, up to a checkpoint or a message, into a new one.
type Clone struct {
	From string
	// CheckpointID is where the copy ends; empty means the latest state. An undone
	// checkpoint is refused with [ErrNotFound].
	CheckpointID string
	// MessageCount, when set, is the number of messages to copy; custom state is
	// that of the last checkpoint within them.
	MessageCount *int
	// To is the new session's document. Its custom state and its counters are ignored.
	To State
}

// StatusChange is a compare-and-set of a session's status.
type StatusChange struct {
	// Expect lists the statuses that the session may have now.
	Expect []Status
	To     Status
	// ExpectVersion, when not 0, is the version that the session must have.
	ExpectVersion int64
	Interrupt     *InterruptContext
	Error         *Error
	FailureReason string
}

// StatusResult is the result of a compare-and-set of a status.
type StatusResult struct {
	// OK reports whether the status was set; Version is then the new version.
	OK      bool
	Status  Status
	Version int64
}

// Swap decides the compare-and-set against the stored state and, if it applies,
// changes state. Stores share it so that they agree on every case.
func (c *StatusChange) Swap(state *State) (StatusResult, error) {
	if !c.To.Valid() {
		return StatusResult{}, Invalid("status", "%q is not one of %v", c.To, Statuses())
	}
	if err := CheckText("failure reason", c.FailureReason); err != nil {
		return StatusResult{}, err
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

// Check returns an error if no store could apply the change.
func (c *Change) Check() error {
	if c.Status != "" && !c.Status.Valid() {
		return Invalid("status", "%q is not one of %v", c.Status, Statuses())
	}
	if c.KeepMessages != nil && *c.KeepMessages < 0 {
		return Invalid("message count", "%d is negative", *c.KeepMessages)
	}
	if c.Outcome == nil && (c.Status == Completed || c.Status == Failed || c.Status == Interrupted) {
		return Invalid("status", "%q requires an outcome, because a session has it only after its run has ended", c.Status)
	}
	for _, part := range []func() error{c.checkMessages, c.checkRows, c.checkNames, c.checkOutcome, c.Writes.Check} {
		if err := part(); err != nil {
			return err
		}
	}
	if c.State != nil {
		return c.State.Check()
	}
	return nil
}

func (c *Change) checkMessages() error {
	for i := range c.Messages {
		if err := c.Messages[i].Check(); err != nil {
			return err
		}
	}
	if c.Promote == nil {
		return nil
	}
	for _, result := range c.Promote.Results {
		if result.Message == nil {
			continue
		}
		if err := result.Message.Check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Change) checkRows() error {
	for i := range c.Calls {
		if err := c.Calls[i].Check(); err != nil {
			return err
		}
	}
	for i := range c.Pending {
		if err := c.Pending[i].Check(); err != nil {
			return err
		}
	}
	for i := range c.Children {
		if err := c.Children[i].Check(); err != nil {
			return err
		}
	}
	for i := range c.Own {
		if err := c.Own[i].Check(); err != nil {
			return err
		}
	}
	return CheckTasks(c.Tasks)
}

func (c *Change) checkNames() error {
	if c.Checkpoint != nil {
		if err := c.Checkpoint.Check(); err != nil {
			return err
		}
	}
	if c.ExpiresAt != nil {
		if err := CheckTime("expiresAt", *c.ExpiresAt); err != nil {
			return err
		}
	}
	if c.Wake != nil {
		return c.Wake.Check()
	}
	return nil
}

func (c *Change) checkOutcome() error {
	if c.Outcome == nil {
		return nil
	}
	if !c.Outcome.Status.Ended() {
		return Invalid("outcome", "%q does not end a run", c.Outcome.Status)
	}
	return CheckJSON("output", c.Outcome.Output)
}

// Check returns an error if the checkpoint cannot be stored.
func (n *NewCheckpoint) Check() error { return CheckText("checkpoint id", n.ID) }

// Check returns an error if the commit is invalid for every session.
func (c *Commit) Check() error {
	if err := CheckText("commit key", c.Key); err != nil {
		return err
	}
	if err := checkTasksOf(c.SessionID, c.Tasks); err != nil {
		return err
	}
	return c.Change.Check()
}

// Check returns an error if the start is invalid for every session.
func (s *StartRun) Check() error {
	if err := CheckID(s.SessionID); err != nil {
		return err
	}
	if err := CheckKeyID("run id", s.Run.ID); err != nil {
		return err
	}
	if s.Run.RequestID != "" {
		if err := CheckKeyID("request id", s.Run.RequestID); err != nil {
			return err
		}
	}
	if err := CheckKeyID("lease owner", s.Owner); err != nil {
		return err
	}
	if err := checkTexts("agent", s.Run.Agent, "runtime", s.Run.Runtime); err != nil {
		return err
	}
	if err := checkFeatures(s.Run.Requires); err != nil {
		return err
	}
	if s.Create != nil {
		if s.Create.ID != s.SessionID {
			return Invalid("session id", "%q does not match the session to create, %q", s.SessionID, s.Create.ID)
		}
		if err := s.Create.Check(); err != nil {
			return err
		}
	}
	if err := checkTasksOf(s.SessionID, s.Tasks); err != nil {
		return err
	}
	return s.Change.Check()
}

// Check returns an error if the takeover is invalid.
func (t *TakeOver) Check() error { return CheckKeyID("lease owner", t.Owner) }

// Check returns an error if the copy is invalid for every session. The document is
// checked once it is complete.
func (c *Clone) Check() error {
	if c.CheckpointID != "" && c.MessageCount != nil {
		return Invalid("clone", "must not have both a checkpoint and a message count")
	}
	return CheckID(c.To.ID)
}

// Complete returns the new session's document with the fields that it inherits
// from the source.
func (c *Clone) Complete(from *State) (State, error) {
	to := c.To
	if to.Agent == "" {
		to.Agent = from.Agent
	}
	if to.Status == "" {
		to.Status = Active
	}
	to.Custom = CustomState{}
	err := to.Check()
	return to, err
}
