package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // a second program's way to Postgres
	_ "modernc.org/sqlite"             // and to SQLite

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
)

// newer is a program of the next version, as far as the database sees it: it adds
// a column and a table, and writes both.
type newer struct {
	db    *sql.DB
	steps []string // the migration
	note  string   // writes to the new column and table
}

// TestRollingDeploy brings a database to the next version while programs of this
// one work on it, and lets both continue together. A program of this version that is
// started later opens the newer database, too.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	for i, kind := range testbackend.Shared() {
		next := map[string]func(*testing.T, string) newer{"sqlite": newerSQLite, "postgres": newerPostgres}[kind.Name]
		if next == nil || !takesPart(t, i) { // without tables there are no migrations
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			address := kind.Address(t)
			testRollingDeploy(t, address, next)
		})
	}
}

func testRollingDeploy(t *testing.T, address string, next func(*testing.T, string) newer) {
	sessions, steps, writes := 8, 10, 50
	if testshare.Soak() {
		sessions, steps, writes = 50, 60, 1000
	}
	o := openOffice(t, sessions, steps, opener(address))
	n := next(t, address)
	var late store.Backend
	o.work(func(ctx context.Context, done func() float64) bool {
		until(ctx, done, 0.5)
		if err := n.migrate(t.Context()); err != nil {
			t.Errorf("migrate: %v", err)
			return false
		}
		var err error
		if late, err = opener(address)(); err != nil {
			t.Errorf("open the newer database: %v", err)
			return false
		}
		for range writes { // each beside some steps
			if _, err := n.db.ExecContext(t.Context(), n.note); err != nil {
				t.Errorf("the newer program: %v", err)
				return false
			}
			until(ctx, done, done()+0.02)
		}
		return false
	})
	if late == nil {
		return
	}
	defer late.Close()
	o.verify(late)
	report, err := backend.Migrations(address)
	if err != nil || len(report) < 2 || !report[len(report)-1].Newer {
		t.Errorf("the migrations are %+v, %v", report, err)
	}
	t.Logf("%d sessions kept running through the migration, beside %d writes of the newer program", sessions, writes)
}

// migrate brings the database to the next version, in one transaction.
func (n newer) migrate(ctx context.Context) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, step := range n.steps {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			_ = tx.Rollback()
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return tx.Commit()
}

func openSQL(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newerSQLite(t *testing.T, address string) newer {
	path := strings.TrimPrefix(address, "sqlite:")
	return newer{
		db: openSQL(t, "sqlite", "file:"+path+"?_pragma=busy_timeout(120000)&_txlock=immediate"),
		steps: []string{
			"ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",
			"ALTER TABLE messages ADD COLUMN mood TEXT",
			"CREATE TABLE moods (session INTEGER PRIMARY KEY, mood TEXT NOT NULL) STRICT",
			"INSERT INTO helix_migrations (number, name, applied_at, readable_from) VALUES (1000, '1000_moods', 1, 1)",
		},
		note: `UPDATE sessions SET mood = 'busy';
			INSERT INTO moods SELECT number, mood FROM sessions WHERE true ON CONFLICT (session) DO UPDATE SET mood = excluded.mood`,
	}
}

func newerPostgres(t *testing.T, address string) newer {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	schema := query.Get("schema")
	query.Del("schema")
	query.Del("pool_max_conns")
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return newer{
		db: openSQL(t, "pgx", u.String()),
		steps: []string{
			"ALTER TABLE sessions ADD COLUMN mood text NOT NULL DEFAULT 'calm'",
			"ALTER TABLE messages ADD COLUMN mood text",
			"CREATE TABLE moods (session bigint PRIMARY KEY, mood text NOT NULL)",
			"INSERT INTO migrations (number, name, applied_at, readable_from) VALUES (1000, '1000_moods', now(), 1)",
		},
		note: `WITH s AS (UPDATE sessions SET mood = 'busy' RETURNING number, mood)
			INSERT INTO moods SELECT number, mood FROM s ON CONFLICT (session) DO UPDATE SET mood = excluded.mood`,
	}
}
