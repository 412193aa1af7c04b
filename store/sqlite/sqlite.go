// Package sqlite stores sessions, streams and locks in one SQLite file, without
// cgo.
//
// # Writing
//
// One connection writes, in a goroutine of its own. Operations that arrive while a
// transaction is being made durable share the next one, so that many sessions
// share one sync (group commit); an operation that is refused fails alone. Stream
// appends wait a moment for a commit, so that a step's chunks and its commit are
// one transaction.
//
// # Reading
//
// A few connections read, each in a snapshot that writers never block. A commit
// wakes the readers of the streams that it wrote to; writes of other processes are
// detected by polling, which happens only while there are readers.
//
// Any number of processes on one machine may use the same file.
//
// # Statements
//
// The tables and all statements about sessions, streams and locks are in
// store/internal/lite. This package executes them: it has the driver, the settings
// of the file, the transactions and the detection of other processes' writes.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/coldsql"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/internal/ready"
	"github.com/helixagents/helix/stream"
)

// Config says where and how a backend stores its data.
type Config struct {
	// Path is the database file. It is created, with access for its owner alone, if it
	// does not exist. SQLite keeps two more files beside it, with -wal and -shm added
	// to the name and the same mode. The file must be on a local disk. Required.
	Path string
	// Clock is the store's clock, which leases and deadlines use. Defaults to
	// time.Now.
	Clock func() time.Time
	// Logger receives faults that no caller sees and, when the file is opened, a
	// warning if others can read it or it is on a network disk. Defaults to none.
	Logger *slog.Logger
	// MaxChunk is the largest encoded chunk of a stream, in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
	// Synchronous is SQLite's setting of the same name: with FULL a commit survives
	// a loss of power, with NORMAL only the death of the process. Defaults to FULL.
	Synchronous string
	// BusyTimeout is how long a write waits for a write of another process. Defaults
	// to 10 seconds.
	BusyTimeout time.Duration
	// PollInterval is how often readers of streams check for writes of other
	// processes. Defaults to 50 milliseconds.
	PollInterval time.Duration
	// NoMigrate refuses a file whose tables are not up to date instead of migrating
	// them; run "helix migrate up" instead.
	NoMigrate bool
	// MaxSize is the maximum size of the file in bytes. Writes that would exceed it
	// are refused and may be retried when there is room. Defaults to no limit.
	MaxSize int64
	// Readers is the number of connections that read. Defaults to 4.
	Readers int

	// networkDisk returns the name of a path's file system if it may be on another
	// machine.
	networkDisk func(path string) string
}

// Backend stores everything in one SQLite file. It implements [store.Backend].
type Backend struct {
	config  Config
	lite    *lite.Backend
	path    string      // absolute, so that it stays valid if the working directory changes
	file    os.FileInfo // the file itself
	writer  *writer
	readers *pool
	watch   *watch
	guard   *migrate.Guard
	writes  *ready.Writes
}

var _ store.Backend = (*Backend)(nil)

// Open opens or creates the database file at path, with default settings.
func Open(path string) (*Backend, error) { return OpenConfig(Config{Path: path}) }

// OpenConfig opens or creates a database file and brings its tables up to date.
func OpenConfig(config Config) (*Backend, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	w, err := openReady(config)
	if err != nil {
		return nil, failure("open "+config.Path, err)
	}
	steps, err := lite.Migrations()
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	b := &Backend{config: config, guard: migrate.NewGuard(len(steps)), writes: ready.NewWrites()}
	if b.path, err = filepath.Abs(config.Path); err == nil {
		b.file, err = os.Stat(b.path)
	}
	if err == nil {
		b.readers, err = newPool(config, b.guard)
	}
	if err != nil {
		return nil, failure("open "+config.Path, errors.Join(err, w.close()))
	}
	b.watch = newWatch(b.lookElsewhere, config.PollInterval)
	b.writer = newWriter(w, &config, b.watch, b.guard)
	b.lite = &lite.Backend{Database: database{b}, Readers: b.watch.hub, Logger: config.Logger, MaxChunk: config.MaxChunk}
	config.warnOfPlace()
	return b, nil
}

// complete checks the configuration and fills in defaults.
func (c *Config) complete() error {
	if c.Path == "" {
		return session.Invalid("database path", "must not be empty")
	}
	if strings.Contains(c.Path, ":memory:") {
		return session.Invalid("database path", "%q is not a file; use store/memory for an in-memory store", c.Path)
	}
	switch c.Synchronous = strings.ToUpper(c.Synchronous); c.Synchronous {
	case "":
		c.Synchronous = "FULL"
	case "FULL", "NORMAL", "OFF", "EXTRA":
	default:
		return session.Invalid("synchronous", "%q is not one of FULL, NORMAL, OFF, EXTRA", c.Synchronous)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxChunk <= 0 {
		c.MaxChunk = stream.DefaultMaxChunk
	}
	if c.BusyTimeout <= 0 {
		c.BusyTimeout = 10 * time.Second
	}
	if c.PollInterval <= 0 {
		c.PollInterval = 50 * time.Millisecond
	}
	if c.MaxSize < 0 {
		return session.Invalid("database size", "%d bytes is negative", c.MaxSize)
	}
	if c.Readers <= 0 {
		c.Readers = 4
	}
	if c.networkDisk == nil {
		c.networkDisk = networkDisk
	}
	return nil
}

// openReady opens the writing connection of a database whose tables are up to
// date. Switching to the write-ahead log fails immediately, without the busy
// timeout, while another process opens the same new file, so it is retried.
func openReady(config Config) (*conn, error) {
	if config.NoMigrate {
		if _, err := os.Stat(config.Path); err != nil { // opening would create the file
			return nil, session.ErrNotSupported.WithCause(err, "the database does not exist: run \"helix migrate up\"")
		}
	}
	makePrivate(config.Path)
	deadline := time.Now().Add(config.BusyTimeout)
	for {
		c, err := open(config.Path, config.pragmas()...)
		if err == nil {
			if err = errors.Join(bringUp(c, !config.NoMigrate, config.Clock()), c.limit(config.MaxSize), c.setBusyTimeout(0)); err == nil { // from here on the writer waits
				return c, nil
			}
			err = errors.Join(err, c.close())
		}
		if !isBusy(err) || time.Now().After(deadline) {
			return nil, err
		}
		<-time.After(5*time.Millisecond + rand.N(20*time.Millisecond))
	}
}

// pageSize is the page size of a new file.
const pageSize = 4096

// pragmas returns the settings of the writing connection.
func (c *Config) pragmas() []string {
	return []string{
		fmt.Sprintf("busy_timeout(%d)", c.BusyTimeout.Milliseconds()),
		fmt.Sprintf("page_size(%d)", pageSize),
		"journal_mode(WAL)",
		"synchronous(" + c.Synchronous + ")",
		"temp_store(MEMORY)",
		"cache_size(-16000)",
	}
}

// Sessions implements [store.Backend].
func (b *Backend) Sessions() session.Store { return b.lite.Sessions() }

// Streams implements [store.Backend].
func (b *Backend) Streams() stream.Manager { return b.lite.Streams() }

// Blobs implements [store.Backend].
func (b *Backend) Blobs() blob.Store {
	return coldsql.Blobs{Database: blobDatabase{b.lite}, Name: session.DefaultTenant}
}

// Locks implements [store.Backend].
func (b *Backend) Locks() lock.Manager { return b.lite.Locks() }

// StartRun implements [store.Backend]. The run and its stream are one operation.
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	return b.lite.StartRun(ctx, start)
}

// Commit implements [store.Backend]. The batch and the commit are one operation.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	return b.lite.Commit(ctx, commit)
}

// CloseRun implements [store.Backend]. All of it is one operation.
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	return b.lite.CloseRun(ctx, end)
}

// RenewLeases implements [store.Backend], in one transaction.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	return b.lite.RenewLeases(ctx, leases, ttl)
}

// ProbeLeases implements [store.Backend], in one transaction.
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	return b.lite.ProbeLeases(ctx, leases)
}

// Signals implements [store.Backend].
func (b *Backend) Signals(notify func(session.Signal)) (stop func()) {
	return b.watch.signals.Listen(notify)
}

// Close implements [store.Backend]. Queued operations are still written.
func (b *Backend) Close() error {
	if !b.watch.close() {
		return nil // closed before
	}
	b.writer.close()
	return errors.Join(b.readers.close(), b.writer.conn.close())
}

// write performs an operation in a transaction that may contain others, too.
func (b *Backend) write(ctx context.Context, what string, run func(*lite.Tx) error) error {
	return b.writer.do(ctx, &op{what: what, run: run})
}

// read runs queries on one consistent snapshot.
func (b *Backend) read(ctx context.Context, what string, run func(lite.Conn) error) error {
	return failure(what, b.readers.snapshot(ctx, what, run))
}

// lookElsewhere makes the writer check for writes of other processes, wake the
// readers of streams and announce signals.
func (b *Backend) lookElsewhere(ctx context.Context) error {
	return b.writer.do(ctx, &op{what: "look for changes", reads: true, run: func(t *lite.Tx) error {
		if err := b.writer.refresh(); err != nil {
			return err
		}
		return b.writer.lookForSignals(t)
	}})
}
