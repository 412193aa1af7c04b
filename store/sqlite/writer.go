package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
)

const (
	// maxBatch bounds a transaction, so that its first member does not wait long for
	// the last.
	maxBatch = 256
	// lazyDelay is how long a lazy operation waits for another one to share its
	// transaction.
	lazyDelay = 2 * time.Millisecond

	// maxLog is the length at which the write-ahead log is truncated. SQLite restarts
	// it on its own only when nobody reads, which on a busy server never happens.
	maxLog = 16 << 20
	// logCheck is the number of batches between checks of the log's length, and
	// logPatience is how long truncating it waits for readers; writes wait during that
	// time.
	logCheck    = 64
	logPatience = 20 * time.Millisecond
)

// writer performs all writes of the backend, one transaction after the other, on a
// connection of its own. Operations that arrive while a transaction is being made
// durable share the next one, and its one sync.
//
// A caller that finds the writer idle performs the work itself, which avoids two
// switches between goroutines; operations that arrive in the meantime are left to
// the writer's goroutine.
type writer struct {
	conn  *conn
	path  string
	busy  time.Duration // how long to wait for other processes' transactions
	log   *slog.Logger
	watch *watch // notified of the streams that a transaction changed
	cache *lite.Cache
	guard *migrate.Guard
	// dataVersion changes when another process has written.
	dataVersion int64
	elsewhere   bool           // another process has written since signals were looked for
	announced   lite.Announced // see lookForSignals
	batches     int            // since the last check of the log's length
	logLimit    int64

	mu      sync.Mutex
	wake    sync.Cond
	queue   []*op
	urgent  bool // somebody waits for the queue
	working bool // somebody performs a batch
	closed  bool
	timer   *time.Timer // makes a queue of lazy operations urgent
	done    chan struct{}

	transactions atomic.Int64 // for tests
}

// op is an operation that was submitted to the writer.
type op struct {
	what  string
	run   func(*lite.Tx) error
	reads bool // it only reads on the connection and needs no transaction
	state atomic.Int32
	done  chan struct{} // closed when err is final
	err   error
}

// The states of an operation.
const (
	opQueued int32 = iota
	opTaken
	opCancelled
)

// tx is the transaction that operations run in. It records their writes.
type tx struct {
	*conn
	lite   *lite.Tx // passed to operations; it writes through this tx
	dirty  bool     // the operation has written something
	broken error    // the transaction is no longer usable
}

func (w *writer) newTx() *tx {
	t := &tx{conn: w.conn}
	t.lite = lite.NewTx(t, w.cache)
	return t
}

func newWriter(c *conn, config *Config, watch *watch, guard *migrate.Guard) *writer {
	w := &writer{
		conn: c, path: config.Path, busy: config.BusyTimeout, log: config.Logger,
		watch: watch, guard: guard, cache: lite.NewCache(), logLimit: maxLog, done: make(chan struct{}),
	}
	w.wake.L = &w.mu
	w.timer = time.AfterFunc(time.Hour, w.hurry)
	w.timer.Stop()
	go w.loop()
	return w
}

// do performs an operation and returns once it is durable. If ctx ends while the
// operation is queued, it is not performed; once it has been started, its outcome
// is reported in any case.
func (w *writer) do(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return failure(o.what, err)
	}
	if err := w.enqueue(o, false); err != nil {
		return err
	}
	w.hurry()
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.state.CompareAndSwap(opQueued, opCancelled) {
			return failure(o.what, ctx.Err())
		}
		<-o.done
	}
	return o.err
}

// enqueue orders an operation. A lazy one does not start a transaction on its own
// for a while: it joins the next one.
func (w *writer) enqueue(o *op, lazy bool) error {
	o.done = make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return session.ErrClosed.WithMessage("%s: the database is closed", o.what)
	}
	w.queue = append(w.queue, o)
	switch {
	case lazy && len(w.queue) >= maxBatch:
		w.urgent = true
		w.wake.Signal()
	case lazy && len(w.queue) == 1:
		w.timer.Reset(lazyDelay)
	}
	return nil
}

// hurry has the queue performed: immediately by the caller if the writer is idle,
// otherwise after the current batch.
func (w *writer) hurry() {
	w.mu.Lock()
	if w.working || len(w.queue) == 0 {
		w.urgent = w.urgent || len(w.queue) > 0
		w.mu.Unlock()
		return
	}
	batch := w.take()
	w.mu.Unlock()
	w.work(batch)
}

// close performs the queued operations and stops.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.wake.Signal()
	w.mu.Unlock()
	<-w.done
	w.timer.Stop()
}

func (w *writer) loop() {
	defer close(w.done)
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.work(batch)
	}
}

// work performs a batch and then releases the writer for the next one.
func (w *writer) work(batch []*op) {
	w.perform(batch)
	for _, o := range batch {
		close(o.done)
	}
	w.shrinkLog()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = false
	if w.urgent || w.closed {
		w.wake.Signal()
	}
}

// shrinkLog truncates the write-ahead log if it has become long. If a reader
// prevents that, it tries again later.
func (w *writer) shrinkLog() {
	if w.batches++; w.batches < logCheck {
		return
	}
	w.batches = 0
	if info, err := os.Stat(w.path + "-wal"); err != nil || info.Size() <= w.logLimit {
		return
	}
	err := w.conn.setBusyTimeout(logPatience)
	if err == nil {
		_, err = w.conn.One("PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err = errors.Join(err, w.conn.setBusyTimeout(0)); err != nil && !isBusy(err) {
		w.log.Warn("sqlite.log_not_emptied", "error", err)
	}
}

// begin starts a transaction. It retries at short intervals, because SQLite's own
// waiting backs off so far that a process that writes constantly would starve the
// others.
func (w *writer) begin() error {
	deadline := time.Now().Add(w.busy)
	for {
		_, err := w.conn.Exec("BEGIN IMMEDIATE")
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		<-time.After(200*time.Microsecond + rand.N(800*time.Microsecond))
	}
}

// next waits for a batch; nil means that the writer is closed.
func (w *writer) next() []*op {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.working || (!w.urgent && !w.closed) {
		w.wake.Wait()
	}
	if len(w.queue) == 0 && w.closed {
		return nil
	}
	return w.take()
}

// take removes a batch from the queue, without cancelled operations, for the
// caller to perform. The caller holds the lock and has checked that nobody is
// working.
func (w *writer) take() []*op {
	n := min(len(w.queue), maxBatch)
	batch := make([]*op, 0, n)
	for _, o := range w.queue[:n] {
		if o.state.CompareAndSwap(opQueued, opTaken) {
			batch = append(batch, o)
		}
	}
	w.queue = append(w.queue[:0:0], w.queue[n:]...)
	w.urgent = len(w.queue) > 0
	w.working = true
	return batch
}

// errRedo reports that a member of a transaction failed after it had written.
var errRedo = errors.New("a member of the transaction must be undone")

// perform runs a batch in one transaction. Savepoints would allow a failing member
// to be undone alone, but they cost more than the statements they guard, and
// members check before they write. The first attempt therefore runs without
// savepoints; only if a member fails in the middle of its writes, all of them run
// again, each under its own savepoint.
func (w *writer) perform(batch []*op) {
	t := w.newTx()
	if batch = w.look(t, batch); len(batch) == 0 {
		return
	}
	err, redone := w.attempt(t, batch, false), false
	if errors.Is(err, errRedo) {
		t, redone = w.newTx(), true
		err = w.attempt(t, batch, true)
	}
	for _, o := range batch {
		if err != nil {
			o.err = err
		}
		o.err = failure(o.what, o.err)
	}
	if err != nil {
		return
	}
	if changed := t.lite.Changed(); len(changed) > 0 {
		w.watch.notify(changed, redone)
	}
	for _, signal := range t.lite.Signals() {
		w.watch.signals.Announce(signal)
	}
}

// look runs the operations that need no transaction and returns the others.
func (w *writer) look(t *tx, batch []*op) []*op {
	rest := batch[:0:0]
	for _, o := range batch {
		if o.reads {
			o.err = failure(o.what, w.call(t, o))
		} else {
			rest = append(rest, o)
		}
	}
	return rest
}

// attempt runs the members and commits. After an error none of them is applied.
func (w *writer) attempt(t *tx, batch []*op, savepoints bool) error {
	if err := w.begin(); err != nil {
		w.rollback() // in case an earlier one could not be ended
		return err
	}
	w.transactions.Add(1)
	if err := w.refresh(); err != nil {
		w.rollback()
		return err
	}
	for _, o := range batch {
		if err := w.member(t, o, savepoints, len(batch) == 1); err != nil {
			w.rollback()
			return err
		}
	}
	if _, err := t.conn.Exec("COMMIT"); err != nil {
		w.rollback()
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// member runs one operation. An error ends the whole attempt.
func (w *writer) member(t *tx, o *op, savepoint, alone bool) error {
	if savepoint {
		if _, err := t.conn.Exec("SAVEPOINT member"); err != nil {
			return err
		}
	}
	t.dirty = false
	o.err = w.call(t, o)
	switch {
	case t.broken != nil:
		return t.broken
	case o.err != nil && t.dirty && !savepoint:
		if alone {
			return o.err
		}
		return errRedo
	case o.err != nil && t.dirty:
		w.cache.Clear()
		if _, err := t.conn.Exec("ROLLBACK TO member"); err != nil {
			return err
		}
	}
	if savepoint {
		if _, err := t.conn.Exec("RELEASE member"); err != nil {
			return err
		}
	}
	return nil
}

// call runs an operation; one that panics fails alone.
func (w *writer) call(t *tx, o *op) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("sqlite.operation_panicked", "operation", o.what, "panic", r, "stack", string(debug.Stack()))
			err = session.ErrInternal.WithMessage("%s: the store panicked: %v", o.what, r)
		}
	}()
	return o.run(t.lite)
}

func (w *writer) rollback() {
	w.cache.Clear()
	_, _ = w.conn.Exec("ROLLBACK")
}

// refresh detects writes of other processes. The number it compares does not
// change with writes of its own connection, which makes all writes of this
// process. It returns an error if another process has changed the file so that
// this program can no longer use it; inside a transaction this check is reliable.
func (w *writer) refresh() error {
	r, err := w.conn.One("PRAGMA data_version")
	if err != nil {
		return err
	}
	if version := r.Int64(); version != w.dataVersion {
		w.dataVersion = version
		w.cache.Clear()
		w.elsewhere = true
		w.watch.hub.NotifyAll()
		if r, err = w.conn.One("PRAGMA user_version"); err != nil {
			return err
		}
		return w.guard.Note(r.Int())
	}
	return w.guard.Err()
}

// lookForSignals announces the signals of other processes.
func (w *writer) lookForSignals(c lite.Conn) error {
	if !w.elsewhere {
		return nil
	}
	err := lite.Announce(c, &w.announced, w.watch.signals.Announce)
	w.elsewhere = err != nil
	return err
}

// Exec writes.
func (t *tx) Exec(query string, args ...any) (int64, error) {
	t.dirty = true
	n, err := t.conn.Exec(query, args...)
	if err != nil && endsTransaction(err) {
		t.broken = err
	}
	return n, err
}

// Insert adds a row and returns its number.
func (t *tx) Insert(query string, args ...any) (int64, error) {
	t.dirty = true
	n, err := t.conn.Insert(query, args...)
	if err != nil && endsTransaction(err) {
		t.broken = err
	}
	return n, err
}
