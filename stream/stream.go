package stream

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// Status is a stream's state of life.
type Status string

// The statuses of a stream.
const (
	StatusActive Status = "active"
	// StatusPaused is a stream whose run was suspended: it ended cleanly and goes
	// on when the session is resumed.
	StatusPaused Status = "paused"
	StatusEnded  Status = "ended"
	StatusFailed Status = "failed"
)

// EndStatus is how the run that ended a stream came out.
type EndStatus string

// The ways a stream ends well. A failed run fails its stream instead.
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
	// FinishReason is why the last reply ended, if the model did not end it by itself:
	// "length" or "content-filter".
	FinishReason string `json:"finishReason,omitempty"`
	// Omitted names payload fields that were left out because they exceeded the
	// stream's limit.
	Omitted []string `json:"omitted,omitempty"`
}

// Check reports an end that cannot be told.
func (e *End) Check() error {
	switch e.Status {
	case EndCompleted, EndInterrupted, EndPaused:
	default:
		return session.Invalid("end status", "%q is none of completed, interrupted, paused", e.Status)
	}
	return session.CheckJSON("output", e.Output)
}

// Closes is the status of a stream that ended so.
func (e *End) Closes() Status {
	if e.Status == EndPaused {
		return StatusPaused
	}
	return StatusEnded
}

// Fit is the end with its output left out, which it then says, if it would have
// more than limit bytes.
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
	// Last is the latest sequence, Floor the one before the oldest kept: a reader
	// that has seen less than Floor has missed chunks for good.
	Last  int64 `json:"latestSequence"`
	Floor int64 `json:"floor"`
	// Bytes is about how much the chunks take that the stream holds, in their stored
	// form. Those that were trimmed are subtracted; where several are one row, once all
	// of the row were. Chunks from before stores counted, and those that an older
	// program appends, are not in it: it is never too large.
	Bytes     int64          `json:"bytes"`
	RunID     string         `json:"runId,omitempty"`
	End       *End           `json:"end,omitempty"`
	Error     *session.Error `json:"error,omitempty"`
	CreatedAt time.Time      `json:"createdAt"`
	UpdatedAt time.Time      `json:"updatedAt"`
}

// Holds reports whether the stream has everything after sequence from. It does not
// where chunks after from were trimmed, nor where from is beyond the last chunk: a
// reader that has seen more than there is has read a stream which was restored to
// an earlier state since. Both readers have to start over.
func (i *Info) Holds(from int64) bool { return i.Floor <= from && from <= i.Last }

// Truncated is the refusal of a reading after a sequence for which Holds is false.
func (i *Info) Truncated(from int64) error {
	if from > i.Last {
		return session.ErrTruncated.WithMessage("stream %s: it ends at sequence %d, before %d", i.ID, i.Last, from)
	}
	return session.ErrTruncated.WithMessage("stream %s: it begins after sequence %d, not %d", i.ID, i.Floor, from)
}

// Negative is the refusal of a sequence that no reader can have seen.
func Negative(from int64) error { return session.Invalid("sequence", "%d is negative", from) }

// FrameKind says what a reader is told.
type FrameKind string

// The frames a reader receives. FrameEnd, FrameFail and FrameTruncated are
// terminal: nothing follows them.
const (
	FrameChunk     FrameKind = "chunk"
	FrameCaughtUp  FrameKind = "caught-up"
	FrameRewound   FrameKind = "rewound"
	FrameEnd       FrameKind = "end"
	FrameFail      FrameKind = "fail"
	FrameTruncated FrameKind = "truncated"
)

// Item is what a reader receives: a chunk with its sequence, or a frame about
// the stream itself.
type Item struct {
	Frame    FrameKind      `json:"frame"`
	Sequence int64          `json:"sequence,omitempty"`
	Chunk    *Chunk         `json:"chunk,omitempty"`
	End      *End           `json:"end,omitempty"`
	Error    *session.Error `json:"error,omitempty"`
	// Floor is set on a truncated frame: reading can start over from there. It is below
	// the reader's own position if that was beyond the end of the stream.
	Floor int64 `json:"floor,omitempty"`
}

// Terminal reports whether the item is the last of its reading.
func (i Item) Terminal() bool {
	return i.Frame == FrameEnd || i.Frame == FrameFail || i.Frame == FrameTruncated
}

// Producer identifies who writes: a session under an epoch of its lease.
type Producer struct {
	Session string
	Epoch   int64
	// RunID is the run whose chunks these are.
	RunID string
}

// Gap is the refusal of a batch that does not go on where its producer left off.
func Gap(id string, by Producer, expected, first int64) error {
	return session.Invalid("producer sequence", "%d of session %s is not %d, which stream %s expects next under epoch %d",
		first, by.Session, expected, id, by.Epoch)
}

// Batch is one atomic append. The chunks are numbered First, First+1, … by their
// producer, so that a repeated batch, or the repeated front of one, is ignored.
type Batch struct {
	Producer Producer
	First    int64
	Chunks   []Chunk
}

// Append is a batch on its way: ordered before any later write that the caller
// makes to the same backend, though perhaps not yet durable.
type Append interface {
	// Wait returns the sequence of the batch's last chunk once it is durable.
	Wait(ctx context.Context) (int64, error)
}

// TrimPolicy says what to drop from a stream's front. What any rule drops is
// dropped. The engine trims through a sequence; KeepLast and Before are for
// retention, which will call them.
type TrimPolicy struct {
	// KeepLast keeps only the latest n chunks; 0 keeps all.
	KeepLast int64
	// Before drops chunks older than this.
	Before time.Time
	// Through drops chunks up to this sequence: history holds them now.
	Through int64
}

// Manager keeps streams. It is scoped to one tenant and safe for concurrent use.
type Manager interface {
	// Append writes a batch atomically. It returns as soon as the batch is ordered; a
	// caller that needs it durable waits. A stream that does not exist is
	// [session.ErrNotFound]: only Reactivate makes one, so that nothing late brings a
	// deleted one back. An epoch lower than the producer's last is
	// [session.ErrStale], a stream that was closed [session.ErrStreamClosed]; a batch
	// that is there already succeeds all the same. A producer's numbers go on without
	// a gap within an epoch, else the batch is [session.ErrInvalid]; an epoch may
	// begin with any.
	Append(ctx context.Context, id string, batch Batch) (Append, error)
	// Read yields what comes after sequence from (0 is the start), then what is
	// written while it reads, until a terminal frame, an error, or the end of ctx.
	// A stream that does not exist yet is waited for if wait is set, else
	// [session.ErrNotFound]. A sequence from which the stream does not hold everything,
	// see [Info.Holds], gets a truncated frame.
	Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[Item, error]
	// Chunks lists up to limit chunks after sequence from, or all if limit is 0, without
	// waiting. Where Read gives a truncated frame it is [session.ErrTruncated].
	Chunks(ctx context.Context, id string, from int64, limit int) ([]Item, error)
	Info(ctx context.Context, id string) (*Info, error)
	// End closes a stream well: readers get what is there, then an end frame. Pause
	// is an end whose status is paused. Both do nothing to a stream that a later
	// epoch has written to.
	End(ctx context.Context, id string, by Producer, end End) error
	// Fail closes a stream with an error.
	Fail(ctx context.Context, id string, by Producer, failure *session.Error) error
	// Reactivate opens a closed stream for a new run, or makes one. Chunks stay. An
	// epoch lower than the producer's last is [session.ErrStale]. Only the session
	// that the stream belongs to changes its run.
	Reactivate(ctx context.Context, id string, by Producer) (*Info, error)
	// Trim drops chunks from the front and returns the new floor.
	Trim(ctx context.Context, id string, policy TrimPolicy) (int64, error)
	// Delete removes a stream. A backend that keeps a session and its stream deletes
	// both with the session; Delete is for backends that are put together of others.
	Delete(ctx context.Context, id string) error
	// Limits are the manager's limits.
	Limits() Limits

	// Tenant is the same manager scoped to another tenant.
	Tenant(tenant string) Manager
}

// ChunksFromStep lists up to limit chunks of a run from a step on, or all if limit is
// 0, of those after sequence from: the run's StartSequence, or that of the last item
// for what follows it. Where Read gives a truncated frame it is
// [session.ErrTruncated].
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

// Limits of a manager.
type Limits struct {
	// MaxChunk is the largest encoded chunk in bytes.
	MaxChunk int
}
