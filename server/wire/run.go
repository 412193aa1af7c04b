package wire

import (
	"encoding/json"
	"time"

	"github.com/helixagents/helix/session"
)

// Start is the body of POST /start, which starts a turn on a new or an existing session.
type Start struct {
	// SessionID is the session's id. Defaults to a new id.
	SessionID string `json:"sessionId,omitempty"`
	// AgentType is the agent's name.
	AgentType string `json:"agentType"`
	// Message starts the turn: a string, or a list of the user's messages.
	Message Messages `json:"message"`
	// State is the initial state of a new session, merged over the agent's defaults. A user
	// may set the keys that the agent declares as open, an operator all keys.
	State map[string]json.RawMessage `json:"state,omitempty"`
	// Metadata and Tags are labels of a new session, for filtering.
	Metadata map[string]string `json:"metadata,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	// RequestID makes the request idempotent: a repeated request returns the run that the
	// first one started.
	RequestID string `json:"requestId,omitempty"`
	// ExpiresAt is when a session that waits for an answer, or is interrupted, may be
	// cleaned up. For an existing session it replaces the expiry.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// AbandonPending continues without the answers that the session waits for.
	AbandonPending bool `json:"abandonPending,omitempty"`
}

// Resume is the body of POST /resume, which continues a session that was interrupted,
// paused or suspended.
type Resume struct {
	SessionID string `json:"sessionId"`
	// Message continues with a new message: a string, or a list with one message.
	Message Messages `json:"message,omitempty"`
	// CheckpointID is the checkpoint to rewind the session to first.
	CheckpointID string `json:"checkpointId,omitempty"`
	RequestID    string `json:"requestId,omitempty"`
}

// Started is the response to POST /start, /resume and /sessions/{id}/retry: a durably
// stored run.
type Started struct {
	SessionID string `json:"sessionId"`
	// StreamID is the id of the stream with the run's chunks.
	StreamID string `json:"streamId"`
	RunID    string `json:"runId"`
	// StartSequence is the sequence after which the run's chunks begin.
	StartSequence int64 `json:"startSequence"`
}

// Stop is the body of POST /interrupt and POST /abort.
type Stop struct {
	SessionID string `json:"sessionId"`
	// RunID, if set, is the run to stop: the request is refused if it is not the session's
	// current run.
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Stopping is the response to a stop request. The request is stored, and the run ends at
// its next boundary.
type Stopping struct {
	SessionID string           `json:"sessionId"`
	RunID     string           `json:"runId"`
	Stop      session.StopKind `json:"stop"`
}

// Status is the response to GET /status.
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
	// StartSequence is the sequence after which the current run's chunks begin, Sequence the
	// latest one of the stream.
	StartSequence int64 `json:"startSequence"`
	Sequence      int64 `json:"sequence"`
	// AwaitingClientTool is set while calls of the session or of an agent below it wait for
	// people. Pending lists them.
	AwaitingClientTool bool               `json:"awaitingClientTool"`
	Pending            []session.Pending  `json:"pending"`
	AwaitingChildren   []session.ChildRef `json:"awaitingChildren"`
	// Output and Text are the latest run's output and last reply.
	Output json.RawMessage `json:"output,omitempty"`
	Text   string          `json:"text,omitempty"`
	// FinishReason is why that reply ended early: "length" or "content-filter". It is empty
	// if the model ended the reply itself.
	FinishReason string `json:"finishReason,omitempty"`
	// Error is the error of the latest run, if it failed.
	Error *Error        `json:"error,omitempty"`
	Usage session.Usage `json:"usage"`
}
