package wire

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The frames of GET /sse are server-sent events. Their event is the [stream.FrameKind];
// their data is one of the types below, or [stream.End] for an end frame.
//
// End, fail and truncated are terminal: nothing follows them. A body that ends without one
// was cut off; continue after the last sequence received.

// Chunk is the data of a chunk frame, whose event id is the sequence, and of a rewound
// frame, whose chunk contains the rewind's target.
type Chunk struct {
	Sequence int64         `json:"sequence"`
	Chunk    *stream.Chunk `json:"chunk"`
}

// CaughtUp is the data of the frame that follows everything that the stream held when
// reading began.
type CaughtUp struct {
	Sequence int64 `json:"sequence"`
}

// Fail is the data of a fail frame.
type Fail struct {
	Message   string       `json:"error"`
	Code      session.Code `json:"code"`
	Retryable bool         `json:"retryable,omitempty"`
	// Recoverable reports that only this connection ended, not the stream: continue after
	// the last sequence received. Otherwise the run failed.
	Recoverable bool `json:"recoverable,omitempty"`
}

// Truncated is the data of a truncated frame: the stream no longer holds the chunks after
// the requested sequence. Reading can continue from the floor.
type Truncated struct {
	Floor int64 `json:"floor"`
}
