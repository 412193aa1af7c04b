package dbos_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*dbos.Config){
		"Backend":                 func(c *dbos.Config) { c.Backend = nil },
		"DatabaseURL":             func(c *dbos.Config) { c.DatabaseURL = "" },
		"Pool":                    func(c *dbos.Config) { c.Pool = &pgxpool.Pool{} },
		"CallTimeout":             func(c *dbos.Config) { c.CallTimeout = -1 },
		"Prefix":                  func(c *dbos.Config) { c.Prefix = "Not this" },
		"Heartbeat":               func(c *dbos.Config) { c.Heartbeat = time.Hour },
		"Queue.Concurrency":       func(c *dbos.Config) { c.Queue = &dbos.Queue{Concurrency: -1} },
		"Queue.WorkerConcurrency": func(c *dbos.Config) { c.Queue = &dbos.Queue{Concurrency: 1, WorkerConcurrency: 2} },
		"Queue.RateLimit":         func(c *dbos.Config) { c.Queue = &dbos.Queue{RateLimit: -1} },
		"Queue.RatePeriod":        func(c *dbos.Config) { c.Queue = &dbos.Queue{RateLimit: 1} },
		"Queue.Poll":              func(c *dbos.Config) { c.Queue = &dbos.Queue{Poll: -1} },
	} {
		cfg := dbos.Config{RuntimeOptions: inMemory(), DatabaseURL: "postgres://nobody@127.0.0.1:1/none"}
		spoil(&cfg)
		_, err := dbos.New(cfg)
		if !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), field+" ") && !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
}

// TestEnvironment wants the configuration to win over the environment, or else
// nothing to be started. It does not run beside others: they share the environment.
func TestEnvironment(t *testing.T) { //nolint:paralleltest // see above
	for name, c := range map[string]struct {
		set   map[string]string
		field string
	}{
		"another executor":   {map[string]string{"DBOS__VMID": "vm"}, "DBOS__VMID"},
		"another version":    {map[string]string{"DBOS__APPVERSION": "v9"}, "DBOS__APPVERSION"},
		"a conductor":        {map[string]string{"DBOS__CLOUD": "true", "DBOS__CONDUCTOR_APP_NAME": "a", "DBOS__CONDUCTOR_KEY": "k", "DBOS__CONDUCTOR_URL": "wss://x"}, "DBOS__CLOUD"},
		"the same":           {map[string]string{"DBOS__VMID": "me", "DBOS__APPVERSION": "v1"}, ""},
		"half a conductor":   {map[string]string{"DBOS__CLOUD": "true", "DBOS__CONDUCTOR_KEY": "k"}, ""},
		"a conductor unused": {map[string]string{"DBOS__CONDUCTOR_APP_NAME": "a", "DBOS__CONDUCTOR_KEY": "k", "DBOS__CONDUCTOR_URL": "wss://x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range c.set {
				t.Setenv(variable, value)
			}
			cfg := dbos.Config{
				RuntimeOptions: inMemory(), DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "dbos.db"), ExecutorID: "me", AppVersion: "v1",
			}
			rt, err := dbos.New(cfg)
			if c.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := rt.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), c.field+" ") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestPrivateFile wants DBOS's own database to be its owner's alone.
func TestPrivateFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dbos.db")
	rt, err := dbos.New(dbos.Config{RuntimeOptions: inMemory(), DatabaseURL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Shutdown(t.Context()) }()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("DBOS made %v, %v", files, err)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %s", filepath.Base(name), mode)
		}
	}
}

// TestPool has the runtime connect as a pool does, and leave the pool alone.
func TestPool(t *testing.T) {
	t.Parallel()
	at := place{url: testserver.Postgres(t), prefix: "pool"}
	tables(t, at.url)
	pool, err := pgxpool.New(t.Context(), at.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	agent := sayer("Hello!")
	rt := at.launch(t, memory.New(memory.Config{}), func(c *dbos.Config) {
		c.DatabaseURL, c.Pool, c.Agents = "", pool, []*helix.Agent{agent}
	})
	if text := say(t, rt, agent, "s-1").Text; text != "Hello!" {
		t.Errorf("the agent said %q", text)
	}
	if err := rt.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool is of no use any more: %v", err)
	}
}

func inMemory() helix.RuntimeOptions {
	return helix.RuntimeOptions{Backend: memory.New(memory.Config{})}
}
