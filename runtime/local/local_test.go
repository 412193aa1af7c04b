package local_test

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "3") // scenarios wait as much as they work
	goleak.VerifyTestMain(testserver.Main(m))
}

// TestScenarios plays the scenarios in memory and, an eighth for each commit, on SQLite, all in
// fake time. Servers are in internal/onservers.
func TestScenarios(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		runtimetest.Run(t, runtimetest.Config{NewBackend: inMemory, NewRuntime: start, FakeTime: true})
	})
	t.Run("snapshots", func(t *testing.T) { // they slow a scenario down several times
		t.Parallel()
		config := runtimetest.Config{NewBackend: inMemory, NewRuntime: start, FakeTime: true, Snapshots: true}
		if !testshare.Soak() {
			config.Every, config.First = 16, runtimetest.Rotate(t, 16)
		}
		runtimetest.Run(t, config)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		sqlite := testbackend.Embedded()[1]
		config := runtimetest.Config{
			NewBackend: func(t testing.TB) store.Backend { return sqlite.Open(t) },
			Reopen: func(t testing.TB, db store.Backend) store.Backend {
				return testbackend.Open(t, db.(*testbackend.Backend).Address)
			},
			NewRuntime: start,
			FakeTime:   true,
			Snapshots:  testshare.Soak(),
		}
		if !testshare.Soak() {
			config.Every, config.First = 8, runtimetest.Rotate(t, 8)
		}
		runtimetest.Run(t, config)
	})
}

// readings counts the readings of the clocks of stores in memory.
var readings atomic.Int64

// inMemory opens a store whose clock never shows the same time twice, as a real one does
// not: that of a bubble stands still while anybody works.
func inMemory(t testing.TB) store.Backend {
	backend := memory.New(memory.Config{Clock: func() time.Time {
		return time.Now().Add(time.Duration(readings.Add(1)) * time.Nanosecond)
	}})
	t.Cleanup(func() { _ = backend.Close() })
	return backend
}

func start(t testing.TB, _ string, opts helix.RuntimeOptions) helix.Runtime {
	rt, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}
