package temporal_test

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/store"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // scenarios wait more than they work
	goleak.VerifyTestMain(testserver.Main(m))
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	c := dial(t)
	for _, kind := range testbackend.Shared() {
		if kind.Name != "postgres" {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			config := runtimetest.Config{
				Pace:       5,
				SlowSteps:  true,
				NewBackend: func(t testing.TB) store.Backend { return kind.Open(t) },
				Reopen: func(t testing.TB, db store.Backend) store.Backend {
					return testbackend.Open(t, db.(*testbackend.Backend).Address)
				},
				NewRuntime: func(t testing.TB, deployment string, opts helix.RuntimeOptions) helix.Runtime {
					rt, err := temporal.New(temporal.Config{
						RuntimeOptions: opts, Client: c, TaskQueue: deployment, WorkerTimeout: max(opts.LeaseTTL, time.Second),
					})
					if err != nil {
						t.Fatal(err)
					}
					return rt
				},
			}
			if !testshare.Soak() {
				config.Every, config.First, config.SkipTimed = 32, runtimetest.Rotate(t, 32), true // the server takes long
			}
			runtimetest.Run(t, config)
		})
	}
}

func dial(t testing.TB) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{
		HostPort: testserver.Temporal(t), Identity: "test", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}}, // the server is near
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
