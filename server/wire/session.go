package wire

import (
	"github.com/helixagents/helix/session"
)

// Sessions answers GET /sessions.
type Sessions = session.Page[session.Summary]

// MessagePage answers GET /sessions/{id}/messages, oldest first.
type MessagePage = session.Page[session.Message]

// RunPage answers GET /sessions/{id}/runs, oldest first.
type RunPage = session.Page[session.Run]

// CheckpointPage answers GET /sessions/{id}/checkpoints, newest first and without
// their state.
type CheckpointPage = session.Page[session.Checkpoint]

// PendingCalls answers GET /sessions/{id}/pending: the calls of the session and of
// the agents below it that wait for people.
type PendingCalls struct {
	Items []session.Pending `json:"items"`
}

// Waiting answers GET /waiting: the calls of all sessions that wait for people.
type Waiting = session.Page[session.Waiting]

// Snapshot answers GET /sessions/{id}/snapshot: the session as it was at its latest
// checkpoint. Reading the stream on from Sequence shows all that came after it and
// nothing of what came before.
type Snapshot struct {
	SessionID    string            `json:"sessionId"`
	AgentType    string            `json:"agentType"`
	Status       session.Status    `json:"status"`
	RunID        string            `json:"runId,omitempty"`
	StreamID     string            `json:"streamId"`
	CheckpointID string            `json:"checkpointId,omitempty"`
	Sequence     int64             `json:"sequence"`
	Messages     []session.Message `json:"messages"`
	// Earlier is how many messages come before these. They are left out of a session that
	// is larger than a page of messages may be; GET /sessions/{id}/messages has them.
	Earlier int              `json:"earlier,omitempty"`
	State   session.Document `json:"state"`
}

// Branch is the body of POST /sessions/{id}/branch: a turn on a copy of the
// session.
type Branch struct {
	// SessionID names the copy; one is minted when empty.
	SessionID string `json:"sessionId,omitempty"`
	// CheckpointID, or the first MessageIndex messages, is what is copied; with
	// neither, everything. Of a step that is not over, calls that are done keep their
	// results, and the others are answered with an error.
	CheckpointID string `json:"checkpointId,omitempty"`
	MessageIndex *int   `json:"messageIndex,omitempty"`
	// Message begins a turn on the copy. Without one nothing is run, and the copy
	// waits for its next turn.
	Message   Messages `json:"message,omitempty"`
	RequestID string   `json:"requestId,omitempty"`
}

// Branched answers a branch. Its run is there if the branch began with a message.
type Branched struct {
	SessionID     string `json:"sessionId"`
	StreamID      string `json:"streamId"`
	RunID         string `json:"runId,omitempty"`
	StartSequence int64  `json:"startSequence"`
}

// Retry is the body of POST /sessions/{id}/retry: the failed turn again, from its
// last good checkpoint.
type Retry struct {
	RequestID string `json:"requestId,omitempty"`
}

// Pause is the body of POST /sessions/{id}/pause: nothing runs the session until it
// is resumed.
type Pause struct {
	Reason string `json:"reason,omitempty"`
}

// Paused answers a pause.
type Paused struct {
	SessionID string         `json:"sessionId"`
	Status    session.Status `json:"status"`
	// Was is the status before.
	Was session.Status `json:"was"`
}

// Deleted answers DELETE /sessions/{id}.
type Deleted struct {
	// Sessions names the session and those of its sub-agents, which went with it.
	Sessions []string `json:"sessions"`
}
