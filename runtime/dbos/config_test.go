package dbos_test

import (
	"errors"
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
		"Prefix":                  func(c *dbos.Config) { c.Prefix = "Not this" },
		"Heartbeat":               func(c *dbos.Config) { c.Heartbeat = time.Hour },
		"Queue.Concurrency":       func(c *dbos.Config) { c.Queue = &dbos.Queue{Concurrency: -1} },
		"Queue.WorkerConcurrency": func(c *dbos.Config) { c.Queue = &dbos.Queue{Concurrency: 1, WorkerConcurrency: 2} },
		"Queue.RateLimit":         func(c *dbos.Config) { c.Queue = &dbos.Queue{RateLimit: -1} },
		"Queue.RatePeriod":        func(c *dbos.Config) { c.Queue = &dbos.Queue{RateLimit: 1} },
		"Queue.Poll":              func(c *dbos.Config) { c.Queue = &dbos.Queue{Poll: -1} },
	} {
		cfg := dbos.Config{Backend: memory.New(memory.Config{}), DatabaseURL: "postgres://nobody@127.0.0.1:1/none"}
		spoil(&cfg)
		_, err := dbos.New(cfg)
		if !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), field+" ") && !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s: the error is %v", field, err)
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
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool is of no use any more: %v", err)
	}
}
