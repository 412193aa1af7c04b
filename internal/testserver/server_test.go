package testserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestShared(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		get  func(testing.TB) string
		want string
	}{
		{"postgres", Postgres, "postgres://postgres@127.0.0.1:"},
		{"redis", Redis, "redis://127.0.0.1:"},
		{"cluster", RedisCluster, "redis://127.0.0.1:"},
		{"temporal", Temporal, "127.0.0.1:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			first, second := test.get(t), test.get(t)
			if first != second {
				t.Errorf("two tests get %s and %s: want one server", first, second)
			}
			if !strings.HasPrefix(first, test.want) {
				t.Errorf("got %s, want %s…", first, test.want)
			}
		})
	}
}

func TestServerLife(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		start func(testing.TB, ...string) *Server
		ping  func(context.Context, string) error
	}{
		{"postgres", StartPostgres, pingPostgres},
		{"pgbouncer", startPooler, pingPostgres},
		{"redis", StartRedis, pingRedis},
		{"temporal", StartTemporal, pingTemporal},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.start(t)
			addr := s.Addr()
			if !strings.Contains(s.URL(), addr) {
				t.Errorf("URL %s is not at %s", s.URL(), addr)
			}
			for what, end := range map[string]func(){"kill": s.Kill, "stop": s.Stop} {
				end()
				if listens(addr) {
					t.Errorf("after %s something listens on %s", what, addr)
				}
				s.Start()
				if s.Addr() != addr {
					t.Fatalf("started again at %s, was at %s", s.Addr(), addr)
				}
				if err := test.ping(t.Context(), addr); err != nil {
					t.Fatalf("after %s and start: %v", what, err)
				}
			}
			s.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // waits: it must not answer, which has no signal
			err := test.ping(ctx, addr)
			cancel()
			if err == nil {
				t.Error("a paused server answered")
			}
			s.Resume()
			if err := test.ping(t.Context(), addr); err != nil {
				t.Errorf("after resume: %v", err)
			}
			if s.Log() == "" {
				t.Error("the log is empty")
			}
			s.Pause() // the cleanup has to cope with that
		})
	}
}

func startPooler(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return StartPgBouncer(tb, Postgres(tb), settings...)
}

func TestKillTakesTheWholeServerAlong(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t)
	family, err := s.server.process.(*localProcess).family()
	if err != nil {
		t.Fatal(err)
	}
	if len(family) < 3 {
		t.Fatalf("postgres has the processes %v: want the writers and the launcher at least", family)
	}
	s.Kill()
	for _, pid := range family {
		if alive(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	Postgres(t) // fails or skips the test if there is none
	Redis(t)
	for _, setting := range []string{"fsync", "no_such_setting=1"} {
		name, _, _ := strings.Cut(setting, "=")
		if _, err := startPostgres(t.Context(), []string{setting}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("postgres with %s: got %v, want an error that names it", setting, err)
		}
		if _, err := startRedis(t.Context(), []string{setting}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("redis with %s: got %v, want an error that names it", setting, err)
		}
		if _, err := startPgBouncer(t.Context(), Postgres(t), []string{setting}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("pgbouncer with %s: got %v, want an error that names it", setting, err)
		}
	}
}

func TestPlaceOfCrashedProcessIsSwept(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var crashed *place
	for port := firstPort; crashed == nil; port++ {
		var err error
		if crashed, err = tryClaim(root, port); err != nil {
			t.Fatal(err)
		}
	}
	if err := crashed.makeDir(nil); err != nil {
		t.Fatal(err)
	}
	sweepPlaces(root)
	if second, err := tryClaim(root, crashed.port); err != nil || second != nil {
		t.Fatalf("claimed twice: %v, %v", second, err)
	}
	if err := crashed.lock.Close(); err != nil { // as the system does when a process ends
		t.Fatal(err)
	}
	sweepPlaces(root)
	if left, _ := filepath.Glob(filepath.Join(root, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTakenPortIsPassedOver(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if portFree(port) {
		t.Errorf("port %d is free though somebody listens", port)
	}
	p, err := tryClaim(t.TempDir(), port-secondPort)
	if err != nil || p != nil {
		t.Errorf("claimed a port whose second one is taken: %v, %v", p, err)
	}
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	p := &place{dir: t.TempDir()}
	long := strings.Repeat("x", logSize) + "\nlast\n"
	if err := os.WriteFile(p.logFile(), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (&server{place: p}).logTail(); got != "last\n" {
		t.Errorf("got %q, want whole lines", got)
	}
}
