package postgres

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// slowNet dials connections whose writes can be slow.
type slowNet struct {
	mu      sync.Mutex
	changed *sync.Cond
	slow    bool
	reading int // reads in progress
	answers int // reads that have returned data
	late    int // reads that have timed out
}

// slowConn is a connection of a slowNet.
type slowConn struct {
	net.Conn
	net *slowNet
}

// Write returns, while writes are slow, once the answer to it has been read and the
// next read has begun. Only a read in the background, which the driver begins when
// a write takes long, makes that possible.
func (c *slowConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	before := c.net.answers
	n, err := c.Conn.Write(p)
	for err == nil && c.net.slow && (c.net.answers == before || c.net.reading == 0) {
		c.net.changed.Wait()
	}
	return n, err
}

func (c *slowConn) Read(p []byte) (int, error) {
	c.net.note(func(s *slowNet) { s.reading++ })
	n, err := c.Conn.Read(p)
	c.net.note(func(s *slowNet) {
		s.reading--
		if n > 0 {
			s.answers++
		}
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			s.late++
		}
	})
	return n, err
}

func (s *slowNet) note(change func(*slowNet)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	s.changed.Broadcast()
}

// slowDown makes writes slow from now on.
func (s *slowNet) slowDown() { s.note(func(s *slowNet) { s.slow, s.late = true, 0 }) }

// end ends a context while an operation reads its answer, and returns when the read
// in the background has timed out. Writes are fast again.
func (s *slowNet) end(cancel context.CancelFunc) {
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = false
	for s.late == 0 {
		s.changed.Wait()
	}
}

// openSlow opens a backend on a pool whose writes can be slow.
func openSlow(t *testing.T, conns int32) (*Backend, *slowNet) {
	t.Helper()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &slowNet{}
	s.changed = sync.NewCond(&s.mu)
	config.MaxConns = conns
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &slowConn{conn, s}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := openTest(t, func(c *Config) { c.Pool, c.NoListen, c.PollInterval = pool, true, time.Hour })
	b.notifier.close() // nothing else uses the connections
	return b, s
}

// TestEndedContext ends the context of an operation after a slow write, when the
// answer has come but is not handled yet: the next caller, whose writes are never
// repeated, gets a connection that works.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	const query = "SELECT 1"
	for name, operate := range map[string]func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error{
		"query": func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error {
			return b.query(ctx, "test", row, query)
		},
		"read": func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error {
			return b.read(ctx, "test", func(_ context.Context, t *tx) error { t.ask(row, query); return nil })
		},
		"transaction": func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error {
			return b.transact(ctx, "test", func(_ context.Context, t *tx) error { t.ask(row, query); return nil })
		},
		"statement": func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error {
			return b.send(ctx, part{query: query, row: row})
		},
		"statements": func(b *Backend, ctx context.Context, row func(pgx.Rows) error) error {
			return b.send(ctx, part{query: impatient}, part{query: query, row: row})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, net := openSlow(t, 1)
			r := newRunner(t, b, "a")
			for i := range 3 { // the first ones prepare statements
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				ended := 0
				net.slowDown()
				err := operate(b, ctx, func(pgx.Rows) error { ended++; net.end(cancel); return nil })
				if ended != 1 || (err != nil && !errors.Is(err, context.Canceled)) {
					t.Fatalf("time %d: %d rows, %v", i, ended, err)
				}
				if err := r.commit(t.Context()); err != nil {
					t.Fatalf("time %d: the next caller: %v", i, err)
				}
			}
		})
	}
}

// TestLateTimeoutOfAnother leaves the timeout of an ended context in a connection, as
// other users of a pool may: an operation is repeated on another connection, and the
// pool keeps all others.
func TestLateTimeoutOfAnother(t *testing.T) {
	t.Parallel()
	const conns = 4
	b, net := openSlow(t, conns)
	r := newRunner(t, b, "a")
	b.config.Pool = nil // as if it were the backend's own, which may be renewed
	t.Cleanup(func() { b.config.Pool = b.pool })
	pids := pidsOf(t, b.pool, conns)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	net.slowDown()
	rows, err := b.pool.Query(ctx, "SELECT pg_backend_pid()")
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	var spoiled uint32
	if err := rows.Scan(&spoiled); err != nil {
		t.Fatal(err)
	}
	net.end(cancel)
	rows.Close()
	for range conns {
		if _, err := b.Sessions().Load(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for pid := range pidsOf(t, b.pool, conns) {
		if pids[pid] && pid != spoiled {
			kept++
		}
	}
	if kept != conns-1 {
		t.Errorf("%d of %d connections were kept", kept, conns-1)
	}
}

// pidsOf returns the server's processes of all connections that a pool may have.
func pidsOf(t *testing.T, pool *pgxpool.Pool, conns int) map[uint32]bool {
	t.Helper()
	pids := map[uint32]bool{}
	held := make([]*pgxpool.Conn, conns)
	for i := range held {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held[i] = conn
		pids[conn.Conn().PgConn().PID()] = true
	}
	for _, conn := range held {
		conn.Release()
	}
	return pids
}
