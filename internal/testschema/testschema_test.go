package testschema

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

const createTables = `
CREATE SCHEMA helix;
CREATE TABLE helix.migrations (number integer);
INSERT INTO helix.migrations VALUES (1), (2);
CREATE SEQUENCE helix.numbers;
CREATE TABLE helix.things (number bigint GENERATED ALWAYS AS IDENTITY, name text);
CREATE TABLE helix.others (name text)`

func TestLend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave  string // what the first test does
		reused bool
	}{
		"written":        {`INSERT INTO helix.things (name) VALUES ('a'), ('b'); SELECT nextval('helix.numbers')`, true},
		"deleted":        {`INSERT INTO helix.others VALUES ('a'); DELETE FROM helix.others`, true},
		"untouched":      {`SELECT 1`, true},
		"newer":          {`INSERT INTO helix.migrations VALUES (99)`, false},
		"without tables": {`DROP SCHEMA helix CASCADE`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p pool
			var first string
			t.Run("first", func(t *testing.T) {
				database, schema := p.lend(t)
				first = schema
				db := connect(t, database, schema)
				db.exec(t, createTables)
				db.exec(t, c.leave)
			})
			waitUnused(t, first)
			database, schema := p.lend(t)
			if (schema == first) != c.reused {
				t.Fatalf("the schema is lent again: %v, want %v", schema == first, c.reused)
			}
			db := connect(t, database, schema)
			if !c.reused {
				db.exec(t, createTables) // as in a new one
				return
			}
			db.exec(t, "INSERT INTO helix.things (name) VALUES ('c'); INSERT INTO helix.others VALUES ('c')")
			var number, next, things, others, migrations int
			const query = `SELECT (SELECT max(number) FROM helix.things), nextval('helix.numbers'),
				(SELECT count(*) FROM helix.things), (SELECT count(*) FROM helix.others), (SELECT count(*) FROM helix.migrations)`
			if err := db.QueryRow(t.Context(), db.sql(query)).Scan(&number, &next, &things, &others, &migrations); err != nil {
				t.Fatal(err)
			}
			if number != 1 || next != 1 || things != 1 || others != 1 || migrations != 2 {
				t.Errorf("the first row has number %d, the sequence begins with %d, and there are %d things, %d others, %d migrations", number, next, things, others, migrations)
			}
		})
	}
}

// A schema is not lent while a connection to it is open, nor twice at a time.
func TestLendUnusedOnly(t *testing.T) {
	t.Parallel()
	var p pool
	var first string
	var late conn
	t.Run("first", func(sub *testing.T) {
		database, schema := p.lend(sub)
		first, late = schema, connect(t, database, schema)
		late.exec(t, createTables)
	})
	t.Run("while it is in use", func(t *testing.T) {
		if _, schema := p.lend(t); schema == first {
			t.Error("the schema is lent although somebody is connected to it")
		}
	})
	if err := late.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUnused(t, first)
	if _, schema := p.lend(t); schema != first {
		t.Error("the schema is not lent again")
	}
	if _, schema := p.lend(t); schema == first {
		t.Error("the schema is lent twice")
	}
}

// conn is a connection to a schema, which statements call helix.
type conn struct {
	*pgx.Conn
	schema string
}

func connect(t *testing.T, database, schema string) conn {
	t.Helper()
	c, err := pgx.Connect(eventually.Context(t), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(eventually.Context(t)) })
	return conn{c, schema}
}

func (c conn) sql(text string) string { return strings.ReplaceAll(text, "helix.", c.schema+".") }

func (c conn) exec(t *testing.T, statements string) {
	t.Helper()
	statements = strings.ReplaceAll(c.sql(statements), "SCHEMA helix", "SCHEMA "+c.schema)
	if _, err := c.Exec(eventually.Context(t), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// waitUnused waits until the server has noticed that the connections to a schema are closed.
func waitUnused(t *testing.T, schema string) {
	t.Helper()
	c := connect(t, testserver.Postgres(t), schema)
	eventually.Poll(t, "the end of all connections to "+schema, func() bool {
		var n int
		if err := c.QueryRow(eventually.Context(t), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
