package postgres

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

const (
	// A row that another transaction has locked is skipped: a renewal that waited for
	// one would make all others wait. For a member of a tree, the next renewal has to do.
	// The members of a tree follow their root only if its lease was renewed, which the
	// join ensures.
	renewLeases = `
WITH held AS (
    SELECT s.number, s.tenant, s.id, s.owner, x.at
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY x(tenant, id, owner, epoch, at)
    JOIN helix.sessions s ON s.tenant = x.tenant AND s.id = x.id AND s.owner = x.owner AND s.epoch = x.epoch
    WHERE x.owner <> ''
    FOR NO KEY UPDATE OF s SKIP LOCKED
),
members AS (
    SELECT s.number, held.at
    FROM held JOIN helix.sessions s ON s.tenant = held.tenant AND s.root_id = held.id AND s.root_id <> '' AND s.owner = held.owner AND s.owner <> ''
    FOR NO KEY UPDATE OF s SKIP LOCKED
),
renewed AS (
    UPDATE helix.sessions s
    SET lease_until = CASE WHEN $5::bigint > 0 THEN coalesce($6::timestamptz, clock_timestamp()) + $5 * interval '1 microsecond' END
    FROM (SELECT number, at, true AS root FROM held UNION ALL SELECT number, at, false FROM members) x
    WHERE s.number = x.number
    RETURNING x.at, x.root, CASE WHEN s.run_status = 'running' THEN s.current_run ELSE '' END AS run, s.stop_kind, s.stop_reason, s.stop_at
)
SELECT at, run, stop_kind, stop_reason, stop_at FROM renewed WHERE root OR stop_kind <> ''`

	renewTree = `
UPDATE helix.sessions SET lease_until = $4
WHERE tenant = $1 AND root_id = $2 AND root_id <> '' AND owner = $3 AND owner <> ''`
)

// RenewLeases implements [store.Backend]. One statement renews all leases; another, in
// the same round trip, reads which programs can use the database. What was not renewed
// was lost, or its row is locked; such leases are renewed one by one, which also says
// why one was lost.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if len(leases) == 0 {
		return nil
	}
	var (
		out            = make([]session.Renewed, len(leases))
		done           = make([]bool, len(leases))
		tenants, ids   = make([]string, len(leases)), make([]string, len(leases))
		owners, epochs = make([]string, len(leases)), make([]int64, len(leases))
	)
	for i, held := range leases {
		tenants[i], ids[i], owners[i], epochs[i] = cmp.Or(held.Tenant, session.DefaultTenant), held.ID, held.Owner, held.Epoch
	}
	renewed := func(rows pgx.Rows) error {
		var (
			at                int
			run, kind, reason string
			when              time.Time
		)
		if err := rows.Scan(&at, &run, &kind, &reason, instant{&when}); err != nil {
			return err
		}
		done[at-1] = true
		if kind != "" && run != "" {
			out[at-1].Stops = append(out[at-1].Stops, session.Stop{RunID: run, Kind: session.StopKind(kind), Reason: reason, At: when})
		}
		return nil
	}
	err := b.repeat(ctx, "renew leases", func() error {
		clear(out)
		clear(done)
		return b.send(ctx, part{query: b.sql(selectReadable), row: b.noteLevel}, part{
			query: b.sql(renewLeases), args: []any{tenants, ids, owners, epochs, ttl.Microseconds(), b.clock()}, row: renewed,
		})
	})
	if err != nil {
		return session.NotRenewed(leases, err)
	}
	var working sync.WaitGroup
	slots := make(chan struct{}, renewers)
	for i, held := range leases {
		if done[i] {
			continue
		}
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			out[i] = (&sessions{b, tenants[i]}).renew(ctx, held.ID, held.Fence, ttl)
		})
	}
	working.Wait()
	return out
}

// renewers is how many leases that were not renewed together are renewed at the same
// time.
const renewers = 8

// limitRenewal is short, because all other leases wait for their next renewal
// meanwhile. A row that stays locked is left to that one.
const limitRenewal = "SET LOCAL lock_timeout = '200ms'"

// renew renews one lease. It waits a moment for the session's row.
func (s *sessions) renew(ctx context.Context, id string, fence session.Fence, ttl time.Duration) (out session.Renewed) {
	out.Err = s.b.transact(ctx, what(id, "renew lease"), func(ctx context.Context, t *tx) error {
		t.exec(limitRenewal)
		h, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if h == nil {
			return session.NotFound(id)
		}
		if err := h.CheckFence(fence); err != nil {
			return err
		}
		if out.Stops = nil; h.stop != nil && h.runStatus == session.RunRunning {
			out.Stops = []session.Stop{*h.stop}
		}
		h.Lease.ExpiresAt = session.LeaseEnd(h.now, ttl)
		t.exec(renewTree, s.tenant, id, fence.Owner, when(h.Lease.ExpiresAt))
		s.writeLease(t, h)
		return nil
	})
	return out
}
