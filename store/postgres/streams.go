package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// streams is the stream manager, scoped to one tenant.
type streams struct {
	b      *Backend
	tenant string
}

var _ stream.Manager = (*streams)(nil)

// streamKey addresses a stream.
type streamKey struct{ tenant, id string }

// Tenant implements [stream.Manager].
func (s *streams) Tenant(tenant string) stream.Manager {
	return &streams{s.b, cmp.Or(tenant, session.DefaultTenant)}
}

// Limits implements [stream.Manager].
func (s *streams) Limits() stream.Limits { return stream.Limits{MaxChunk: s.b.config.MaxChunk} }

func (s *streams) key(id string) streamKey { return streamKey{s.tenant, id} }

func streamVerb(id, verb string) string { return "stream " + id + ": " + verb }

// streamHead is a stream's row, with the state of one producer.
type streamHead struct {
	stored.StreamHead
	number   int64 // the number that keys its rows; 0 before it has one
	revision int64

	writer string // the last producer
	now    time.Time
}

const (
	streamColumns = `
       s.number, s.revision, s.status, s.floor, s.last_sequence, s.run_id, s.writer, s.writer_epoch, s.writer_next,
       s.end_doc, s.output, s.failure, s.created_at, s.updated_at, s.bytes`

	selectStream = `
SELECT` + streamColumns + `, NULL::bigint, NULL::bigint, coalesce($3::timestamptz, clock_timestamp())
FROM helix.streams s
WHERE s.tenant = $1 AND s.stream_id = $2`

	lockStream = `
SELECT FROM helix.streams WHERE tenant = $1 AND stream_id = $2 FOR NO KEY UPDATE`

	selectStreamFor = `
SELECT` + streamColumns + `, p.epoch, p.next, coalesce($3::timestamptz, clock_timestamp())
FROM helix.streams s LEFT JOIN helix.stream_producers p ON p.stream = s.number AND p.producer = $4
WHERE s.tenant = $1 AND s.stream_id = $2`
)

func scanStream(id, producer string, rows pgx.Rows, more ...any) (*streamHead, error) {
	h := &streamHead{}
	h.ID = id
	var epoch, next *int64
	err := rows.Scan(append([]any{
		&h.number, &h.revision, &h.Status, &h.Floor, &h.Last, &h.RunID, &h.writer, &h.WriterState.Epoch, &h.WriterState.Next,
		&h.EndDoc, &h.Output, &h.Failure,
		instant{&h.CreatedAt},
		instant{&h.UpdatedAt},
		&h.Bytes, &epoch, &next,
		instant{&h.now},
	}, more...)...)
	switch {
	case h.writer == producer:
		h.Producer = &h.WriterState
	case epoch != nil:
		h.Producer = &stored.ProducerState{Epoch: *epoch, Next: *next}
	}
	return h, err
}

// lock reads a stream and locks it, or returns nil.
func (s *streams) lock(ctx context.Context, t *tx, id, producer string) (h *streamHead, err error) {
	s.askLocked(t, id, producer, &h)
	return h, t.flush(ctx)
}

// askLocked queues the same.
func (s *streams) askLocked(t *tx, id, producer string, h **streamHead) {
	t.exec(lockStream, s.tenant, id)
	t.ask(func(rows pgx.Rows) (err error) {
		*h, err = scanStream(id, producer, rows)
		return err
	}, selectStreamFor, s.tenant, id, s.b.clock(), producer)
}

const (
	insertStream = `
INSERT INTO helix.streams (tenant, stream_id, revision, status, floor, last_sequence, run_id, writer, writer_epoch, writer_next, created_at, updated_at)
VALUES ($1, $2, 1, $3, 0, 0, $4, $5, $6, 0, $7, $7)`

	updateStream = `
UPDATE helix.streams
SET revision = revision + 1, status = $2, floor = $3, run_id = $4, writer = $5, writer_epoch = $6, writer_next = $7,
    end_doc = $8, output = $9, failure = $10, updated_at = $11
WHERE number = $1`

	upsertProducer = `
INSERT INTO helix.stream_producers (stream, producer, epoch, next) VALUES ($1, $2, $3, $4)
ON CONFLICT (stream, producer) DO UPDATE SET epoch = excluded.epoch, next = excluded.next`
)

// write queues a stream's row.
func (s *streams) write(t *tx, h *streamHead) {
	t.exec(updateStream, h.number, h.Status, h.Floor, h.RunID, h.writer, h.WriterState.Epoch, h.WriterState.Next,
		h.EndDoc, h.Output, h.Failure, when(h.UpdatedAt))
	s.touched(t, h.ID)
}

// touched notifies readers once the transaction is committed.
func (s *streams) touched(t *tx, ids ...string) {
	t.done = append(t.done, func() {
		for _, id := range ids {
			s.b.changed(s.key(id))
		}
	})
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (info *stream.Info, err error) {
	err = s.b.query(ctx, streamVerb(id, "info"), func(rows pgx.Rows) error {
		h, err := scanStream(id, "", rows)
		if err == nil {
			info, err = h.Describe()
		}
		return err
	}, selectStream, s.tenant, id, s.b.clock())
	if err == nil && info == nil {
		err = notFound("stream %s", id)
	}
	return info, err
}

// End implements [stream.Manager].
func (s *streams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	how, err := stored.EndStream(id, end, s.b.config.MaxChunk)
	if err != nil {
		return err
	}
	return s.shut(ctx, id, by, how)
}

// Fail implements [stream.Manager].
func (s *streams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	how, err := stored.FailStream(id, failure)
	if err != nil {
		return err
	}
	return s.shut(ctx, id, by, how)
}

func (s *streams) shut(ctx context.Context, id string, by stream.Producer, how *stored.StreamClose) error {
	return s.b.transact(ctx, streamVerb(id, "close"), func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id, by.Session)
		if err != nil {
			return err
		}
		if h == nil {
			return notFound("stream %s", id)
		}
		if h.Close(by, how) {
			s.reopened(t, h, by)
		} else { // perhaps the answer to an earlier try was lost, and nobody was told
			s.touched(t, h.ID)
		}
		return nil
	})
}

// reopened queues a stream whose status a producer has changed. The producer's
// epoch is recorded even if it has not written yet.
func (s *streams) reopened(t *tx, h *streamHead, by stream.Producer) {
	h.Enter(by)
	h.UpdatedAt = h.now
	if h.Producer == nil || h.Producer.Epoch < by.Epoch {
		if h.writer == by.Session {
			h.WriterState = stored.ProducerState{Epoch: by.Epoch}
		} else {
			t.exec(upsertProducer, h.number, by.Session, by.Epoch, 0)
		}
	}
	s.write(t, h)
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (info *stream.Info, err error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	var writer string
	err = s.b.transact(ctx, streamVerb(id, "reactivate"), func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id, by.Session)
		if err != nil {
			return err
		}
		if h == nil {
			writer = by.Session
			info, err = s.create(ctx, t, id, by)
			return err
		}
		writer = h.writer
		info, err = s.reactivate(t, h, by)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.b.writers.note(s.key(id), writer)
	return info, nil
}

// reactivate queues the reactivation of a stream that is locked.
func (s *streams) reactivate(t *tx, h *streamHead, by stream.Producer) (*stream.Info, error) {
	if err := h.CheckEpoch(by); err != nil {
		return nil, err
	}
	h.Status, h.EndDoc, h.Output, h.Failure = stream.StatusActive, nil, nil, nil
	s.reopened(t, h, by)
	return h.Describe()
}

// now returns the store's time; it is queried only if no row that was read
// contains it.
func (s *streams) now(ctx context.Context, t *tx) (now time.Time, err error) {
	if at, ok := s.b.clock().(time.Time); ok {
		return at.UTC(), nil
	}
	t.ask(func(rows pgx.Rows) error { return rows.Scan(instant{&now}) }, "SELECT clock_timestamp()")
	return now, t.flush(ctx)
}

// create creates a stream. Its producer is recorded as the last one.
func (s *streams) create(ctx context.Context, t *tx, id string, by stream.Producer) (*stream.Info, error) {
	now, err := s.now(ctx, t)
	if err != nil {
		return nil, err
	}
	info := s.insert(t, id, by, now)
	if err := t.flush(ctx); isDuplicate(err, "streams_by_id") {
		return nil, errAgain // another process has just created it
	} else if err != nil {
		return nil, err
	}
	return info, nil
}

// insert queues the row of a new stream.
func (s *streams) insert(t *tx, id string, by stream.Producer, now time.Time) *stream.Info {
	h := &streamHead{StreamHead: stored.StreamHead{
		Info: stream.Info{ID: id, Status: stream.StatusActive, CreatedAt: now, UpdatedAt: now},
	}}
	h.Enter(by)
	t.exec(insertStream, s.tenant, id, h.Status, h.RunID, by.Session, by.Epoch, when(now))
	s.touched(t, id)
	return &h.Info
}

// Delete implements [stream.Manager].
func (s *streams) Delete(ctx context.Context, id string) error {
	return s.b.transactBulk(ctx, streamVerb(id, "delete"), func(ctx context.Context, t *tx) error {
		found, err := s.delete(ctx, t, []string{id})
		if err == nil && !found {
			err = notFound("stream %s", id)
		}
		return err
	})
}

const selectDoomed = `
SELECT number FROM helix.streams WHERE tenant = $1 AND stream_id = ANY ($2::text[]) ORDER BY number FOR UPDATE`

// delete removes streams and reports whether there were any.
func (s *streams) delete(ctx context.Context, t *tx, ids []string) (bool, error) {
	var numbers []int64
	t.ask(func(rows pgx.Rows) error {
		var number int64
		err := rows.Scan(&number)
		numbers = append(numbers, number)
		return err
	}, selectDoomed, s.tenant, ids)
	if err := t.flush(ctx); err != nil || len(numbers) == 0 {
		return false, err
	}
	for _, query := range ownedByStream {
		t.exec(query, numbers)
	}
	s.touched(t, ids...)
	return true, nil
}
