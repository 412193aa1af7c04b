package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is about how much of a stream a reader fetches at once,
// maxReadBatches how many batches.
const (
	maxReadBytes   = 256 << 10
	maxReadBatches = 500
)

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
			yield(stream.Item{}, r.b.failure(streamVerb(r.id, "read"), err))
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
	h, batches, err := r.batches(ctx, r.id, "read", r.cursor, maxReadBatches, maxReadBytes)
	switch {
	case err != nil:
		return nil, nil, err
	case h == nil && r.wait && r.number == 0:
		return nil, nil, nil
	case h == nil, r.number != 0 && r.number != h.number: // deleted, perhaps made anew
		return nil, nil, notFound("stream %s", r.id)
	}
	r.number = h.number
	if info, err = h.info(); err != nil || !h.Holds(r.cursor) {
		return info, nil, err
	}
	items, err = chunksOf(h, batches, r.cursor, 0)
	if len(items) > 0 {
		err = nil // what is before the damage is handed on; the next look finds it first
	}
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
		return r.b.failure(name, ctx.Err())
	case <-r.b.watch.closing:
		return errClosed(name)
	}
}

// batch is a stored batch, chunk by chunk.
type batch struct {
	first, last int64
	at          time.Time
	lines       [][]byte
}

// sound refuses a batch that is damaged.
func (b *batch) sound(h *streamHead) error {
	if int64(len(b.lines)) == b.last-b.first+1 {
		return nil
	}
	return session.ErrCorrupt.WithMessage("stream %s: chunks %d to %d cannot be decoded", h.ID, b.first, b.last)
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

// selectBatches reads a stream and, in the same snapshot, its batches from the one
// on that holds what follows a sequence, up to about a number of bytes.
const selectBatches = `
SELECT` + streamColumns + `, NULL::bigint, NULL::bigint, coalesce($3::timestamptz, clock_timestamp()),
       b.first_sequence, b.last_sequence, b.at, b.body
FROM helix.streams s
LEFT JOIN LATERAL (
    SELECT b.first_sequence, b.last_sequence, b.at, b.body, sum(length(b.body)) OVER (ORDER BY b.last_sequence) AS size
    FROM (
        SELECT * FROM helix.stream_batches b
        WHERE b.stream = s.number AND b.last_sequence > $4
        ORDER BY b.last_sequence
        LIMIT $5
    ) b
) b ON b.size - length(b.body) < $6
WHERE s.tenant = $1 AND s.stream_id = $2
ORDER BY b.last_sequence`

// batches reads a stream's batches after a sequence; the head is nil if there is
// no stream.
func (s *streams) batches(ctx context.Context, id, verb string, from int64, limit int, size int64) (h *streamHead, out []*batch, err error) {
	err = s.b.query(ctx, streamVerb(id, verb), func(rows pgx.Rows) (err error) {
		var (
			first, last *int64
			at          time.Time
			body        []byte
		)
		if h, err = scanStream(id, "", rows, &first, &last, instant{&at}, &body); err != nil || first == nil {
			return err
		}
		out = append(out, &batch{*first, *last, at, stored.Lines(body)})
		return nil
	}, selectBatches, s.tenant, id, s.b.clock(), from, limit, size)
	return h, out, err
}

// chunksOf decodes what batches hold after a sequence, up to a limit if that is
// not 0.
func chunksOf(h *streamHead, batches []*batch, from int64, limit int) (items []stream.Item, err error) {
	for _, b := range batches {
		if err := b.sound(h); err != nil {
			return items, err
		}
		for sequence, line := range b.after(from) {
			if limit > 0 && len(items) == limit {
				return items, nil
			}
			item, err := decodeChunk(h.ID, sequence, line)
			if err != nil {
				return items, err
			}
			items = append(items, item)
		}
	}
	return items, nil
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

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) (items []stream.Item, err error) {
	if from < 0 {
		return nil, stream.Negative(from)
	}
	for cursor := from; ; {
		h, batches, err := s.batches(ctx, id, "list chunks", cursor, maxReadBatches, 4*maxReadBytes)
		switch {
		case err != nil:
			return nil, err
		case h == nil:
			return nil, notFound("stream %s", id)
		case !h.Holds(cursor):
			return nil, h.Truncated(cursor)
		}
		rest := 0
		if limit > 0 {
			rest = limit - len(items)
		}
		found, err := chunksOf(h, batches, cursor, rest)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
		if len(batches) == 0 || (limit > 0 && len(items) == limit) {
			return items, nil
		}
		cursor = batches[len(batches)-1].last
		if cursor >= h.Last {
			return items, nil
		}
	}
}

const trimStream = `
WITH gone AS (
    DELETE FROM helix.stream_batches WHERE stream = $1 AND last_sequence <= $2 RETURNING length(body) AS size
)
UPDATE helix.streams
SET floor = $2, revision = revision + 1, bytes = greatest(bytes - (SELECT coalesce(sum(size), 0) FROM gone), 0)
WHERE number = $1`

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (floor int64, err error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	// What is old is found before the lock is taken: it only gets more.
	number, old, err := s.oldest(ctx, id, policy)
	if err != nil {
		return 0, err
	}
	err = s.b.transact(ctx, streamVerb(id, "trim"), func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id, "")
		if err != nil {
			return err
		}
		if h == nil || h.number != number {
			return notFound("stream %s", id)
		}
		if floor = max(h.dropped(policy), old); floor == h.Floor {
			return nil
		}
		t.exec(trimStream, h.number, floor)
		s.touched(t, id)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return floor, nil
}

// dropped is where a stream begins under the rules of a policy that need no look
// at its chunks.
func (h *streamHead) dropped(policy stream.TrimPolicy) int64 {
	floor := min(max(h.Floor, policy.Through), h.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, h.Last-policy.KeepLast)
	}
	return floor
}

// oldest is the number of a stream, and the last sequence of the chunks at its
// front that a policy drops because of their age.
func (s *streams) oldest(ctx context.Context, id string, policy stream.TrimPolicy) (number, old int64, err error) {
	for {
		h, batches, err := s.batches(ctx, id, "trim", old, maxReadBatches, maxReadBytes)
		if err != nil {
			return 0, 0, err
		}
		if h == nil {
			return 0, 0, notFound("stream %s", id)
		}
		if number = h.number; policy.Before.IsZero() {
			return number, 0, nil
		}
		skipped := old
		old = max(old, h.dropped(policy))
		for _, b := range batches {
			for sequence := max(b.first, old+1); sequence <= b.last; sequence++ {
				if !b.time(h, sequence).Before(policy.Before) {
					return number, old, nil
				}
				old = sequence
			}
		}
		if old == skipped || old >= h.Last {
			return number, old, nil
		}
	}
}

// time is a chunk's, or that of its batch if it has none or cannot be decoded: what
// is damaged must not be kept for ever.
func (b *batch) time(h *streamHead, sequence int64) time.Time {
	if b.sound(h) != nil {
		return b.at
	}
	item, err := decodeChunk(h.ID, sequence, b.lines[sequence-b.first])
	if err != nil || item.Chunk.At.IsZero() {
		return b.at
	}
	return item.Chunk.At
}
