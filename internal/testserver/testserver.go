package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
)

// Environment variables with the addresses of running servers.
const (
	envPostgres     = "HELIX_TEST_POSTGRES"
	envRedis        = "HELIX_TEST_REDIS"
	envRedisCluster = "HELIX_TEST_REDIS_CLUSTER"
	envTemporal     = "HELIX_TEST_TEMPORAL"
	envSkip         = "HELIX_TEST_SKIP_SERVERS"
)

// The servers that the tests of this process share. The tests of a package have no common owner but the process, which
// is why these are variables of the package.
var (
	sharedPostgres = &shared{env: envPostgres, start: startSharedPostgres}
	sharedRedis    = &shared{env: envRedis, start: startSharedRedis}
	sharedCluster  = &shared{env: envRedisCluster, start: startCluster}
	sharedTemporal = &shared{env: envTemporal, start: startSharedTemporal}
)

// Postgres returns the URL of a database on a Postgres server that the tests of this process share. Its user is a
// superuser.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return sharedPostgres.get(tb)
}

// Redis returns the URL of a Redis server that the tests of this process share.
func Redis(tb testing.TB) string {
	tb.Helper()
	return sharedRedis.get(tb)
}

// RedisCluster returns the URL of a Redis Cluster of three nodes that the tests of this process share, in the form of
// go-redis: redis://127.0.0.1:P1?addr=127.0.0.1:P2&addr=127.0.0.1:P3.
func RedisCluster(tb testing.TB) string {
	tb.Helper()
	return sharedCluster.get(tb)
}

// Temporal returns the address, HOST:PORT, of a Temporal server that the tests of this process share. It has the namespace
// "default". Tests keep apart by task queue and by workflow id.
func Temporal(tb testing.TB) string {
	tb.Helper()
	return sharedTemporal.get(tb)
}

// StartPostgres starts a Postgres server for one test, which ends with the test. Settings have the form "name=value" and
// are those of postgresql.conf. Unlike the shared server it survives being killed: fsync is on.
func StartPostgres(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startPrivate(tb, func(ctx context.Context) (*server, error) { return startPostgres(ctx, settings) })
}

// StartRedis starts a Redis server for one test, which ends with the test. Settings have the form "name=value" and are those
// of redis.conf. Unlike the shared server it syncs its append-only file on every write.
func StartRedis(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startPrivate(tb, func(ctx context.Context) (*server, error) { return startRedis(ctx, settings) })
}

// StartTemporal starts a Temporal server for one test, which ends with the test. Settings have the form "name=value" and are
// those of its dynamic configuration; values are JSON. Unlike the shared server it keeps its data in a file, and continues from
// there when it is started again.
func StartTemporal(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return startPrivate(tb, func(ctx context.Context) (*server, error) { return startTemporal(ctx, true, settings) })
}

// StartPgBouncer starts a pooler for one test before the database at a URL. It ends with the test. Settings have the form
// "name=value" and are those of the section pgbouncer of pgbouncer.ini.
func StartPgBouncer(tb testing.TB, target string, settings ...string) *Server {
	tb.Helper()
	return startPrivate(tb, func(ctx context.Context) (*server, error) { return startPgBouncer(ctx, target, settings) })
}

// Runner runs the tests of a package, as [testing.M] does.
type Runner interface{ Run() int }

// Main returns a runner for TestMain that runs the tests of m and then stops the servers that they shared. It fits
// os.Exit(testserver.Main(m).Run()) and goleak.VerifyTestMain(testserver.Main(m)). While the tests run, no httptest.Server
// closes idle connections of [http.DefaultTransport].
func Main(m Runner) Runner { return mainRunner{m} }

type mainRunner struct{ tests Runner }

func (m mainRunner) Run() int {
	closeIdle := hideIdleConnections()
	code := m.tests.Run()
	closeIdle()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		return max(code, 1)
	}
	return code
}

// hideIdleConnections replaces [http.DefaultTransport] by one whose idle connections cannot be closed from outside. An
// httptest.Server that closes would close them, also those of parallel tests, and break a request that is about to use one
// or whose empty answer has just arrived. The returned function closes them.
func hideIdleConnections() (closeIdle func()) {
	original := http.DefaultTransport
	http.DefaultTransport = struct{ http.RoundTripper }{original}
	return (&http.Client{Transport: original}).CloseIdleConnections
}

// Stop stops the servers that the tests of this process shared. It is for a TestMain that cannot use [Main].
func Stop() error {
	return errors.Join(sharedPostgres.stop(), sharedRedis.stop(), sharedCluster.stop(), sharedTemporal.stop())
}

// shared is a server that is started when the first test asks for it.
type shared struct {
	env   string
	start func(context.Context) (url string, servers []*server, err error)

	mu      sync.Mutex
	started bool
	url     string
	servers []*server
	err     error
}

func (s *shared) get(tb testing.TB) string {
	tb.Helper()
	if url := os.Getenv(s.env); url != "" {
		return url
	}
	s.mu.Lock()
	if !s.started {
		s.started = true
		// Not the test's context: the server serves the tests that follow, too.
		s.url, s.servers, s.err = s.start(context.WithoutCancel(tb.Context()))
	}
	url, err := s.url, s.err
	s.mu.Unlock()
	if err != nil {
		giveUp(tb, err)
	}
	return url
}

func (s *shared) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := closeAll(s.servers)
	s.started, s.url, s.servers, s.err = false, "", nil, nil
	return err
}

func closeAll(servers []*server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

func startPrivate(tb testing.TB, start func(context.Context) (*server, error)) *Server {
	tb.Helper()
	s, err := start(tb.Context())
	if err != nil {
		giveUp(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.close(); err != nil {
			tb.Error(err)
		}
	})
	return &Server{tb: tb, server: s}
}

// giveUp ends a test whose server is not available. A server that does not start is always a failure; one that is not
// installed may be passed over, if that was asked for.
func giveUp(tb testing.TB, err error) {
	tb.Helper()
	var missing *missingError
	if skipServers() && errors.As(err, &missing) {
		tb.Skipf("%s=1: %v", envSkip, err)
	}
	tb.Fatal(err)
}

func skipServers() bool { return os.Getenv(envSkip) == "1" }
