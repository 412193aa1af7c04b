package helix

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Remote is an agent on another server. Package remote implements it over HTTP.
//
// The caller chooses the id of a remote session, which belongs to one call. Every method
// may be called again after a failure or a crash of the caller, and must then find what it
// did before. Errors are of type [*Error]: a retryable one means that it is unknown whether
// the remote did what was requested; [ErrNotFound] means that the remote has no such
// session. All methods return soon after ctx ends.
//
// Three methods are optional. Check() error is called when the calling agent is checked.
// Equal(Remote) bool reports whether two values are the same agent; without it they are
// compared with ==. Patience() time.Duration returns how long the remote may be unreachable
// before a call fails; 0 selects the runtime's default.
type Remote interface {
	// Start begins the session's first run. A repeated call with the same request id returns
	// the run that the first one started.
	Start(ctx context.Context, start RemoteStart) (*RemoteRun, error)
	// Resume continues a suspended session, once per request id. It fails with
	// [ErrAwaitingInput] if no answer was submitted.
	Resume(ctx context.Context, sessionID, requestID string) (*RemoteRun, error)
	// Read yields the session's stream after sequence from, until a terminal item. If it
	// ends without one, the connection was lost.
	Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error]
	// Status returns the session's status.
	Status(ctx context.Context, sessionID string) (*RemoteStatus, error)
	// Submit answers a call of the session, or of an agent below it, that waits for a
	// person.
	Submit(ctx context.Context, sessionID string, submission Submission) (*Submitted, error)
	// Stop durably asks the remote to stop the given run. It fails with [ErrStale] if that
	// is not the session's current run.
	Stop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error
}

// RemoteStart starts a session on a remote.
type RemoteStart struct {
	SessionID string
	RequestID string
	Message   session.Message
	// Metadata identifies the calling session and agent.
	Metadata map[string]string
}

// Metadata keys of a session that another server started.
const (
	MetaCallerSession = "helix.caller.session"
	MetaCallerAgent   = "helix.caller.agent"
)

// RemoteRun identifies a run that a remote has durably started.
type RemoteRun struct {
	SessionID string
	RunID     string
}

// RemoteStatus is the status of a remote session.
type RemoteStatus struct {
	RunID string
	// Status is the status of the run. It is [Failed] if the session was failed from outside
	// while it waited, for example because it expired.
	Status Status
	// Output and Text are set for a completed run, Error for a failed one.
	Output json.RawMessage
	Text   string
	Error  *Error
	// Pending are the calls at any depth that wait for people.
	Pending []session.Pending
	// Sequence is the last sequence of the stream.
	Sequence int64
}
