package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// signal tells any number of waiters that something has changed.
type signal struct{ ch chan struct{} }

// wait is closed at the next broadcast.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// feed is one stream. All of it is guarded by the hub's lock; its rows never
// change, so that a slice of them can be read outside.
type feed struct {
	signal
	info      stream.Info
	rows      []*row // numbers Floor+1 to Last
	producers map[string]*producer
	deleted   bool
}

// producer is what a stream knows of a session that writes to it.
type producer struct {
	epoch int64
	next  int64 // the lowest producer number not seen under epoch
}

func newFeed(id string, now time.Time) *feed {
	return &feed{
		info:      stream.Info{ID: id, Status: stream.StatusActive, CreatedAt: now, UpdatedAt: now},
		producers: map[string]*producer{},
	}
}

// checkEpoch refuses a producer whose session has gone on under a later lease.
func (f *feed) checkEpoch(by stream.Producer) error {
	if p := f.producers[by.Session]; p != nil && by.Epoch < p.epoch {
		return session.ErrStale.WithMessage("stream %s: session %s writes under epoch %d, not %d", f.info.ID, by.Session, p.epoch, by.Epoch)
	}
	return nil
}

// checkGap refuses a batch that skips numbers its producer has not sent.
func (f *feed) checkGap(by stream.Producer, first int64) error {
	if p := f.producers[by.Session]; p != nil && p.epoch == by.Epoch && p.next > 0 && first > p.next {
		return stream.Gap(f.info.ID, by, p.next, first)
	}
	return nil
}

// enter records that a producer has written.
func (f *feed) enter(by stream.Producer) {
	if p := f.producers[by.Session]; p == nil || by.Epoch > p.epoch {
		f.producers[by.Session] = &producer{epoch: by.Epoch}
	}
	// The run of a stream is its own session's; sub-agents write to it, too.
	if by.RunID != "" && (f.info.RunID == "" || by.Session == f.info.ID) {
		f.info.RunID = by.RunID
	}
}

// fresh leaves out the front of a batch that the stream has seen before.
func (f *feed) fresh(by stream.Producer, first int64, pieces [][]*row) [][]*row {
	p := f.producers[by.Session]
	if p == nil || p.epoch != by.Epoch {
		return pieces
	}
	return pieces[min(max(p.next-first, 0), int64(len(pieces))):]
}

func (f *feed) append(pieces [][]*row, now time.Time) {
	for _, chunk := range pieces {
		for _, r := range chunk {
			f.info.Last++
			f.info.Bytes += int64(len(r.raw))
			r.sequence = f.info.Last
			if r.at.IsZero() {
				r.at = now
			}
			f.rows = append(f.rows, r)
		}
		last := chunk[len(chunk)-1]
		f.producers[last.by.Session].next = last.number + 1
	}
	f.info.UpdatedAt = now
	f.broadcast()
}

// sequenceOf is where a chunk that was repeated had been put.
func (f *feed) sequenceOf(by stream.Producer, number int64) int64 {
	for _, r := range slices.Backward(f.rows) {
		if r.by.Session == by.Session && r.by.Epoch == by.Epoch && r.number <= number {
			return r.sequence
		}
	}
	return f.info.Floor
}

// after is what comes after a sequence.
func (f *feed) after(from int64) ([]*row, error) {
	switch {
	case from < 0:
		return nil, stream.Negative(from)
	case !f.info.Holds(from):
		return nil, f.info.Truncated(from)
	}
	return f.rows[from-f.info.Floor:], nil
}

func (f *feed) trim(policy stream.TrimPolicy) {
	floor := min(max(f.info.Floor, policy.Through), f.info.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, f.info.Last-policy.KeepLast)
	}
	if !policy.Before.IsZero() {
		for floor < f.info.Last && f.rows[floor-f.info.Floor].at.Before(policy.Before) {
			floor++
		}
	}
	if floor == f.info.Floor {
		return
	}
	for _, r := range f.rows[:floor-f.info.Floor] {
		f.info.Bytes -= int64(len(r.raw))
	}
	f.rows = slices.Clone(f.rows[floor-f.info.Floor:]) // or what was dropped would stay in memory
	f.info.Floor = floor
}

func (f *feed) describe() *stream.Info {
	out := f.info
	out.End, out.Error = cloneEnd(out.End), cloneError(out.Error)
	return &out
}

// row is a stored chunk: its wire form, and what the store itself must know.
type row struct {
	sequence int64
	by       stream.Producer
	number   int64 // its producer's; the pieces of a chunk that was split share one
	runID    string
	step     int
	at       time.Time
	raw      []byte

	once  sync.Once
	chunk *stream.Chunk
	err   error
}

// split encodes a batch: for each chunk the rows it becomes.
func split(batch stream.Batch, limit int) ([][]*row, error) {
	out := make([][]*row, 0, len(batch.Chunks))
	for i := range batch.Chunks {
		c := &batch.Chunks[i]
		raws, err := stream.Split(*c, limit)
		if err != nil {
			return nil, err
		}
		pieces := make([]*row, 0, len(raws))
		for _, raw := range raws {
			pieces = append(pieces, &row{
				by: batch.Producer, number: batch.First + int64(i),
				runID: c.RunID, step: c.Step, at: utc(c.At), raw: raw,
			})
		}
		out = append(out, pieces)
	}
	return out, nil
}

// item is the chunk as a reader gets it. It is decoded once, however many
// readers there are, and copied for each.
func (r *row) item() (stream.Item, error) {
	r.once.Do(func() {
		var c stream.Chunk
		r.err = session.Decode("chunk", r.raw, &c)
		r.chunk = &c
	})
	if r.err != nil {
		return stream.Item{}, r.err
	}
	out := stream.Item{Frame: stream.FrameChunk, Sequence: r.sequence, Chunk: cloneChunk(r.chunk)}
	if out.Chunk.Kind == stream.Rewound {
		out.Frame = stream.FrameRewound
	}
	return out, nil
}

func items(stored []*row) ([]stream.Item, error) {
	out := make([]stream.Item, len(stored))
	for i, r := range stored {
		var err error
		if out[i], err = r.item(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
