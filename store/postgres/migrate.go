package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() ([]migrate.Step, error) { return migrate.Steps(migrationFiles, "migrations") }

// Migrations lists the migrations that the database has and those that it lacks.
// It changes nothing.
func Migrations(config Config) ([]store.Migration, error) {
	steps, err := migrations()
	if err != nil {
		return nil, err
	}
	var applied []store.Migration
	b, err := connect(config, func(b *Backend, ctx context.Context) (err error) {
		applied, err = b.readMigrations(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.closePools()
	return migrate.Report(steps, applied), nil
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

	// If several processes open a database at once, one of them does the work.
	lockMigrations = `
SELECT pg_advisory_xact_lock(hashtextextended('helix migrations ' || $1, 0))`
)

// migrationLimit is how long migrating the tables may take, including the wait for
// another process that does.
const migrationLimit = 10 * time.Minute

// bringUp applies missing migrations in one transaction: if it fails, nothing has
// changed. ctx only bounds the check whether there is anything to do.
func (b *Backend) bringUp(ctx context.Context, conn *pgx.Conn) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	at, err := b.level(ctx, conn)
	if err != nil {
		return err
	}
	if missing, err := at.Missing(steps, !b.config.NoMigrate); err != nil || len(missing) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), migrationLimit)
	defer cancel()
	if err = b.apply(ctx, conn, steps); errors.Is(err, context.DeadlineExceeded) {
		return session.ErrUnavailable.WithCause(err, "the database's tables could not be migrated within %s: look for transactions that lock them",
			migrationLimit)
	}
	return err
}

// apply applies the missing migrations.
func (b *Backend) apply(ctx context.Context, conn *pgx.Conn, steps []migrate.Step) error {
	// A read after the lock was acquired must see what the previous holder has
	// written.
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, lockMigrations, b.config.Schema); err != nil {
		return err
	}
	at, err := b.level(ctx, conn) // another process may have done it
	if err != nil {
		return err
	}
	missing, err := at.Missing(steps, true)
	if err != nil {
		return err
	}
	if at.Number == 0 {
		if err := b.createSchema(ctx, tx); err != nil {
			return err
		}
	}
	for _, step := range missing {
		// In the simple protocol a text without parameters may contain several statements.
		if _, err := tx.Exec(ctx, b.sql(step.Text), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("migration %s: %w", step.Name, err)
		}
		if _, err := tx.Exec(ctx, b.sql(insertMigration), step.Number, step.Name, step.ReadableFrom); err != nil {
			return fmt.Errorf("migration %s: %w", step.Name, err)
		}
	}
	return tx.Commit(ctx)
}

// createSchema creates the schema unless it exists.
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

// level reads which migrations the database has: none if it has no table for them.
func (b *Backend) level(ctx context.Context, conn *pgx.Conn) (at migrate.Level, err error) {
	exists, err := b.hasMigrations(ctx, conn)
	if err != nil || !exists {
		return at, err
	}
	err = conn.QueryRow(ctx, b.sql("SELECT coalesce(max(number), 0), coalesce(max(readable_from), 0) FROM helix.migrations")).
		Scan(&at.Number, &at.ReadableFrom)
	return at, err
}

const selectReadable = `
SELECT coalesce(max(readable_from), 0) FROM helix.migrations`

// noteLevel records which programs can use the database.
func (b *Backend) noteLevel(rows pgx.Rows) error {
	var from int
	if err := rows.Scan(&from); err != nil {
		return err
	}
	return b.guard.Note(from)
}

func (b *Backend) hasMigrations(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (exists bool, err error) {
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'migrations')", b.config.Schema).Scan(&exists)
	return exists, err
}

// readMigrations lists the migrations that the database has.
func (b *Backend) readMigrations(ctx context.Context) ([]store.Migration, error) {
	exists, err := b.hasMigrations(ctx, b.pool)
	if err != nil || !exists {
		return nil, err
	}
	rows, err := b.pool.Query(ctx, b.sql("SELECT number, name, applied_at FROM helix.migrations ORDER BY number"))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m store.Migration, err error) {
		err = row.Scan(&m.Number, &m.Name, &m.AppliedAt)
		return m, err
	})
}
