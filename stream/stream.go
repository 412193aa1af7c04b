package stream

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// Status is the status of a stream.
type Status string

// The statuses of a stream.
const (
	StatusActive Status = "active"
	// StatusPaused means that the run was suspended: the stream ended cleanly and
	// continues when the session is resumed.
	StatusPaused Status = "paused"
	StatusEnded  Status = "ended"
	StatusFailed Status = "failed"
)

// EndStatus says how the run that ended a stream ended.
type EndStatus string

// The ways in which a stream ends without an error. A failed run fails its stream
// instead.
const (
	EndCompleted   EndStatus = "completed"
	EndInterrupted EndStatus = "interrupted"
	EndPaused      EndStatus = "paused"
)

// End is the payload of a stream's end.
type End struct {
	Status EndStatus       `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	Usage  *session.Usage  `json:"usage,omitempty"`
	// FinishReason is why the last reply ended, if the model did not end it on its
	// own: "length" or "content-filter".
	FinishReason string `json:"finishReason,omitempty"`
	// Omitted names payload fields that were omitted because they exceeded the
	// stream's limit.
	Omitted []string `json:"omitted,omitempty"`
}

// Check returns an error if the end is not valid.
func (e *End) Check() error {
	switch e.Status {
	case EndCompleted, EndInterrupted, EndPaused:
	default:
		return session.Invalid("end status", "%q is not one of completed, interrupted, paused", e.Status)
	}
	return session.CheckJSON("output", e.Output)
}

// Closes returns the status of a stream that this end closes.
func (e *End) Closes() Status {
	if e.Status == EndPaused {
		return StatusPaused
	}
	return StatusEnded
}

// Fit returns the end, without its output if it would otherwise exceed limit
// bytes; Omitted then names the field.
func (e End) Fit(limit int) (End, error) {
	rest := e
	rest.Output = nil
	raw, err := session.Encode(&rest)
	if err != nil {
		return e, session.ErrInvalid.WithCause(err, "the end of a stream cannot be encoded")
	}
	if e.Output == nil || len(raw)+len(e.Output) <= limit {
		return e, nil
	}
	rest.Omitted = append(slices.Clip(e.Omitted), "output")
	return rest, nil
}

// Info describes a stream.
type Info struct {
	ID     string `json:"streamId"`
	Status Status `json:"status"`
	// Last is the latest sequence. Floor is the sequence before the oldest kept chunk:
	// a reader that has seen less than Floor has missed chunks for good.
	Last  int64 `json:"latestSequence"`
	Floor int64 `json:"floor"`
	// Bytes is the approximate stored size of the chunks that the stream has. Trimmed
	// chunks are subtracted; if several chunks share a row, once the whole row is
	// trimmed. Chunks from before stores counted, and chunks that an older program
	// appends, are not included: the value is never too large.
	Bytes     int64          `json:"bytes"`
	RunID     string         `json:"runId,omitempty"`
	End       *End           `json:"end,omitempty"`
	Error     *session.Error `json:"error,omitempty"`
	CreatedAt time.Time      `json:"createdAt"`
	UpdatedAt time.Time      `json:"updatedAt"`
}

// Holds reports whether the stream has every chunk after sequence from. It has not
// if chunks after from were trimmed, or if from is beyond the last chunk: such a
// reader has read a stream that was restored to an earlier state since. In both
// cases the reader has to start over.
func (i *Info) Holds(from int64) bool { return i.Floor <= from && from <= i.Last }

// Truncated returns the error for a read from a sequence for which Holds is false.
func (i *Info) Truncated(from int64) error {
	if from > i.Last {
		return session.ErrTruncated.WithMessage("stream %s ends at sequence %d, before %d", i.ID, i.Last, from)
	}
	return session.ErrTruncated.WithMessage("stream %s begins after sequence %d, not %d", i.ID, i.Floor, from)
}

// Negative returns the error for a negative sequence.
func Negative(from int64) error { return session.Invalid("sequence", "%d is negative", from) }

// FrameKind is the kind of a frame that a reader receives.
type FrameKind string

// The kinds of frames. FrameEnd, FrameFail and FrameTruncated are terminal:
// nothing follows them.
const (
	FrameChunk     FrameKind = "chunk"
	FrameCaughtUp  FrameKind = "caught-up"
	FrameRewound   FrameKind = "rewound"
	FrameEnd       FrameKind = "end"
	FrameFail      FrameKind = "fail"
	FrameTruncated FrameKind = "truncated"
)

// Item is one element that a reader receives: a chunk with its sequence, or a
// frame about the stream itself.
type Item struct {
	Frame    FrameKind      `json:"frame"`
	Sequence int64          `json:"sequence,omitempty"`
	Chunk    *Chunk         `json:"chunk,omitempty"`
	End      *End           `json:"end,omitempty"`
	Error    *session.Error `json:"error,omitempty"`
	// Floor is set on a truncated frame: a reader can start over from there. It is
	// below the reader's own position if that was beyond the end of the stream.
	Floor int64 `json:"floor,omitempty"`
}

// NewItem returns the item that a reader receives for a stored chunk. A chunk of kind
// [Rewound] has a frame of its own.
func NewItem(sequence int64, chunk *Chunk) Item {
	frame := FrameChunk
	if chunk.Kind == Rewound {
		frame = FrameRewound
	}
	return Item{Frame: frame, Sequence: sequence, Chunk: chunk}
}

// Terminal reports whether the item is the last one of its read.
func (i Item) Terminal() bool {
	return i.Frame == FrameEnd || i.Frame == FrameFail || i.Frame == FrameTruncated
}

// Producer identifies a writer: a session under an epoch of its lease.
type Producer struct {
	Session string
	Epoch   int64
	// RunID is the run that the chunks belong to.
	RunID string
}

// Gap returns the error for a batch that does not continue its producer's
// numbering.
func Gap(id string, by Producer, expected, first int64) error {
	return session.Invalid("producer sequence", "%d of session %s is not %d, the next number that stream %s expects under epoch %d",
		first, by.Session, expected, id, by.Epoch)
}

// Batch is one atomic append. Its producer numbers the chunks First, First+1, …,
// so that a stream ignores a repeated batch, or the repeated front of one.
type Batch struct {
	Producer Producer
	First    int64
	Chunks   []Chunk
}

// Append is a batch that was accepted: it is ordered before any later write by the
// same caller to the same backend, but possibly not durable yet.
type Append interface {
	// Wait returns the sequence of the batch's last chunk once it is durable.
	Wait(ctx context.Context) (int64, error)
}

// TrimPolicy says which chunks to drop from the front of a stream: those that
// match any rule. The engine trims through a sequence, and the task of
// helix.TaskOptions.TrimStreams before a time; KeepLast is for other kinds of retention.
type TrimPolicy struct {
	// KeepLast keeps only the latest n chunks; 0 keeps all.
	KeepLast int64
	// Before drops chunks older than this.
	Before time.Time
	// Through drops chunks up to this sequence, because the history contains them.
	Through int64
}

// Manager persists streams. It is scoped to one tenant and safe for concurrent
// use.
type Manager interface {
	// Append writes a batch atomically. It returns as soon as the batch is ordered; a
	// caller that needs durability calls Wait. A stream that does not exist is
	// [session.ErrNotFound]: only Reactivate creates one, so that a late append does
	// not restore a deleted stream. An epoch lower than the producer's last is
	// [session.ErrStale], a closed stream [session.ErrStreamClosed]; a batch that the
	// stream already has succeeds nevertheless. Within an epoch a producer's numbers
	// have no gaps, otherwise the batch is [session.ErrInvalid]; an epoch may begin
	// with any number. Once Wait has returned, the caller may use the slice of chunks
	// again: the manager keeps no reference to it, also not for readers.
	Append(ctx context.Context, id string, batch Batch) (Append, error)
	// Read yields the chunks after sequence from (0 is the start), then new ones as
	// they are written, until a terminal frame, an error, or the end of ctx. If the
	// stream does not exist, Read waits for it if wait is set and otherwise fails with
	// [session.ErrNotFound]. If the stream does not have every chunk after from, see
	// [Info.Holds], Read yields a truncated frame.
	Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[Item, error]
	// Chunks lists up to limit chunks after sequence from, or all if limit is 0,
	// without waiting. Where Read yields a truncated frame, it fails with
	// [session.ErrTruncated].
	Chunks(ctx context.Context, id string, from int64, limit int) ([]Item, error)
	// Info describes a stream. A stream that does not exist is [session.ErrNotFound].
	Info(ctx context.Context, id string) (*Info, error)
	// End closes a stream without an error: readers get the remaining chunks, then an
	// end frame. An end with status paused pauses the stream. End does nothing if a
	// later epoch has written to the stream.
	End(ctx context.Context, id string, by Producer, end End) error
	// Fail closes a stream with an error. Like End it does nothing if a later epoch
	// has written to the stream.
	Fail(ctx context.Context, id string, by Producer, failure *session.Error) error
	// Reactivate opens a closed stream for a new run, or creates one. Chunks are kept.
	// An epoch lower than the producer's last is [session.ErrStale]. Only the session
	// that the stream belongs to changes its run.
	Reactivate(ctx context.Context, id string, by Producer) (*Info, error)
	// Trim drops chunks from the front and returns the new floor.
	Trim(ctx context.Context, id string, policy TrimPolicy) (int64, error)
	// Delete removes a stream. A backend that has both a session and its stream
	// deletes both with the session; Delete is for backends that combine others.
	Delete(ctx context.Context, id string) error
	// Limits returns the manager's limits.
	Limits() Limits

	// Tenant returns the same manager scoped to another tenant.
	Tenant(tenant string) Manager
}

// ChunksFromStep lists up to limit chunks of a run, or all if limit is 0, that
// belong to the given step or a later one and follow sequence from: the run's
// StartSequence, or the sequence of the last item to continue after it. Where Read
// yields a truncated frame, it fails with [session.ErrTruncated].
func ChunksFromStep(ctx context.Context, streams Manager, id, runID string, step int, from int64, limit int) ([]Item, error) {
	var out []Item
	for {
		page, err := streams.Chunks(ctx, id, from, stepPage)
		if err != nil {
			return nil, err
		}
		for _, item := range page {
			if item.Chunk.RunID == runID && item.Chunk.Step >= step {
				if out = append(out, item); len(out) == limit {
					return out, nil
				}
			}
		}
		if len(page) < stepPage {
			return out, nil
		}
		from = page[len(page)-1].Sequence
	}
}

// stepPage is how many chunks ChunksFromStep reads at a time.
const stepPage = 500

// Limits are the limits of a manager.
type Limits struct {
	// MaxChunk is the largest encoded chunk in bytes.
	MaxChunk int
}
