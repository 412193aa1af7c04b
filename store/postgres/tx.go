package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// attempts is how often an operation is made that the server gave up because of a
// deadlock, or that found that it had been overtaken.
const attempts = 10

// tx is a transaction. What it is asked to do is gathered and sent at once when an
// answer is needed, so a transaction takes as many round trips as it has
// questions, and one more.
type tx struct {
	b     *Backend
	conn  *pgxpool.Conn
	batch *pgx.Batch
	ended bool
	done  []func() // for when it stands
}

// A transaction keeps others from rows between its round trips. One whose process
// is gone, perhaps with its whole host, is ended by the server within seconds, and
// nobody waits longer than that for a row.
const (
	limitIdle = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
	limitWait = "SET LOCAL lock_timeout = '5s'"
)

// transact performs an operation in a transaction, which run leaves to be
// committed unless it fails.
func (b *Backend) transact(ctx context.Context, what string, run func(ctx context.Context, t *tx) error) error {
	return b.repeat(ctx, what, func() error { return b.transactOnce(ctx, run) })
}

// repeat performs an operation until it is certain what became of it, within
// reason.
func (b *Backend) repeat(ctx context.Context, what string, run func() error) error {
	if b.closed() {
		return errClosed(what)
	}
	err := b.guard.Err()
	if err != nil {
		return err
	}
	for range attempts {
		if err = run(); err == nil {
			return nil
		}
		b.renew(ctx, err)
		if !isAgain(err) {
			break
		}
		if ctx.Err() != nil {
			err = ctx.Err()
			break
		}
	}
	return b.failure(what, err)
}

// renew has all connections of the backend's own pool made anew once one of them is
// found dead, or to a server that is no longer the primary: the others most likely
// are, too, and each would cost an operation to find out. On a network that cuts
// one connection after the other it would only add to the trouble, so it is not done
// again at once.
func (b *Backend) renew(ctx context.Context, err error) {
	if b.config.Pool != nil || ctx.Err() != nil || !isLost(err) {
		return
	}
	now := time.Now().UnixNano()
	if last := b.renewed.Load(); now-last > int64(renewPause) && b.renewed.CompareAndSwap(last, now) {
		b.pool.Reset()
	}
}

// renewPause is how long at least is between two renewals of all connections.
const renewPause = time.Second

func (b *Backend) transactOnce(ctx context.Context, run func(ctx context.Context, t *tx) error) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	t := &tx{b: b, conn: conn, batch: &pgx.Batch{}}
	t.exec("BEGIN ISOLATION LEVEL READ COMMITTED") // so that what is asked under a lock is told as it is then
	t.exec(limitIdle)
	t.exec(limitWait)
	if err = run(ctx, t); err == nil {
		err = t.finish(ctx)
	}
	if err != nil {
		t.rollback(ctx)
		return err
	}
	for _, f := range t.done {
		f()
	}
	return nil
}

// rollback ends a transaction that failed. A connection that cannot say so is
// thrown away by the pool.
func (t *tx) rollback(ctx context.Context) {
	if t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "ROLLBACK")
}

// exec queues a statement whose result nobody looks at.
func (t *tx) exec(query string, args ...any) {
	t.batch.Queue(t.b.sql(query), args...).Exec(func(pgconn.CommandTag) error { return nil })
}

// count queues a statement and adds the number of rows it changed.
func (t *tx) count(n *int64, query string, args ...any) {
	t.batch.Queue(t.b.sql(query), args...).Exec(func(tag pgconn.CommandTag) error {
		*n += tag.RowsAffected()
		return nil
	})
}

// ask queues a query; row is called for each of its rows when the transaction is
// flushed.
func (t *tx) ask(row func(pgx.Rows) error, query string, args ...any) {
	t.batch.Queue(t.b.sql(query), args...).Query(func(rows pgx.Rows) error { return eachRow(rows, row) })
}

// flush sends what was queued and handles the answers.
func (t *tx) flush(ctx context.Context) error {
	batch := t.batch
	t.batch = &pgx.Batch{}
	return t.conn.SendBatch(ctx, batch).Close()
}

// finish sends what was queued and ends the transaction, unless that was done.
func (t *tx) finish(ctx context.Context) error {
	if t.ended {
		return nil
	}
	t.ended = true
	t.exec("COMMIT")
	return t.flush(ctx)
}

func eachRow(rows pgx.Rows, row func(pgx.Rows) error) error {
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// query runs one query, which is a consistent reading by itself.
func (b *Backend) query(ctx context.Context, what string, row func(pgx.Rows) error, query string, args ...any) error {
	return b.repeat(ctx, what, func() error {
		rows, err := b.pool.Query(ctx, b.sql(query), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return eachRow(rows, row)
	})
}

// part is a statement for the configured schema, and what is done with its rows.
type part struct {
	query string
	args  []any
	row   func(pgx.Rows) error
}

// send sends statements as one transaction, in one round trip.
func (b *Backend) send(ctx context.Context, parts ...part) error {
	if len(parts) == 1 {
		rows, err := b.pool.Query(ctx, parts[0].query, parts[0].args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return eachRow(rows, parts[0].row)
	}
	batch := &pgx.Batch{}
	for _, p := range parts {
		queued := batch.Queue(p.query, p.args...)
		if p.row != nil {
			queued.Query(func(rows pgx.Rows) error { return eachRow(rows, p.row) })
		}
	}
	return b.pool.SendBatch(ctx, batch).Close()
}

// behind sends a statement that locks a row and decides on it: alone, or, if it has
// found that what it saw of other rows was out of date, behind another that takes the
// lock, so that it sees what there is then.
func (b *Backend) behind(ctx context.Context, locked bool, lock string, key []any, change part) error {
	if !locked {
		return b.send(ctx, change)
	}
	return b.send(ctx, part{query: b.sql(lock), args: key}, change)
}

// read runs several queries on one snapshot, in one round trip if they are all
// queued before finish is called.
func (b *Backend) read(ctx context.Context, what string, run func(ctx context.Context, t *tx) error) error {
	return b.repeat(ctx, what, func() error {
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		t := &tx{b: b, conn: conn, batch: &pgx.Batch{}}
		t.exec("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		if err = run(ctx, t); err == nil {
			err = t.finish(ctx)
		}
		if err != nil {
			t.rollback(ctx)
		}
		return err
	})
}

// when is the parameter for a time; none if it is zero.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Truncate(time.Microsecond)
}

// instant scans a time, in UTC, or the zero time where there is none.
type instant struct{ to *time.Time }

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (i instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid {
		*i.to = v.Time.UTC()
	}
	return nil
}

// word scans a text, or an empty one where there is none.
type word struct{ to *string }

// ScanText implements [pgtype.TextScanner].
func (w word) ScanText(v pgtype.Text) error {
	*w.to = v.String
	return nil
}
