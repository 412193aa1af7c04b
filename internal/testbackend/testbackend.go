// Package testbackend opens an empty backend of every kind, for tests that must
// hold on every backend, and leaves runs of lost processes in one.
package testbackend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testschema"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
)

// Kind is a kind of backend.
type Kind struct {
	Name string
	// address returns the address of a new, empty backend.
	address func(tb testing.TB) string
	// lend, if it is set, returns the address of an empty backend that an earlier test of
	// this process may have used.
	lend func(tb testing.TB) string
}

// Kinds lists all kinds.
func Kinds() []Kind { return append(Embedded(), Servers()...) }

// Embedded lists the kinds that need no server: memory and SQLite.
func Embedded() []Kind {
	return []Kind{
		{Name: "memory", address: func(testing.TB) string { return "memory:" }},
		{Name: "sqlite", address: sqliteAddress},
	}
}

// Servers lists the kinds that are servers.
func Servers() []Kind {
	return []Kind{
		{
			Name: "postgres",
			address: func(tb testing.TB) string {
				return with(testserver.Postgres(tb), "schema=test_"+token()+"&pool_max_conns=8")
			},
			lend: func(tb testing.TB) string {
				database, schema := testschema.Lend(tb)
				return with(database, "schema="+schema+"&pool_max_conns=8")
			},
		},
		{Name: "redis", address: func(tb testing.TB) string { return with(testserver.Redis(tb), "prefix=test-"+token()) }},
		{Name: "cluster", address: func(tb testing.TB) string { return with(testserver.RedisCluster(tb), "prefix=test-"+token()) }},
	}
}

// Shared lists the kinds that several processes can use.
func Shared() []Kind { return Kinds()[1:] }

// Address creates an empty backend for a test and returns its address. A Postgres schema
// is a new one, without tables.
func (k Kind) Address(tb testing.TB) string {
	tb.Helper()
	return k.address(tb)
}

// Open opens an empty backend for a test and closes it at the end of the test. Nobody may
// change its tables, or use it from a process that outlives the test.
func (k Kind) Open(tb testing.TB) *Backend {
	tb.Helper()
	if k.lend != nil {
		return Open(tb, k.lend(tb))
	}
	return Open(tb, k.Address(tb))
}

// Backend is a backend that can be opened again.
type Backend struct {
	store.Backend
	Address string
}

// Open opens the backend at an address for a test and closes it at the end of the
// test.
func Open(tb testing.TB, address string) *Backend {
	tb.Helper()
	db, err := open(address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Backend{db, address}
}

// open opens a SQLite file without waiting for the disk, because tests do not
// simulate a loss of power.
func open(address string) (store.Backend, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return sqlite.OpenConfig(sqlite.Config{Path: path, Synchronous: "OFF", Readers: 2})
	}
	// On a busy machine the many short steps of opening a cluster take longer than a user
	// would wait.
	return backend.OpenWithin(eventually.Patience, address, nil)
}

// sqliteAddress returns the path of a file with the tables. Creating them takes
// longer than most tests, so they are created once and copied.
func sqliteAddress(tb testing.TB) string {
	tb.Helper()
	tables, err := emptyFile()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "helix.db")
	if err := os.WriteFile(path, tables, 0o600); err != nil {
		tb.Fatal(err)
	}
	return "sqlite:" + path
}

var emptyFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "helix-tables-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "helix.db")
	db, err := sqlite.Open(path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func token() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// with adds parameters to a URL.
func with(address, parameters string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameters
	}
	return address + "?" + parameters
}
