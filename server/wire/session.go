package wire

import (
	"time"

	"github.com/helixagents/helix/session"
)

// Sessions is the response to GET /sessions.
type Sessions = session.Page[session.Summary]

// MessagePage is the response to GET /sessions/{id}/messages, oldest first.
type MessagePage = session.Page[session.Message]

// RunPage is the response to GET /sessions/{id}/runs, oldest first.
type RunPage = session.Page[session.Run]

// CheckpointPage is the response to GET /sessions/{id}/checkpoints, newest first and
// without custom state.
type CheckpointPage = session.Page[session.Checkpoint]

// PendingCalls is the response to GET /sessions/{id}/pending: the calls of the session and
// of the agents below it that wait for people.
type PendingCalls struct {
	Items []session.Pending `json:"items"`
}

// Waiting is the response to GET /waiting: the calls of all sessions that wait for people.
type Waiting = session.Page[session.Waiting]

// Snapshot is the response to GET /sessions/{id}/snapshot: the session at its latest
// checkpoint. Reading the stream from Sequence yields everything after that checkpoint and
// nothing before it.
type Snapshot struct {
	SessionID    string            `json:"sessionId"`
	AgentType    string            `json:"agentType"`
	Status       session.Status    `json:"status"`
	RunID        string            `json:"runId,omitempty"`
	StreamID     string            `json:"streamId"`
	CheckpointID string            `json:"checkpointId,omitempty"`
	Sequence     int64             `json:"sequence"`
	Messages     []session.Message `json:"messages"`
	// Earlier is the number of messages before these. They are omitted if the session is
	// larger than a page of messages; GET /sessions/{id}/messages returns them.
	Earlier int                 `json:"earlier,omitempty"`
	State   session.CustomState `json:"state"`
}

// Branch is the body of POST /sessions/{id}/branch, which starts a turn on a copy of the
// session.
type Branch struct {
	// SessionID is the id of the copy. Defaults to a new id.
	SessionID string `json:"sessionId,omitempty"`
	// CheckpointID, or the first MessageIndex messages, selects what is copied. Defaults to
	// everything. Finished calls of an unfinished step keep their results, and the others
	// are answered with an error.
	CheckpointID string `json:"checkpointId,omitempty"`
	MessageIndex *int   `json:"messageIndex,omitempty"`
	// Message starts a turn on the copy. Without one the session is only copied.
	Message   Messages `json:"message,omitempty"`
	RequestID string   `json:"requestId,omitempty"`
}

// Branched is the response to a branch. It contains a run if the branch has a message.
type Branched struct {
	SessionID     string `json:"sessionId"`
	StreamID      string `json:"streamId"`
	RunID         string `json:"runId,omitempty"`
	StartSequence int64  `json:"startSequence"`
}

// Retry is the body of POST /sessions/{id}/retry, which retries the failed turn from its
// last good checkpoint.
type Retry struct {
	RequestID string `json:"requestId,omitempty"`
}

// Pause is the body of POST /sessions/{id}/pause. A paused session does not run until it is
// resumed.
type Pause struct {
	Reason string `json:"reason,omitempty"`
}

// Paused is the response to a pause.
type Paused struct {
	SessionID string         `json:"sessionId"`
	Status    session.Status `json:"status"`
	// Was is the status before the pause.
	Was session.Status `json:"was"`
}

// MaxCompact is how long a server works on a compaction, at least.
const MaxCompact = 7 * time.Minute

// Compact is the body of POST /sessions/{id}/compact, which shortens what the model is sent
// of the conversation.
type Compact struct {
	// Force cuts as much as possible, also within the last turn.
	Force bool `json:"force,omitempty"`
}

// Compacted is the response to a compaction and to a clear.
type Compacted struct {
	SessionID string `json:"sessionId"`
	// Done is false if the conversation is as it was; Reason says why, and Code is the code
	// of the error because of which a summary was not made.
	Done   bool         `json:"done"`
	Reason string       `json:"reason,omitempty"`
	Code   session.Code `json:"code,omitempty"`
	// Kind is what was done, or tried: summary, trim or clear. It is empty if there was
	// nothing to do.
	Kind session.CompactionKind `json:"kind,omitempty"`
	// MarkerID is the id of the message that stands for what was cut.
	MarkerID string `json:"markerId,omitempty"`
	// Kept is the number of messages that are sent as they were.
	Kept int `json:"kept,omitempty"`
	// TokensBefore and TokensAfter are the sizes of the prompt, as far as they are known.
	TokensBefore int64 `json:"tokensBefore,omitempty"`
	TokensAfter  int64 `json:"tokensAfter,omitempty"`
}

// Deleted is the response to DELETE /sessions/{id}.
type Deleted struct {
	// Sessions are the ids of the session and of the sessions of its sub-agents, which were
	// deleted with it.
	Sessions []string `json:"sessions"`
}
