package helix

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Executor runs agents. Every runtime offers one, and they behave the same.
type Executor interface {
	// Execute runs a turn: on a new session, or, when the session exists, as its
	// next turn. It returns once the turn is durably open; refusals, such as
	// [ErrAlreadyRunning], are returned here.
	Execute(ctx context.Context, agent *Agent, in Input) (Run, error)
	// Resume continues a session that was interrupted, paused or suspended. One that
	// waits takes in the answers that are there, and suspends again if more are
	// missing; with none it is refused with [ErrAwaitingInput].
	Resume(ctx context.Context, sessionID string, opts ResumeOptions) (Run, error)
	// Retry runs a failed turn again from its last good checkpoint. It never adds
	// the user's message again.
	Retry(ctx context.Context, sessionID string, opts RetryOptions) (Run, error)
	// CanResume tells whether Resume would be accepted now, and if not, why.
	CanResume(ctx context.Context, sessionID string) (*Resumability, error)
	// Interrupt asks the session's run to stop softly: it can be resumed. Abort ends
	// it for good. Both are durable, return at once, and work from any process.
	Interrupt(ctx context.Context, sessionID, reason string) error
	Abort(ctx context.Context, sessionID, reason string) error
	// Submit answers a call that waits for a person. It is durable, works from any
	// process, and needs none that runs the session: of concurrent answers exactly one
	// is accepted. The session is that of the conversation, also where one of its
	// sub-agents waits.
	Submit(ctx context.Context, sessionID string, submission Submission) (*Submitted, error)
	// Waiting lists the calls of the session and of its sub-agents, at any depth, that
	// wait for people now.
	Waiting(ctx context.Context, sessionID string) ([]session.Pending, error)
	// Attach gives a handle on the session's current or latest run.
	Attach(ctx context.Context, sessionID string) (Run, error)
	// Sessions returns the tenant's sessions for reading and deleting.
	Sessions() Sessions
	// Tenant is the same executor scoped to another tenant.
	Tenant(tenant string) Executor
}

// Run is a handle on one run. It may be held by any process.
type Run interface {
	SessionID() string
	ID() string
	// Stream yields the run's chunks, from its first on, as they come, and ends with
	// a terminal item. Breaking out of the loop is fine; calling it again starts
	// over. The call with which an agent that has an output type finishes is left out;
	// [stream.Output] is what it gives.
	Stream(ctx context.Context) iter.Seq2[stream.Item, error]
	// Text yields the text of the agent's replies, piece by piece, as the model writes it.
	// It ends when the run ends; a run that has failed yields its error last. The text of
	// an attempt that failed and is repeated is yielded again: Stream tells them apart.
	Text(ctx context.Context) iter.Seq2[string, error]
	// Result waits until the run has ended and returns how. The error is about the
	// waiting: a run that has failed is a Result whose Err is not nil.
	Result(ctx context.Context) (*Result, error)
	Interrupt(ctx context.Context, reason string) error
	Abort(ctx context.Context, reason string) error
	// Resume and Retry continue the run's session, as those of [Executor] do. The run
	// that they give is another one.
	Resume(ctx context.Context, opts ResumeOptions) (Run, error)
	Retry(ctx context.Context, opts RetryOptions) (Run, error)
}

// Resumability says whether a session can be resumed.
type Resumability struct {
	OK bool
	// Reason is the error that Resume would refuse with, if not OK.
	Reason *Error
	// Activity is what the session is doing.
	Activity session.Activity
}

// Input is what a turn begins with.
type Input struct {
	// SessionID names the session; a new id is minted when empty.
	SessionID string
	// Message is the user's message; Messages are more of them, after it.
	Message  session.Message
	Messages []session.Message
	User     User
	// RequestID makes the call idempotent: a repeat attaches to the run that the
	// first one started.
	RequestID string
	Tags      []string
	Metadata  map[string]string
	// State is the initial state of a new session: a value that encodes as a JSON
	// object. It is laid over the agent's defaults.
	State any
	// ExpiresAt is when a session that waits for somebody, or is interrupted, may be
	// cleaned up. It holds until a later turn: one that gives an ExpiresAt moves it, and
	// one that gives none removes an expiry that has passed, or, if the agent has a
	// SessionExpiry, has that count anew.
	ExpiresAt time.Time
	// Branch starts the session as a copy of another.
	Branch *Branch
	// AbandonPending goes on without the answers that the session waits for, which is
	// refused otherwise: its calls, and those of its sub-agents, are answered as
	// abandoned.
	AbandonPending bool
	// Hooks are called for this run, after the agent's. They live in this process
	// only, so a run that another could take over refuses them unless
	// EphemeralHooks accepts that.
	Hooks          *Hooks
	EphemeralHooks bool
}

// User is who a session belongs to.
type User struct {
	ID     string
	Tenant string
}

// Branch is where a session's copy is taken from: a checkpoint, or the first
// MessageIndex messages, or, with neither, the latest state. In the latter, calls of a
// step that is not over keep their results if they are done; the others are answered
// with an error. The source must be a session of the same agent and, if the input names
// a user, not that of another.
type Branch struct {
	From         string
	Checkpoint   string
	MessageIndex *int
}

// UserText is a message from the user.
func UserText(text string) session.Message { return session.UserText(text) }

// UserFile is a message from the user with a file: url may be a data URL.
func UserFile(text, url, mediaType, filename string) session.Message {
	m := session.Message{Role: session.RoleUser}
	if text != "" {
		m.Parts = append(m.Parts, session.Text(text))
	}
	m.Parts = append(m.Parts, session.Part{Kind: session.PartFile, URL: url, MediaType: mediaType, Filename: filename})
	return m
}

// Hidden marks a message as one the model sees and people do not.
func Hidden(m session.Message) session.Message {
	meta := map[string]json.RawMessage{session.MetaHidden: json.RawMessage("true")}
	maps.Copy(meta, m.Metadata)
	m.Metadata = meta
	return m
}

// ResumeOptions says how to resume. The zero value continues where the session
// stopped.
//
// A session that was paused is no longer held then. If its last run was not over, that
// run goes on; if it had completed or failed, there is nothing to go on with, and the
// session is again what it was. In both cases no new run begins: what Resume gives is
// that last run.
type ResumeOptions struct {
	// Agent is the agent's definition, for a runtime that does not know it yet. Defaults
	// to the one that the runtime knows by the session's agent name.
	Agent *Agent
	// Message is a new message to continue with.
	Message *session.Message
	// Checkpoint first rewinds the session to that checkpoint.
	Checkpoint string
	// ReplaceInput drops the messages that a turn began with, if the checkpoint ends in
	// them, so that Message takes their place. What came before them stays, also where no
	// checkpoint lies in between.
	ReplaceInput bool
	// RequestID makes the call idempotent, as in [Input].
	RequestID      string
	Hooks          *Hooks
	EphemeralHooks bool
}

// RetryOptions are the options of Retry.
type RetryOptions struct {
	// Agent is the agent's definition, as in [ResumeOptions].
	Agent *Agent
	// RequestID makes the call idempotent, as in [Input].
	RequestID      string
	Hooks          *Hooks
	EphemeralHooks bool
}

// Status is how a run stands.
type Status = session.RunStatus

// The statuses of a run.
const (
	Running                   = session.RunRunning
	Completed                 = session.RunCompleted
	Failed                    = session.RunFailed
	Interrupted               = session.RunInterrupted
	SuspendedClientTool       = session.RunSuspendedClientTool
	SuspendedAwaitingChildren = session.RunSuspendedChildren
	SuspendedStepPartial      = session.RunSuspendedPartial
)

// Result is how a run ended.
type Result struct {
	SessionID string
	RunID     string
	Status    Status
	// Output is the structured output; see [Output].
	Output json.RawMessage
	// Text is the last reply's text.
	Text  string
	Error *Error
	// Pending lists the calls that wait for people, of the session and its sub-agents. If
	// it is not empty, the run has suspended; see [Result.Waits].
	Pending []session.Pending
	// Children are the agents that a suspended run waits for, and SuspendedStep is the
	// id of the reply whose calls wait.
	Children      []session.ChildRef
	SuspendedStep string
	Steps         int
	// Usage is what the run used and, if it resumes or retries another, what that one
	// used before.
	Usage            session.Usage
	CompletionReason session.CompletionReason
	// FinishReason is why the last reply ended, if the model did not end it by itself:
	// "length" or "content-filter".
	FinishReason string
}

// Err returns the error of a failed run, and nil for every other run.
func (r *Result) Err() error {
	if r.Status != Failed {
		return nil
	}
	if r.Error == nil {
		return session.ErrInternal.WithMessage("run %s has failed", r.RunID)
	}
	return r.Error
}

// Waits reports whether the run has suspended because it waits for people or for other
// agents, whatever it waits for and whether other calls of the step are done.
func (r *Result) Waits() bool { return r.Status.Suspended() }
