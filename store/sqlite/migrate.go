package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() ([]migrate.Step, error) { return migrate.Steps(migrationFiles, "migrations") }

// Migrations lists the steps of the tables, those that the file at path has and
// those that it lacks. It changes nothing. A database that has tables, but none of
// Helix, belongs to another program, and is refused.
func Migrations(path string) ([]store.Migration, error) {
	steps, err := migrations()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return migrate.Report(steps, nil), nil
	}
	c, err := open(path, "busy_timeout(10000)", "query_only(true)")
	if err != nil {
		return nil, failure("open "+path, err)
	}
	applied, err := readMigrations(c)
	if err == nil && len(applied) == 0 {
		err = refuseForeign(c, path)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return nil, failure("read the migrations of "+path, err)
	}
	return migrate.Report(steps, applied), nil
}

const createMigrations = `
CREATE TABLE IF NOT EXISTS helix_migrations (
    number        INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL,
    applied_at    INTEGER NOT NULL,
    readable_from INTEGER NOT NULL -- the number of the first migration whose program can use the database
) STRICT`

// bringUp brings the tables up to date, if it may change them. Of the processes
// that open a file at once one does the work and the others find it done.
func bringUp(c *conn, change bool, now time.Time) (err error) {
	steps, err := migrations()
	if err != nil {
		return err
	}
	if lacking, err := missing(c, steps, change); err != nil || len(lacking) == 0 {
		return err
	}
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, rollback := c.exec("ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	lacking, err := missing(c, steps, change) // another process may have been faster
	if err != nil {
		return err
	}
	var foreign error
	if len(lacking) == len(steps) {
		foreign = refuseForeign(c, "the file")
	}
	if _, err := c.exec(createMigrations); err != nil {
		return err
	}
	for _, step := range lacking {
		if err := apply(c, step, now); err != nil {
			if foreign != nil { // it has tables of the same names, and SQLite says only that
				return foreign
			}
			return fmt.Errorf("migration %s: %w", step.Name, err)
		}
	}
	_, err = c.exec("COMMIT")
	return err
}

// apply makes one step. Programs that have the file open look at its user_version,
// which is in the file's first page, to see whether they can still use it.
func apply(c *conn, step migrate.Step, now time.Time) error {
	if err := c.script(step.Text); err != nil {
		return err
	}
	if _, err := c.exec("INSERT INTO helix_migrations (number, name, applied_at, readable_from) VALUES (?, ?, ?, ?)",
		step.Number, step.Name, now, step.ReadableFrom); err != nil {
		return err
	}
	return c.script(fmt.Sprintf("PRAGMA user_version = %d", step.ReadableFrom))
}

// missing lists the steps that the database lacks.
func missing(c *conn, steps []migrate.Step, change bool) ([]migrate.Step, error) {
	exists, err := hasMigrations(c)
	if err != nil {
		return nil, err
	}
	if !exists {
		return migrate.Level{}.Missing(steps, change)
	}
	r, err := c.one("SELECT max(number), max(readable_from) FROM helix_migrations")
	if err != nil {
		return nil, err
	}
	return migrate.Level{Number: r.int(), ReadableFrom: r.int()}.Missing(steps, change)
}

func hasMigrations(c *conn) (bool, error) {
	r, err := c.one("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'helix_migrations'")
	return r != nil, err
}

// refuseForeign refuses a database that holds something, and nothing of Helix.
func refuseForeign(c *conn, path string) error {
	r, err := c.one("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name <> 'helix_migrations' ORDER BY name LIMIT 1")
	if err != nil || r == nil {
		return err
	}
	return session.ErrNotSupported.WithMessage("%s is a SQLite database, but not one of Helix: it has the table %q, and no table helix_migrations", path, r.text())
}

// readMigrations lists the steps that the database has.
func readMigrations(c *conn) ([]store.Migration, error) {
	exists, err := hasMigrations(c)
	if err != nil || !exists {
		return nil, err
	}
	var out []store.Migration
	for r, err := range c.query("SELECT number, name, applied_at FROM helix_migrations ORDER BY number") {
		if err != nil {
			return nil, err
		}
		out = append(out, store.Migration{Number: r.int(), Name: r.text(), AppliedAt: r.time()})
	}
	return out, nil
}
