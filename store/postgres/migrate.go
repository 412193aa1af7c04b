package postgres

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

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

const (
	createMigrations = `
CREATE TABLE IF NOT EXISTS helix.migrations (
    number        integer PRIMARY KEY,
    name          text NOT NULL,
    applied_at    timestamptz NOT NULL,
    readable_from integer NOT NULL -- the number of the first migration whose program can use the database
)`

	insertMigration = `
INSERT INTO helix.migrations (number, name, applied_at, readable_from) VALUES ($1, $2, now(), $3)`

	// One of the processes that open a database at once does the work.
	lockMigrations = `
SELECT pg_advisory_xact_lock(hashtextextended('helix migrations ' || $1, 0))`
)

// migrate brings the tables up to date, all in one transaction: where it fails,
// nothing was made.
func (b *Backend) migrate(ctx context.Context, conn *pgx.Conn) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	at, err := b.readSchema(ctx, conn)
	if err != nil || at.number >= len(steps) {
		return cmp.Or(err, at.check(len(steps)))
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, lockMigrations, b.config.Schema); err != nil {
		return err
	}
	if at, err = b.readSchema(ctx, conn); err != nil {
		return err
	}
	if err := at.check(len(steps)); err != nil {
		return err
	}
	if at.number == 0 {
		if err := b.createSchema(ctx, tx); err != nil {
			return err
		}
	}
	for _, step := range steps[min(at.number, len(steps)):] {
		// A text without parameters may hold several statements in the simple protocol.
		if _, err := tx.Exec(ctx, b.sql(step.text), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
		if _, err := tx.Exec(ctx, b.sql(insertMigration), step.number, step.name, step.readableFrom); err != nil {
			return fmt.Errorf("migration %s: %w", step.name, err)
		}
	}
	return tx.Commit(ctx)
}

// createSchema makes the schema unless somebody with the right to has made it.
func (b *Backend) createSchema(ctx context.Context, tx pgx.Tx) error {
	var exists bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", b.config.Schema).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{b.config.Schema}.Sanitize()); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, b.sql(createMigrations))
	return err
}

// readSchema tells how far the database has come: nowhere if it has no table that
// says so.
func (b *Backend) readSchema(ctx context.Context, conn *pgx.Conn) (at schema, err error) {
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations')", b.config.Schema).Scan(&exists)
	if err != nil || !exists {
		return at, err
	}
	err = conn.QueryRow(ctx, b.sql("SELECT coalesce(max(number), 0), coalesce(max(readable_from), 0) FROM helix.migrations")).
		Scan(&at.number, &at.readableFrom)
	return at, err
}
