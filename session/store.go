package session

import (
	"context"
	"time"
)

// Store keeps sessions. It is composed of small interfaces, so that a consumer
// asks for the least it needs; a backend implements all of them.
//
// Every method is scoped to one tenant and safe for concurrent use, by any
// number of processes where the backend is shared. Failures are *[Error]:
// [ErrNotFound], [ErrExists], [ErrStale] and its kin, [ErrInvalid] for bad
// input, [ErrCorrupt] for a row that cannot be decoded, and [ErrUnavailable],
// which is retryable, for everything that is the backend's fault.
type Store interface {
	Lifecycle
	Documents
	Turns
	Calls
	Stops
	Transcripts
	Runs
	Checkpoints
	Children
	Submissions
	Inboxes
	Lister
	Sweeps

	// Tenant is the same store scoped to another tenant.
	Tenant(tenant string) Store
}

// Lifecycle reads, copies and deletes sessions. [StartRun] and [Create] make them.
type Lifecycle interface {
	Exists(ctx context.Context, id string) (bool, error)
	// Load reads a session's document with its custom state, open pending calls
	// and awaited children, consistently.
	Load(ctx context.Context, id string) (*State, error)
	// Clone copies messages and custom state into a new session, atomically. It
	// copies no runs, calls, pending entries or child references; the copy has one
	// checkpoint. A checkpoint that is not the source's is [ErrNotFound].
	Clone(ctx context.Context, clone *Clone) (*State, error)
	// Delete removes a session and everything that belongs to it, its stream
	// included, with the whole tree of its local children, and returns the ids of all
	// these sessions. Deleting what does not exist is [ErrNotFound].
	Delete(ctx context.Context, id string) ([]string, error)
}

// Documents writes a session outside a run. Both methods raise the version and are
// refused with [ErrAlreadyRunning] while the current run is running, also when
// nobody holds its lease any more; see [Edit.Guard] and [StatusChange.Free].
type Documents interface {
	// Edit makes an edit. [Create], [Save], [Merge], [AppendMessages] and others are
	// functions over it.
	Edit(ctx context.Context, edit *Edit) (*Edited, error)
	// SetStatus changes the status if it is one of those expected, and reports what
	// it saw if not.
	SetStatus(ctx context.Context, id string, change StatusChange) (StatusResult, error)
}

// Turns is what running a turn takes.
type Turns interface {
	// StartRun opens a turn; see [StartRun.Guard] for when it is refused. When the
	// session already has a run with the same request id, that run is returned and
	// nothing is written.
	StartRun(ctx context.Context, start *StartRun) (*Started, error)
	// Commit advances a turn atomically, in one round trip whose cost does not
	// depend on the session's length.
	Commit(ctx context.Context, commit *Commit) (*Committed, error)
	// TakeOver claims a run whose lease has expired or was given back. Of concurrent
	// takers exactly one wins. See [TakenOver.Attempts] for what it counts.
	TakeOver(ctx context.Context, take *TakeOver) (*TakenOver, error)
	// RenewLease extends the lease of a root session and of every session of its
	// tree that has the same owner. It fails with [ErrStale] if the lease is lost.
	RenewLease(ctx context.Context, id string, fence Fence, ttl time.Duration) error
	// CloseRun gives the lease back and, when settled is set, records that the
	// stream has been closed. A lease lost meanwhile is [ErrStale].
	//
	// A run that has not ended is thereby left to others: it is due at once, see
	// [Sweeps.ExpiredLeases]. With a root's, the lease of every session of its tree
	// that has the same owner is given back too.
	CloseRun(ctx context.Context, id string, fence Fence, settled bool) error
	// SettleClose records that the stream of an ended run has been closed, by
	// whoever closed it. It does nothing if another run has started since.
	SettleClose(ctx context.Context, id, runID string) error
	// Now is the store's clock, on which leases and deadlines run.
	Now(ctx context.Context) (time.Time, error)
}

// Calls keeps the calls of steps in flight.
type Calls interface {
	// Claim marks an open call as begun and returns it. A call that was already
	// begun or settled is returned as it was found, with fresh unset. The session
	// must hold version and fence.
	Claim(ctx context.Context, id string, version int64, fence Fence, messageID, callID string) (call Call, fresh bool, err error)
	// Settle records a begun or open call's result and writes. The first writer
	// wins; everyone gets the row as it then is.
	Settle(ctx context.Context, id string, fence Fence, call Call) (Call, error)
	// Calls lists the rows of an assistant message, in call order.
	Calls(ctx context.Context, id, messageID string) ([]Call, error)
	// CleanCalls deletes rows that no step will ever use: those older than before
	// whose session has ended or whose transcript has continued past their message.
	// It returns how many. It is for retention, which will call it; nothing in this module
	// does yet.
	CleanCalls(ctx context.Context, before time.Time) (int, error)
}

// Stops keeps requests to stop a run.
type Stops interface {
	// RequestStop asks for a run to be stopped and returns the request that stands:
	// an abort overrides an interrupt, a repeated request changes nothing. It is
	// [ErrStale] if the run is not the session's current one or is over.
	RequestStop(ctx context.Context, id string, stop Stop) (Stop, error)
	// StopRequest is the request for a run, or nil.
	StopRequest(ctx context.Context, id, runID string) (*Stop, error)
}

// Transcripts reads messages. [AppendMessages] and [TruncateMessages] write them
// outside a run.
type Transcripts interface {
	// Messages lists a session's messages, oldest first. Of messages that do not fit
	// [PageRequest.MaxBytes] it reads at most a few.
	Messages(ctx context.Context, id string, page PageRequest) (Page[Message], error)
	// AllMessages reads the whole transcript, consistently.
	AllMessages(ctx context.Context, id string) ([]Message, error)
}

// Runs reads run records.
type Runs interface {
	Run(ctx context.Context, id, runID string) (*Run, error)
	// CurrentRun is the latest run; [ErrNotFound] when there was none.
	CurrentRun(ctx context.Context, id string) (*Run, error)
	// RunByRequest finds the run that a request started.
	RunByRequest(ctx context.Context, id, requestID string) (*Run, error)
	// Runs lists a session's runs, oldest first.
	Runs(ctx context.Context, id string, page PageRequest) (Page[Run], error)
}

// Checkpoints reads checkpoints. [CreateCheckpoint] makes one outside a run.
type Checkpoints interface {
	// Checkpoint reads one with its custom state. One of another session is
	// [ErrNotFound].
	Checkpoint(ctx context.Context, id, checkpointID string) (*Checkpoint, error)
	// LatestCheckpoint is the one written last of those that no rewind has undone,
	// which is not the one with the highest step: steps restart with every turn.
	LatestCheckpoint(ctx context.Context, id string) (*Checkpoint, error)
	// Checkpoints lists them, newest first, without custom state, and also those
	// that were undone.
	Checkpoints(ctx context.Context, id string, page PageRequest) (Page[Checkpoint], error)
}

// Children keeps references to sub-agents' sessions. They may be written during
// a run, also by [PutChildren], and do not touch the version.
type Children interface {
	// UpdateChild changes one reference atomically. The function may be called more
	// than once.
	UpdateChild(ctx context.Context, id, childID string, change func(*ChildRef) error) (*ChildRef, error)
	// Children lists a session's references, oldest first.
	Children(ctx context.Context, id string) ([]ChildRef, error)
}

// Submissions answers calls that wait for people. They may come during a run,
// from any process, and do not touch the version.
type Submissions interface {
	// Submit decides a submission in the row of the session that owns the call:
	// exactly one of concurrent ones is accepted.
	Submit(ctx context.Context, id string, submission Submission) (SubmitOutcome, error)
	// PendingCalls lists a session's entries, oldest first; all of them, or those
	// still open.
	PendingCalls(ctx context.Context, id string, all bool) ([]Pending, error)
	// Own records, on a root session, which session of its tree owns calls.
	Own(ctx context.Context, rootID string, owned []Ownership) error
	// Owner finds the owner of a call of a tree; [ErrNotFound] if there is none.
	Owner(ctx context.Context, rootID, callID string) (Ownership, error)
	// Disown marks calls as completed: as soon as they are answered, and not only
	// when the answer is consumed. A late answer is told so, and a root that is about
	// to suspend because of such a call is refused; see [Change.Waits]. Calls that
	// nobody owns, or that are completed already, stay as they are.
	Disown(ctx context.Context, rootID string, callIDs []string) error
}

// Inboxes keeps messages to sessions and wakes. They may be written at any time
// and do not touch the version.
type Inboxes interface {
	// Send puts an entry into a session's inbox, once per entry id: also when it was
	// taken in since.
	Send(ctx context.Context, id string, entry InboxEntry) error
	// Inbox lists the entries not yet taken in, oldest first.
	Inbox(ctx context.Context, id string) ([]InboxEntry, error)
	// PutWake records that a session has something to go on with, once per child; a
	// later run of the child replaces the wake of an earlier one.
	PutWake(ctx context.Context, wake Wake) error
	// DeleteWake removes a wake of the store's tenant that was delivered, but not one
	// that a later run has put in its place.
	DeleteWake(ctx context.Context, wake Wake) error
}

// Lister lists sessions, and what waits in them.
type Lister interface {
	// List gives the sessions that match, newest first.
	List(ctx context.Context, query Query) (Page[Summary], error)
	// Waiting lists the calls that wait for people, of all sessions and at any depth, in
	// the order in which they began to wait. It is read from an index, by user where one
	// is asked for, so that a page costs what it lists.
	Waiting(ctx context.Context, query WaitingQuery) (Page[Waiting], error)
}

// Sweeps lists what a sweeper must see to, over all tenants: it serves the
// process, not a user. Each list is read from an index, so it costs what it
// finds; each is ordered, the longest due first, as [Due.Compare] and
// [Wake.Compare] say.
//
// A sweeper cannot always see to what it finds, so it goes on behind the last
// entry of a page, whether that is still due or not. A page shorter than asked
// for is the last one.
type Sweeps interface {
	// DueDeadlines lists calls whose deadline has passed without an answer.
	DueDeadlines(ctx context.Context, request SweepRequest) ([]Due, error)
	// ExpiredLeases lists sessions with a running run whose lease has expired or was
	// given back: due since then. Of a tree that shares a lease it lists the root
	// alone: only sessions without a [State.RootID], whether they have a parent or
	// not.
	ExpiredLeases(ctx context.Context, request SweepRequest) ([]Due, error)
	// ExpiredSessions lists sessions whose ExpiresAt has passed and that have not
	// ended.
	ExpiredSessions(ctx context.Context, request SweepRequest) ([]Due, error)
	// OwedCloses lists sessions whose run has ended and whose stream may not have:
	// due since the run's end.
	OwedCloses(ctx context.Context, request SweepRequest) ([]Due, error)
	// Wakes lists undelivered wakes.
	Wakes(ctx context.Context, request WakeRequest) ([]Wake, error)
}
