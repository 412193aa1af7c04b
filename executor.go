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

// Executor runs agents. All runtimes implement it with the same behaviour.
//
// It belongs to one tenant. Within the tenant, only Execute checks the user, against the
// one that the session belongs to; Submit has the tool's Approver. An application that
// takes session ids from its users compares [session.State].UserID itself for the other
// methods, or uses package server, which does.
type Executor interface {
	// Execute runs a turn: the first one of a new session, or the next one of an existing
	// session. It returns once the turn is durably stored, or with an error such as
	// [ErrAlreadyRunning] if the turn is refused.
	Execute(ctx context.Context, agent *Agent, in Input) (Run, error)
	// Resume continues a session that was interrupted, paused or suspended. A waiting
	// session consumes the answers submitted so far and suspends again if more are missing.
	// Without any answer Resume fails with [ErrAwaitingInput].
	Resume(ctx context.Context, sessionID string, opts ResumeOptions) (Run, error)
	// Retry runs a failed turn again from its last good checkpoint. It never repeats the
	// user's message.
	Retry(ctx context.Context, sessionID string, opts RetryOptions) (Run, error)
	// CanResume reports whether Resume would succeed now, and if not, why.
	CanResume(ctx context.Context, sessionID string) (*Resumability, error)
	// Interrupt asks the session's run to stop; it can be resumed. Abort ends the run
	// permanently. Both are durable, return at once, and work from any process.
	Interrupt(ctx context.Context, sessionID, reason string) error
	Abort(ctx context.Context, sessionID, reason string) error
	// Submit answers a call that waits for a person. It is durable and works from any
	// process, whether or not the session is running. Of concurrent answers exactly one is
	// accepted. sessionID is the session of the conversation, even if one of its sub-agents
	// waits.
	Submit(ctx context.Context, sessionID string, submission Submission) (*Submitted, error)
	// Waiting returns the calls of the session and its sub-agents, at any depth, that wait
	// for people now.
	Waiting(ctx context.Context, sessionID string) ([]session.Pending, error)
	// Attach returns a handle on the session's current or latest run.
	Attach(ctx context.Context, sessionID string) (Run, error)
	// Sessions returns the tenant's sessions for reading and deleting.
	Sessions() Sessions
	// Tenant returns the same executor for another tenant.
	Tenant(tenant string) Executor
}

// Run is a handle on one run. Any process can hold one.
type Run interface {
	// SessionID returns the id of the run's session, and ID that of the run.
	SessionID() string
	ID() string
	// Stream yields the run's chunks from the first one on, as they are written, and ends
	// with a terminal item. You may break out of the loop; calling Stream again starts over.
	// The call that finishes an agent with an output type is left out; [stream.Output]
	// carries its result.
	Stream(ctx context.Context) iter.Seq2[stream.Item, error]
	// Text yields the text of the agent's replies, piece by piece, as the model writes it.
	// It ends when the run ends; a failed run yields its error last. If an attempt fails and
	// is repeated, its text is yielded again; Stream distinguishes the attempts.
	Text(ctx context.Context) iter.Seq2[string, error]
	// Result waits for the run to end and returns its outcome. The error reports only that
	// waiting failed: a failed run is a Result whose Err is not nil.
	Result(ctx context.Context) (*Result, error)
	// Interrupt and Abort stop this run, as the methods of [Executor] do. They never
	// affect a later run of the session.
	Interrupt(ctx context.Context, reason string) error
	Abort(ctx context.Context, reason string) error
	// Resume and Retry continue the run's session, as the methods of [Executor] do. They
	// return a new run.
	Resume(ctx context.Context, opts ResumeOptions) (Run, error)
	Retry(ctx context.Context, opts RetryOptions) (Run, error)
}

// Resumability reports whether a session can be resumed.
type Resumability struct {
	OK bool
	// Reason is the error that Resume would return, if not OK.
	Reason   *Error
	Activity session.Activity
}

// Input starts a turn.
type Input struct {
	// SessionID is the session's id. Defaults to a new id.
	SessionID string
	// Message is the user's message. Messages are further ones that follow it.
	Message  session.Message
	Messages []session.Message
	User     User
	// RequestID makes the call idempotent: a repeated call attaches to the run that the
	// first call started.
	RequestID string
	Tags      []string
	Metadata  map[string]string
	// State is the initial state of a new session, as a value that encodes to a JSON object.
	// It is merged over the agent's defaults.
	State any
	// ExpiresAt is when a session that waits for an answer, or is interrupted, may be
	// cleaned up. A later turn with an ExpiresAt replaces it. A later turn without one
	// removes an expiry that has passed; if the agent has a SessionExpiry, that period
	// starts anew. An answer that was accepted moves it: the session may wait for as long
	// after the answer as it might after its run.
	ExpiresAt time.Time
	// Branch starts the session as a copy of another session.
	Branch *Branch
	// AbandonPending continues without the answers that the session waits for: its calls,
	// and those of its sub-agents, are answered as abandoned. Without it such a session
	// refuses a new turn.
	AbandonPending bool
	// Hooks are called for this run, after the agent's. They exist in this process only, so
	// a run that another process could recover refuses them unless EphemeralHooks is set.
	Hooks          *Hooks
	EphemeralHooks bool
}

// User identifies the owner of a session, or somebody who answers a call.
type User struct {
	ID     string
	Tenant string
}

// Branch selects what to copy: a checkpoint, the first MessageIndex messages, or, if both
// are unset, the latest state. In the latest state, finished calls of an unfinished step
// keep their results, and the others are answered with an error. The source must be a
// session of the same agent and, if the input names a user, of the same user.
type Branch struct {
	From         string
	Checkpoint   string
	MessageIndex *int
}

// UserText returns a user message.
func UserText(text string) session.Message { return session.UserText(text) }

// UserFile returns a user message with a file. url may be a data URL.
func UserFile(text, url, mediaType, filename string) session.Message {
	m := session.Message{Role: session.RoleUser}
	if text != "" {
		m.Parts = append(m.Parts, session.Text(text))
	}
	m.Parts = append(m.Parts, session.Part{Kind: session.PartFile, URL: url, MediaType: mediaType, Filename: filename})
	return m
}

// Hidden returns the message marked as visible to the model but not to people.
func Hidden(m session.Message) session.Message {
	meta := map[string]json.RawMessage{session.MetaHidden: json.RawMessage("true")}
	maps.Copy(meta, m.Metadata)
	m.Metadata = meta
	return m
}

// ResumeOptions are the options of Resume. The zero value continues where the session
// stopped.
//
// Resume releases a paused session. If its last run had not ended, that run continues; if
// it had completed or failed, the session returns to that status. In both cases no new run
// begins, and Resume returns the last run.
type ResumeOptions struct {
	// Agent is the agent's definition, for a runtime that does not know it yet. Defaults to
	// the registered agent with the session's agent name.
	Agent *Agent
	// Message is a new message to continue with.
	Message *session.Message
	// Checkpoint, if set, is the checkpoint to rewind the session to first.
	Checkpoint string
	// ReplaceInput removes the input messages of a turn if the checkpoint ends with them, so
	// that Message replaces them. Earlier messages stay, even if no checkpoint lies in
	// between.
	ReplaceInput bool
	// RequestID makes the call idempotent, as in [Input].
	RequestID string
	// Hooks and EphemeralHooks are as in [Input].
	Hooks          *Hooks
	EphemeralHooks bool
}

// RetryOptions are the options of Retry.
type RetryOptions struct {
	// Agent is the agent's definition, as in [ResumeOptions].
	Agent *Agent
	// RequestID makes the call idempotent, as in [Input].
	RequestID string
	// Hooks and EphemeralHooks are as in [Input].
	Hooks          *Hooks
	EphemeralHooks bool
}

// Status is the status of a run.
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

// Result is the outcome of a run.
type Result struct {
	SessionID string
	RunID     string
	Status    Status
	// Output is the structured output; see [Output].
	Output json.RawMessage
	// Text is the text of the last reply.
	Text  string
	Error *Error
	// Pending are the calls of the session and its sub-agents that wait for people. If it is
	// not empty, the run has suspended; see [Result.Waits].
	Pending []session.Pending
	// Children are the agents that a suspended run waits for. SuspendedStep is the id of the
	// reply whose calls wait.
	Children      []session.ChildRef
	SuspendedStep string
	Steps         int
	// Usage is the run's usage. If the run resumes or retries another, it includes the usage
	// of that run.
	Usage            session.Usage
	CompletionReason session.CompletionReason
	// FinishReason is why the last reply ended early: "length" or "content-filter". It is
	// empty if the model ended the reply itself.
	FinishReason string
}

// Err returns the error of a failed run, and nil for any other run.
func (r *Result) Err() error {
	if r.Status != Failed {
		return nil
	}
	if r.Error == nil {
		return session.ErrInternal.WithMessage("run %s has failed", r.RunID)
	}
	return r.Error
}

// Waits reports whether the run has suspended to wait for people or for other agents.
func (r *Result) Waits() bool { return r.Status.Suspended() }
