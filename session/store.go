package session

import (
	"context"
	"time"
)

// Store persists sessions. It is composed of small interfaces, so that a consumer
// can ask for only what it needs; a backend implements all of them.
//
// Every method is scoped to one tenant and safe for concurrent use, by any number
// of processes where the backend is shared. Failures are *[Error]: [ErrNotFound],
// [ErrExists], [ErrStale] and related conflicts, [ErrInvalid] for bad input,
// [ErrCorrupt] for a row that cannot be decoded, and [ErrUnavailable], which is
// retryable, for every failure of the backend.
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
	Tasks
	Lister
	Sweeps

	// Tenant returns the same store scoped to another tenant.
	Tenant(tenant string) Store
}

// Lifecycle reads, copies and deletes sessions. [StartRun] and [Create] create
// them.
type Lifecycle interface {
	Exists(ctx context.Context, id string) (bool, error)
	// Load reads a session's document with its custom state, open pending calls and
	// awaited children, in one consistent view.
	Load(ctx context.Context, id string) (*State, error)
	// Clone copies messages and custom state into a new session, atomically. It copies
	// no runs, calls, pending entries or child references; the copy has one
	// checkpoint. A checkpoint that does not belong to the source is [ErrNotFound].
	Clone(ctx context.Context, clone *Clone) (*State, error)
	// Delete removes a session and everything that belongs to it, including its stream
	// and the whole tree of its local children, and returns the ids of all deleted
	// sessions. Deleting a session that does not exist is [ErrNotFound].
	Delete(ctx context.Context, id string) ([]string, error)
}

// Documents writes a session outside a run. Both methods raise the version and are
// refused with [ErrAlreadyRunning] while the current run is running, even after
// its lease has expired or was released, except an edit of metadata and child
// references alone; see [Edit.AllowedDuringRun], [Edit.Guard] and
// [StatusChange.CheckIdle].
type Documents interface {
	// Edit applies an edit. [Create], [Save], [Merge], [AppendMessages] and others are
	// functions over it.
	Edit(ctx context.Context, edit *Edit) (*Edited, error)
	// SetStatus changes the status if the current one is expected, and otherwise
	// reports what it found.
	SetStatus(ctx context.Context, id string, change StatusChange) (StatusResult, error)
}

// Turns contains the operations of a turn.
type Turns interface {
	// StartRun opens a turn; see [StartRun.Guard] for when it is refused. If the
	// session already has a run with the same request id, that run is returned and
	// nothing is written.
	StartRun(ctx context.Context, start *StartRun) (*Started, error)
	// Commit advances a turn atomically, in one round trip whose cost does not
	// depend on the session's length.
	Commit(ctx context.Context, commit *Commit) (*Committed, error)
	// TakeOver claims a run whose lease has expired or was released. Of concurrent
	// takeovers exactly one succeeds. See [TakenOver.Attempts] for what it counts.
	TakeOver(ctx context.Context, take *TakeOver) (*TakenOver, error)
	// CloseRun releases the lease and, when settled is set, records that the stream
	// has been closed. It returns [ErrStale] if the lease was lost.
	//
	// If the run has not ended, other processes may take it over at once; see
	// [Sweeps.ExpiredLeases]. Together with a root's lease, the leases of all sessions
	// of its tree with the same owner are released.
	CloseRun(ctx context.Context, id string, fence Fence, settled bool) error
	// SettleClose records that the stream of an ended run has been closed, by
	// whichever process closed it. It does nothing if another run has started since.
	SettleClose(ctx context.Context, id, runID string) error
	// Now returns the time of the store's clock, which leases and deadlines use.
	Now(ctx context.Context) (time.Time, error)
}

// Calls persists the calls of steps in flight.
type Calls interface {
	// Claim marks an open call as begun and returns it. A call that was already begun
	// or settled is returned as it was found, with fresh false. version and fence must
	// match those of the session.
	Claim(ctx context.Context, id string, version int64, fence Fence, messageID, callID string) (call Call, fresh bool, err error)
	// Settle records the result and the writes of a begun or open call. The first
	// writer wins; every caller gets the row that results.
	Settle(ctx context.Context, id string, fence Fence, call Call) (Call, error)
	// Ask records that a call asks a person a question; see [Ask.Apply]. A question that
	// was recorded before changes nothing. The fence must match that of the session.
	Ask(ctx context.Context, id string, fence Fence, ask Ask) error
	// Calls lists the rows of an assistant message, in call order.
	Calls(ctx context.Context, id, messageID string) ([]Call, error)
	// CleanCalls deletes rows that no step will ever use: those older than before
	// whose session has ended or whose transcript has continued past their message. It
	// returns how many. The task of helix.TaskOptions.CleanCalls calls it.
	CleanCalls(ctx context.Context, before time.Time) (int, error)
}

// Stops persists requests to stop a run.
type Stops interface {
	// RequestStop stores a request to stop a run and returns the request in effect: an
	// abort overrides an interrupt, and a repeated request changes nothing. It returns
	// [ErrStale] if the run is not the session's current one or has ended.
	RequestStop(ctx context.Context, id string, stop Stop) (Stop, error)
	// StopRequest returns the request to stop a run, or nil.
	StopRequest(ctx context.Context, id, runID string) (*Stop, error)
}

// Transcripts reads messages. [AppendMessages] and [TruncateMessages] write them
// outside a run.
type Transcripts interface {
	// Messages lists a session's messages, oldest first. It reads at most a few
	// messages that exceed [PageRequest.MaxBytes].
	Messages(ctx context.Context, id string, page PageRequest) (Page[Message], error)
	// AllMessages reads the whole transcript in one consistent view.
	AllMessages(ctx context.Context, id string) ([]Message, error)
	// MessagesFrom reads the messages from a number on, counted from 1, in one
	// consistent view. There are none after the end of the transcript. Its cost depends
	// only on what it returns.
	MessagesFrom(ctx context.Context, id string, number int) ([]Message, error)
}

// Runs reads run records.
type Runs interface {
	Run(ctx context.Context, id, runID string) (*Run, error)
	// CurrentRun returns the latest run, or [ErrNotFound] if the session has never
	// run.
	CurrentRun(ctx context.Context, id string) (*Run, error)
	// RunByRequest finds the run that a request started.
	RunByRequest(ctx context.Context, id, requestID string) (*Run, error)
	// Runs lists a session's runs, oldest first.
	Runs(ctx context.Context, id string, page PageRequest) (Page[Run], error)
}

// Checkpoints reads checkpoints. [CreateCheckpoint] writes one outside a run.
type Checkpoints interface {
	// Checkpoint reads a checkpoint with its custom state. A checkpoint of another
	// session is [ErrNotFound].
	Checkpoint(ctx context.Context, id, checkpointID string) (*Checkpoint, error)
	// LatestCheckpoint returns the checkpoint that was written last and not undone by
	// a rewind. It need not be the one with the highest step: steps restart with every
	// turn.
	LatestCheckpoint(ctx context.Context, id string) (*Checkpoint, error)
	// Checkpoints lists checkpoints, newest first, including undone ones, without
	// their custom state.
	Checkpoints(ctx context.Context, id string, page PageRequest) (Page[Checkpoint], error)
}

// Children persists references to sub-agents' sessions. They may be written during
// a run, also by [PutChildren], and do not change the version.
type Children interface {
	// UpdateChild changes one reference atomically. It may call change more than once.
	UpdateChild(ctx context.Context, id, childID string, change func(*ChildRef) error) (*ChildRef, error)
	// Children lists a session's references, oldest first.
	Children(ctx context.Context, id string) ([]ChildRef, error)
}

// Submissions answers calls that wait for people. Answers may arrive during a run,
// from any process, and do not change the version.
type Submissions interface {
	// Submit decides a submission in the row of the session that owns the call: of
	// concurrent submissions exactly one is accepted.
	Submit(ctx context.Context, id string, submission Submission) (SubmitOutcome, error)
	// PendingCalls lists a session's entries, oldest first: all of them, or only the
	// open ones.
	PendingCalls(ctx context.Context, id string, all bool) ([]Pending, error)
	// Own records, on a root session, which sessions of its tree own calls.
	Own(ctx context.Context, rootID string, owned []Ownership) error
	// Owner returns the owner of a call of a tree, or [ErrNotFound].
	Owner(ctx context.Context, rootID, callID string) (Ownership, error)
	// Disown marks calls as completed as soon as they are answered, and not only when
	// the answer is consumed. A later answer then gets "already completed", and a root
	// that is about to suspend because of such a call is refused; see [Change.Waits].
	// Calls without an owner and calls that are already completed do not change.
	Disown(ctx context.Context, rootID string, callIDs []string) error
}

// Inboxes persists messages to sessions, and wakes. They may be written at any
// time and do not change the version.
type Inboxes interface {
	// Send adds an entry to a session's inbox, once per entry id, even if the entry
	// has been consumed since.
	Send(ctx context.Context, id string, entry InboxEntry) error
	// Inbox lists the entries that no commit has consumed, oldest first.
	Inbox(ctx context.Context, id string) ([]InboxEntry, error)
	// PutWake records that a session can continue, once per child; the wake of a later
	// run of the child replaces that of an earlier one.
	PutWake(ctx context.Context, wake Wake) error
	// DeleteWake removes a delivered wake of the store's tenant, unless a later run
	// has replaced it.
	DeleteWake(ctx context.Context, wake Wake) error
}

// Tasks persists work that follows commits; see [Change.Tasks]. The store is the
// queue: a process claims a task that [Sweeps.DueTasks] lists, renews its hold while
// it carries the task out, and finishes it. If the process dies, the hold expires
// and the task is due again.
//
// Methods that name a task return [ErrNotFound] if it does not exist, and those that
// need a hold return [ErrStale] if somebody else has it. A refused claim writes
// nothing.
type Tasks interface {
	// PutTasks adds tasks outside a commit, all or none; see [CheckPutTasks]. A task
	// whose id exists stays as it is. The session that they name must exist, else the
	// result is [ErrNotFound].
	PutTasks(ctx context.Context, tasks []Task) error
	// ClaimTask takes hold of a task that is due and returns it. Of concurrent claims
	// exactly one succeeds. See [TaskClaim.Apply].
	ClaimTask(ctx context.Context, claim TaskClaim) (*Task, error)
	// RenewTask extends a hold, by ttl from now.
	RenewTask(ctx context.Context, ref TaskRef, fence TaskFence, ttl time.Duration) error
	// FinishTask ends a hold. See [TaskResult.Apply].
	FinishTask(ctx context.Context, ref TaskRef, fence TaskFence, result TaskResult) error
	// ListTasks lists the tenant's tasks, for operators.
	ListTasks(ctx context.Context, query TaskQuery) (Page[Task], error)
	// RetryTask makes a task due at once. See [Task.Retry].
	RetryTask(ctx context.Context, ref TaskRef) error
	// DropTask removes a task, also one that somebody carries out. If before is set, it
	// is refused with [ErrStale] unless the task was given up before that.
	DropTask(ctx context.Context, ref TaskRef, before time.Time) error
}

// Lister lists sessions, and calls that wait in them.
type Lister interface {
	// List returns the sessions that match, newest first.
	List(ctx context.Context, query Query) (Page[Summary], error)
	// Waiting lists the calls that wait for people, of all sessions and at any depth,
	// in the order in which they began to wait. Stores read it from an index, by user
	// if the query names one, so that the cost of a page depends only on what it
	// lists.
	Waiting(ctx context.Context, query WaitingQuery) (Page[Waiting], error)
}

// Sweeps lists what a sweep has to handle, over all tenants: it serves the
// process, not a user. Each list is read from an index, so its cost depends on
// what it finds, and each is ordered by [Due.Compare] or [Wake.Compare], the
// longest due first.
//
// A sweep cannot always handle what it finds, so the next page starts after the
// last entry of the previous one, whether that entry is still due or not. A page
// shorter than requested is the last one.
type Sweeps interface {
	// DueDeadlines lists calls whose deadline has passed without an answer.
	DueDeadlines(ctx context.Context, request SweepRequest) ([]Due, error)
	// ExpiredLeases lists sessions with a running run whose lease has expired or was
	// released; they are due since then. Of a tree that shares a lease it lists only
	// the root: it considers only sessions without a [State.RootID], whether they have
	// a parent or not.
	ExpiredLeases(ctx context.Context, request SweepRequest) ([]Due, error)
	// ExpiredSessions lists sessions whose ExpiresAt has passed and that have not
	// ended.
	ExpiredSessions(ctx context.Context, request SweepRequest) ([]Due, error)
	// PendingCloses lists sessions whose run has ended and whose stream is not known to
	// be closed; they are due since the run's end.
	PendingCloses(ctx context.Context, request SweepRequest) ([]Due, error)
	// Wakes lists undelivered wakes.
	Wakes(ctx context.Context, request WakeRequest) ([]Wake, error)
	// DueTasks lists tasks that can be claimed: of each tenant the one that has been
	// due longest, in the order of the tenants' names. So whoever claims what it lists,
	// page after page, serves all tenants alike, however much one of them has to do.
	DueTasks(ctx context.Context, request TaskRequest) ([]Task, error)
	// OldTasks lists tasks that became due, or were given up, before a time, in the
	// order of [Task.CompareOld].
	OldTasks(ctx context.Context, request OldTaskRequest) ([]Task, error)
}
