// Package lite is the part of a store on SQLite that is SQL: the tables, the
// statements and what they are planned from. It knows no driver. How statements
// are executed, what makes a transaction and how it becomes durable are decided
// behind two small interfaces, [Conn] and [Database], so that store/sqlite can
// group the commits of many sessions while another platform has transactions of
// its own kind.
//
// No statement here begins or ends a transaction, sets a savepoint or is a PRAGMA.
// The package compiles for js/wasm.
package lite

import (
	"context"
	"iter"
	"time"
)

// Conn executes statements. [Unit.Value] says which types parameters have and how
// they are stored.
type Conn interface {
	// Exec executes a statement and returns the number of rows it changed.
	Exec(query string, args ...any) (changed int64, err error)
	// Insert adds a row and returns its number.
	Insert(query string, args ...any) (number int64, err error)
	// Query yields the rows of a query, each of which the caller may keep. Other
	// statements may be executed between two rows.
	Query(query string, args ...any) iter.Seq2[*Row, error]
	// One returns the first row of a query, or nil if it has none.
	One(query string, args ...any) (*Row, error)
	// Script executes several statements without parameters.
	Script(text string) error
}

// Database provides the connections of a [Backend]. In errors and logs, what names
// the operation.
type Database interface {
	// Read calls run with a connection that sees one consistent snapshot.
	Read(ctx context.Context, what string, run func(Conn) error) error
	// Write calls run in a transaction, which may hold other operations too, and
	// returns once it is durable. If run fails, nothing that it wrote remains, and the
	// other operations are not affected. It may be called more than once, each time
	// after its earlier writes were undone.
	Write(ctx context.Context, what string, run func(*Tx) error) error
	// WriteLater orders a write that nobody waits for yet. It may be delayed for a
	// moment so that it shares the transaction of another write. Writes are performed
	// in the order in which they were ordered.
	WriteLater(what string, run func(*Tx) error) (Ordered, error)
	// IsDuplicate reports whether a row was refused because its key exists.
	IsDuplicate(err error) bool
	// Now is the store's time, in UTC and in the unit in which times are stored.
	Now() time.Time
}

// Ordered is a write that was ordered with [Database.WriteLater].
type Ordered interface {
	// Wait has the write performed without further delay, and returns once it is
	// durable or has failed, or when ctx ends.
	Wait(ctx context.Context) error
}

// Tx is what an operation writes with. One Tx serves all operations of a
// transaction.
type Tx struct {
	Conn
	cache   *Cache
	changed map[StreamKey]bool
}

// NewTx is the transaction of a connection. The cache is that of all transactions
// of the database's one writer.
func NewTx(c Conn, cache *Cache) *Tx { return &Tx{Conn: c, cache: cache} }

// touch has the readers of a stream notified once the transaction is durable.
func (t *Tx) touch(key StreamKey) {
	if t.changed == nil {
		t.changed = map[StreamKey]bool{}
	}
	t.changed[key] = true
}

// Changed is the set of streams that the transaction has changed. Their readers are
// to be notified when it is durable.
func (t *Tx) Changed() map[StreamKey]bool { return t.changed }
