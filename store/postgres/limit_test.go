package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/session"
)

// limitForTest is short, and longer than a call takes on a busy machine.
const limitForTest = 2 * time.Second

// openProxied opens a backend behind a proxy.
func openProxied(t *testing.T, change func(*Config)) (*Backend, *faultproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.New(t, u.Host)
	u.Host = proxy.Addr()
	return openTest(t, func(c *Config) { c.URL, c.CallTimeout = u.String(), limitForTest; change(c) }), proxy
}

// TestServerVanishes has the server's end of all connections go away without a word while more calls are made than there are
// connections: each fails within its limit as one that may be repeated, and then all work again.
func TestServerVanishes(t *testing.T) {
	t.Parallel()
	const conns = 4
	b, proxy := openProxied(t, func(c *Config) { c.MaxConns = conns })
	runners := make([]*runner, 3*conns)
	for i := range runners {
		runners[i] = newRunnerPatiently(t, b, strings.Repeat("s", i+1))
		if err := runners[i].commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pidsOf(t, b.pool, conns) // all of them are open
	proxy.Vanish()
	began := time.Now()
	var working sync.WaitGroup
	for i, r := range runners {
		working.Go(func() {
			for failed := 0; ; failed++ {
				err := b.transact(t.Context(), "test", func(ctx context.Context, x *tx) error { x.exec("SELECT 1"); return x.flush(ctx) })
				if i%2 == 0 && err == nil {
					if err = r.commit(t.Context()); err != nil {
						r.step-- // the same commit again
					}
				}
				if err == nil {
					return
				}
				if !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) || failed == 5 {
					t.Errorf("call %d, time %d: %v", i, failed, err)
					return
				}
			}
		})
	}
	working.Wait()
	if took := time.Since(began); took > 3*limitForTest { // waits: three limits are what is promised
		t.Errorf("calls were done after %s, three times the limit is %s", took, 3*limitForTest)
	}
}

// TestRenewalAfterServerVanishes has the server vanish while both connections that renew leases are open: the first renewal fails
// before the lease has expired, and the second is on time, far within the limit of other calls.
func TestRenewalAfterServerVanishes(t *testing.T) {
	t.Parallel()
	b, proxy := openProxied(t, func(c *Config) { c.CallTimeout = time.Minute })
	r := newRunnerPatiently(t, b, "s")
	pidsOf(t, b.leasePool, leaseConns) // both are open
	proxy.Vanish()
	const ttl = 3 * time.Second
	began := time.Now()
	for failed := 0; ; failed++ {
		ctx, cancel := context.WithTimeout(t.Context(), ttl) // waits: as long as its caller has, which is what is tested
		err := renewLease(ctx, b, r.id, r.fence, ttl)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, session.ErrUnavailable) || failed == 1 {
			t.Fatalf("renewal %d: %v", failed, err)
		}
	}
	if took := time.Since(began); took > 2*ttl { // waits: one renewal fails, and the next may take as long
		t.Errorf("the lease was renewed after %s", took)
	}
}

// TestServerOfGivenPoolVanishes has the server of a pool vanish that pings its connections, all of them idle: one call fails.
func TestServerOfGivenPoolVanishes(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	var pool *pgxpool.Pool
	t.Cleanup(func() { pool.Close() }) // after the proxy has closed its connections: it waits for them
	proxy := faultproxy.New(t, u.Host)
	u.Host = proxy.Addr()
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	if pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	b := openTest(t, func(c *Config) {
		c.Pool, c.CallTimeout, c.NoListen, c.PollInterval = pool, limitForTest, true, time.Hour
	})
	pidsOf(t, b.pool, int(config.MaxConns))
	proxy.Vanish()
	if _, err := b.Sessions().Load(t.Context(), "a"); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("the first call: %v", err)
	}
	for range config.MaxConns {
		if _, err := b.Sessions().Load(t.Context(), "a"); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("a later call: %v", err)
		}
	}
}

// TestQueued has all connections in use: whoever waits for one is told so, and the connections are kept.
func TestQueued(t *testing.T) {
	t.Parallel()
	b := openTest(t, func(c *Config) {
		c.MaxConns, c.CallTimeout, c.NoListen, c.PollInterval = 1, 100*time.Millisecond, true, time.Hour
	})
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := conn.Conn().PgConn().PID()
	_, err = b.Sessions().Load(t.Context(), "a")
	if !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) || !strings.Contains(err.Error(), "no connection was free within 100ms") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // waits: the caller leaves
	defer cancel()
	if _, err := b.Sessions().Load(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a caller who leaves gets %v", err)
	}
	conn.Release()
	if !pidsOf(t, b.pool, 1)[pid] {
		t.Error("the connection was replaced")
	}
}

// TestListenerCallsBeforeConnect uses a pool whose passwords come from a function.
func TestListenerCallsBeforeConnect(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	user := config.ConnConfig.User
	config.ConnConfig.User = "nobody"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User = user
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := openTest(t, func(c *Config) { c.Pool = pool })
	stop := b.Signals(func(session.Signal) {})
	defer stop()
	eventually.Poll(t, "the backend listens", b.watch.listening.Load)
}
