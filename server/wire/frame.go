package wire

import (
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The frames of GET /sse are server-sent events. Their event is the
// [stream.FrameKind]; their data is one of the types below. End is
// [stream.End], truncated and the others are here.
//
// End, fail and truncated are terminal: nothing follows them. A body that ends
// without one was cut off, and can be read on from the last sequence seen.

// Chunk is the data of a chunk frame, whose event id is the sequence, and of a
// rewound frame, whose chunk says how far back the session went.
type Chunk struct {
	Sequence int64         `json:"sequence"`
	Chunk    *stream.Chunk `json:"chunk"`
}

// CaughtUp is the data of the frame that follows everything that was there when
// reading began.
type CaughtUp struct {
	Sequence int64 `json:"sequence"`
}

// Fail is the data of a fail frame.
type Fail struct {
	Message   string       `json:"error"`
	Code      session.Code `json:"code"`
	Retryable bool         `json:"retryable,omitempty"`
	// Recoverable says that the stream goes on and this reading of it alone ended: read
	// on from the last sequence seen. Otherwise the run failed.
	Recoverable bool `json:"recoverable,omitempty"`
}

// Truncated is the data of a truncated frame: the stream no longer holds what
// comes after the sequence asked for. Reading can go on from the floor.
type Truncated struct {
	Floor int64 `json:"floor"`
}
