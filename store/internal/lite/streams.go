package lite

import (
	"cmp"
	"context"
	"time"

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

// StreamKey addresses a stream.
type StreamKey struct{ tenant, id string }

// Tenant implements [stream.Manager].
func (s *streams) Tenant(tenant string) stream.Manager {
	return &streams{s.b, cmp.Or(tenant, session.DefaultTenant)}
}

// Limits implements [stream.Manager].
func (s *streams) Limits() stream.Limits { return stream.Limits{MaxChunk: s.b.MaxChunk} }

func (s *streams) key(id string) StreamKey { return StreamKey{s.tenant, id} }

func streamVerb(id, verb string) string { return "stream " + id + ": " + verb }

// streamHead is a stream's row, with its latest batch and the state of one
// producer.
type streamHead struct {
	stored.StreamHead
	number int64 // the number that keys its rows; 0 before it has one
	// The bytes of all batches ever counted, and of those among them that were
	// trimmed.
	total, trimmed int64

	writer string // the producer of the latest batch
}

const selectStream = `
SELECT s.number, s.status, s.floor, s.run_id, s.end_doc, s.output, s.failure, s.created_at, s.updated_at, s.trimmed_bytes,
       p.epoch, p.next, b.last_sequence, b.producer, b.epoch, b.next, b.at, b.total_bytes
FROM streams s
LEFT JOIN stream_producers p ON p.stream = s.number AND p.producer = ?
LEFT JOIN stream_batches b ON b.key > s.number << 32 AND b.key < (s.number + 1) << 32
WHERE s.tenant = ? AND s.stream_id = ?
ORDER BY b.key DESC
LIMIT 1`

// head reads a stream, or returns nil.
func (s *streams) head(c Conn, id, producer string) (*streamHead, error) {
	r, err := c.One(selectStream, producer, s.tenant, id)
	if err != nil || r == nil {
		return nil, err
	}
	h := &streamHead{}
	h.ID, h.number, h.Status, h.Floor, h.RunID = id, r.Int64(), stream.Status(r.Text()), r.Int64(), r.Text()
	h.EndDoc, h.Output, h.Failure, h.CreatedAt, h.UpdatedAt, h.trimmed = r.Bytes(), r.Bytes(), r.Bytes(), r.Time(), r.Time(), r.Int64()
	if r.values[r.next] != nil {
		h.Producer = &stored.ProducerState{Epoch: r.Int64(), Next: r.Int64()}
	} else {
		r.next += 2
	}
	h.Last, h.writer, h.WriterState = r.Int64(), r.Text(), stored.ProducerState{Epoch: r.Int64(), Next: r.Int64()}
	if at := r.Time(); at.After(h.UpdatedAt) {
		h.UpdatedAt = at
	}
	h.total = r.Int64()
	h.Bytes = max(h.total-h.trimmed, 0)
	if h.Last > 0 && h.writer == producer && (h.Producer == nil || h.Producer.Before(h.WriterState)) {
		h.Producer = &h.WriterState
	}
	return h, nil
}

// mustHead reads a stream that must exist.
func (s *streams) mustHead(c Conn, id, producer string) (*streamHead, error) {
	h, err := s.head(c, id, producer)
	if err == nil && h == nil {
		err = notFound("stream %s", id)
	}
	return h, err
}

const (
	insertStream = `
INSERT INTO streams (status, floor, run_id, end_doc, output, failure, updated_at, created_at, tenant, stream_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	updateStream = `
UPDATE streams SET status = ?, floor = ?, run_id = ?, end_doc = ?, output = ?, failure = ?, updated_at = ?, trimmed_bytes = ?
WHERE number = ?`

	// The progress of a producer never decreases: the latest batch may belong to an
	// earlier epoch.
	upsertProducer = `
INSERT INTO stream_producers (stream, producer, epoch, next) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET epoch = excluded.epoch, next = excluded.next
WHERE (excluded.epoch, excluded.next) > (epoch, next)`
)

// writeStream stores a stream's row; a new one gets its number.
func (s *streams) writeStream(t *Tx, h *streamHead) (err error) {
	args := []any{h.Status, h.Floor, h.RunID, h.EndDoc, h.Output, h.Failure, h.UpdatedAt}
	if h.number == 0 {
		h.number, err = t.Insert(insertStream, append(args, h.CreatedAt, s.tenant, h.ID)...)
		return err
	}
	delete(t.cache.streams, s.key(h.ID))
	_, err = t.Exec(updateStream, append(args, h.trimmed, h.number)...)
	return err
}

func (s *streams) writeProducer(t *Tx, h *streamHead, producer string, at stored.ProducerState) error {
	delete(t.cache.streams, s.key(h.ID))
	_, err := t.Exec(upsertProducer, h.number, producer, at.Epoch, at.Next)
	return err
}

// newHead returns the head of a stream that does not exist yet.
func (s *streams) newHead(id string, now time.Time) *streamHead {
	return &streamHead{StreamHead: stored.StreamHead{
		Info: stream.Info{ID: id, Status: stream.StatusActive, CreatedAt: now, UpdatedAt: now},
	}}
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (info *stream.Info, err error) {
	err = s.b.Read(ctx, streamVerb(id, "info"), func(c Conn) error {
		h, err := s.mustHead(c, id, "")
		if err != nil {
			return err
		}
		info, err = h.Describe()
		return err
	})
	return info, err
}

// End implements [stream.Manager].
func (s *streams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	how, err := stored.EndStream(id, end, s.b.MaxChunk)
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
	return s.b.Write(ctx, streamVerb(id, "close"), func(t *Tx) error { return s.close(t, id, by, how) })
}

func (s *streams) close(t *Tx, id string, by stream.Producer, how *stored.StreamClose) error {
	h, err := s.mustHead(t.Conn, id, by.Session)
	if err != nil {
		return err
	}
	if !h.Close(by, how) {
		return nil
	}
	return s.reopened(t, h, by)
}

// reopened stores a stream whose status a producer has changed. The producer's
// epoch is recorded even if it has not written yet.
func (s *streams) reopened(t *Tx, h *streamHead, by stream.Producer) error {
	h.Enter(by)
	h.UpdatedAt = s.b.Now()
	t.touch(s.key(h.ID))
	if err := s.writeStream(t, h); err != nil {
		return err
	}
	if h.Producer != nil && h.Producer.Epoch >= by.Epoch {
		return nil
	}
	return s.writeProducer(t, h, by.Session, stored.ProducerState{Epoch: by.Epoch})
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (info *stream.Info, err error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	err = s.b.Write(ctx, streamVerb(id, "reactivate"), func(t *Tx) (err error) {
		info, err = s.reactivate(t, id, by)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (s *streams) reactivate(t *Tx, id string, by stream.Producer) (*stream.Info, error) {
	h, err := s.head(t.Conn, id, by.Session)
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = s.newHead(id, s.b.Now())
	}
	if err := h.CheckEpoch(by); err != nil {
		return nil, err
	}
	h.Status, h.EndDoc, h.Output, h.Failure = stream.StatusActive, nil, nil, nil
	if err := s.reopened(t, h, by); err != nil {
		return nil, err
	}
	return h.Describe()
}

// Delete implements [stream.Manager].
func (s *streams) Delete(ctx context.Context, id string) error {
	return s.b.Write(ctx, streamVerb(id, "delete"), func(t *Tx) error {
		found, err := deleteStream(t, s.key(id))
		if err == nil && !found {
			err = notFound("stream %s", id)
		}
		return err
	})
}

// deleteStream removes a stream and reports whether there was one.
func deleteStream(t *Tx, key StreamKey) (bool, error) {
	r, err := t.One("SELECT number FROM streams WHERE tenant = ? AND stream_id = ?", key.tenant, key.id)
	if err != nil || r == nil {
		return false, err
	}
	t.touch(key)
	delete(t.cache.streams, key)
	number := r.Int64()
	for _, query := range []string{
		"DELETE FROM streams WHERE number = ?1",
		"DELETE FROM stream_batches WHERE key > ?1 << 32 AND key < (?1 + 1) << 32",
		"DELETE FROM stream_producers WHERE stream = ?1",
	} {
		if _, err := t.Exec(query, number); err != nil {
			return true, err
		}
	}
	return true, nil
}
