// Package testschema lends schemas of the Postgres server that tests share.
//
// Creating Helix's tables takes the server longer than most tests take, so a schema that a
// test has left is emptied and lent again.
package testschema

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
)

// pool has the schemas that tests have left, the one that was left first at the front.
type pool struct {
	mu   sync.Mutex
	left []string
}

// lent is the pool of this process: the tests of a package have no other common owner.
var lent pool

// Lend returns the URL of a database and the name of a schema for a test. The schema does
// not exist, or it is as it was when its tables had been created. The URL gives connections
// the schema's name, by which a connection that outlives its test is noticed: the schema is
// not lent again before that has ended.
//
// The test may write rows and add to the table of migrations. One that changes tables needs
// a schema of its own.
func Lend(tb testing.TB) (database, schema string) {
	tb.Helper()
	return lent.lend(tb)
}

func (p *pool) lend(tb testing.TB) (database, schema string) {
	tb.Helper()
	address := testserver.Postgres(tb)
	schema, err := p.reuse(eventually.Context(tb), address)
	if err != nil {
		tb.Fatalf("empty a schema: %v", err)
	}
	if schema == "" {
		schema = fmt.Sprintf("lent_%016x", rand.Uint64())
	}
	tb.Cleanup(func() {
		if !tb.Failed() { // else somebody may want to look at it
			p.put(schema)
		}
	})
	return nameConnections(tb, address, schema), schema
}

func (p *pool) put(schema string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, schema)
}

// reuse returns a schema that was left, emptied, or "" if there is none that nobody uses.
func (p *pool) reuse(ctx context.Context, address string) (string, error) {
	p.mu.Lock()
	left := slices.Clone(p.left)
	p.mu.Unlock()
	if len(left) == 0 {
		return "", nil
	}
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, selectUnused, left)
	if err != nil {
		return "", err
	}
	unused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	for _, schema := range unused {
		if !p.remove(schema) { // another test has it
			continue
		}
		if empty, err := emptySchema(ctx, conn, schema); err != nil || empty {
			return schema, err
		}
	}
	return "", nil
}

// remove removes a schema and reports whether it was there.
func (p *pool) remove(schema string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.left, schema)
	if at >= 0 {
		p.left = slices.Delete(p.left, at, at+1)
	}
	return at >= 0
}

const (
	// selectUnused returns the schemas with tables to which nobody is connected.
	selectUnused = `
SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS left_ (name, place)
WHERE to_regclass(quote_ident(name) || '.migrations') IS NOT NULL AND name NOT IN (SELECT application_name FROM pg_stat_activity)
ORDER BY place`

	// selectChanged says whether migrations were added, which are numbered from 1: a test's own leave a gap.
	selectChanged = `
SELECT count(*) <> max(number) FROM %s.migrations`

	// selectDeletes returns statements that empty the tables. A table without a page has no rows. To truncate the tables
	// would take three times as long.
	selectDeletes = `
SELECT coalesce(string_agg(format('DELETE FROM %s', oid::regclass), '; '), '') FROM pg_class
WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND relname <> 'migrations' AND pg_relation_size(oid) > 0`

	restartSequences = `
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences
WHERE schemaname = $1 AND last_value IS NOT NULL`
)

// emptySchema removes all rows of a schema, and reports whether it is as it was when its tables
// had been created. If it is not, it is dropped.
func emptySchema(ctx context.Context, conn *pgx.Conn, schema string) (bool, error) {
	quoted := pgx.Identifier{schema}.Sanitize()
	var changed bool
	if err := conn.QueryRow(ctx, fmt.Sprintf(selectChanged, quoted)).Scan(&changed); err != nil {
		return false, err
	}
	if changed {
		_, err := conn.Exec(ctx, "DROP SCHEMA "+quoted+" CASCADE")
		return false, err
	}
	var deletes string
	if err := conn.QueryRow(ctx, selectDeletes, quoted).Scan(&deletes); err != nil {
		return false, err
	}
	if _, err := conn.Exec(ctx, deletes, pgx.QueryExecModeSimpleProtocol); err != nil {
		return false, err
	}
	_, err := conn.Exec(ctx, restartSequences, schema)
	return true, err
}

// nameConnections adds to a database's URL the name that its connections give.
func nameConnections(tb testing.TB, database, name string) string {
	tb.Helper()
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}
