package local_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "3") // scenarios wait as much as they work
	goleak.VerifyTestMain(testserver.Main(m))
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	soak := os.Getenv("HELIX_SOAK") != ""
	kinds := testbackend.Kinds() // memory first
	for i, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			config := runtimetest.Config{
				Pace:       2, // other packages are at work
				NewBackend: func(t testing.TB) store.Backend { return kind.Open(t) },
				NewRuntime: start,
				Snapshots:  soak,
				FakeTime:   kind.Name == "memory",
			}
			if i > 0 && !soak { // each scenario is played in memory, and on one of the others
				config.Every, config.First = len(kinds)-1, i-1
			}
			if kind.Name != "memory" {
				config.Reopen = func(t testing.TB, db store.Backend) store.Backend {
					return testbackend.Open(t, db.(*testbackend.Backend).Address)
				}
			}
			runtimetest.Run(t, config)
		})
	}
	if soak {
		return
	}
	t.Run("snapshots", func(t *testing.T) { // they slow a scenario down several times
		t.Parallel()
		runtimetest.Run(t, runtimetest.Config{
			Pace:       2,
			NewBackend: func(t testing.TB) store.Backend { return kinds[0].Open(t) },
			NewRuntime: start,
			Snapshots:  true,
			Every:      4, First: runtimetest.Rotate(t, 4),
		})
	})
}

func start(t testing.TB, _ string, opts helix.RuntimeOptions) helix.Runtime {
	rt, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}
