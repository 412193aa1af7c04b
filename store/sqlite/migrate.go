package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one numbered step of the schema. Migrations only add, so that a
// program that knows fewer can go on while a newer one is being rolled out.
type migration struct {
	number int
	name   string
	text   string
}

// migrations lists the steps, which are numbered 1, 2, 3 …
func migrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // in order
	if err != nil {
		return nil, err
	}
	var out []migration
	for _, file := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		digits, _, _ := strings.Cut(name, "_")
		number, err := strconv.Atoi(digits)
		if err != nil || number != len(out)+1 {
			return nil, fmt.Errorf("migration %s is not number %d", file, len(out)+1)
		}
		text, err := migrationFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{number, name, string(text)})
	}
	return out, nil
}

const createMigrations = `
CREATE TABLE IF NOT EXISTS helix_migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT`

// migrate brings the tables up to date. Of the processes that open a file at once
// one does the work and the others find it done.
func migrate(c *conn, now time.Time) (err error) {
	steps, err := migrations()
	if err != nil {
		return err
	}
	if at, err := schemaNumber(c); err != nil || at == len(steps) {
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
	at, err := schemaNumber(c)
	if err != nil {
		return err
	}
	if at > len(steps) {
		return session.ErrNotSupported.WithMessage(
			"the database has schema %d; this program knows up to %d and needs to be updated", at, len(steps))
	}
	if _, err := c.exec(createMigrations); err != nil {
		return err
	}
	for _, step := range steps[at:] {
		if err := c.script(step.text); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
		if _, err := c.exec("INSERT INTO helix_migrations (number, name, applied_at) VALUES (?, ?, ?)",
			step.number, step.name, now); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
	}
	_, err = c.exec("COMMIT")
	return err
}

// schemaNumber is the number of the last migration that was applied.
func schemaNumber(c *conn) (int, error) {
	r, err := c.one("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'helix_migrations'")
	if err != nil || r == nil {
		return 0, err
	}
	r, err = c.one("SELECT max(number) FROM helix_migrations")
	if err != nil {
		return 0, err
	}
	return r.int(), nil
}
