package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// Every sweep reads a partial index that contains only what can become due, in the
// order in which it becomes due, starting after the last entry of the previous
// page. The conditions repeat those of the index. The time is that of the statement:
// clock_timestamp() may change from row to row, so it cannot bound a scan of an index,
// which then reads all that can ever become due. What is not wanted is passed over
// where it is read.
const (
	dueColumns = `
SELECT s.tenant, s.id, s.agent, s.current_run, s.run_runtime, s.run_requires, s.owner, s.epoch, s.lease_until,
    CASE WHEN s.run_status = 'running' THEN s.stop_kind ELSE '' END, `

	// The planner takes it that a number of its own is hardly ever 0. With a plain condition it believes that few are wanted,
	// and reads and sorts all that is due.
	wanted = `
  AND CASE WHEN ($7::text[] IS NULL OR s.agent = ANY ($7)) AND $9::text IN ('', s.run_runtime)
      OR s.run_status = 'running' AND s.stop_kind = 'abort' THEN 1 ELSE 0 END <> 0`

	sweepDeadlines = dueColumns + `p.deadline, p.call_id
FROM helix.pending p JOIN helix.sessions s ON s.number = p.session
WHERE p.state = 'waiting' AND p.deadline IS NOT NULL AND s.status <> 'paused'
  AND p.deadline <= coalesce($1::timestamptz, statement_timestamp()) + $8::bigint * interval '1 microsecond'
  AND (p.deadline, p.tenant, p.session_id, p.call_id) > ($2::timestamptz, $3::text, $4::text, $5::text)` + wanted + `
ORDER BY p.deadline, p.tenant, p.session_id, p.call_id
LIMIT $6`

	sweepLeases = dueColumns + `s.lease_until, ''
FROM helix.sessions s
WHERE s.lease_until IS NOT NULL AND s.run_status = 'running' AND s.root_id = '' AND s.status <> 'paused'
  AND s.lease_until <= coalesce($1::timestamptz, statement_timestamp()) + $8::bigint * interval '1 microsecond'
  AND (s.lease_until, s.tenant, s.id) > ($2::timestamptz, $3::text, $4::text) AND $5::text IS NOT NULL` + wanted + `
ORDER BY s.lease_until, s.tenant, s.id
LIMIT $6`

	sweepExpired = dueColumns + `s.expires_at, ''
FROM helix.sessions s
WHERE s.expires_at IS NOT NULL AND s.status IN ('active', 'interrupted')
  AND s.expires_at <= coalesce($1::timestamptz, statement_timestamp()) + $8::bigint * interval '1 microsecond'
  AND (s.expires_at, s.tenant, s.id) > ($2::timestamptz, $3::text, $4::text) AND $5::text IS NOT NULL` + wanted + `
ORDER BY s.expires_at, s.tenant, s.id
LIMIT $6`

	sweepPendingCloses = dueColumns + `s.close_owed_at, ''
FROM helix.sessions s
WHERE s.close_owed_at IS NOT NULL AND s.run_status <> 'running'
  AND s.close_owed_at <= coalesce($1::timestamptz, statement_timestamp()) + $8::bigint * interval '1 microsecond'
  AND (s.close_owed_at, s.tenant, s.id) > ($2::timestamptz, $3::text, $4::text) AND $5::text IS NOT NULL` + wanted + `
ORDER BY s.close_owed_at, s.tenant, s.id
LIMIT $6`

	sweepWakes = `
SELECT tenant, session_id, child_id, run_id, at FROM helix.wakes
WHERE (at, tenant, session_id, child_id) > ($1::timestamptz, $2::text, $3::text, $4::text)
ORDER BY at, tenant, session_id, child_id
LIMIT $5`
)

// sweep lists what is due now.
func (s *sessions) sweep(ctx context.Context, name, query string, request session.SweepRequest) (out []session.Due, err error) {
	var after session.Due
	if request.After != nil {
		after = *request.After
	}
	err = s.b.query(ctx, name, func(rows pgx.Rows) error {
		var (
			due      session.Due
			requires string
		)
		err := rows.Scan(&due.Tenant, &due.ID, &due.Agent, &due.RunID, &due.Runtime, &requires,
			&due.Lease.Owner, &due.Lease.Epoch, instant{&due.Lease.ExpiresAt}, &due.Stop, instant{&due.At}, &due.CallID)
		due.Requires = stored.SplitNames(requires)
		out = append(out, due)
		return err
	}, query, s.b.clock(), behind(after.At), after.Tenant, after.ID, after.CallID, request.Size(), request.Agents, request.Ahead.Microseconds(), request.Runtime)
	return out, err
}

// behind returns the time after which a page begins: before all times if it is
// zero.
func behind(t time.Time) any {
	if t.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return when(t)
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
	err = s.b.query(ctx, "list wakes", func(rows pgx.Rows) error {
		var wake session.Wake
		err := rows.Scan(&wake.Tenant, &wake.SessionID, &wake.ChildID, &wake.RunID, instant{&wake.At})
		out = append(out, wake)
		return err
	}, sweepWakes, behind(after.At), after.Tenant, after.SessionID, after.ChildID, request.Size())
	return out, err
}
