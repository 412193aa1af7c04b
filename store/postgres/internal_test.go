package postgres

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// testURL is the URL of a database in which tests may make schemas.
func testURL(tb testing.TB) string {
	tb.Helper()
	url := os.Getenv("HELIX_TEST_POSTGRES")
	if url == "" {
		tb.Fatal("HELIX_TEST_POSTGRES must be the URL of a PostgreSQL database for tests")
	}
	return url
}

var testSchemas atomic.Int64

// testSchema is the name of a schema of the test's own, which is dropped when it
// ends.
func testSchema(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("helix_own_%d_%d", os.Getpid(), testSchemas.Add(1))
	tb.Cleanup(func() { execTest(tb, "DROP SCHEMA IF EXISTS "+pgx.Identifier{name}.Sanitize()+" CASCADE") })
	return name
}

// execTest runs statements on a connection of its own.
func execTest(tb testing.TB, queries ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, testURL(tb))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, query := range queries {
		if _, err := conn.Exec(ctx, query); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
	}
}

// openTest opens a backend in a schema of its own.
func openTest(tb testing.TB, change ...func(*Config)) *Backend {
	tb.Helper()
	config := Config{URL: testURL(tb), Schema: testSchema(tb), PollInterval: 10 * time.Millisecond}
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
