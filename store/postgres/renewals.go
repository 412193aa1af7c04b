package postgres

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

const (
	// A negative time leaves the ends of leases as they are, and writes them all the same.
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
    SET lease_until = CASE WHEN $5::bigint > 0 THEN coalesce($6::timestamptz, clock_timestamp()) + $5 * interval '1 microsecond'
                           WHEN $5 < 0 THEN s.lease_until END
    FROM (SELECT number, at, true AS root FROM held UNION ALL SELECT number, at, false FROM members) x
    WHERE s.number = x.number
    RETURNING x.at, x.root, CASE WHEN s.run_status = 'running' THEN s.current_run ELSE '' END AS run, s.stop_kind, s.stop_reason, s.stop_at
)
SELECT at, run, stop_kind, stop_reason, stop_at FROM renewed WHERE root OR stop_kind <> ''`

	// Reading waits for no lock.
	selectHolders = `
SELECT x.at, s.status, s.version, s.current_run, s.owner, s.epoch
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY x(tenant, id, owner, epoch, at)
JOIN helix.sessions s ON s.tenant = x.tenant AND s.id = x.id`

	renewTree = `
UPDATE helix.sessions SET lease_until = $4
WHERE tenant = $1 AND root_id = $2 AND root_id <> '' AND owner = $3 AND owner <> ''`
)

// RenewLeases implements [store.Backend]. One statement renews all leases; another, in
// the same round trip, reads which programs can use the database. What was not renewed
// was lost, which a third statement tells, or its row is locked: such leases are renewed
// one by one, for a moment.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	if len(leases) == 0 {
		return nil
	}
	var (
		out  = make([]session.Renewed, len(leases))
		done = make([]bool, len(leases))
	)
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
	args := append(columnsOf(leases), ttl.Microseconds(), b.clock())
	err := b.repeatWithin(ctx, b.renewalLimit(ttl), "renew leases", func(ctx context.Context) error {
		clear(out)
		clear(done)
		return b.sendOn(ctx, b.leasePool, part{query: b.sql(selectReadable), row: b.noteLevel}, part{query: b.sql(renewLeases), args: args, row: renewed})
	})
	if err != nil {
		return session.NotRenewed(leases, err)
	}
	var (
		rest    []session.Held
		results []*session.Renewed
	)
	for i := range leases {
		if !done[i] {
			rest, results = append(rest, leases[i]), append(results, &out[i])
		}
	}
	if len(rest) > 0 {
		b.renewRest(ctx, rest, ttl, results)
	}
	return out
}

// renewalLimit is how long a renewal may take: it fails early enough for another one, on another connection, before the lease
// expires.
func (b *Backend) renewalLimit(ttl time.Duration) time.Duration {
	return min(b.config.CallTimeout, max(ttl*3/4, 2*time.Second))
}

// ProbeLeases implements [store.Backend], with the statement that renews leases.
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	out := make([]error, len(leases))
	if len(leases) == 0 {
		return out
	}
	args := append(columnsOf(leases), int64(-1), b.clock())
	written := func(rows pgx.Rows) error {
		var at int
		if err := rows.Scan(&at, nil, nil, nil, nil); err != nil {
			return err
		}
		out[at-1] = nil
		return nil
	}
	err := b.repeat(ctx, "probe leases", func(ctx context.Context) error {
		for i := range out {
			out[i] = errNotWritten
		}
		return b.sendOn(ctx, b.leasePool, part{query: b.sql(renewLeases), args: args, row: written})
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	return out
}

var errNotWritten = session.ErrStale.WithMessage("the lease is another one's, or the session's row is locked")

// columnsOf returns leases as parameters of a statement.
func columnsOf(leases []session.Held) []any {
	tenants, ids := make([]string, len(leases)), make([]string, len(leases))
	owners, epochs := make([]string, len(leases)), make([]int64, len(leases))
	for i, held := range leases {
		tenants[i], ids[i], owners[i], epochs[i] = cmp.Or(held.Tenant, session.DefaultTenant), held.ID, held.Owner, held.Epoch
	}
	return []any{tenants, ids, owners, epochs}
}

// renewRest renews leases that were not renewed together, and sets the result of each.
func (b *Backend) renewRest(ctx context.Context, leases []session.Held, ttl time.Duration, out []*session.Renewed) {
	locked := make([]int, 0, len(leases))
	err := b.repeat(ctx, "read the holders of leases", func(ctx context.Context) error {
		locked = locked[:0]
		for i := range leases {
			out[i].Err = session.NotFound(leases[i].ID)
		}
		return b.sendOn(ctx, b.leasePool, part{query: b.sql(selectHolders), args: columnsOf(leases), row: func(rows pgx.Rows) error {
			var (
				at    int
				state session.State
			)
			if err := rows.Scan(&at, &state.Status, &state.Version, &state.CurrentRunID, &state.Lease.Owner, &state.Lease.Epoch); err != nil {
				return err
			}
			state.ID = leases[at-1].ID
			if out[at-1].Err = state.CheckFence(leases[at-1].Fence); out[at-1].Err == nil {
				out[at-1].Err = errRowLocked
				locked = append(locked, at-1)
			}
			return nil
		}})
	})
	if err != nil {
		for _, renewed := range out {
			renewed.Err = err
		}
		return
	}
	// Anywhere first, so that over several calls each has a turn, however many rows are locked.
	rand.Shuffle(len(locked), func(i, j int) { locked[i], locked[j] = locked[j], locked[i] })
	began := time.Now()
	var working sync.WaitGroup
	slots := make(chan struct{}, leaseConns)
	for _, i := range locked {
		slots <- struct{}{}
		if time.Since(began) > singlePatience {
			break
		}
		working.Go(func() {
			defer func() { <-slots }()
			held := leases[i]
			*out[i] = (&sessions{b, cmp.Or(held.Tenant, session.DefaultTenant)}).renew(ctx, held.ID, held.Fence, ttl)
		})
	}
	working.Wait()
}

// singlePatience is how long a call begins to renew leases one by one. Those that it renewed together wait for its end, and
// other calls for its connections.
const singlePatience = 200 * time.Millisecond

// limitMoment is for what is tried again soon: it waits for the session's row only so long.
const limitMoment = "SET LOCAL lock_timeout = '200ms'"

var errRowLocked = session.ErrUnavailable.WithMessage("the session's row is locked")

// renew renews one lease. It waits a moment for the session's row.
func (s *sessions) renew(ctx context.Context, id string, fence session.Fence, ttl time.Duration) (out session.Renewed) {
	out.Err = s.b.transactWithin(ctx, s.b.renewalLimit(ttl), s.b.leasePool, what(id, "renew lease"), func(ctx context.Context, t *tx) error {
		t.exec(limitMoment)
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
