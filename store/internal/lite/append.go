package lite

import (
	"context"
	"fmt"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// appending is a batch that was ordered.
type appending struct {
	Ordered
	last int64 // valid once the write has succeeded
}

// Wait implements [stream.Append].
func (a *appending) Wait(ctx context.Context) (int64, error) {
	if err := a.Ordered.Wait(ctx); err != nil {
		return 0, err
	}
	return a.last, nil
}

// Append implements [stream.Manager]. The batch shares the transaction of the next
// write of this process, or gets its own when a caller waits for it or after a
// short delay. Once it is ordered it is written regardless of ctx, because its
// producer's next numbers build on it.
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	name := streamVerb(id, "append")
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	chunks, err := stored.EncodeBatch(id, &batch, s.b.MaxChunk)
	if err != nil {
		return nil, err
	}
	a := &appending{}
	a.Ordered, err = s.b.WriteLater(name, func(t *Tx) (err error) {
		a.last, err = s.append(t, id, batch.Producer, batch.First, chunks)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

const insertBatch = `
INSERT INTO stream_batches (key, last_sequence, producer, epoch, next, run_id, last_step, at, pieces, body, total_bytes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// append adds a batch and returns the sequence of its last chunk.
func (s *streams) append(t *Tx, id string, by stream.Producer, first int64, chunks []stored.Chunk) (int64, error) {
	now := s.b.Now()
	h := t.cache.stream(s.key(id), by.Session)
	if h == nil {
		var err error
		if h, err = s.head(t.Conn, id, by.Session); err != nil {
			return 0, err
		}
	}
	if h == nil {
		return 0, notFound("stream %s", id)
	}
	if err := h.CheckEpoch(by); err != nil {
		return 0, err
	}
	next := first + int64(len(chunks))
	if p := h.Producer; p != nil && p.Epoch == by.Epoch {
		switch {
		case p.Next > 0 && first > p.Next:
			return 0, stream.Gap(id, by, p.Next, first)
		case p.Next >= next && len(chunks) > 0:
			return s.sequenceOf(t.Conn, h, by, next-1)
		case p.Next > first:
			chunks = chunks[min(p.Next-first, int64(len(chunks))):]
		}
	}
	if h.Status != stream.StatusActive {
		return 0, session.ErrStreamClosed.WithMessage("stream %s is %s", id, h.Status)
	}
	run := h.RunID
	h.Enter(by)
	if h.RunID != run {
		if err := s.writeStream(t, h); err != nil {
			return 0, err
		}
	}
	if len(chunks) == 0 {
		return h.Last, nil
	}
	if h.Last > 0 && h.writer != by.Session {
		if err := s.writeProducer(t, h, h.writer, h.WriterState); err != nil {
			return 0, err
		}
	}
	j := stored.Join(chunks)
	if h.Last+int64(j.Lines) > maxNumber {
		return 0, session.ErrTooLarge.WithMessage("stream %s cannot have more than %d chunks", id, int64(maxNumber))
	}
	first = h.Last + 1
	h.Last += int64(j.Lines)
	h.total += int64(len(j.Body))
	h.writer, h.WriterState = by.Session, stored.ProducerState{Epoch: by.Epoch, Next: next}
	_, err := t.Exec(insertBatch, rowKey(h.number, first), h.Last, by.Session, by.Epoch, next, j.RunID, j.Step, now, j.Pieces, j.Body, h.total)
	if err != nil {
		return 0, err
	}
	t.added(s.key(id), &feed.Batch{
		Incarnation: h.number, First: first, Last: h.Last, Bytes: len(j.Body),
		Items: func(after int64) ([]stream.Item, error) { return j.Items(id, first, after) },
	})
	t.cache.rememberStream(s.key(id), h)
	return h.Last, nil
}

const selectBatchesOf = `
SELECT key, last_sequence, next, pieces FROM stream_batches
WHERE key > ? AND key <= ? AND producer = ? AND epoch = ?
ORDER BY key DESC`

// sequenceOf returns the sequence of a producer's chunk that was appended before,
// or the floor if the chunk was trimmed.
func (s *streams) sequenceOf(c Conn, h *streamHead, by stream.Producer, number int64) (int64, error) {
	for r, err := range c.Query(selectBatchesOf, rowKey(h.number, 0), lastKey(h.number), by.Session, by.Epoch) {
		if err != nil {
			return 0, err
		}
		first, last, next, pieces := r.Int64()-rowKey(h.number, 0), r.Int64(), r.Int64(), r.Bytes()
		if pieces == nil {
			if at := last - (next - 1 - number); at >= first {
				return max(at, h.Floor), nil
			}
			continue
		}
		var counts []int64
		if err := session.Decode("stream "+h.ID+": the pieces of a batch", pieces, &counts); err != nil {
			return 0, err
		}
		for _, count := range slices.Backward(counts) {
			if next--; next == number {
				return max(last, h.Floor), nil
			}
			last -= count
		}
	}
	return h.Floor, nil
}
