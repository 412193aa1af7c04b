package postgres

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
)

// DatabaseForTest returns the URL of a database in which tests may create schemas.
func DatabaseForTest(tb testing.TB) string {
	tb.Helper()
	return testserver.Postgres(tb)
}

var testSchemas atomic.Int64

// SchemaForTest returns the name of a schema for the test, which is dropped when
// the test ends.
func SchemaForTest(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("helix_test_%d_%d", os.Getpid(), testSchemas.Add(1))
	tb.Cleanup(func() { execTest(tb, "DROP SCHEMA IF EXISTS "+pgx.Identifier{name}.Sanitize()+" CASCADE") })
	return name
}

func execTest(tb testing.TB, queries ...string) {
	tb.Helper()
	for _, query := range queries {
		ExecForTest(tb, query)
	}
}

// ExecForTest runs a statement on a new connection and returns how many rows it
// changed.
func ExecForTest(tb testing.TB, query string, args ...any) int64 {
	tb.Helper()
	ctx := eventually.Context(tb)
	conn, err := pgx.Connect(ctx, DatabaseForTest(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	tag, err := conn.Exec(ctx, query, args...)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return tag.RowsAffected()
}

// openTest opens a backend in a new schema.
func openTest(tb testing.TB, change ...func(*Config)) *Backend {
	tb.Helper()
	config := Config{URL: DatabaseForTest(tb), Schema: SchemaForTest(tb), PollInterval: 10 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	b, err := OpenConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
