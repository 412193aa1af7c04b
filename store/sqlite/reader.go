package sqlite

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is about how much of a stream a reader fetches at once.
const maxReadBytes = 256 << 10

// Read implements [stream.Manager]. A reader pulls: it holds no connection while
// its caller works on what it got, so a slow one holds up nobody, and leaving the
// loop leaves nothing behind.
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if from < 0 {
			yield(stream.Item{}, stream.Negative(from))
			return
		}
		sub, end := s.b.watch.subscribe(s.key(id))
		defer end()
		r := &reader{streams: s, id: id, cursor: from, wait: wait, sub: sub}
		for r.step(ctx, yield) {
		}
	}
}

// reader is one reading of a stream.
type reader struct {
	*streams
	id       string
	cursor   int64
	wait     bool  // for a stream that does not exist yet
	number   int64 // of the stream, once it was seen: another of its id is not it
	caughtUp bool
	sub      *subscription
}

// step looks at the stream once, hands on what there is and, when there is
// nothing more, waits for a change. It reports whether the reading goes on.
func (r *reader) step(ctx context.Context, yield func(stream.Item, error) bool) bool {
	info, items, err := r.look(ctx)
	if err != nil {
		yield(stream.Item{}, err)
		return false
	}
	for i := range items {
		if err := ctx.Err(); err != nil {
			yield(stream.Item{}, failure(streamVerb(r.id, "read"), err))
			return false
		}
		if !yield(items[i], nil) {
			return false
		}
		r.cursor = items[i].Sequence
	}
	if info != nil {
		// Handing items on may have taken long: what is then said about the stream must
		// be true now. A reader that follows live is told of changes anyway.
		if len(items) > 0 && (!r.caughtUp || r.cursor < info.Last || info.Status != stream.StatusActive) {
			return true
		}
		if frame := r.frame(info); frame.Frame != "" && (!yield(frame, nil) || frame.Terminal()) {
			return false
		}
	}
	if err := r.await(ctx); err != nil {
		yield(stream.Item{}, err)
		return false
	}
	return true
}

// look reads what comes after the cursor. Both are nil while the stream is waited
// for.
func (r *reader) look(ctx context.Context) (info *stream.Info, items []stream.Item, err error) {
	err = r.b.read(ctx, streamVerb(r.id, "read"), func(c *conn) error {
		h, err := r.head(c, r.id, "")
		switch {
		case err != nil:
			return err
		case h == nil && r.wait && r.number == 0:
			return nil
		case h == nil, r.number != 0 && r.number != h.number: // deleted, perhaps made anew
			return notFound("stream %s", r.id)
		}
		r.number = h.number
		if info, err = h.info(); err != nil || !h.Holds(r.cursor) {
			return err
		}
		items, err = r.chunksAfter(c, h, r.cursor, math.MaxInt, maxReadBytes)
		return err
	})
	return info, items, err
}

// frame is what there is to say about the stream once its chunks were handed on.
func (r *reader) frame(info *stream.Info) stream.Item {
	if !info.Holds(r.cursor) {
		return stream.Item{Frame: stream.FrameTruncated, Floor: info.Floor}
	}
	switch info.Status {
	case stream.StatusEnded, stream.StatusPaused:
		return stream.Item{Frame: stream.FrameEnd, Sequence: r.cursor, End: info.End}
	case stream.StatusFailed:
		return stream.Item{Frame: stream.FrameFail, Sequence: r.cursor, Error: info.Error}
	}
	if r.caughtUp {
		return stream.Item{}
	}
	r.caughtUp = true
	return stream.Item{Frame: stream.FrameCaughtUp, Sequence: r.cursor}
}

// await waits for a change, the end of ctx or that of the backend.
func (r *reader) await(ctx context.Context) error {
	name := streamVerb(r.id, "read")
	select {
	case <-r.sub.signal:
		return nil
	case <-ctx.Done():
		return failure(name, ctx.Err())
	case <-r.b.watch.closing:
		return session.ErrClosed.WithMessage("%s: the database is closed", name)
	}
}

const selectBatches = `
SELECT key, last_sequence, at, body FROM stream_batches
WHERE key >= ? AND key <= ?
ORDER BY key`

// The batch that holds a sequence is the last one that begins at or before it.
const selectBatchAt = `
SELECT key FROM stream_batches
WHERE key > ? AND key <= ?
ORDER BY key DESC
LIMIT 1`

// chunksAfter reads chunks after a sequence, which is not below the floor, up to
// a limit and to about a number of bytes.
func (s *streams) chunksAfter(c *conn, h *streamHead, from int64, limit, size int) ([]stream.Item, error) {
	var items []stream.Item
	for b, err := range s.batches(c, h, from) {
		if err != nil {
			return nil, err
		}
		for sequence, line := range b.after(from) {
			if len(items) == limit || size < 0 {
				return items, nil
			}
			item, err := decodeChunk(h.ID, sequence, line)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
			size -= len(line)
		}
	}
	return items, nil
}

// batch is a stored batch, chunk by chunk.
type batch struct {
	first, last int64
	at          time.Time
	lines       [][]byte
}

// decodeBatch reads a batch. Of one that is damaged it gives what else is known.
func decodeBatch(h *streamHead, r *row) (*batch, error) {
	b := &batch{first: r.int64() - rowKey(h.number, 0), last: r.int64(), at: r.time()}
	b.lines = stored.Lines(r.bytes())
	if int64(len(b.lines)) != b.last-b.first+1 {
		return b, session.ErrCorrupt.WithMessage("stream %s: chunks %d to %d cannot be decoded", h.ID, b.first, b.last)
	}
	return b, nil
}

// after yields the chunks that come after a sequence, each with its own.
func (b *batch) after(from int64) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		for i, line := range b.lines {
			if sequence := b.first + int64(i); sequence > from && !yield(sequence, line) {
				return
			}
		}
	}
}

// batches yields the batches from the one on that holds what follows a sequence.
func (s *streams) batches(c *conn, h *streamHead, from int64) iter.Seq2[*batch, error] {
	return func(yield func(*batch, error) bool) {
		if from >= h.Last {
			return
		}
		start := rowKey(h.number, from+1)
		r, err := c.one(selectBatchAt, rowKey(h.number, 0), start)
		if err != nil {
			yield(nil, err)
			return
		}
		if r != nil {
			start = r.int64()
		}
		for r, err := range c.query(selectBatches, start, lastKey(h.number)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(decodeBatch(h, r)) {
				return
			}
		}
	}
}

// decodeChunk gives a chunk as a reader gets it.
func decodeChunk(id string, sequence int64, line []byte) (stream.Item, error) {
	item := stream.Item{Frame: stream.FrameChunk, Sequence: sequence, Chunk: &stream.Chunk{}}
	if err := session.Decode(fmt.Sprintf("stream %s: chunk %d", id, sequence), line, item.Chunk); err != nil {
		return stream.Item{}, err
	}
	if item.Chunk.Kind == stream.Rewound {
		item.Frame = stream.FrameRewound
	}
	return item, nil
}

// headFrom reads a stream that must hold everything after a sequence.
func (s *streams) headFrom(c *conn, id string, from int64) (*streamHead, error) {
	h, err := s.mustHead(c, id, "")
	switch {
	case err != nil:
		return nil, err
	case from < 0:
		return nil, stream.Negative(from)
	case !h.Holds(from):
		return nil, h.Truncated(from)
	}
	return h, nil
}

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) (items []stream.Item, err error) {
	err = s.b.read(ctx, streamVerb(id, "list chunks"), func(c *conn) error {
		h, err := s.headFrom(c, id, from)
		if err != nil {
			return err
		}
		if limit <= 0 {
			limit = math.MaxInt
		}
		items, err = s.chunksAfter(c, h, from, limit, math.MaxInt)
		return err
	})
	return items, err
}

const (
	doomedBatches = `
FROM stream_batches
WHERE key > ? AND key <= ? AND last_sequence <= ? AND last_sequence < ?`

	measureBatches = `SELECT coalesce(sum(length(body)), 0)` + doomedBatches
	deleteBatches  = `DELETE` + doomedBatches
)

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (floor int64, err error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	err = s.b.write(ctx, streamVerb(id, "trim"), func(t *tx) error {
		h, err := s.mustHead(t.conn, id, "")
		if err != nil {
			return err
		}
		if floor, err = s.newFloor(t.conn, h, policy); err != nil || floor == h.Floor {
			return err
		}
		doomed := []any{rowKey(h.number, 0), rowKey(h.number, floor), floor, h.Last}
		r, err := t.one(measureBatches, doomed...)
		if err != nil {
			return err
		}
		h.Floor, h.trimmed = floor, min(h.trimmed+r.int64(), h.total) // some may never have been counted
		t.touch(s.key(id))
		if err := s.writeStream(t, h); err != nil {
			return err
		}
		_, err = t.exec(deleteBatches, doomed...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return floor, nil
}

// newFloor is where a stream begins under a policy: after the last chunk that any
// of its rules drops.
func (s *streams) newFloor(c *conn, h *streamHead, policy stream.TrimPolicy) (int64, error) {
	floor := min(max(h.Floor, policy.Through), h.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, h.Last-policy.KeepLast)
	}
	if policy.Before.IsZero() {
		return floor, nil
	}
	for b, err := range s.batches(c, h, floor) {
		if unlessCorrupt(err) != nil {
			return 0, err
		}
		for sequence := max(b.first, floor+1); sequence <= b.last; sequence++ {
			if !b.time(h, sequence).Before(policy.Before) {
				return floor, nil
			}
			floor = sequence
		}
	}
	return floor, nil
}

// time is a chunk's, or that of its batch if it has none or cannot be decoded: what
// is damaged must not be kept for ever.
func (b *batch) time(h *streamHead, sequence int64) time.Time {
	i := int(sequence - b.first)
	if int64(len(b.lines)) != b.last-b.first+1 {
		return b.at
	}
	item, err := decodeChunk(h.ID, sequence, b.lines[i])
	if err != nil || item.Chunk.At.IsZero() {
		return b.at
	}
	return item.Chunk.At
}
