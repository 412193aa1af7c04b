package sqlite

import (
	"context"

	"github.com/helixagents/helix/session"
)

// Every sweep reads a partial index that holds only what can be due, in the order
// in which it becomes due. Their conditions repeat those of the index.
const (
	sweepDeadlines = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.owner, s.epoch, s.lease_until, p.deadline, p.call_id
FROM pending p INDEXED BY pending_due
CROSS JOIN sessions s ON s.tenant = p.tenant AND s.id = p.session_id
WHERE p.state = 'waiting' AND p.deadline IS NOT NULL AND p.deadline <= ? AND s.status <> 'paused'
ORDER BY p.deadline
LIMIT ?`

	sweepLeases = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.owner, s.epoch, s.lease_until, s.lease_until, ''
FROM sessions s INDEXED BY sessions_leased
WHERE s.lease_until IS NOT NULL AND s.run_status = 'running' AND s.parent_id = '' AND s.status <> 'paused'
  AND s.lease_until <= ?
ORDER BY s.lease_until
LIMIT ?`

	sweepExpired = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.owner, s.epoch, s.lease_until, s.expires_at, ''
FROM sessions s INDEXED BY sessions_expiring
WHERE s.expires_at IS NOT NULL AND s.status IN ('active', 'interrupted') AND s.expires_at <= ?
ORDER BY s.expires_at
LIMIT ?`

	sweepOwing = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.owner, s.epoch, s.lease_until, s.close_owed_at, ''
FROM sessions s INDEXED BY sessions_owing
WHERE s.close_owed_at IS NOT NULL AND s.run_status <> 'running' AND s.close_owed_at <= ?
ORDER BY s.close_owed_at
LIMIT ?`

	sweepWakes = `
SELECT tenant, session_id, child_id, run_id, at FROM wakes INDEXED BY wakes_by_age
ORDER BY at
LIMIT ?`
)

// sweep lists what is due now.
func (s *sessions) sweep(ctx context.Context, name, query string, limit int) (out []session.Due, err error) {
	err = s.b.read(ctx, name, func(c *conn) error {
		for r, err := range c.query(query, s.b.now(), sweepLimit(limit)) {
			if err != nil {
				return err
			}
			due := session.Due{Key: session.Key{Tenant: r.text(), ID: r.text()}}
			due.Agent, due.RunID, due.Runtime = r.text(), r.text(), r.text()
			due.Lease = session.Lease{Owner: r.text(), Epoch: r.int64(), ExpiresAt: r.time()}
			due.At, due.CallID = r.time(), r.text()
			out = append(out, due)
		}
		return nil
	})
	return out, err
}

// sweepLimit is what SQLite takes as "all" when there is no limit.
func sweepLimit(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit
}

// DueDeadlines implements [session.Sweeps].
func (s *sessions) DueDeadlines(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, "list due deadlines", sweepDeadlines, limit)
}

// ExpiredLeases implements [session.Sweeps].
func (s *sessions) ExpiredLeases(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, "list expired leases", sweepLeases, limit)
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, "list expired sessions", sweepExpired, limit)
}

// OwedCloses implements [session.Sweeps].
func (s *sessions) OwedCloses(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, "list owed closes", sweepOwing, limit)
}

// Wakes implements [session.Sweeps].
func (s *sessions) Wakes(ctx context.Context, limit int) (out []session.Wake, err error) {
	err = s.b.read(ctx, "list wakes", func(c *conn) error {
		for r, err := range c.query(sweepWakes, sweepLimit(limit)) {
			if err != nil {
				return err
			}
			out = append(out, session.Wake{
				Tenant: r.text(), SessionID: r.text(), ChildID: r.text(), RunID: r.text(), At: r.time(),
			})
		}
		return nil
	})
	return out, err
}
