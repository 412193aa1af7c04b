package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// TestTogetherTold requires that readers here and in another process, which never
// poll, are notified of chunks that were written with a commit.
func TestTogetherTold(t *testing.T) {
	t.Parallel()
	writer := openTest(t, func(c *Config) { c.PollInterval = time.Hour })
	other := openTest(t, func(c *Config) { c.Schema, c.PollInterval = writer.config.Schema, time.Hour })
	turn := newWireTurn(t, writer)
	near, far := follow(t, writer, "a"), follow(t, other, "a")
	expect(t, near, "caught-up")
	expect(t, far, "caught-up")
	waitListening(t, other)
	for n := range 5 {
		if err := turn.commitWith(2*n + 1)(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []<-chan string{near, far} {
			expect(t, reader, "a")
			expect(t, reader, "b")
		}
	}
}

// TestTogetherLostReply cuts the connection of commits with chunks: both are
// applied exactly once, and a repetition returns the sequence of the chunks.
func TestTogetherLostReply(t *testing.T) {
	t.Parallel()
	b, fault := openFlaky(t)
	turn := newWireTurn(t, b)
	b.notifier.close() // its messages must not be the ones that are cut
	commit := func(n int) error { return turn.commitWith(2*n + 1)(t.Context()) }
	for n := range 10 {
		if n > 2 && n%2 == 0 { // the first ones prepare statements
			fault.Store(cutReply)
			if err := commit(n); !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) {
				t.Fatalf("commit %d: got %v, want a retryable error", n, err)
			}
			turn.step-- // the same again
		}
		if err := commit(n); err != nil {
			t.Fatalf("commit %d: %v", n, err)
		}
	}
	info, err := b.Streams().Info(t.Context(), "a")
	if err != nil || info.Last != 20 {
		t.Errorf("the stream is %+v, %v", info, err)
	}
	state, err := b.Sessions().Load(t.Context(), "a")
	if err != nil || state.Version != turn.version {
		t.Errorf("the session is %+v, %v", state, err)
	}
}

// statements counts the statements that a pool sends.
type statements struct{ atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.Add(1) }

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestTogetherStatements counts the statements of commits with chunks: one while
// the same producer writes to the stream; three for the first commit after another
// producer, of which the first finds that; one again afterwards.
func TestTogetherStatements(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	sent := &statements{}
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := openTest(t, func(c *Config) { c.Pool, c.NoListen, c.PollInterval = pool, true, time.Hour })
	turn := newWireTurn(t, b)
	b.notifier.close() // notifications are not part of writes
	other := openTest(t, func(c *Config) { c.Schema = b.config.Schema })
	next, added := 1, 0 // the producer's next number, and the chunks of others
	commit := func(want int64) {
		t.Helper()
		sent.Store(0)
		turn.offset = added
		if err := turn.commitWith(next)(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := sent.Load(); got != want {
			t.Errorf("the commit from chunk %d on took %d statements, want %d", next, got, want)
		}
		next += 2
	}
	commit(1)
	commit(1)
	batch := turn.batch(1)
	batch.Producer = stream.Producer{Session: "child", Epoch: 1, RunID: "child's"}
	if _, err := other.Streams().Append(t.Context(), "a", batch); err != nil {
		t.Fatal(err)
	}
	added += 2
	commit(3)
	commit(1)
	info, err := b.Streams().Info(t.Context(), "a")
	if err != nil || info.Last != int64(next-1+added) || info.RunID != "run" {
		t.Errorf("the stream is %+v, %v", info, err)
	}
}

// TestLockOrder makes a deletion wait for a stream: it must not hold the session's
// row at the same time, because a commit with chunks that has locked the stream
// may wait for it.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	newWireTurn(t, b)
	held, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(t.Context()) }()
	if _, err := held.Exec(t.Context(), b.sql(lockStream), session.DefaultTenant, "a"); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := b.Sessions().Delete(t.Context(), "a")
		deleted <- err
	}()
	waitForLock(t, b, 1)
	if _, err := held.Exec(t.Context(), b.sql(lockOnly)+" NOWAIT", session.DefaultTenant, "a"); err != nil {
		t.Error(err)
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}

// waitForLock waits until n statements about the backend's tables wait for a lock.
func waitForLock(t *testing.T, b *Backend, n int) {
	t.Helper()
	eventually.Poll(t, fmt.Sprint(n, " statements wait for a lock"), func() bool {
		var waiting int
		err := b.query(t.Context(), "look", func(rows pgx.Rows) error { return rows.Scan(&waiting) },
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'", b.config.Schema)
		if err != nil {
			t.Fatal(err)
		}
		return waiting >= n
	})
}
