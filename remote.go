package helix

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Remote is an agent on another server, as the engine needs to reach it; package
// remote implements it over HTTP.
//
// A session of the remote is named by its caller and belongs to one call. Every
// method may be called again after a failure, or after a crash of the caller, and
// must then find what it did before. Failures are [*Error]: a retryable one means
// that nobody knows whether the remote did what it was asked, [ErrNotFound] that
// the remote has no such session. All methods return soon after ctx ends.
//
// A Remote that has a method Check() error is asked when the agent that calls it is
// checked. One with Equal(Remote) bool says itself which others are the same agent;
// otherwise those are that compare equal. One with Patience() time.Duration says how
// long it may be out of reach before a call of it fails; 0 leaves that to the
// runtime.
type Remote interface {
	// Start begins the session's first run. A repeat with the same request id gives
	// the run that the first one started.
	Start(ctx context.Context, start RemoteStart) (*RemoteRun, error)
	// Resume goes on with a session that was suspended, once per request id. It is
	// refused with [ErrAwaitingInput] if nothing was answered.
	Resume(ctx context.Context, sessionID, requestID string) (*RemoteRun, error)
	// Read yields the session's stream after sequence from, until a terminal item. A
	// reading that ends without one was cut off.
	Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error]
	// Status tells how the session stands.
	Status(ctx context.Context, sessionID string) (*RemoteStatus, error)
	// Submit answers a call of the session, or of an agent below it, that waits for a
	// person.
	Submit(ctx context.Context, sessionID string, submission Submission) (*Submitted, error)
	// Stop durably asks the remote to stop a run, and no other: [ErrStale] if it is
	// not the session's current one.
	Stop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error
}

// RemoteStart is what a remote's session begins with.
type RemoteStart struct {
	SessionID string
	RequestID string
	Message   session.Message
	// Metadata tells the remote where the call comes from.
	Metadata map[string]string
}

// The metadata of a session that a call of another server began.
const (
	MetaCallerSession = "helix.caller.session"
	MetaCallerAgent   = "helix.caller.agent"
)

// RemoteRun is a run that a remote has durably begun.
type RemoteRun struct {
	SessionID string
	RunID     string
}

// RemoteStatus is how a remote's session stands.
type RemoteStatus struct {
	RunID string
	// Status is that of the run. It is [Failed] for a session that was failed from
	// outside while it waited, for example because it expired.
	Status Status
	// Output and Text are what a completed run has to say, Error why one failed.
	Output json.RawMessage
	Text   string
	Error  *Error
	// Pending lists the calls that wait for people, of every depth.
	Pending []session.Pending
	// Sequence is the stream's last one.
	Sequence int64
}
