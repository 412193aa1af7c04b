package local_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "3") // scenarios wait as much as they work
	goleak.VerifyTestMain(testserver.Main(m))
}

// TestScenarios plays an eighth of the scenarios on each server: what a scenario sees of a
// store is the same in memory and on SQLite. Of a cluster's slots it sees nothing.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for i, kind := range testbackend.Servers() {
		if kind.Name == "cluster" && !testshare.Soak() {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			config := runtimetest.Config{
				Pace:       2, // other packages are at work
				NewBackend: func(t testing.TB) store.Backend { return kind.Open(t) },
				Reopen: func(t testing.TB, db store.Backend) store.Backend {
					return testbackend.Open(t, db.(*testbackend.Backend).Address)
				},
				NewRuntime: start,
				Snapshots:  testshare.Soak(),
			}
			if !testshare.Soak() {
				config.Every, config.First, config.SkipTimed = 16, runtimetest.Rotate(t, 16)+8*i, true
			}
			runtimetest.Run(t, config)
		})
	}
}

func start(t testing.TB, _ string, opts helix.RuntimeOptions) helix.Runtime {
	rt, err := local.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}
