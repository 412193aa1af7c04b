package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// RenewLeases implements [store.Backend]. A database that can renews all leases in one
// round trip: a process does so every few seconds.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if err := b.lock(ctx); err != nil {
		return session.NotRenewed(leases, err)
	}
	defer b.mu.Unlock()
	expires := session.LeaseEnd(b.now(), ttl)
	out := make([]session.Renewed, len(leases))
	for i, held := range leases {
		s := &sessions{b, tenantOr(held.Tenant)}
		rec := b.sessions[s.key(held.ID)]
		if rec == nil {
			out[i].Err = session.NotFound(held.ID)
			continue
		}
		if out[i].Err = rec.state.CheckFence(held.Fence); out[i].Err != nil {
			continue
		}
		renew := func(rec *record) {
			rec.state.Lease.ExpiresAt = expires
			if rec.stop != nil && rec.runStatus() == session.RunRunning {
				out[i].Stops = append(out[i].Stops, *rec.stop)
			}
		}
		renew(rec)
		s.eachMember(held.ID, held.Owner, renew)
	}
	return out
}

// ProbeLeases implements [store.Backend]. A database makes a write to the row of each
// session, so that it fails where a renewal would.
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	out := make([]error, len(leases))
	err := b.lock(ctx)
	if err == nil {
		defer b.mu.Unlock()
	}
	for i, held := range leases {
		if out[i] = err; err != nil {
			continue
		}
		s := &sessions{b, tenantOr(held.Tenant)}
		if rec := b.sessions[s.key(held.ID)]; rec == nil {
			out[i] = session.NotFound(held.ID)
		} else {
			out[i] = rec.state.CheckFence(held.Fence)
		}
	}
	return out
}

// listener is somebody who listens for signals.
type listener struct{ notify func(session.Signal) }

// Signals implements [store.Backend]. A store on a server also passes on what other
// processes have written, if the server can notify it, and otherwise looks for it now
// and then.
func (b *Backend) Signals(notify func(session.Signal)) (stop func()) {
	l := &listener{notify}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.listeners[l] = true
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, l)
	}
}

// announce passes a signal on. The caller holds the lock.
func (b *Backend) announce(signal session.Signal) {
	for l := range b.listeners {
		l.notify(signal)
	}
}
