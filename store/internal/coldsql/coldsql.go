// Package coldsql is the SQL of the parts of a store that are off the path of a
// step, written once for SQLite and Postgres: durable tasks, and what is added
// beside them.
//
// An operation is a function over a [Database], which store/internal/lite and
// store/postgres implement. It runs in a transaction: it reads a row, has a function
// of package session decide about it, and writes the row back. Decisions are not
// made in SQL, so that all stores make the same ones.
//
// To add another part:
//
//   - Add its tables to a new migration in store/internal/lite/migrations and in
//     store/postgres/migrations, with the same names and columns. Text is TEXT and
//     text COLLATE "C", bytes are BLOB and bytea, numbers are INTEGER and bigint, a time
//     is INTEGER and timestamptz, NULL where there is none.
//   - Add a file here with a type over [Database] whose methods are the operations;
//     see tasks.go. Statements are made with [Portable], which says how they are
//     written.
//   - Embed or call that type in the sessions of both stores.
//   - What belongs to a session is deleted with it: add the table to ownedByID in
//     lifecycle.go of both stores.
//   - What a commit writes itself is written by the commit's own code: in change.go of
//     lite, and as a part of the one statement in store/postgres.
package coldsql

import (
	"context"
	"iter"
	"regexp"
	"strings"
	"time"
)

// Database runs operations. The argument what names the operation in errors and
// logs.
type Database interface {
	// ReadCold calls run with a connection that sees one consistent snapshot.
	ReadCold(ctx context.Context, what string, run func(Conn) error) error
	// WriteCold calls run in a transaction and returns once it is durable. If run fails,
	// nothing is written. It may call run more than once, each time after its earlier
	// writes were undone.
	WriteCold(ctx context.Context, what string, run func(Conn) error) error
}

// Conn executes statements. Parameters are strings, integers, []byte and time.Time;
// the zero time and nil bytes are NULL.
type Conn interface {
	// Exec executes a statement whose result nobody needs. It may be executed as late as
	// the next query or the end of the transaction, and an error is then returned there.
	// A statement whose result matters is a query, with RETURNING.
	Exec(query Query, args ...any) error
	// Query yields the rows of a query. The caller reads each before the next one, and
	// executes nothing in between.
	Query(query Query, args ...any) iter.Seq2[Row, error]
	// Now returns the store's time, in the precision in which times are stored.
	Now() (time.Time, error)
}

// Row is one row of a result. Its columns are read from left to right, each with the
// method of its type; NULL is read as the zero value.
type Row interface {
	Text() string
	Bytes() []byte
	Int64() int64
	Int() int
	Time() time.Time
}

// Query is a statement in each dialect.
type Query struct {
	SQLite   string
	Postgres string
}

var (
	parameter    = regexp.MustCompile(`\?([0-9]+)`)
	postgresOnly = regexp.MustCompile(`\s*\{([^}]*)\}`)
)

// Portable returns a statement from a text that both dialects share:
//
//   - parameters are ?1, ?2 and so on;
//   - tables are helix.tasks and so on;
//   - what is in braces is for Postgres alone: {FOR UPDATE} locks rows, which on SQLite
//     the only writer need not do.
func Portable(text string) Query {
	lite := postgresOnly.ReplaceAllString(text, "")
	return Query{
		SQLite:   strings.ReplaceAll(lite, "helix.", ""),
		Postgres: parameter.ReplaceAllString(postgresOnly.ReplaceAllString(text, " $1"), "$$$1"),
	}
}

// one returns the first row of a query, as read by read; found is false if there is
// none.
func one(c Conn, query Query, read func(Row), args ...any) (found bool, err error) {
	for r, err := range c.Query(query, args...) {
		if err != nil {
			return false, err
		}
		if !found {
			read(r)
		}
		found = true
	}
	return found, nil
}
