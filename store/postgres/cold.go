package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/store/internal/coldsql"
)

// ReadCold implements [coldsql.Database].
func (b *Backend) ReadCold(ctx context.Context, what string, run func(coldsql.Conn) error) error {
	return b.read(ctx, what, func(ctx context.Context, t *tx) error { return run(cold{ctx, t}) })
}

// WriteCold implements [coldsql.Database].
func (b *Backend) WriteCold(ctx context.Context, what string, run func(coldsql.Conn) error) error {
	return b.transact(ctx, what, func(ctx context.Context, t *tx) error { return run(cold{ctx, t}) })
}

// cold is the transaction of an operation of the parts that SQLite shares. It lives
// as long as the operation, whose context it has.
type cold struct {
	ctx context.Context //nolint:containedctx // the operation's functions are shared with SQLite, whose connections need none
	t   *tx
}

// Exec implements [coldsql.Conn]. The statement is sent with the next query, or with
// the end of the transaction.
func (c cold) Exec(query coldsql.Query, args ...any) error {
	c.t.exec(query.Postgres, coldArgs(args)...)
	return nil
}

// Query implements [coldsql.Conn].
func (c cold) Query(query coldsql.Query, args ...any) iter.Seq2[coldsql.Row, error] {
	return func(yield func(coldsql.Row, error) bool) {
		var rows []*coldRow
		c.t.ask(func(r pgx.Rows) error {
			values, err := r.Values()
			rows = append(rows, &coldRow{values: values})
			return err
		}, query.Postgres, coldArgs(args)...)
		if err := c.t.flush(c.ctx); err != nil {
			yield(nil, err)
			return
		}
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Now implements [coldsql.Conn].
func (c cold) Now() (now time.Time, err error) {
	c.t.ask(func(rows pgx.Rows) error { return rows.Scan(instant{&now}) }, "SELECT coalesce($1::timestamptz, clock_timestamp())", c.t.b.clock())
	return now, c.t.flush(c.ctx)
}

// coldArgs converts parameters to those of the driver.
func coldArgs(args []any) []any {
	for i, arg := range args {
		if at, ok := arg.(time.Time); ok {
			args[i] = when(at)
		}
	}
	return args
}

// coldRow is a row whose columns are read from left to right.
type coldRow struct {
	values []any
	next   int
}

func (r *coldRow) take() any {
	v := r.values[r.next]
	r.next++
	return v
}

// Text implements [coldsql.Row].
func (r *coldRow) Text() string {
	v, _ := r.take().(string)
	return v
}

// Bytes implements [coldsql.Row].
func (r *coldRow) Bytes() []byte {
	v, _ := r.take().([]byte)
	return v
}

// Int64 implements [coldsql.Row].
func (r *coldRow) Int64() int64 {
	switch v := r.take().(type) {
	case nil:
		return 0
	case int64:
		return v
	case int32:
		return int64(v)
	default:
		panic(fmt.Sprintf("column %d is a %T, not an integer", r.next, v))
	}
}

// Int implements [coldsql.Row].
func (r *coldRow) Int() int { return int(r.Int64()) }

// Time implements [coldsql.Row].
func (r *coldRow) Time() time.Time {
	v, _ := r.take().(time.Time)
	return v.UTC()
}
