package dbos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
	"go.uber.org/goleak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "3") // scenarios wait more than they work
	goleak.VerifyTestMain(testserver.Main(m))
}

// kinds are the backends that DBOS's databases are tried beside.
func kinds() []testbackend.Kind {
	return slices.DeleteFunc(testbackend.Shared(), func(k testbackend.Kind) bool { return k.Name != "sqlite" && k.Name != "postgres" })
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for i, kind := range kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := runtimetest.Config{
				SlowSteps:  true,
				NewBackend: func(t testing.TB) store.Backend { return kind.Open(t) },
				Reopen: func(t testing.TB, db store.Backend) store.Backend {
					return testbackend.Open(t, db.(*testbackend.Backend).Address)
				},
				NewRuntime: func(t testing.TB, deployment string, opts helix.RuntimeOptions) helix.Runtime {
					return start(t, newPlace(t, kind, dir, deployment), opts)
				},
			}
			if !testshare.Soak() {
				config.Every, config.First, config.SkipTimed = 32, runtimetest.Rotate(t, 32)+16*i, true // all of them take minutes
			}
			runtimetest.Run(t, config)
		})
	}
}

// schema is that of DBOS's tables, which all tests share: making them takes longer
// than most tests. They keep apart by prefix.
var schema = fmt.Sprintf("dbos_%016x", rand.Uint64())

// place is where the processes of a test have DBOS keep their workflows.
type place struct{ url, prefix string }

// newPlace is the place of a deployment, in a directory if need be.
func newPlace(t testing.TB, kind testbackend.Kind, dir, deployment string) place {
	p := place{prefix: "t-" + strings.ToLower(deployment)}
	if kind.Name == "sqlite" {
		p.url = "sqlite:" + filepath.Join(dir, p.prefix)
	} else {
		p.url = testserver.Postgres(t)
		tables(t, p.url)
	}
	return p
}

var made sync.Once

// tables makes DBOS's tables on Postgres. Processes that share a backend take turns
// at that; tests have a backend each.
func tables(t testing.TB, url string) {
	made.Do(func() {
		rt, err := dbos.New(dbos.Config{
			RuntimeOptions: helix.RuntimeOptions{Backend: memory.New(memory.Config{})}, DatabaseURL: url, Schema: schema,
		})
		if err == nil {
			err = rt.Shutdown(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func start(t testing.TB, at place, opts helix.RuntimeOptions) helix.Runtime {
	rt, err := dbos.New(dbos.Config{RuntimeOptions: opts, DatabaseURL: at.url, Schema: schema, Prefix: at.prefix})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}
