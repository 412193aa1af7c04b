package postgres

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// attempts is how often an operation is tried that the server aborted because of a
// deadlock, or that was overtaken by another.
const attempts = 10

// tx is a transaction. Its statements are queued and sent together when a result
// is needed, so a transaction takes as many round trips as it needs results, and
// one more.
type tx struct {
	b     *Backend
	conn  *pgxpool.Conn
	batch *pgx.Batch
	began bool // rows were handled
	ended bool
	done  []func() // called once it is committed
}

// A transaction keeps rows locked between its round trips. If its process has
// died, perhaps with its host, the server ends it within seconds, and nobody waits
// longer than that for a row.
const (
	limitIdle = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
	limitWait = "SET LOCAL lock_timeout = '5s'"
)

// transact performs an operation in a transaction, which is committed unless run
// fails.
func (b *Backend) transact(ctx context.Context, what string, run func(ctx context.Context, t *tx) error) error {
	return b.transactWithin(ctx, b.config.CallTimeout, b.pool, what, run)
}

// transactBulk is transact for an operation that deletes much.
func (b *Backend) transactBulk(ctx context.Context, what string, run func(ctx context.Context, t *tx) error) error {
	return b.transactWithin(ctx, bulkFactor*b.config.CallTimeout, b.pool, what, run)
}

// transactWithin is transact with a limit, on a connection of one of the backend's pools.
func (b *Backend) transactWithin(
	ctx context.Context, limit time.Duration, pool *pgxpool.Pool, what string, run func(ctx context.Context, t *tx) error,
) error {
	var once late
	return b.repeatWithin(ctx, limit, what, func(ctx context.Context) error { return b.transactOnce(ctx, pool, &once, run) })
}

// repeat performs an operation until its result is certain, for a bounded number
// of attempts, within [Config].CallTimeout.
func (b *Backend) repeat(ctx context.Context, what string, run func(context.Context) error) error {
	return b.repeatWithin(ctx, b.config.CallTimeout, what, run)
}

// repeatWithin is repeat with another limit.
func (b *Backend) repeatWithin(ctx context.Context, limit time.Duration, what string, run func(context.Context) error) error {
	if b.closed() {
		return errClosed(what)
	}
	if err := b.guard.Err(); err != nil {
		return err
	}
	began := time.Now()
	err := runWithin(ctx, limit, func(ctx context.Context) error { return b.try(ctx, run) })
	switch {
	case err == nil:
		b.answered.Store(time.Now().UnixNano())
	case isSilent(err) && b.answered.Load() < began.UnixNano(): // else the server was busy with this operation alone
		b.renew(ctx, err)
	}
	return b.failure(what, err)
}

// try makes the attempts of repeat.
func (b *Backend) try(ctx context.Context, run func(context.Context) error) (err error) {
	for range attempts {
		if err = run(ctx); err == nil {
			return nil
		}
		b.renew(ctx, err)
		if !isAgain(err) {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// renew replaces all connections of the backend's own pools once one of them is
// found dead, or connected to a server that is no longer the primary: the others
// most likely are, too, and each would fail an operation. On a network that cuts
// one connection after the other this would only make things worse, so it does not
// happen again immediately. A timeout that an earlier operation left in a connection
// says nothing about the others.
func (b *Backend) renew(ctx context.Context, err error) {
	if ctx.Err() != nil || !isLost(err) || (isTimeout(err) && errors.Is(err, os.ErrDeadlineExceeded)) {
		return
	}
	now := time.Now().UnixNano()
	if last := b.renewed.Load(); now-last > int64(renewPause) && b.renewed.CompareAndSwap(last, now) {
		b.leasePool.Reset()
		if b.config.Pool == nil || isSilent(err) { // which another pool would find out one call after the other
			b.pool.Reset()
		}
	}
}

// renewPause is the minimum time between two renewals of all connections.
const renewPause = time.Second

func (b *Backend) transactOnce(ctx context.Context, pool *pgxpool.Pool, once *late, run func(ctx context.Context, t *tx) error) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	t := &tx{b: b, conn: conn, batch: &pgx.Batch{}}
	t.exec("BEGIN ISOLATION LEVEL READ COMMITTED") // so that queries under a lock see the current rows
	t.exec(limitIdle)
	t.exec(limitWait)
	if err = run(ctx, t); err == nil {
		err = t.finish(ctx)
	}
	if err != nil {
		t.rollback(ctx)
		if !t.ended { // nothing is committed
			err = once.again(ctx, err)
		}
		return err
	}
	for _, f := range t.done {
		f()
	}
	return nil
}

// rollback ends a transaction that failed. If the connection cannot do that, the
// pool discards it.
func (t *tx) rollback(ctx context.Context) {
	if t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "ROLLBACK")
}

// exec queues a statement whose result is ignored.
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
	t.batch.Queue(t.b.sql(query), args...).Query(func(rows pgx.Rows) error {
		return eachRow(rows, func(rows pgx.Rows) error { t.began = true; return row(rows) })
	})
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

// release returns a connection to its pool, or closes it if the context of its
// statements has ended: the driver may have recorded that in the connection, and
// would report it as a timeout to the next caller; see isTimeout.
//
// If it has ended because of a deadline, the server may be silent, and the connection is
// taken out of the pool: the driver waits for the server's farewell while it closes one,
// and would keep the place in the pool for so long.
func release(ctx context.Context, conn *pgxpool.Conn) {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		dead := conn.Hijack()
		_ = dead.Close(ctx) // unless the driver has closed it, and waits
		_ = dead.PgConn().Conn().Close()
		return
	}
	if ctx.Err() != nil {
		_ = conn.Conn().Close(ctx) // the pool discards it
	}
	conn.Release()
}

// ask runs one query on a connection of the pool.
func (b *Backend) ask(ctx context.Context, row func(pgx.Rows) error, query string, args ...any) error {
	conn, err := acquire(ctx, b.pool)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return eachRow(rows, row)
}

func eachRow(rows pgx.Rows, row func(pgx.Rows) error) error {
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// query runs one query, which sees a consistent snapshot.
func (b *Backend) query(ctx context.Context, what string, row func(pgx.Rows) error, query string, args ...any) error {
	began := false
	var once late
	return b.repeat(ctx, what, func(ctx context.Context) error {
		err := b.ask(ctx, func(rows pgx.Rows) error { began = true; return row(rows) }, b.sql(query), args...)
		if !began {
			err = once.again(ctx, err)
		}
		return err
	})
}

// late decides whether an operation that has changed nothing is repeated, once, because it was
// told of an earlier operation's timeout.
type late struct{ repeated bool }

// again returns an error for which the operation is repeated, or the error as it is. A nil late
// repeats nothing.
func (l *late) again(ctx context.Context, err error) error {
	if l == nil || l.repeated || ctx.Err() != nil || !isTimeout(err) {
		return err
	}
	l.repeated = true
	return errors.Join(errAgain, err)
}

// part is a statement for the configured schema, with the function that handles
// its rows.
type part struct {
	query string
	args  []any
	row   func(pgx.Rows) error
	done  func() // called once the transaction is committed, even if the caller has left; may be nil
}

// send sends statements as one transaction, in one round trip.
func (b *Backend) send(ctx context.Context, parts ...part) error {
	if len(parts) == 1 {
		if err := b.ask(ctx, parts[0].row, parts[0].query, parts[0].args...); err != nil {
			return err
		}
		committed(parts)
		return nil
	}
	return b.sendOn(ctx, b.pool, parts...)
}

// sendOn is send on a connection of one of the backend's pools.
func (b *Backend) sendOn(ctx context.Context, pool *pgxpool.Pool, parts ...part) error {
	batch := &pgx.Batch{}
	for _, p := range parts {
		queued := batch.Queue(p.query, p.args...)
		if p.row != nil {
			queued.Query(func(rows pgx.Rows) error { return eachRow(rows, p.row) })
		}
	}
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	committed(parts)
	return nil
}

func committed(parts []part) {
	for _, p := range parts {
		if p.done != nil {
			p.done()
		}
	}
}

// carry sends a statement that locks a row and decides on it, perhaps together with
// others. If it saw outdated rows of other tables, or one of the others failed, it
// is sent alone, after another statement that takes the lock, so that it sees the
// current rows.
func (b *Backend) carry(ctx context.Context, alone bool, lock, tenant, id string, change part) error {
	if !alone {
		return b.lanes.carry(ctx, tenant+"/"+id, change)
	}
	return b.send(ctx, part{query: b.sql(lock), args: []any{tenant, id}}, change)
}

// read runs several queries on one snapshot, in one round trip if they are all
// queued before finish is called.
func (b *Backend) read(ctx context.Context, what string, run func(ctx context.Context, t *tx) error) error {
	var once late
	return b.repeat(ctx, what, func(ctx context.Context) error {
		conn, err := acquire(ctx, b.pool)
		if err != nil {
			return err
		}
		defer release(ctx, conn)
		t := &tx{b: b, conn: conn, batch: &pgx.Batch{}}
		t.exec("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		if err = run(ctx, t); err == nil {
			err = t.finish(ctx)
		}
		if err != nil {
			t.rollback(ctx)
			if !t.began {
				err = once.again(ctx, err)
			}
		}
		return err
	})
}

// when returns the parameter for a time; NULL if it is zero.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Truncate(time.Microsecond)
}

// instant scans a time in UTC; NULL is the zero time.
type instant struct{ to *time.Time }

// ScanTimestamptz implements [pgtype.TimestamptzScanner].
func (i instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i.to = time.Time{}
	if v.Valid {
		*i.to = v.Time.UTC()
	}
	return nil
}

// word scans a text; NULL is the empty text.
type word struct{ to *string }

// ScanText implements [pgtype.TextScanner].
func (w word) ScanText(v pgtype.Text) error {
	*w.to = v.String
	return nil
}
