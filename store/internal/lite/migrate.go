package lite

import (
	"embed"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations lists the migrations of the tables.
func Migrations() ([]migrate.Step, error) { return migrate.Steps(migrationFiles, "migrations") }

const createMigrations = `
CREATE TABLE IF NOT EXISTS helix_migrations (
    number        INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL,
    applied_at    INTEGER NOT NULL,
    readable_from INTEGER NOT NULL -- the number of the first migration whose program can use the database
) STRICT`

// Migrate applies the migrations that a database lacks, each with apply, which
// calls [Apply]. If change is false, it refuses a database that lacks some. The
// caller has begun a transaction and commits it: if several processes migrate a
// database at once, one applies the migrations and the others find none missing.
func Migrate(c Conn, steps []migrate.Step, change bool, apply func(migrate.Step) error) error {
	lacking, err := Missing(c, steps, change)
	if err != nil {
		return err
	}
	var foreign error
	if len(lacking) == len(steps) {
		foreign = RefuseForeign(c, "the file")
	}
	if _, err := c.Exec(createMigrations); err != nil {
		return err
	}
	for _, step := range lacking {
		if err := apply(step); err != nil {
			if foreign != nil { // it has tables of the same names, which is all that SQLite reports
				return foreign
			}
			return fmt.Errorf("migration %s: %w", step.Name, err)
		}
	}
	return nil
}

// Apply applies one migration and records it.
func Apply(c Conn, step migrate.Step, now time.Time) error {
	if err := c.Script(step.Text); err != nil {
		return err
	}
	_, err := c.Exec("INSERT INTO helix_migrations (number, name, applied_at, readable_from) VALUES (?, ?, ?, ?)",
		step.Number, step.Name, now, step.ReadableFrom)
	return err
}

// Missing lists the migrations that a database lacks. If change is false, it
// refuses a database that lacks some.
func Missing(c Conn, steps []migrate.Step, change bool) ([]migrate.Step, error) {
	exists, err := hasMigrations(c)
	if err != nil {
		return nil, err
	}
	if !exists {
		return migrate.Level{}.Missing(steps, change)
	}
	r, err := c.One("SELECT max(number), max(readable_from) FROM helix_migrations")
	if err != nil {
		return nil, err
	}
	return migrate.Level{Number: r.Int(), ReadableFrom: r.Int()}.Missing(steps, change)
}

func hasMigrations(c Conn) (bool, error) {
	r, err := c.One("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'helix_migrations'")
	return r != nil, err
}

// RefuseForeign refuses a database that has tables, but none of Helix.
func RefuseForeign(c Conn, path string) error {
	r, err := c.One("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name <> 'helix_migrations' ORDER BY name LIMIT 1")
	if err != nil || r == nil {
		return err
	}
	return session.ErrNotSupported.WithMessage("%s is a SQLite database, but not one of Helix: it has the table %q, and no table helix_migrations", path, r.Text())
}

// Applied lists the migrations that a database has.
func Applied(c Conn) ([]store.Migration, error) {
	exists, err := hasMigrations(c)
	if err != nil || !exists {
		return nil, err
	}
	var out []store.Migration
	for r, err := range c.Query("SELECT number, name, applied_at FROM helix_migrations ORDER BY number") {
		if err != nil {
			return nil, err
		}
		out = append(out, store.Migration{Number: r.Int(), Name: r.Text(), AppliedAt: r.Time()})
	}
	return out, nil
}
