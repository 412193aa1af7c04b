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
// program that knows fewer can go on while a newer one is being rolled out; one
// that must break with this says from which program on the database can be used,
// in a first line such as "-- readable from 3".
type migration struct {
	number       int
	name         string
	text         string
	readableFrom int // the number of the first migration whose program can use the result
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
		step := migration{number: number, name: name, text: string(text), readableFrom: 1}
		if _, err := fmt.Sscanf(step.text, "-- readable from %d", &step.readableFrom); err != nil && len(out) > 0 {
			step.readableFrom = out[len(out)-1].readableFrom
		}
		out = append(out, step)
	}
	return out, nil
}

const createMigrations = `
CREATE TABLE IF NOT EXISTS helix_migrations (
    number        INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL,
    applied_at    INTEGER NOT NULL,
    readable_from INTEGER NOT NULL -- the number of the first migration whose program can use the database
) STRICT`

// migrate brings the tables up to date. Of the processes that open a file at once
// one does the work and the others find it done.
func migrate(c *conn, now time.Time) (err error) {
	steps, err := migrations()
	if err != nil {
		return err
	}
	if at, err := readSchema(c); err != nil || at.number >= len(steps) {
		return errors.Join(err, at.check(len(steps)))
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
	at, err := readSchema(c)
	if err != nil {
		return err
	}
	if err := at.check(len(steps)); err != nil {
		return err
	}
	if _, err := c.exec(createMigrations); err != nil {
		return err
	}
	for _, step := range steps[min(at.number, len(steps)):] {
		if err := c.script(step.text); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
		if _, err := c.exec("INSERT INTO helix_migrations (number, name, applied_at, readable_from) VALUES (?, ?, ?, ?)",
			step.number, step.name, now, step.readableFrom); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
	}
	_, err = c.exec("COMMIT")
	return err
}

// schema is how far a database has come.
type schema struct {
	number       int // of the last migration that was applied
	readableFrom int
}

// check refuses a database that a program with the first known migrations cannot
// use.
func (s schema) check(known int) error {
	if s.number > known && s.readableFrom > known {
		return session.ErrNotSupported.WithMessage(
			"the database has schema %d, which programs with schema %d or later can use; this one knows up to %d and needs to be updated",
			s.number, s.readableFrom, known)
	}
	return nil
}

func readSchema(c *conn) (schema, error) {
	r, err := c.one("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'helix_migrations'")
	if err != nil || r == nil {
		return schema{}, err
	}
	r, err = c.one("SELECT max(number), max(readable_from) FROM helix_migrations")
	if err != nil {
		return schema{}, err
	}
	return schema{r.int(), r.int()}, nil
}
