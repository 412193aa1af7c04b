package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// appended is a batch that is durable.
type appended int64

// Wait implements [stream.Append].
func (a appended) Wait(context.Context) (int64, error) { return int64(a), nil }

// Append implements [stream.Manager]. It is one statement: when it returns, the
// batch is durable, and therefore precedes everything that the caller writes
// afterwards.
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	chunks, err := stored.EncodeBatch(id, &batch, s.b.config.MaxChunk)
	if err != nil {
		return nil, err
	}
	var last int64
	locked := false
	err = s.b.repeat(ctx, streamVerb(id, "append"), func(ctx context.Context) (err error) {
		last, err = s.append(ctx, id, batch.Producer, batch.First, chunks, locked)
		locked = true // for the next attempt, if there is one
		return err
	})
	if err != nil {
		return nil, err
	}
	return appended(last), nil
}

// appendBatch adds a batch that continues its producer's numbering exactly and
// returns the stream's state; the caller decides about any other batch.
//
// The state of the last producer is in the stream's own row, which is locked. The
// state of another producer is in a separate row, which the statement may see in
// an outdated version if the stream has changed while it waited for the lock. It
// then does nothing, and is repeated after another statement that takes the lock.
const appendBatch = `
WITH cur AS MATERIALIZED (
    SELECT number, revision, status, floor, last_sequence, run_id, writer, writer_epoch, writer_next, end_doc, output, failure,
           created_at, updated_at, bytes, coalesce($3::timestamptz, clock_timestamp()) AS now
    FROM helix.streams
    WHERE tenant = $1 AND stream_id = $2
    FOR NO KEY UPDATE
),
seen AS MATERIALIZED (
    SELECT s.revision, p.epoch, p.next
    FROM helix.streams s LEFT JOIN helix.stream_producers p ON p.stream = s.number AND p.producer = $4
    WHERE s.tenant = $1 AND s.stream_id = $2
),
at AS MATERIALIZED (
    SELECT CASE WHEN cur.writer = $4 THEN cur.writer_epoch ELSE seen.epoch END AS epoch,
           CASE WHEN cur.writer = $4 THEN cur.writer_next ELSE seen.next END AS next,
           cur.writer = $4 OR cur.revision = seen.revision AS fresh
    FROM cur, seen
),
ok AS (
    UPDATE helix.streams s
    SET revision = s.revision + 1, last_sequence = s.last_sequence + $8, writer = $4, writer_epoch = $5, writer_next = $7,
        run_id = CASE WHEN $9::text <> '' AND (s.run_id = '' OR $4 = $2) THEN $9 ELSE s.run_id END, updated_at = cur.now,
        bytes = s.bytes + length($13::bytea)
    FROM cur, at
    WHERE s.number = cur.number AND cur.status = 'active' AND at.fresh
      AND (at.epoch IS NULL OR at.epoch < $5 OR (at.epoch = $5 AND at.next IN (0, $6::bigint)))
    RETURNING s.number, s.last_sequence, cur.now
),
moved AS (
    INSERT INTO helix.stream_producers (stream, producer, epoch, next)
    SELECT cur.number, cur.writer, cur.writer_epoch, cur.writer_next FROM ok, cur
    WHERE cur.writer <> $4
    ON CONFLICT (stream, producer) DO UPDATE SET epoch = excluded.epoch, next = excluded.next
),
added AS (
    INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
    SELECT ok.number, ok.last_sequence, ok.last_sequence - $8 + 1, $4, $5, $7, $10, $11, ok.now, $12, $13 FROM ok
)
SELECT cur.number, cur.revision, cur.status, cur.floor, cur.last_sequence, cur.run_id, cur.writer, cur.writer_epoch, cur.writer_next,
       cur.end_doc, cur.output, cur.failure, cur.created_at, cur.updated_at, cur.bytes, at.epoch, at.next, cur.now,
       coalesce(at.fresh, false), ok.last_sequence
FROM cur LEFT JOIN at ON true LEFT JOIN ok ON true`

// appendArgs returns the parameters of appendBatch.
func (s *streams) appendArgs(id string, by stream.Producer, first int64, chunks int, j *stored.Batch) []any {
	next := first + int64(chunks)
	return []any{s.tenant, id, s.b.clock(), by.Session, by.Epoch, first, next, j.Lines, by.RunID, j.RunID, j.Step, j.Pieces, j.Body}
}

// addition is the result of appendBatch.
type addition struct {
	h      *streamHead // nil if there is no stream
	number int64       // of the stream
	fresh  bool        // whether it saw the producer's row as of the time it got the lock
	last   *int64      // the sequence of the last chunk, if the batch was added
}

func (a *addition) scan(id, producer string) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		if a.h, err = scanStream(id, producer, rows, &a.fresh, &a.last); err == nil {
			a.number = a.h.number
		}
		return err
	}
}

// added tells readers of a batch, if it was added.
func (s *streams) added(id string, by stream.Producer, a *addition, batch *stored.Batch) {
	if a.last != nil {
		s.b.published(s.key(id), a.number, *a.last, batch)
		s.b.writers.note(s.key(id), by.Session)
	}
}

// append adds a batch and returns the sequence of its last chunk.
func (s *streams) append(ctx context.Context, id string, by stream.Producer, first int64, chunks []stored.Chunk, locked bool) (int64, error) {
	if len(chunks) == 0 {
		return s.appendNothing(ctx, id, by, first)
	}
	var a addition
	batch := stored.Join(chunks)
	args := s.appendArgs(id, by, first, len(chunks), &batch)
	add := part{s.b.sql(appendBatch), args, a.scan(id, by.Session), func() { s.added(id, by, &a, &batch) }}
	err := s.b.carry(ctx, locked, lockStream, s.tenant, id, add)
	switch {
	case err != nil:
		return 0, err
	case a.h == nil:
		return 0, notFound("stream %s", id)
	case a.last != nil:
		return *a.last, nil
	case !a.fresh:
		return 0, errAgain
	}
	return s.appendRest(ctx, a.h, by, first, chunks)
}

// appendRest decides about a batch that does not continue its producer's numbering
// exactly: the stream has all of it already, or its front.
func (s *streams) appendRest(ctx context.Context, h *streamHead, by stream.Producer, first int64, chunks []stored.Chunk) (int64, error) {
	if err := h.CheckEpoch(by); err != nil {
		return 0, err
	}
	next := first + int64(len(chunks))
	if p := h.Producer; p != nil && p.Epoch == by.Epoch && p.Next > 0 {
		switch {
		case first > p.Next:
			return 0, stream.Gap(h.ID, by, p.Next, first)
		case p.Next >= next:
			return s.sequenceOf(ctx, h, by, next-1)
		case p.Next > first && h.Status == stream.StatusActive:
			return s.append(ctx, h.ID, by, p.Next, chunks[p.Next-first:], true)
		}
	}
	if h.Status != stream.StatusActive {
		return 0, session.ErrStreamClosed.WithMessage("stream %s is %s", h.ID, h.Status)
	}
	return 0, errAgain // the stream has changed since
}

// appendNothing is an append without chunks, which is only validated.
func (s *streams) appendNothing(ctx context.Context, id string, by stream.Producer, first int64) (last int64, err error) {
	err = s.b.transactOnce(ctx, s.b.pool, nil, func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id, by.Session)
		if err != nil {
			return err
		}
		if h == nil {
			return notFound("stream %s", id)
		}
		if err := h.CheckEpoch(by); err != nil {
			return err
		}
		if p := h.Producer; p != nil && p.Epoch == by.Epoch && p.Next > 0 && first > p.Next {
			return stream.Gap(id, by, p.Next, first)
		}
		if h.Status != stream.StatusActive {
			return session.ErrStreamClosed.WithMessage("stream %s is %s", id, h.Status)
		}
		last = h.Last
		run := h.RunID
		if h.Enter(by); h.RunID != run {
			s.write(t, h)
		}
		return nil
	})
	return last, err
}

const selectBatchesOf = `
SELECT first_sequence, last_sequence, next, pieces FROM helix.stream_batches
WHERE stream = $1 AND producer = $2 AND epoch = $3 AND next > $4
ORDER BY last_sequence
LIMIT 1`

// sequenceOf returns the sequence of a producer's chunk that was appended before,
// or the floor if the chunk was trimmed. Within an epoch a producer's numbers
// increase with the sequences. It tells readers of the stream again: if the answer to
// the append was lost, nobody has told them.
func (s *streams) sequenceOf(ctx context.Context, h *streamHead, by stream.Producer, number int64) (int64, error) {
	at := h.Floor
	var damage error
	err := s.b.query(ctx, streamVerb(h.ID, "find a chunk"), func(rows pgx.Rows) error {
		var (
			first, last, next int64
			pieces            []byte
		)
		if err := rows.Scan(&first, &last, &next, &pieces); err != nil {
			return err
		}
		if pieces == nil {
			if found := last - (next - 1 - number); found >= first {
				at = max(found, h.Floor)
			}
			return nil
		}
		var counts []int64
		damage = session.Decode("stream "+h.ID+": the pieces of a batch", pieces, &counts)
		for _, count := range slices.Backward(counts) {
			if next--; next == number {
				at = max(last, h.Floor)
			}
			last -= count
		}
		return nil
	}, selectBatchesOf, h.number, by.Session, by.Epoch, number)
	if err == nil {
		err = damage
	}
	if err == nil {
		s.b.changed(s.key(h.ID))
	}
	return at, err
}
