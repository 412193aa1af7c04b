package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// header is a session's row: the document without its large parts, and the other
// fields that a commit needs. A commit makes all its decisions on this one row, or
// on others that this row's lock protects.
type header struct {
	// State has the fields that are columns of the row; the rest of the document is in
	// a separate row.
	session.State
	number           int64 // the number that keys its rows
	checkpointNumber int   // how many were ever written
	closePendingAt   time.Time
	runStatus        session.RunStatus
	runRuntime       string

	// The record of the run in flight, as far as commits change it.
	runSteps  int
	runUsage  []int64
	runReason session.CompletionReason

	// stop is the request to stop the current run; inbox counts the entries in the
	// inbox.
	stop  *session.Stop
	inbox int
	// lastStop is the request to stop the current run, even if the run has ended: its
	// last commit has returned it, and returns it again when it is repeated.
	lastStop *session.Stop
	// snapshotBytes and deltaBytes are the sizes of the last snapshot of custom state
	// and of the writes since.
	snapshotBytes, deltaBytes int64

	now time.Time // the store's time when the row was read
}

// state returns the document for guards, or nil if there is no session.
func (h *header) state() *session.State {
	if h == nil {
		return nil
	}
	return &h.State
}

// run returns what the guards need of the current run, or nil.
func (h *header) run() *session.Run {
	if h == nil || h.CurrentRunID == "" {
		return nil
	}
	return &session.Run{ID: h.CurrentRunID, Status: h.runStatus}
}

// headerColumns are the columns that scanHeader reads.
var headerColumns = `
       s.number, s.id, s.version, s.step_count, s.resume_count, s.message_count, s.last_commit,
       s.checkpoint_id, s.checkpoint_number, s.checkpoint_source, s.checkpointed_at,
       s.snapshot_bytes, s.delta_bytes, s.inbox_waiting, s.stop_kind, s.stop_reason, s.stop_at,
       s.run_steps, s.run_usage, s.run_reason, s.updated_at,
       s.status, s.owner, s.epoch, s.lease_until, s.turn, s.current_run, s.run_status, s.run_runtime, s.run_requires, s.close_owed_at,
       s.created_at, ` + columnNames("s.")

var (
	selectHeader = `
SELECT` + headerColumns + `, coalesce($3::timestamptz, clock_timestamp())
FROM helix.sessions s
WHERE s.tenant = $1 AND s.id = $2`

	// The time is read after the lock was acquired. Only rows that this lock protects
	// refer to the number of a session, so the weaker lock suffices; it allows
	// snapshots and wakes to be added.
	lockHeader = `
SELECT s.*, coalesce($3::timestamptz, clock_timestamp())
FROM (
    SELECT` + headerColumns + `
    FROM helix.sessions s
    WHERE s.tenant = $1 AND s.id = $2
    FOR NO KEY UPDATE
) s`
)

func (s *sessions) scanHeader(rows pgx.Rows, h *header, more ...any) error {
	*h = header{}
	h.Tenant = s.tenant
	var (
		stop     session.Stop
		requires string
	)
	err := rows.Scan(append([]any{
		&h.number, &h.ID, &h.Version, &h.StepCount, &h.ResumeCount, &h.MessageCount, &h.LastCommit,
		&h.CheckpointID, &h.checkpointNumber, &h.CheckpointSource,
		instant{&h.CheckpointedAt},
		&h.snapshotBytes, &h.deltaBytes, &h.inbox, &stop.Kind, &stop.Reason,
		instant{&stop.At},
		&h.runSteps, &h.runUsage, &h.runReason,
		instant{&h.UpdatedAt},
		&h.Status, &h.Lease.Owner, &h.Lease.Epoch,
		instant{&h.Lease.ExpiresAt},
		&h.Turn, &h.CurrentRunID, &h.runStatus, &h.runRuntime, &requires,
		instant{&h.closePendingAt},
		instant{&h.CreatedAt},
	}, concat(scanColumns(&h.State), []any{instant{&h.now}}, more)...)...)
	h.Requires = stored.SplitNames(requires)
	h.ClosePending = !h.closePendingAt.IsZero()
	if stop.Kind != "" {
		stop.RunID = h.CurrentRunID
		h.asked(&stop)
	}
	return err
}

// asked records the request to stop the current run, which ends with the run.
func (h *header) asked(stop *session.Stop) {
	h.lastStop = stop
	if h.runStatus == session.RunRunning {
		h.stop = stop
	}
}

// lock reads a session's row and locks it, or returns nil.
func (s *sessions) lock(ctx context.Context, t *tx, id string) (h *header, err error) {
	s.askLocked(t, id, &h)
	return h, t.flush(ctx)
}

// askLocked queues the same, and checks whether this program can still use the
// database; this check thus happens whenever a lease is taken or renewed.
func (s *sessions) askLocked(t *tx, id string, h **header) {
	t.ask(s.b.noteLevel, selectReadable)
	t.ask(func(rows pgx.Rows) error {
		*h = &header{}
		return s.scanHeader(rows, *h)
	}, lockHeader, s.tenant, id, s.b.clock())
}

// askHeader queues the query of a session's row; h stays nil if there is none.
func (s *sessions) askHeader(t *tx, id string, h **header) {
	t.ask(func(rows pgx.Rows) error {
		*h = &header{}
		return s.scanHeader(rows, *h)
	}, selectHeader, s.tenant, id, s.b.clock())
}

var insertHeader = `
INSERT INTO helix.sessions (
       number, tenant, id, version, step_count, resume_count, message_count, last_commit,
       checkpoint_id, checkpoint_number, checkpoint_source, checkpointed_at,
       snapshot_bytes, delta_bytes, inbox_waiting, stop_kind, stop_reason, stop_at,
       run_steps, run_usage, run_reason, updated_at,
       status, owner, epoch, lease_until, turn, current_run, run_status, run_runtime, run_requires, close_owed_at,
       created_at, ` + columnNames("") + `)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
        $9, $10, $11, $12,
        $13, $14, 0, '', '', NULL,
        $15, $16, $17, $18,
        $19, $20, $21, $22, $23, $24, $25, $26, $27, $28,
        $29, ` + columnPlaces(30) + `)`

var updateHeader = `
UPDATE helix.sessions
SET version = $2, step_count = $3, resume_count = $4, message_count = $5, last_commit = $6,
    checkpoint_id = $7, checkpoint_number = $8, checkpoint_source = $9, checkpointed_at = $10,
    snapshot_bytes = $11, delta_bytes = $12, run_steps = $13, run_usage = $14, run_reason = $15, updated_at = $16,
    status = $17, owner = $18, epoch = $19, lease_until = $20, turn = $21, current_run = $22, run_status = $23,
    run_runtime = $24, run_requires = $25, close_owed_at = $26,
    stop_kind = $27, stop_reason = $28, stop_at = $29,
    ` + columnSets(30) + `
WHERE number = $1`

// hotArgs and turnArgs return the row's values in the order of its columns.
func (h *header) hotArgs() []any {
	return []any{
		h.Version, h.StepCount, h.ResumeCount, h.MessageCount, h.LastCommit,
		h.CheckpointID, h.checkpointNumber, h.CheckpointSource, when(h.CheckpointedAt),
		h.snapshotBytes, h.deltaBytes, h.runSteps, usageArg(h.runUsage), h.runReason, when(h.UpdatedAt),
	}
}

func (h *header) turnArgs() []any {
	return []any{
		h.Status, h.Lease.Owner, h.Lease.Epoch, when(h.Lease.ExpiresAt),
		h.Turn, h.CurrentRunID, h.runStatus, h.runRuntime, stored.JoinNames(h.Requires), when(h.closePendingAt),
	}
}

// insertHeader queues the row of a new session, which already has its number.
func (s *sessions) insertHeader(t *tx, h *header) {
	args := concat([]any{h.number, s.tenant, h.ID}, h.hotArgs(), h.turnArgs(), []any{when(h.CreatedAt)}, columnArgs(&h.State))
	t.exec(insertHeader, args...)
}

// writeHeader queues the row of an existing session.
func (s *sessions) writeHeader(t *tx, h *header) {
	var stop session.Stop
	if h.stop != nil {
		stop = *h.stop
	}
	args := concat([]any{h.number}, h.hotArgs(), h.turnArgs(),
		[]any{string(stop.Kind), stop.Reason, when(stop.At)}, columnArgs(&h.State))
	t.exec(updateHeader, args...)
}

func concat(parts ...[]any) []any {
	out := make([]any, 0, 40)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// repeated returns the result of a commit that was applied before.
func (h *header) repeated(commit *session.Commit) *session.Committed {
	out := h.committed()
	out.Repeated = true
	if h.lastStop != nil && h.lastStop.RunID == commit.RunID {
		out.Stop = new(*h.lastStop)
	}
	return &out
}

// committed returns the result of a write that left the session in its current
// state.
func (h *header) committed() session.Committed {
	out := session.Committed{
		Version: h.Version, MessageCount: h.MessageCount, CheckpointID: h.CheckpointID, Inbox: h.inbox > 0,
	}
	if h.stop != nil {
		stop := *h.stop
		out.Stop = &stop
	}
	return out
}
