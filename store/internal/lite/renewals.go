package lite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

const (
	renewTree = `
UPDATE sessions INDEXED BY sessions_by_owner SET lease_until = ?
WHERE tenant = ? AND root_id = ? AND root_id <> '' AND owner = ? AND owner <> ''`

	// SQLite writes no page whose content stays as it is.
	changeEpoch = `
UPDATE sessions SET epoch = epoch + ? WHERE tenant = ? AND id = ?`

	selectTreeStops = `
SELECT x.run_id, x.kind, x.reason, x.at
FROM sessions s INDEXED BY sessions_by_owner
JOIN stops x ON x.tenant = s.tenant AND x.session_id = s.id AND x.run_id = s.current_run
WHERE s.tenant = ? AND s.root_id = ? AND s.root_id <> '' AND s.owner = ? AND s.owner <> '' AND s.run_status = 'running'`

	// Requests stay in their table after their runs have ended, so the search begins with
	// the sessions that run.
	selectStops = `
SELECT s.tenant, s.id, x.run_id, x.kind
FROM sessions s INDEXED BY sessions_leased
JOIN stops x ON x.tenant = s.tenant AND x.session_id = s.id AND x.run_id = s.current_run
WHERE s.lease_until IS NOT NULL AND s.run_status = 'running' AND s.root_id = '' AND s.status <> 'paused'
UNION ALL
SELECT s.tenant, s.id, x.run_id, x.kind
FROM sessions s INDEXED BY sessions_by_owner
JOIN stops x ON x.tenant = s.tenant AND x.session_id = s.id AND x.run_id = s.current_run
WHERE s.root_id <> '' AND s.owner <> '' AND s.run_status = 'running'
LIMIT ?`

	selectWakes = `SELECT tenant, session_id, child_id, run_id, at FROM wakes ORDER BY at DESC LIMIT ?`
)

// RenewLeases renews leases in one transaction.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) (out []session.Renewed) {
	if len(leases) == 0 {
		return nil
	}
	err := b.Write(ctx, "renew leases", func(t *Tx) error {
		out = make([]session.Renewed, len(leases))
		expires := session.LeaseEnd(b.Now(), ttl)
		for i, held := range leases {
			s := &sessions{b, cmp.Or(held.Tenant, session.DefaultTenant)}
			stops, refused, err := s.renew(t, held.ID, held.Fence, expires)
			if err != nil {
				return err
			}
			out[i] = session.Renewed{Stops: stops, Err: refused}
		}
		return nil
	})
	if err != nil {
		return session.NotRenewed(leases, err)
	}
	return out
}

// renew renews a lease. Why it was refused is not an error of the transaction.
func (s *sessions) renew(t *Tx, id string, fence session.Fence, expires time.Time) (stops []session.Stop, refused, err error) {
	h, err := s.find(t, id)
	if err != nil {
		return nil, nil, err
	}
	if h == nil {
		return nil, session.NotFound(id), nil
	}
	if err := h.CheckFence(fence); err != nil {
		return nil, err, nil
	}
	h.Lease.ExpiresAt = expires
	if h.stop != nil && h.runStatus == session.RunRunning {
		stops = append(stops, *h.stop)
	}
	n, err := t.Exec(renewTree, expires, s.tenant, id, fence.Owner)
	if err != nil {
		return nil, nil, err
	}
	if n > 0 {
		t.cache.Clear()
		for r, err := range t.Query(selectTreeStops, s.tenant, id, fence.Owner) {
			if err != nil {
				return nil, nil, err
			}
			stops = append(stops, session.Stop{RunID: r.Text(), Kind: session.StopKind(r.Text()), Reason: r.Text(), At: r.Time()})
		}
	}
	return stops, nil, s.writeCold(t, h)
}

// ProbeLeases writes to the database in one transaction, if one of the leases exists.
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) (out []error) {
	if len(leases) == 0 {
		return nil
	}
	err := b.Write(ctx, "probe leases", func(t *Tx) error {
		out = make([]error, len(leases))
		written := false
		for i, held := range leases {
			s := &sessions{b, cmp.Or(held.Tenant, session.DefaultTenant)}
			h, err := s.find(t, held.ID)
			if err != nil {
				return err
			}
			if h == nil {
				out[i] = session.NotFound(held.ID)
				continue
			}
			if out[i] = h.CheckFence(held.Fence); out[i] != nil || written {
				continue
			}
			for _, by := range []int{1, -1} {
				if _, err := t.Exec(changeEpoch, by, s.tenant, held.ID); err != nil {
					return err
				}
			}
			written = true
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	return out
}

// maxSignals is how many stops and wakes a process looks at when another process has
// written.
const maxSignals = 1000

// Announced is what Announce has found at its last call.
type Announced map[announcement]bool

type announcement struct {
	session.Signal
	kind       string // of a stop
	child, run string // of a wake
	at         int64
}

// Announce passes on the stops and wakes in the database that it did not find at its
// last call.
func Announce(c Conn, known *Announced, announce func(session.Signal)) error {
	found := Announced{}
	for r, err := range c.Query(selectStops, maxSignals) {
		if err != nil {
			return err
		}
		found[announcement{Signal: session.Signal{Key: session.Key{Tenant: r.Text(), ID: r.Text()}, StopOf: r.Text()}, kind: r.Text()}] = true
	}
	for r, err := range c.Query(selectWakes, maxSignals) {
		if err != nil {
			return err
		}
		found[announcement{Signal: session.Signal{Key: session.Key{Tenant: r.Text(), ID: r.Text()}}, child: r.Text(), run: r.Text(), at: r.Int64()}] = true
	}
	for a := range found {
		if !(*known)[a] {
			announce(a.Signal)
		}
	}
	*known = found
	return nil
}
