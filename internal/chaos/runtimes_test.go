package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/store"
)

// silence is how long a process may be silent before Temporal takes it for dead.
const silence = time.Second

// runtimes are all of them, each with what a process has to be told to take part in
// a test's.
var runtimes = map[string]func(t *testing.T) string{
	local.Name:    func(*testing.T) string { return "" },
	temporal.Name: func(t *testing.T) string { return testserver.Temporal(t) + " " + t.Name() },
	dbos.Name:     func(t *testing.T) string { return fmt.Sprintf("%s dbos_%016x", testserver.Postgres(t), rand.Uint64()) },
}

// onRuntimes runs a test for one or two of the three runtimes, over Postgres, for the others with the
// next commit, and in a long run for all. The test's directory says which, and where the data is.
func onRuntimes(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(runtimes)) {
		if !takesPart(t, i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := onPostgres(t)
			write(t, dir, "runtime", name+" "+runtimes[name](t))
			test(t, dir)
		})
	}
}

// onPostgres makes a directory of processes that share a Postgres.
func onPostgres(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, kind := range testbackend.Shared() {
		if kind.Name == "postgres" {
			write(t, dir, "store", kind.Address(t))
		}
	}
	return dir
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// options are those of a process that takes part in a test.
func options(db store.Backend, agent *helix.Agent) helix.RuntimeOptions {
	return helix.RuntimeOptions{Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease, Heartbeat: heartbeat, Sweep: sweep}
}

// startRuntime starts the runtime of a directory.
func startRuntime(dir string, opts helix.RuntimeOptions) (helix.Runtime, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "runtime"))
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(raw))
	switch words[0] {
	case local.Name:
		return local.New(opts)
	case temporal.Name:
		c, err := dialTemporal(words[1])
		if err != nil {
			return nil, err
		}
		rt, err := temporal.New(temporalConfig(c, words[2], opts))
		if err != nil {
			c.Close()
			return nil, err
		}
		return &dialled{rt, c}, nil
	case dbos.Name:
		return dbos.New(dbos.Config{RuntimeOptions: opts, DatabaseURL: words[1], Schema: words[2]})
	}
	return nil, fmt.Errorf("no runtime %q", words[0])
}

func dialTemporal(address string, options ...grpc.DialOption) (client.Client, error) {
	return client.Dial(client.Options{
		HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{DialOptions: options},
	})
}

func temporalConfig(c client.Client, queue string, opts helix.RuntimeOptions) temporal.Config {
	cfg := temporal.Config{RuntimeOptions: opts, Client: c, TaskQueue: queue, WorkerTimeout: silence}
	if opts.LeaseTTL == 0 { // all as a user has it who sets nothing
		cfg.WorkerTimeout = 0
	}
	return cfg
}

// dialled closes its client, too.
type dialled struct {
	*temporal.Runtime
	client client.Client
}

func (d *dialled) Shutdown(ctx context.Context) error {
	defer d.client.Close()
	return d.Runtime.Shutdown(ctx)
}
