package lite

import (
	"context"
	"iter"
	"math"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is roughly how many bytes of a stream a reader fetches at a time.
const maxReadBytes = 256 << 10

// Read implements [stream.Manager].
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		sub, end := s.b.Readers.Subscribe(s.key(id))
		defer end()
		after := func(ctx context.Context, from int64, view *feed.View) error { return s.after(ctx, id, from, view) }
		feed.Feed{ID: id, From: from, Wait: wait, After: after}.Read(ctx, sub)(yield)
	}
}

// after fills view with what a stream has after a sequence.
func (s *streams) after(ctx context.Context, id string, from int64, view *feed.View) error {
	return s.b.Read(ctx, streamVerb(id, "read"), func(c Conn) error {
		h, err := s.head(c, id, "")
		if err != nil || h == nil {
			return err
		}
		info, err := h.Describe()
		if err != nil {
			return err
		}
		view.Found, view.Info, view.Incarnation = true, *info, h.number
		if h.Holds(from) {
			view.Items, view.Damage = s.chunksAfter(c, h, from, math.MaxInt, maxReadBytes)
		}
		if stored.UnlessCorrupt(view.Damage) != nil {
			return view.Damage
		}
		return nil
	})
}

const selectBatches = `
SELECT key, last_sequence, at, body FROM stream_batches
WHERE key >= ? AND key <= ?
ORDER BY key`

// The batch that contains a sequence is the last one that begins at or before it.
const selectBatchAt = `
SELECT key FROM stream_batches
WHERE key > ? AND key <= ?
ORDER BY key DESC
LIMIT 1`

// chunksAfter reads chunks after a sequence, which is not below the floor, up to a
// limit and to roughly a number of bytes. If a chunk cannot be read, the chunks
// before it are returned together with the error.
func (s *streams) chunksAfter(c Conn, h *streamHead, from int64, limit, size int) ([]stream.Item, error) {
	var items []stream.Item
	for b, err := range s.batches(c, h, from) {
		if err != nil {
			return items, err
		}
		for sequence, line := range b.After(from) {
			if len(items) == limit || size < 0 {
				return items, nil
			}
			item, err := stored.DecodeChunk(h.ID, sequence, line)
			if err != nil {
				return items, err
			}
			items = append(items, item)
			size -= len(line)
		}
	}
	return items, nil
}

// readBatch reads a batch. If it is damaged, the other fields of its row are
// returned with the error.
func readBatch(h *streamHead, r *Row) (*stored.BatchRow, error) {
	b := stored.NewBatchRow(r.Int64()-rowKey(h.number, 0), r.Int64(), r.Time(), r.Bytes())
	err := b.Check(h.ID)
	return b, err
}

// batches yields batches, starting with the one that contains the chunk after a
// sequence.
func (s *streams) batches(c Conn, h *streamHead, from int64) iter.Seq2[*stored.BatchRow, error] {
	return func(yield func(*stored.BatchRow, error) bool) {
		if from >= h.Last {
			return
		}
		start := rowKey(h.number, from+1)
		r, err := c.One(selectBatchAt, rowKey(h.number, 0), start)
		if err != nil {
			yield(nil, err)
			return
		}
		if r != nil {
			start = r.Int64()
		}
		for r, err := range c.Query(selectBatches, start, lastKey(h.number)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(readBatch(h, r)) {
				return
			}
		}
	}
}

// headFrom reads a stream that must have every chunk after a sequence.
func (s *streams) headFrom(c Conn, id string, from int64) (*streamHead, error) {
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
	err = s.b.Read(ctx, streamVerb(id, "list chunks"), func(c Conn) error {
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
	if err != nil {
		return nil, err
	}
	return items, nil
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
	err = s.b.Write(ctx, streamVerb(id, "trim"), func(t *Tx) error {
		h, err := s.mustHead(t.Conn, id, "")
		if err != nil {
			return err
		}
		if floor, err = s.newFloor(t.Conn, h, policy); err != nil || floor == h.Floor {
			return err
		}
		doomed := []any{rowKey(h.number, 0), rowKey(h.number, floor), floor, h.Last}
		r, err := t.One(measureBatches, doomed...)
		if err != nil {
			return err
		}
		h.Floor, h.trimmed = floor, min(h.trimmed+r.Int64(), h.total) // some may never have been counted
		t.touch(s.key(id))
		if err := s.writeStream(t, h); err != nil {
			return err
		}
		_, err = t.Exec(deleteBatches, doomed...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return floor, nil
}

// newFloor returns the floor of a stream under a policy: the last chunk that any
// of its rules drops.
func (s *streams) newFloor(c Conn, h *streamHead, policy stream.TrimPolicy) (int64, error) {
	floor := min(max(h.Floor, policy.Through), h.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, h.Last-policy.KeepLast)
	}
	if policy.Before.IsZero() {
		return floor, nil
	}
	for b, err := range s.batches(c, h, floor) {
		if stored.UnlessCorrupt(err) != nil {
			return 0, err
		}
		for sequence := max(b.First, floor+1); sequence <= b.Last; sequence++ {
			if !b.Time(h.ID, sequence).Before(policy.Before) {
				return floor, nil
			}
			floor = sequence
		}
	}
	return floor, nil
}
