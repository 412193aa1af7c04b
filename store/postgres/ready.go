package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// A server that has become a replica, or was made read-only, accepts no writes.
	selectReady = `
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
       EXISTS (SELECT FROM helix.sessions WHERE number = 0), (SELECT coalesce(max(readable_from), 0) FROM helix.migrations)`

	// No lock has an empty name.
	writeNothing = `
INSERT INTO helix.locks AS l (name, owner, token) VALUES ('', '', 1)
ON CONFLICT (name) DO UPDATE SET token = l.token + 1`
)

// Ready implements [store.Backend].
func (b *Backend) Ready(ctx context.Context) error {
	err := b.query(ctx, "read the database", func(rows pgx.Rows) error {
		var readOnly, used bool
		var from int
		if err := rows.Scan(&readOnly, &used, &from); err != nil {
			return err
		}
		if readOnly {
			return &pgconn.PgError{Severity: "ERROR", Code: stateReadOnly, Message: "transactions are read-only"}
		}
		return b.guard.Note(from)
	}, selectReady)
	if err != nil {
		return err
	}
	return b.writes.Check(ctx, func(ctx context.Context) error {
		return b.query(ctx, "write the database", func(pgx.Rows) error { return nil }, writeNothing)
	})
}
