package session

import (
	"time"
)

// CheckpointSource says which write made a checkpoint.
type CheckpointSource string

// The sources of checkpoints.
const (
	FromStep       CheckpointSource = "staging"    // a step's commit
	FromSave       CheckpointSource = "save"       // a direct write, or the start of a run
	FromCompaction CheckpointSource = "compaction" // the marker of a compaction
)

// Checkpoint marks a point that a session can be rewound to or branched from. It
// refers to messages by their count and to custom state by the writes that led to
// it, so its size does not grow with the session.
type Checkpoint struct {
	ID           string           `json:"id"`
	SessionID    string           `json:"sessionId,omitempty"`
	RunID        string           `json:"runId,omitempty"`
	Turn         int              `json:"turn,omitempty"`
	Step         int              `json:"stepCount"`
	Status       Status           `json:"status"`
	Source       CheckpointSource `json:"source,omitempty"`
	Version      int64            `json:"version"`
	MessageCount int              `json:"messageCount"`
	// StreamSequence is the sequence of a chunk that reports something the checkpoint
	// contains. Later chunks may do so, too; see store.TakeSnapshot.
	StreamSequence int64     `json:"streamSequence,omitempty"`
	At             time.Time `json:"timestamp,omitzero"`
	// Undone is set once a rewind has dropped messages that the checkpoint counts: the
	// session can no longer be rewound to it. Its custom state can still be read.
	Undone bool `json:"undone,omitempty"`
	// State is the custom state at the checkpoint. Listings omit it.
	State *CustomState `json:"state,omitempty"`
	Extra Extra        `json:"-"`
}

type checkpointJSON Checkpoint

type versionedCheckpoint struct {
	V int `json:"v"`
	checkpointJSON
}

// MarshalJSON implements [json.Marshaler].
func (c Checkpoint) MarshalJSON() ([]byte, error) {
	return encodeWithExtra(&versionedCheckpoint{FormatVersion, checkpointJSON(c)}, c.Extra)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Checkpoint) UnmarshalJSON(data []byte) error {
	var doc versionedCheckpoint
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*c = Checkpoint(doc.checkpointJSON)
	c.Extra = extra
	return checkFormat("checkpoint "+c.ID, doc.V)
}
