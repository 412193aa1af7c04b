package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/session"
)

// flaky is a connection that can be cut: before the next request arrives, or
// before its answer does.
type flaky struct {
	net.Conn
	fault *atomic.Int32
	mute  atomic.Bool // the server's answers are dropped
}

const (
	cutRequest = 1 + iota
	cutReply
	timeout // the next read reports one, as if it were that of an earlier operation
)

func (f *flaky) Write(p []byte) (int, error) {
	switch f.fault.Load() {
	case cutRequest:
		f.fault.Store(0)
		_ = f.Conn.Close()
		return 0, errors.New("cut before it was sent")
	case cutReply:
		f.fault.Store(0)
		f.mute.Store(true)
	}
	return f.Conn.Write(p)
}

func (f *flaky) Read(p []byte) (int, error) {
	if f.fault.CompareAndSwap(timeout, 0) {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := f.Conn.Read(p)
	if f.mute.Load() {
		_ = f.Conn.Close()
		return 0, errors.New("cut before the answer came")
	}
	return n, err
}

func openFlaky(t *testing.T) (*Backend, *atomic.Int32) {
	t.Helper()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	fault := &atomic.Int32{}
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &flaky{Conn: conn, fault: fault}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return openTest(t, func(c *Config) { c.Pool, c.NoListen, c.PollInterval = pool, true, time.Hour }), fault
}

// TestLostReply cuts the connection of commits: the caller gets a retryable error,
// and the commit is applied exactly once.
func TestLostReply(t *testing.T) {
	t.Parallel()
	b, fault := openFlaky(t)
	r := newRunner(t, b, "a")
	for range 3 {
		if err := r.commit(t.Context()); err != nil { // prepares its statement
			t.Fatal(err)
		}
	}
	for n, kind := range []int32{cutReply, cutRequest, cutReply} {
		fault.Store(kind)
		err := r.commit(t.Context())
		if kind == cutReply && (!errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err)) {
			t.Fatalf("fault %d: got %v, want a retryable error", n, err)
		}
		if err == nil {
			continue // nothing had been sent, so it was retried immediately
		}
		r.step-- // the same commit again
		if err := r.commit(t.Context()); err != nil {
			t.Fatalf("fault %d: again: %v", n, err)
		}
	}
	count, err := session.MessageCount(t.Context(), b.Sessions(), "a")
	if err != nil || count != r.step {
		t.Fatalf("%d messages after %d commits, %v", count, r.step, err)
	}
}

// TestLateTimeout requires that reads, and transactions that are not committed yet, do not fail
// because of a timeout that was an earlier operation's.
func TestLateTimeout(t *testing.T) {
	t.Parallel()
	b, fault := openFlaky(t)
	r := newRunner(t, b, "a")
	if err := r.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, operation := range map[string]func() error{
		"query": func() error { _, err := b.Sessions().Load(t.Context(), "a"); return err },
		"read":  func() error { _, err := b.Sessions().List(t.Context(), session.Query{}); return err },
		"transaction": func() error {
			return b.transact(t.Context(), "test", func(ctx context.Context, t *tx) error { t.exec("SELECT 1"); return t.flush(ctx) })
		},
	} {
		for range 2 { // also before its statements are prepared
			fault.Store(timeout)
			if err := operation(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if fault.Load() != 0 {
				t.Errorf("%s: nothing was read", name)
			}
		}
	}
}

// TestKilledConnections ends server connections while many sessions work: callers
// get retryable errors, and every commit is applied once.
func TestKilledConnections(t *testing.T) {
	t.Parallel()
	b := openTest(t, func(c *Config) { c.MaxConns = 4 })
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for ctx.Err() == nil {
			_ = b.query(ctx, "kill", func(pgx.Rows) error { return nil },
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%'||$1||'%' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1", b.config.Schema)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // waits: sessions work between two kills, and one that comes sooner or later does no harm
			}
		}
	}()
	errs := make(chan error, 4)
	for i := range cap(errs) {
		r := newRunnerPatiently(t, b, fmt.Sprint("s", i))
		go func() { errs <- r.work(t.Context(), 100) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	stop()
	<-killed
	for i := range cap(errs) {
		count, err := session.MessageCount(t.Context(), b.Sessions(), fmt.Sprint("s", i))
		for session.IsRetryable(err) {
			count, err = session.MessageCount(t.Context(), b.Sessions(), fmt.Sprint("s", i))
		}
		if err != nil || count != 100 {
			t.Errorf("%d messages after 100 commits, %v", count, err)
		}
	}
}

// newRunnerPatiently starts a run and retries when connections fail.
func newRunnerPatiently(t *testing.T, b *Backend, id string) *runner {
	t.Helper()
	s := b.Sessions().(tenantStore).sessions
	for {
		started, err := s.StartRun(t.Context(), &session.StartRun{
			SessionID: id, Create: &session.State{ID: id, Agent: "a", Status: session.Active},
			Run: session.Run{ID: "run", Kind: session.RunExecute, RequestID: "request"}, Owner: "owner", TTL: time.Hour,
		})
		if err == nil {
			return &runner{s: s, id: id, fence: started.Lease.Fence(), version: started.Version}
		}
		if !session.IsRetryable(err) {
			t.Fatal(err)
		}
	}
}

// work makes commits and retries each until it succeeds.
func (r *runner) work(ctx context.Context, n int) error {
	for range n {
		err := r.commit(ctx)
		for session.IsRetryable(err) {
			r.step--
			err = r.commit(ctx)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", r.step, err)
		}
	}
	return nil
}

// TestServerGone ends all connections of a pool at once, as a server restart does:
// only a few operations fail before all connections are renewed.
func TestServerGone(t *testing.T) {
	t.Parallel()
	const conns = 16
	b := openTest(t, func(c *Config) { c.MaxConns = conns })
	r := newRunner(t, b, "a")
	held := make([]*pgxpool.Conn, conns)
	pids := make([]uint32, conns)
	for i := range held {
		conn, err := b.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held[i], pids[i] = conn, conn.Conn().PgConn().PID()
	}
	for _, conn := range held {
		conn.Release()
	}
	if n := ExecForTest(t, "SELECT pg_terminate_backend(pid::integer, 5000) FROM unnest($1::bigint[]) pid", pids); n != conns {
		t.Fatalf("%d connections were ended", n)
	}
	failed := 0
	for range conns {
		switch err := r.commit(t.Context()); {
		case err == nil:
		case session.IsRetryable(err):
			failed++
			r.step--
		default:
			t.Fatal(err)
		}
	}
	if failed > 2 {
		t.Errorf("%d operations failed", failed)
	}
}

// TestLimits checks that transactions have timeouts of seconds, and that these
// apply only within transactions.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := openTest(t, func(c *Config) { c.MaxConns = 1 })
	const ask = "SELECT current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('lock_timeout')"
	var within, after string
	err := b.transact(t.Context(), "ask", func(_ context.Context, t *tx) error {
		t.ask(func(rows pgx.Rows) error { return rows.Scan(&within) }, ask)
		return nil
	})
	if err != nil || within != "10s 5s" {
		t.Errorf("within a transaction: %q, %v", within, err)
	}
	err = b.query(t.Context(), "ask", func(rows pgx.Rows) error { return rows.Scan(&after) }, ask)
	if err != nil || after != "0 0" {
		t.Errorf("afterwards: %q, %v", after, err)
	}
}

// TestHeldRow locks a session's row: a caller that waits for it gets a retryable
// error.
func TestHeldRow(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	r := newRunner(t, b, "a")
	lockSessions(t, b, "a")
	err := renewLease(t.Context(), b, "a", r.fence, time.Hour)
	if !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) {
		t.Errorf("got %v, want a retryable error", err)
	}
}

// TestRepeatedEnd repeats a run's last commit: it returns the stop request that it
// consumed each time, until another run has begun.
func TestRepeatedEnd(t *testing.T) {
	t.Parallel()
	for name, rewind := range map[string]*int{"in one statement": nil, "with a rewind": new(0)} {
		b := openTest(t)
		r := newRunner(t, b, "a")
		if _, err := r.s.RequestStop(t.Context(), "a", session.Stop{RunID: "run", Kind: session.StopInterrupt, Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		end := &session.Commit{
			SessionID: "a", RunID: "run", Key: "end", Version: r.version, Fence: r.fence,
			Change: session.Change{KeepMessages: rewind, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}},
		}
		for i := range 3 {
			out, err := r.s.Commit(t.Context(), end)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if out.Repeated != (i > 0) || out.Stop == nil || out.Stop.RunID != "run" || out.Stop.Reason != "enough" {
				t.Errorf("%s: time %d: %+v, stop %+v", name, i, out, out.Stop)
			}
		}
		stop, err := r.s.StopRequest(t.Context(), "a", "run")
		if err != nil || stop != nil {
			t.Errorf("%s: the request still exists: %+v, %v", name, stop, err)
		}
	}
}
