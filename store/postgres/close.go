package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
)

const (
	// endStream closes a stream whose last batch is the given one, if the producer that
	// closes it is known to the stream under its current epoch.
	endStream = `
UPDATE helix.streams s
SET revision = s.revision + 1, status = $6, end_doc = $7, output = $8, failure = $9,
    updated_at = coalesce($10::timestamptz, clock_timestamp()),
    run_id = CASE WHEN $11::text <> '' AND (s.run_id = '' OR $12 = $2) THEN $11 ELSE s.run_id END
FROM helix.stream_producers p
WHERE s.tenant = $1 AND s.stream_id = $2 AND s.writer = $3 AND s.writer_epoch = $4 AND s.writer_next = $5 AND s.status = 'active'
  AND p.stream = s.number AND p.producer = $12 AND p.epoch = $13
RETURNING 1`

	// closeRun closes a run that has ended and whose stream has the given batch and
	// status.
	closeRun = `
UPDATE helix.sessions SET owner = '', lease_until = NULL, close_owed_at = NULL
WHERE tenant = $1 AND id = $2 AND owner = $3 AND owner <> '' AND epoch = $4 AND run_status <> 'running'
  AND EXISTS (
      SELECT FROM helix.streams b
      WHERE b.tenant = $1 AND b.stream_id = $5 AND b.writer = $6 AND b.writer_epoch = $7 AND b.writer_next = $8 AND b.status = $9
  )
RETURNING 1`
)

// CloseRun implements [store.Backend]. Chunks, end and close are three statements of
// one transaction, sent in one round trip; each depends on the one before. Whatever
// that does not settle is done one after the other: a repeated close, a refusal, a
// stream that a later epoch has written to.
//
// The stream's row is locked before the session's, as by [Backend.Commit].
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	tenant := cmp.Or(end.Tenant, session.DefaultTenant)
	c := &runClose{CloseRun: end, streams: &streams{b, tenant}}
	var err error
	if c.chunks, err = stored.EncodeBatch(end.Stream, &end.Batch, b.config.MaxChunk); err != nil {
		return err
	}
	if c.how, err = stored.CloseStream(end.Stream, end.End, end.Failure, b.config.MaxChunk); err != nil {
		return err
	}
	if len(c.chunks) == 0 {
		return store.EndThenCloseRun(ctx, b, end)
	}
	err = b.repeat(ctx, what(end.SessionID, "close run"), func(ctx context.Context) error { return c.send(ctx) })
	if err != nil || c.closed {
		return err
	}
	return store.EndThenCloseRun(ctx, b, end)
}

// runClose is the close of a run in one transaction.
type runClose struct {
	*store.CloseRun
	streams *streams
	chunks  []stored.Chunk
	how     *stored.StreamClose // nil if the stream stays open
	alone   bool                // it failed together with others

	added         addition
	ended, closed bool // what was done
}

func (c *runClose) send(ctx context.Context) error {
	s, by := c.streams, c.Batch.Producer
	batch, next := stored.Join(c.chunks), c.Batch.First+int64(len(c.chunks))
	c.added, c.ended, c.closed = addition{}, false, false
	parts := []part{{
		query: s.b.sql(appendBatch), args: s.appendArgs(c.Stream, by, c.Batch.First, len(c.chunks), &batch),
		row: c.added.scan(c.Stream, by.Session), done: func() { s.added(c.Stream, by, &c.added, &batch) },
	}}
	status := "active"
	if how := c.how; how != nil {
		status = string(how.Status)
		parts = append(parts, part{query: s.b.sql(endStream), args: []any{
			s.tenant, c.Stream, by.Session, by.Epoch, next, how.Status, how.End, how.Output, how.Failure, s.b.clock(),
			c.By.RunID, c.By.Session, c.By.Epoch,
		}, row: noted(&c.ended), done: func() {
			if c.ended {
				s.b.changed(s.key(c.Stream))
			}
		}})
	}
	parts = append(parts, part{query: s.b.sql(closeRun), args: []any{
		s.tenant, c.SessionID, c.Fence.Owner, c.Fence.Epoch, c.Stream, by.Session, by.Epoch, next, status,
	}, row: noted(&c.closed)})
	return s.carry(ctx, &c.alone, c.Stream, c.SessionID, parts...)
}

// noted records that a statement has returned a row.
func noted(done *bool) func(pgx.Rows) error {
	return func(pgx.Rows) error {
		*done = true
		return nil
	}
}
