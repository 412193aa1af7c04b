package wire

import (
	"encoding/json"
	"time"

	"github.com/helixagents/helix/session"
)

// Start is the body of POST /start: it begins a turn, on a new session or on one
// that exists.
type Start struct {
	// SessionID names the session; one is minted when empty.
	SessionID string `json:"sessionId,omitempty"`
	// AgentType is the agent's name.
	AgentType string `json:"agentType"`
	// Message is what the turn begins with: a text, or a list of the user's messages.
	Message Messages `json:"message"`
	// State is the initial state of a new session, laid over the agent's defaults. A
	// user may set the keys that the agent declares as open, an operator all of them.
	State map[string]json.RawMessage `json:"state,omitempty"`
	// Metadata and Tags are labels to find a new session by.
	Metadata map[string]string `json:"metadata,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	// RequestID makes the request idempotent: a repeat answers with the run that the
	// first one started.
	RequestID string `json:"requestId,omitempty"`
	// ExpiresAt is when a session that waits for somebody, or is interrupted, may be
	// cleaned up; for a session that exists it moves its expiry.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// AbandonPending goes on without the answers that the session waits for.
	AbandonPending bool `json:"abandonPending,omitempty"`
}

// Resume is the body of POST /resume: it continues a session that was interrupted,
// paused or suspended.
type Resume struct {
	SessionID string `json:"sessionId"`
	// Message goes on with a new message: a text, or a list with one message.
	Message Messages `json:"message,omitempty"`
	// CheckpointID first rewinds the session to that checkpoint.
	CheckpointID string `json:"checkpointId,omitempty"`
	RequestID    string `json:"requestId,omitempty"`
}

// Started answers POST /start, /resume and /sessions/{id}/retry: a run that is
// durably open.
type Started struct {
	SessionID string `json:"sessionId"`
	// StreamID names the stream of the run's chunks.
	StreamID string `json:"streamId"`
	RunID    string `json:"runId"`
	// StartSequence is where the run's chunks begin: they come after it.
	StartSequence int64 `json:"startSequence"`
}

// Stop is the body of POST /interrupt and POST /abort.
type Stop struct {
	SessionID string `json:"sessionId"`
	// RunID, if set, is the only run to stop: the request is refused if the session's
	// current run is another.
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Stopping answers a stop: it is recorded, and the run ends at its next boundary.
type Stopping struct {
	SessionID string           `json:"sessionId"`
	RunID     string           `json:"runId"`
	Stop      session.StopKind `json:"stop"`
}

// Status answers GET /status.
type Status struct {
	SessionID string         `json:"sessionId"`
	AgentType string         `json:"agentType"`
	Status    session.Status `json:"status"`
	// Activity is what the session is doing now: new, running, waiting, stopped, failed or
	// done.
	Activity  session.Activity  `json:"activity"`
	RunID     string            `json:"runId,omitempty"`
	RunStatus session.RunStatus `json:"runStatus,omitempty"`
	Turn      int               `json:"turn"`
	StepCount int               `json:"stepCount"`
	StreamID  string            `json:"streamId"`
	// StartSequence is where the current run's chunks begin, Sequence the stream's
	// latest.
	StartSequence int64 `json:"startSequence"`
	Sequence      int64 `json:"sequence"`
	// AwaitingClientTool is set while calls wait for people: those in Pending, of the
	// session and of every agent below it.
	AwaitingClientTool bool               `json:"awaitingClientTool"`
	Pending            []session.Pending  `json:"pending"`
	AwaitingChildren   []session.ChildRef `json:"awaitingChildren"`
	// Output and Text are the latest run's output and last reply.
	Output json.RawMessage `json:"output,omitempty"`
	Text   string          `json:"text,omitempty"`
	// FinishReason is why that reply ended, if the model did not end it by itself: "length"
	// or "content-filter".
	FinishReason string `json:"finishReason,omitempty"`
	// Error tells how the latest run failed, if it did.
	Error *Error        `json:"error,omitempty"`
	Usage session.Usage `json:"usage"`
}
