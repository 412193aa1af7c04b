package mapstore

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Config configures a [Backend]. Its zero value is ready to use.
type Config struct {
	// Clock is the store's clock. Leases, deadlines and locks expire on it. Defaults
	// to time.Now.
	Clock func() time.Time
}

// Backend keeps sessions, streams, blobs and locks in maps. It is safe for concurrent use.
type Backend struct {
	clock func() time.Time

	mu       sync.Mutex // guards everything below
	closed   bool
	made     int64 // sessions ever made, see session.FirstEpoch
	asked    int64 // calls that ever began to wait for a person
	sessions map[session.Key]*record
	wakes    map[wakeKey]session.Wake
	tasks    map[taskKey]*session.Task
	logs     map[session.Key]*log
	locks    map[string]lock.Lock
	// bytes are those of blobs, by tenant and reference; references the sizes of each
	// session's blobs, by reference.
	bytes      map[session.Key]*kept
	references map[session.Key]map[string]int64
	changed    chan struct{} // closed, and replaced, when a stream changes
	listeners  map[*listener]bool
}

var _ store.Backend = (*Backend)(nil)

// New returns an empty backend.
func New(config Config) *Backend {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	return &Backend{
		clock:      config.Clock,
		sessions:   map[session.Key]*record{},
		wakes:      map[wakeKey]session.Wake{},
		tasks:      map[taskKey]*session.Task{},
		logs:       map[session.Key]*log{},
		locks:      map[string]lock.Lock{},
		bytes:      map[session.Key]*kept{},
		references: map[session.Key]map[string]int64{},
		changed:    make(chan struct{}),
		listeners:  map[*listener]bool{},
	}
}

// Sessions implements [store.Backend].
func (b *Backend) Sessions() session.Store { return &sessions{b, session.DefaultTenant} }

// Streams implements [store.Backend].
func (b *Backend) Streams() stream.Manager { return &streams{b, session.DefaultTenant} }

// Locks implements [store.Backend].
func (b *Backend) Locks() lock.Manager { return (*locks)(b) }

// StartRun implements [store.Backend]. A database that can write a session and a stream in
// one transaction does both here.
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	return store.StartThenOpen(ctx, b, start)
}

// Commit implements [store.Backend]. A database that can write a stream and a session
// in one round trip does both here, the batch first.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	return store.AppendThenCommit(ctx, b, commit)
}

// CloseRun implements [store.Backend]. Such a database does all of it here as well, the
// batch first and the run last.
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	return store.EndThenCloseRun(ctx, b, end)
}

// Ready implements [store.Backend]. A store on a server tries a small write here.
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	b.mu.Unlock()
	return nil
}

// Close implements [store.Backend]. Later calls fail with [session.ErrClosed], and
// readers of streams end with it.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	clear(b.listeners)
	b.wakeReaders()
	return nil
}

// lock begins an operation. The caller unlocks b.mu.
func (b *Backend) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return session.ErrClosed
	}
	return nil
}

// wakeReaders wakes the readers of streams. The caller holds b.mu.
func (b *Backend) wakeReaders() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Backend) now() time.Time { return utc(b.clock()) }

// tenantOr is the tenant, or the default one for the empty name.
func tenantOr(tenant string) string {
	if tenant == "" {
		return session.DefaultTenant
	}
	return tenant
}
