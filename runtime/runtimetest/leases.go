package runtimetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// A lease that is shorter than shortLease lasts for keptLease where time is real: a process
// that lives keeps it, however slow the machine is, and one that is killed ends it by
// leaving it lastMoment.
const (
	shortLease = 10 * time.Second
	keptLease  = 61 * time.Minute // as no scenario wants it
	lastMoment = time.Millisecond
	// abandonedLease is for those whose taker may not know that it has them. It is just too long to be kept.
	abandonedLease = shortLease
)

// leases are the leases and the holds of tasks that a process has.
type leases struct {
	backend store.Backend
	keep    bool // short ones for [keptLease]

	mu       sync.Mutex
	dead     bool
	sessions map[session.Key]session.Fence
	tasks    map[taskKey]session.TaskFence
}

type taskKey struct {
	tenant string
	session.TaskRef
}

func newLeases(backend store.Backend, keep bool) *leases {
	return &leases{
		backend: backend, keep: keep, sessions: map[session.Key]session.Fence{}, tasks: map[taskKey]session.TaskFence{},
	}
}

// length returns how long a lease lasts in the store.
func (l *leases) length(ttl time.Duration) time.Duration {
	if l.keeps(ttl) {
		return keptLease
	}
	return ttl
}

// keeps reports whether a lease is kept, here or by another one who is asked first.
func (l *leases) keeps(ttl time.Duration) bool {
	return l.keep && (ttl > lastMoment && ttl < shortLease || ttl == keptLease)
}

// toEnd returns the context of a call that takes or renews what is kept for long. The call goes
// to its end: a server may carry out what its caller has given up, and only after the lease was
// ended.
func (l *leases) toEnd(ctx context.Context) context.Context {
	if l.keep {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// add notes a lease that was taken for so long.
func (l *leases) add(ttl time.Duration, tenant, sessionID string, lease session.Lease) {
	if !l.keeps(ttl) {
		return
	}
	l.mu.Lock()
	l.sessions[session.Key{Tenant: cmp.Or(tenant, session.DefaultTenant), ID: sessionID}] = session.Fence{Owner: lease.Owner, Epoch: lease.Epoch}
	l.mu.Unlock()
	l.endIfDead()
}

// addTaken notes a lease that was taken for so long. If the caller has given up meanwhile, it may
// not know of its lease, which then expires soon unless it is renewed.
func (l *leases) addTaken(ctx context.Context, ttl time.Duration, tenant, sessionID string, lease session.Lease) {
	l.add(ttl, tenant, sessionID, lease)
	if ctx.Err() != nil && l.keeps(ttl) {
		held := session.Held{Key: session.Key{Tenant: cmp.Or(tenant, session.DefaultTenant), ID: sessionID}, Fence: lease.Fence()}
		l.shorten([]session.Held{held}, abandonedLease)
	}
}

// addTask notes a task that was claimed for so long.
func (l *leases) addTask(ttl time.Duration, tenant string, task *session.Task) {
	if !l.keeps(ttl) {
		return
	}
	l.mu.Lock()
	l.tasks[taskKey{tenant, task.Ref()}] = task.Fence()
	l.mu.Unlock()
	l.endIfDead()
}

// kill ends what is kept, and what a call that is under way still takes or renews.
func (l *leases) kill() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.end()
}

// endIfDead is called after a call that has taken or renewed something.
func (l *leases) endIfDead() {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		l.end()
	}
}

// shorten lets leases expire soon. What was given back, or taken by others, is refused by the
// store.
func (l *leases) shorten(held []session.Held, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	for part := range slices.Chunk(held, session.MaxPageSize) {
		untilAvailable(ctx, func() error {
			var errs []error
			for _, renewed := range l.backend.RenewLeases(ctx, part, ttl) {
				errs = append(errs, renewed.Err)
			}
			return errors.Join(errs...)
		})
	}
}

// end lets all expire that is kept. A lease ends once, unless it is renewed afterwards: what ends
// again and again looks alive.
func (l *leases) end() {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []session.Held
	for key, fence := range l.sessions {
		all = append(all, session.Held{Key: key, Fence: fence})
	}
	l.shorten(all, lastMoment)
	clear(l.sessions)
	for key, fence := range l.tasks {
		untilAvailable(ctx, func() error {
			return l.backend.Sessions().Tenant(key.tenant).RenewTask(ctx, key.TaskRef, fence, lastMoment)
		})
	}
}

// untilAvailable calls do until it does not fail because the store is unavailable.
func untilAvailable(ctx context.Context, do func() error) {
	_ = eventually.PollContext(ctx, func() bool { return !errors.Is(do(), session.ErrUnavailable) }) // the scenario fails then
}
