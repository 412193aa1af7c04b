package memory

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// log is one stream. The hub's lock guards all of it; its rows never change, so
// that a slice of them can be read outside the lock.
type log struct {
	info      stream.Info
	rows      []*row // numbers Floor+1 to Last
	producers map[string]*producer
	deleted   bool
}

// producer is the state of a session that writes to a stream.
type producer struct {
	epoch int64
	next  int64 // the lowest producer number not seen under epoch
}

func newLog(id string, now time.Time) *log {
	return &log{
		info:      stream.Info{ID: id, Status: stream.StatusActive, CreatedAt: now, UpdatedAt: now},
		producers: map[string]*producer{},
	}
}

// checkEpoch returns an error if the producer's session already writes under a
// later lease.
func (l *log) checkEpoch(by stream.Producer) error {
	if p := l.producers[by.Session]; p != nil && by.Epoch < p.epoch {
		return session.ErrStale.WithMessage("stream %s: session %s writes under epoch %d, not %d", l.info.ID, by.Session, p.epoch, by.Epoch)
	}
	return nil
}

// checkGap returns an error if a batch skips numbers that its producer has not
// sent.
func (l *log) checkGap(by stream.Producer, first int64) error {
	if p := l.producers[by.Session]; p != nil && p.epoch == by.Epoch && p.next > 0 && first > p.next {
		return stream.Gap(l.info.ID, by, p.next, first)
	}
	return nil
}

// enter records that a producer has written.
func (l *log) enter(by stream.Producer) {
	if p := l.producers[by.Session]; p == nil || by.Epoch > p.epoch {
		l.producers[by.Session] = &producer{epoch: by.Epoch}
	}
	// Only the stream's own session sets its run, although sub-agents write to it,
	// too.
	if by.RunID != "" && (l.info.RunID == "" || by.Session == l.info.ID) {
		l.info.RunID = by.RunID
	}
}

// fresh drops the rows at the front of a batch that the stream already has.
func (l *log) fresh(by stream.Producer, rows []row) []row {
	p := l.producers[by.Session]
	if p == nil || p.epoch != by.Epoch {
		return rows
	}
	for len(rows) > 0 && rows[0].number < p.next {
		rows = rows[1:]
	}
	return rows
}

func (l *log) append(rows []row, now time.Time) {
	for i := range rows {
		r := &rows[i]
		l.info.Last++
		l.info.Bytes += int64(len(r.raw))
		r.sequence = l.info.Last
		if r.at.IsZero() {
			r.at = now
		}
		l.rows = append(l.rows, r)
		l.producers[r.session].next = r.number + 1
	}
	l.info.UpdatedAt = now
}

// sequenceOf returns the sequence of a chunk that was appended before.
func (l *log) sequenceOf(by stream.Producer, number int64) int64 {
	for _, r := range slices.Backward(l.rows) {
		if r.session == by.Session && r.epoch == by.Epoch && r.number <= number {
			return r.sequence
		}
	}
	return l.info.Floor
}

// after returns the rows after a sequence.
func (l *log) after(from int64) ([]*row, error) {
	switch {
	case from < 0:
		return nil, stream.Negative(from)
	case !l.info.Holds(from):
		return nil, l.info.Truncated(from)
	}
	return l.rows[from-l.info.Floor:], nil
}

func (l *log) trim(policy stream.TrimPolicy) {
	floor := min(max(l.info.Floor, policy.Through), l.info.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, l.info.Last-policy.KeepLast)
	}
	if !policy.Before.IsZero() {
		for floor < l.info.Last && l.rows[floor-l.info.Floor].at.Before(policy.Before) {
			floor++
		}
	}
	if floor == l.info.Floor {
		return
	}
	for _, r := range l.rows[:floor-l.info.Floor] {
		l.info.Bytes -= int64(len(r.raw))
	}
	l.rows = slices.Clone(l.rows[floor-l.info.Floor:]) // a copy, so that the dropped rows can be freed
	l.info.Floor = floor
}

func (l *log) describe() *stream.Info {
	out := l.info
	out.End, out.Error = cloneEnd(out.End), cloneError(out.Error)
	return &out
}

// row is a stored chunk: its wire form, and the fields that the store itself
// needs.
type row struct {
	sequence int64
	session  string // its producer's, as are epoch and number
	epoch    int64
	number   int64 // the pieces of a chunk that was split share one
	at       time.Time
	raw      []byte

	chunk atomic.Pointer[stream.Chunk] // decoded; nil until somebody reads the row
}

// newRows encodes a batch. Its rows share memory: they are written together, and
// most are trimmed together.
func newRows(batch stream.Batch, limit int) ([]row, error) {
	size := 0
	for i := range batch.Chunks {
		size += batch.Chunks[i].Size()
	}
	raw := make([]byte, 0, size)
	out := make([]row, 0, len(batch.Chunks))
	for i := range batch.Chunks {
		c := &batch.Chunks[i]
		add := func(raw []byte) {
			out = append(out, row{
				session: batch.Producer.Session, epoch: batch.Producer.Epoch, number: batch.First + int64(i),
				at: utc(c.At), raw: raw,
			})
		}
		if err := c.Check(); err != nil {
			return nil, err
		}
		if longer, err := c.AppendJSON(raw); err == nil && len(longer)-len(raw) <= limit {
			add(longer[len(raw):len(longer):len(longer)])
			raw = longer
			continue
		}
		pieces, err := stream.Split(*c, limit)
		if err != nil {
			return nil, err
		}
		for _, piece := range pieces {
			add(piece)
		}
	}
	return out, nil
}

// item returns the chunk for a reader. The first reader decodes it, and every reader
// gets a copy.
func (r *row) item() (stream.Item, error) {
	c := r.chunk.Load()
	if c == nil {
		c = new(stream.Chunk)
		if err := session.Decode("chunk", r.raw, c); err != nil {
			return stream.Item{}, err
		}
		r.chunk.Store(c)
	}
	return stream.NewItem(r.sequence, cloneChunk(c)), nil
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
