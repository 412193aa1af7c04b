package local_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	runtimetest.Run(t, runtimetest.Config{
		NewBackend: func(t testing.TB) store.Backend {
			backend := memory.New(memory.Config{})
			t.Cleanup(func() { _ = backend.Close() })
			return backend
		},
		NewExecutor: start,
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	// Making the tables takes longer than most scenarios, so they are made once.
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := open(t, empty).Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := os.ReadFile(empty)
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.Run(t, runtimetest.Config{
		NewBackend: func(t testing.TB) store.Backend {
			path := filepath.Join(t.TempDir(), "helix.db")
			if err := os.WriteFile(path, tables, 0o600); err != nil {
				t.Fatal(err)
			}
			return open(t, path)
		},
		Reopen:      func(t testing.TB, backend store.Backend) store.Backend { return open(t, backend.(*database).path) },
		NewExecutor: start,
	})
}

// database is a SQLite backend that can be opened again.
type database struct {
	store.Backend
	path string
}

// open opens a file. What a process wrote outlives it without waiting for the
// disk; losing power is not among the scenarios.
func open(t testing.TB, path string) store.Backend {
	backend, err := sqlite.OpenConfig(sqlite.Config{Path: path, Synchronous: "OFF", Readers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	return &database{backend, path}
}

// process is a runtime in a process that may die.
type process struct {
	*local.Runtime
	kill func()
}

func start(t testing.TB, backend store.Backend, opts runtimetest.Options) runtimetest.Executor {
	mortal, kill := runtimetest.Mortal(backend)
	rt, err := local.New(local.Config{
		Backend: mortal, Agents: opts.Agents, Hooks: opts.Hooks, Usage: opts.Usage, LeaseTTL: opts.LeaseTTL,
		Sweep: opts.LeaseTTL / 4, RetryBackoff: opts.RetryBackoff, Logger: opts.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &process{rt, kill}
}

// Kill lets nothing more reach the backend and then stops what would have
// vanished with the process.
func (p *process) Kill() {
	p.kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Close(ctx)
}
