package lite

import (
	"context"
	"iter"
	"time"

	"github.com/helixagents/helix/store/internal/coldsql"
)

// ReadCold implements [coldsql.Database].
func (b *Backend) ReadCold(ctx context.Context, what string, run func(coldsql.Conn) error) error {
	return b.Read(ctx, what, func(c Conn) error { return run(cold{c, b}) })
}

// WriteCold implements [coldsql.Database].
func (b *Backend) WriteCold(ctx context.Context, what string, run func(coldsql.Conn) error) error {
	return b.Write(ctx, what, func(t *Tx) error { return run(b.Cold(t)) })
}

// Cold returns the connection of a transaction for the parts that Postgres shares.
func (b *Backend) Cold(t *Tx) coldsql.Conn { return cold{t.Conn, b} }

// cold is a connection of the parts that Postgres shares.
type cold struct {
	conn Conn
	b    *Backend
}

// Exec implements [coldsql.Conn].
func (c cold) Exec(query coldsql.Query, args ...any) error {
	_, err := c.conn.Exec(query.SQLite, args...)
	return err
}

// Query implements [coldsql.Conn].
func (c cold) Query(query coldsql.Query, args ...any) iter.Seq2[coldsql.Row, error] {
	return func(yield func(coldsql.Row, error) bool) {
		for r, err := range c.conn.Query(query.SQLite, args...) {
			if !yield(r, err) {
				return
			}
		}
	}
}

// Now implements [coldsql.Conn].
func (c cold) Now() (time.Time, error) { return c.b.Now(), nil }
