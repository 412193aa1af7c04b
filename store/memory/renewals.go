package memory

import (
	"cmp"
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// RenewLeases implements [store.Backend].
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if err := b.lock(ctx); err != nil {
		return session.NotRenewed(leases, err)
	}
	defer b.mu.Unlock()
	expires := session.LeaseEnd(b.now(), ttl)
	out := make([]session.Renewed, len(leases))
	for i := range leases {
		out[i] = b.renewLease(&leases[i], expires)
	}
	return out
}

func (b *Backend) renewLease(held *session.Held, expires time.Time) (out session.Renewed) {
	tenant := cmp.Or(held.Tenant, session.DefaultTenant)
	rec := b.find(tenant, held.ID)
	if rec == nil {
		return session.Renewed{Err: session.NotFound(held.ID)}
	}
	if err := rec.state.CheckFence(held.Fence); err != nil {
		return session.Renewed{Err: err}
	}
	renew := func(r *record) {
		r.state.Lease.ExpiresAt = expires
		if run := r.currentRun(); r.stop != nil && run != nil && run.Status == session.RunRunning {
			out.Stops = append(out.Stops, *r.stop)
		}
	}
	renew(rec)
	b.mark(rec)
	for _, member := range b.catalog(tenant).byRoot.get(held.ID) {
		if member.state.Lease.Owner == held.Owner {
			renew(member)
		}
	}
	return out
}

// ProbeLeases implements [store.Backend].
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	out := make([]error, len(leases))
	if err := b.lock(ctx); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer b.mu.Unlock()
	for i, held := range leases {
		if rec := b.find(cmp.Or(held.Tenant, session.DefaultTenant), held.ID); rec == nil {
			out[i] = session.NotFound(held.ID)
		} else {
			out[i] = rec.state.CheckFence(held.Fence)
		}
	}
	return out
}

// Signals implements [store.Backend].
func (b *Backend) Signals(notify func(session.Signal)) (stop func()) { return b.signals.Listen(notify) }
