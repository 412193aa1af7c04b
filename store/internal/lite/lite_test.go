package lite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/storetest"
	"github.com/helixagents/helix/stream"
)

// unit differs from that of a SQLite file, to show that nothing depends on it.
const unit = lite.Unit(time.Microsecond)

// TestPlainDatabase runs the store suite on a minimal database: one operation at a
// time, each in its own transaction.
func TestPlainDatabase(t *testing.T) {
	t.Parallel()
	storetest.RunShare(t, 4, func(t testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		b := open(t, clock.Now)
		return storetest.Harness{Backend: b, Reopen: func(testing.TB) store.Backend { return b }, Advance: clock.Advance}
	})
}

// backend is a store on a plain database.
type backend struct {
	*lite.Backend
	db *plain
}

func open(t testing.TB, clock func() time.Time) *backend {
	t.Helper()
	raw, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	raw.SetMaxOpenConns(1) // each connection would have its own database
	p := &plain{raw: raw, clock: clock, cache: lite.NewCache(), readers: feed.NewHub[lite.StreamKey](), signals: feed.NewSignals()}
	b := &backend{&lite.Backend{
		Database: p, Readers: p.readers, Logger: slog.New(slog.DiscardHandler), MaxChunk: stream.DefaultMaxChunk,
	}, p}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	err = p.Write(context.Background(), "migrate", func(t *lite.Tx) error {
		steps, err := lite.Migrations()
		if err != nil {
			return err
		}
		return lite.Migrate(t, steps, true, func(step migrate.Step) error { return lite.Apply(t, step, clock()) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *backend) Ready(ctx context.Context) error {
	if err := b.Read(ctx, "read", lite.TryRead); err != nil {
		return err
	}
	return b.Write(ctx, "write", lite.TryWrite)
}

func (b *backend) Signals(notify func(session.Signal)) (stop func()) {
	return b.db.signals.Listen(notify)
}

func (b *backend) Close() error {
	if !b.Readers.Close() {
		return nil
	}
	b.db.signals.Close()
	b.db.mu.Lock()
	defer b.db.mu.Unlock()
	b.db.closed = true
	return b.db.raw.Close()
}

// plain implements [lite.Database].
type plain struct {
	raw     *sql.DB
	clock   func() time.Time
	readers *feed.Hub[lite.StreamKey]
	signals *feed.Signals

	mu     sync.Mutex // held during an operation
	cache  *lite.Cache
	closed bool
}

func (p *plain) Read(ctx context.Context, what string, run func(lite.Conn) error) error {
	return p.transact(ctx, what, func(c *conn) error { return run(c) })
}

func (p *plain) Write(ctx context.Context, what string, run func(*lite.Tx) error) error {
	var (
		changed map[lite.StreamKey]*lite.Change
		signals []session.Signal
	)
	err := p.transact(ctx, what, func(c *conn) error {
		t := lite.NewTx(c, p.cache)
		err := run(t)
		changed, signals = t.Changed(), t.Signals()
		if err != nil {
			p.cache.Clear()
		}
		return err
	})
	if err == nil {
		for key := range changed {
			p.readers.Notify(key)
		}
		for _, signal := range signals {
			p.signals.Announce(signal)
		}
	}
	return err
}

// transact runs an operation in a transaction.
func (p *plain) transact(ctx context.Context, what string, run func(*conn) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if p.closed {
		return session.ErrClosed.WithMessage("%s: the database is closed", what)
	}
	tx, err := p.raw.BeginTx(context.Background(), nil)
	if err == nil {
		if err = run(&conn{tx}); err != nil {
			err = errors.Join(err, tx.Rollback())
		} else {
			err = tx.Commit()
		}
	}
	switch _, domain := errors.AsType[*session.Error](err); {
	case domain, err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case p.IsDuplicate(err):
		return session.ErrExists.WithCause(err, "%s: conflicts with what is stored", what)
	}
	return session.ErrUnavailable.WithCause(err, "%s: the database is unavailable", what)
}

func (p *plain) WriteLater(what string, run func(*lite.Tx) error) (lite.Ordered, error) {
	err := p.Write(context.Background(), what, run)
	if errors.Is(err, session.ErrClosed) {
		return nil, err
	}
	return written{err}, nil
}

func (p *plain) IsDuplicate(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE)
}

func (p *plain) Now() time.Time { return p.clock().UTC().Truncate(time.Duration(unit)) }

// written is a write that was performed when it was ordered.
type written struct{ err error }

func (w written) Wait(context.Context) error { return w.err }

// conn implements [lite.Conn].
type conn struct{ tx *sql.Tx }

func (c *conn) run(query string, args []any) (sql.Result, error) {
	return c.tx.ExecContext(context.Background(), query, values(args)...)
}

func (c *conn) Exec(query string, args ...any) (int64, error) {
	result, err := c.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *conn) Insert(query string, args ...any) (int64, error) {
	result, err := c.run(query, args)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (c *conn) Script(text string) error {
	_, err := c.run(text, nil)
	return err
}

// Query reads all rows before it yields the first, so that other statements can
// run in between.
func (c *conn) Query(query string, args ...any) iter.Seq2[*lite.Row, error] {
	return func(yield func(*lite.Row, error) bool) {
		rows, err := c.rows(query, args)
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func (c *conn) One(query string, args ...any) (*lite.Row, error) {
	for r, err := range c.Query(query, args...) {
		return r, err
	}
	return nil, nil
}

func (c *conn) rows(query string, args []any) (out []*lite.Row, err error) {
	rows, err := c.tx.QueryContext(context.Background(), query, values(args)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row, into := make([]driver.Value, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = (*any)(&row[i])
		}
		if err := rows.Scan(into...); err != nil {
			return out, err
		}
		out = append(out, lite.NewRow(row, unit))
	}
	return out, rows.Err()
}

// values converts parameters to the types that are stored.
func values(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = unit.Value(arg)
	}
	return out
}
