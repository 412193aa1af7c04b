// Package lite is the SQL of a store on SQLite: the tables, the statements and
// their planning. It has no driver. Two small interfaces, [Conn] and [Database],
// decide how statements are executed, what a transaction is and how it becomes
// durable, so that store/sqlite can group the commits of many sessions while
// another platform uses its own transactions.
//
// No statement here begins or ends a transaction, sets a savepoint or is a PRAGMA.
// The package compiles for js/wasm.
package lite

import (
	"context"
	"iter"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
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

// Database provides the connections of a [Backend]. The argument what names the
// operation in errors and logs.
type Database interface {
	// Read calls run with a connection that sees one consistent snapshot.
	Read(ctx context.Context, what string, run func(Conn) error) error
	// Write calls run in a transaction, which may contain other operations, too, and
	// returns once it is durable. If run fails, none of its writes remain, and the
	// other operations are not affected. Write may call run more than once, each time
	// after its earlier writes were undone.
	Write(ctx context.Context, what string, run func(*Tx) error) error
	// WriteLater orders a write without waiting for it. The write may be delayed for a
	// moment to share the transaction of another write. Writes are performed in the
	// order in which they were ordered.
	WriteLater(what string, run func(*Tx) error) (Ordered, error)
	// IsDuplicate reports whether a row was refused because its key exists.
	IsDuplicate(err error) bool
	// Now returns the store's time, in UTC and in the unit in which times are stored.
	Now() time.Time
}

// Ordered is a write that was ordered with [Database.WriteLater].
type Ordered interface {
	// Wait performs the write without further delay and returns once it is durable or
	// has failed, or when ctx ends.
	Wait(ctx context.Context) error
}

// Tx is the transaction that operations write with. One Tx serves all operations
// of a transaction.
type Tx struct {
	Conn
	cache   *Cache
	changed map[StreamKey]*Change
	signals []session.Signal
}

// Change is what a transaction has done to a stream. If it has only added batches,
// these are Batches.
type Change struct {
	Batches []*feed.Batch
	other   bool
}

// NewTx returns the transaction of a connection. All transactions of the
// database's only writer share the cache.
func NewTx(c Conn, cache *Cache) *Tx { return &Tx{Conn: c, cache: cache} }

// touch marks a stream, so that its readers are notified once the transaction is
// durable.
func (t *Tx) touch(key StreamKey) {
	c := t.change(key)
	c.Batches, c.other = nil, true
}

// added marks a stream to which a batch was added.
func (t *Tx) added(key StreamKey, batch *feed.Batch) {
	if c := t.change(key); !c.other {
		c.Batches = append(c.Batches, batch)
	}
}

func (t *Tx) change(key StreamKey) *Change {
	if t.changed == nil {
		t.changed = map[StreamKey]*Change{}
	}
	if t.changed[key] == nil {
		t.changed[key] = &Change{}
	}
	return t.changed[key]
}

// signal announces something once the transaction is durable.
func (t *Tx) signal(s session.Signal) { t.signals = append(t.signals, s) }

// Signals returns what is to be announced once the transaction is durable. If parts
// of it were undone, they may be among it.
func (t *Tx) Signals() []session.Signal { return t.signals }

// Changed returns the streams that the transaction has changed. Their readers are
// to be notified once it is durable.
func (t *Tx) Changed() map[StreamKey]*Change { return t.changed }
