// Package memory stores everything in the process: for tests, for experiments, and
// for sessions that need not outlive the program.
//
// It gives every guarantee of a backend except durability: operations are atomic,
// bodies are returned byte for byte, and no memory is shared between the store and
// its callers.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

var _ store.Backend = (*Backend)(nil)

// Config configures a [Backend]. Its zero value is ready to use.
type Config struct {
	// Clock is the store's clock, which leases, deadlines and locks use. Defaults to
	// time.Now.
	Clock func() time.Time
	// MaxChunk is the largest encoded stream chunk in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
}

// Backend stores sessions, streams, blobs and locks in memory. It is safe for concurrent
// use.
//
// One lock guards all sessions. An operation encodes its input before it takes the
// lock and decodes its result afterwards, so that only the bookkeeping in between
// is serial. What a stored row points to is never changed in place, only replaced;
// reading it outside the lock is therefore safe.
type Backend struct {
	clock func() time.Time
	hub   *hub
	locks *locks
	// signals is used with mu locked, in the order of what it announces.
	signals *feed.Signals

	mu       sync.RWMutex
	closed   bool
	made     int64               // sessions ever created
	asked    int64               // calls that ever waited for people
	catalogs map[string]*catalog // by tenant
	due      dueSets
	wakes    map[wakeKey]session.Wake
	heap     heap
	tasks    tasks
}

// New returns an empty backend.
func New(config Config) *Backend {
	clock := config.Clock
	if clock == nil {
		clock = time.Now
	}
	maxChunk := config.MaxChunk
	if maxChunk <= 0 {
		maxChunk = stream.DefaultMaxChunk
	}
	b := &Backend{
		clock:    clock,
		catalogs: map[string]*catalog{},
		due:      newDueSets(),
		wakes:    map[wakeKey]session.Wake{},
		heap:     newHeap(),
		tasks:    newTasks(),
		signals:  feed.NewSignals(),
	}
	b.hub = newHub(b.now, maxChunk)
	b.locks = newLocks(b.now)
	return b
}

// Sessions implements [store.Backend].
func (b *Backend) Sessions() session.Store { return &sessions{b: b, tenant: session.DefaultTenant} }

// Streams implements [store.Backend].
func (b *Backend) Streams() stream.Manager {
	return &streams{hub: b.hub, tenant: session.DefaultTenant}
}

// Blobs implements [store.Backend].
func (b *Backend) Blobs() blob.Store { return &blobs{b: b, tenant: session.DefaultTenant} }

// Locks implements [store.Backend].
func (b *Backend) Locks() lock.Manager { return b.locks }

// Ready implements [store.Backend].
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.rlock(ctx); err != nil {
		return err
	}
	b.mu.RUnlock()
	return nil
}

// Close ends every reader and refuses every later call with [session.ErrClosed].
// Closing twice does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.hub.close()
	b.signals.Close()
	b.locks.close()
	return nil
}

// now returns the store's time in the form of stored times: in UTC, without a
// monotonic reading, which would not survive storage.
func (b *Backend) now() time.Time { return utc(b.clock()) }

// lock begins a write operation; the caller unlocks b.mu.
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

// rlock begins a read operation; the caller unlocks b.mu for reading.
func (b *Backend) rlock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.RLock()
	if b.closed {
		b.mu.RUnlock()
		return session.ErrClosed
	}
	return nil
}

// sessions is the session store of one tenant.
type sessions struct {
	b      *Backend
	tenant string
}

var _ session.Store = (*sessions)(nil)

// Tenant implements [session.Store].
func (s *sessions) Tenant(tenant string) session.Store {
	return &sessions{b: s.b, tenant: orDefault(tenant)}
}

// Now implements [session.Turns].
func (s *sessions) Now(ctx context.Context) (time.Time, error) {
	return s.b.now(), ctx.Err()
}

// edit finds a session in order to change it. The caller has exclusive use of the
// store until it calls release.
func (s *sessions) edit(ctx context.Context, id string) (*record, error) {
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	rec := s.b.find(s.tenant, id)
	if rec == nil {
		s.b.mu.Unlock()
		return nil, session.NotFound(id)
	}
	return rec, nil
}

// release ends an edit. It also updates the indexes of the sweeps.
func (b *Backend) release(rec *record) {
	b.mark(rec)
	b.mu.Unlock()
}

// view finds a session in order to read it; the caller unlocks b.mu for reading.
func (s *sessions) view(ctx context.Context, id string) (*record, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	rec := s.b.find(s.tenant, id)
	if rec == nil {
		s.b.mu.RUnlock()
		return nil, session.NotFound(id)
	}
	return rec, nil
}

func (b *Backend) find(tenant, id string) *record {
	if sh := b.catalogs[tenant]; sh != nil {
		return sh.sessions[id]
	}
	return nil
}

// catalog returns the tenant's catalog and creates it on first use.
func (b *Backend) catalog(tenant string) *catalog {
	sh := b.catalogs[tenant]
	if sh == nil {
		sh = newShelf()
		b.catalogs[tenant] = sh
	}
	return sh
}

func orDefault(tenant string) string {
	if tenant == "" {
		return session.DefaultTenant
	}
	return tenant
}

// StartRun implements [store.Backend].
func (b *Backend) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	return store.StartThenOpen(ctx, b, start)
}

// Commit implements [store.Backend].
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	tenant := orDefault(commit.Tenant)
	streams := streams{hub: b.hub, tenant: tenant}
	last, err := streams.append(ctx, commit.Stream, commit.Batch)
	if err != nil {
		return nil, 0, err
	}
	sessions := sessions{b: b, tenant: tenant}
	done, err := sessions.Commit(ctx, commit.Commit)
	return done, last, err
}

// CloseRun implements [store.Backend].
func (b *Backend) CloseRun(ctx context.Context, end *store.CloseRun) error {
	return store.EndThenCloseRun(ctx, b, end)
}
