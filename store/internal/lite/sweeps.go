package lite

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// Every sweep reads a partial index that contains only what can become due, in the
// order in which it becomes due, starting after the last entry of the previous
// page. The conditions repeat those of the index. What is not wanted is passed over
// where it is read.
const (
	theirStops = `
LEFT JOIN stops x ON x.tenant = s.tenant AND x.session_id = s.id AND x.run_id = s.current_run AND s.run_status = 'running'`

	wanted = `
  AND ((? IS NULL OR s.agent IN (SELECT value FROM json_each(?))) AND ? IN ('', s.run_runtime) OR x.kind = 'abort')`

	sweepDeadlines = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.run_requires, s.owner, s.epoch, s.lease_until, coalesce(x.kind, ''), p.deadline, p.call_id
FROM pending p INDEXED BY pending_due
CROSS JOIN sessions s ON s.tenant = p.tenant AND s.id = p.session_id` + theirStops + `
WHERE p.state = 'waiting' AND p.deadline IS NOT NULL AND s.status <> 'paused'
  AND p.deadline <= ? AND (p.deadline, p.tenant, p.session_id, p.call_id) > (?, ?, ?, ?)` + wanted + `
ORDER BY p.deadline, p.tenant, p.session_id, p.call_id
LIMIT ?`

	sweepLeases = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.run_requires, s.owner, s.epoch, s.lease_until, coalesce(x.kind, ''), s.lease_until, ''
FROM sessions s INDEXED BY sessions_leased` + theirStops + `
WHERE s.lease_until IS NOT NULL AND s.run_status = 'running' AND s.root_id = '' AND s.status <> 'paused'
  AND s.lease_until <= ? AND (s.lease_until, s.tenant, s.id, '') > (?, ?, ?, ?)` + wanted + `
ORDER BY s.lease_until, s.tenant, s.id
LIMIT ?`

	sweepExpired = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.run_requires, s.owner, s.epoch, s.lease_until, coalesce(x.kind, ''), s.expires_at, ''
FROM sessions s INDEXED BY sessions_expiring` + theirStops + `
WHERE s.expires_at IS NOT NULL AND s.status IN ('active', 'interrupted')
  AND s.expires_at <= ? AND (s.expires_at, s.tenant, s.id, '') > (?, ?, ?, ?)` + wanted + `
ORDER BY s.expires_at, s.tenant, s.id
LIMIT ?`

	sweepPendingCloses = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.run_requires, s.owner, s.epoch, s.lease_until, coalesce(x.kind, ''), s.close_owed_at, ''
FROM sessions s INDEXED BY sessions_owing` + theirStops + `
WHERE s.close_owed_at IS NOT NULL AND s.run_status <> 'running'
  AND s.close_owed_at <= ? AND (s.close_owed_at, s.tenant, s.id, '') > (?, ?, ?, ?)` + wanted + `
ORDER BY s.close_owed_at, s.tenant, s.id
LIMIT ?`

	sweepWakes = `
SELECT tenant, session_id, child_id, run_id, at FROM wakes INDEXED BY wakes_by_age
WHERE (at, tenant, session_id, child_id) > (?, ?, ?, ?)
ORDER BY at, tenant, session_id, child_id
LIMIT ?`
)

// sweep lists what is due now.
func (s *sessions) sweep(ctx context.Context, name, query string, request session.SweepRequest) (out []session.Due, err error) {
	var after session.Due
	if request.After != nil {
		after = *request.After
	}
	var agents any // none
	if request.Agents != nil {
		names, err := json.Marshal(request.Agents)
		if err != nil {
			return nil, err
		}
		agents = string(names)
	}
	err = s.b.Read(ctx, name, func(c Conn) error {
		for r, err := range c.Query(query, s.b.Now().Add(request.Ahead),
			behind(after.At), after.Tenant, after.ID, after.CallID, agents, agents, request.Runtime, request.Size()) {
			if err != nil {
				return err
			}
			due := session.Due{Key: session.Key{Tenant: r.Text(), ID: r.Text()}}
			due.Agent, due.RunID, due.Runtime = r.Text(), r.Text(), r.Text()
			due.Requires = stored.SplitNames(r.Text())
			due.Lease = session.Lease{Owner: r.Text(), Epoch: r.Int64(), ExpiresAt: r.Time()}
			due.Stop, due.At, due.CallID = session.StopKind(r.Text()), r.Time(), r.Text()
			out = append(out, due)
		}
		return nil
	})
	return out, err
}

// behind returns the parameter for the time after which a page begins. The zero
// time would be NULL, so it becomes a number before all times.
func behind(t time.Time) any {
	if t.IsZero() {
		return int64(math.MinInt64)
	}
	return t
}

// DueDeadlines implements [session.Sweeps].
func (s *sessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, "list due deadlines", sweepDeadlines, request)
}

// ExpiredLeases implements [session.Sweeps].
func (s *sessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, "list expired leases", sweepLeases, request)
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, "list expired sessions", sweepExpired, request)
}

// PendingCloses implements [session.Sweeps].
func (s *sessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, "list pending closes", sweepPendingCloses, request)
}

// Wakes implements [session.Sweeps].
func (s *sessions) Wakes(ctx context.Context, request session.WakeRequest) (out []session.Wake, err error) {
	var after session.Wake
	if request.After != nil {
		after = *request.After
	}
	err = s.b.Read(ctx, "list wakes", func(c Conn) error {
		for r, err := range c.Query(sweepWakes,
			behind(after.At), after.Tenant, after.SessionID, after.ChildID, request.Size()) {
			if err != nil {
				return err
			}
			out = append(out, session.Wake{
				Tenant: r.Text(), SessionID: r.Text(), ChildID: r.Text(), RunID: r.Text(), At: r.Time(),
			})
		}
		return nil
	})
	return out, err
}
