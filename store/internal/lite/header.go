package lite

import (
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// header is a session's row: the document without its large parts, and the other
// fields that a commit needs. A commit makes all its decisions on this one row.
type header struct {
	// State has the fields that are columns of the row; loadDoc adds the rest of the
	// document.
	session.State
	number           int64 // the number that keys its rows; 0 before it has one
	closePendingAt   time.Time
	checkpointNumber int    // how many were ever written
	checkpointNewest string // the last of them, if it differs from CheckpointID
	runStatus        session.RunStatus
	runRuntime       string

	// The size of the last snapshot of custom state, and of the writes since.
	snapshotBytes, deltaBytes int64

	// The record of the run in flight, as far as commits change it.
	runSteps  int
	runUsage  []byte
	used      *session.Usage // runUsage, once decoded
	runReason session.CompletionReason

	// stop is the request to stop the current run; inbox reports whether entries are
	// in the inbox.
	stop  *session.Stop
	inbox bool

	stored coldRow // the columns that are written only when they have changed
	doc    *docRow // the rest of the document as it is stored, once loaded
}

// coldRow has the columns that most commits do not change. They are indexed, so
// writing them back unchanged would be expensive.
type coldRow struct {
	status                     session.Status
	owner                      string
	epoch                      int64
	leaseUntil, closePendingAt instant
	turn                       int
	currentRun                 string
	runStatus                  session.RunStatus
	runRuntime, requires       string
	document                   cells
}

func (h *header) cold() coldRow {
	return coldRow{
		status: h.Status, owner: h.Lease.Owner, epoch: h.Lease.Epoch,
		leaseUntil: instantOf(h.Lease.ExpiresAt), closePendingAt: instantOf(h.closePendingAt),
		turn: h.Turn, currentRun: h.CurrentRunID, runStatus: h.runStatus, runRuntime: h.runRuntime,
		requires: stored.JoinNames(h.Requires),
		document: cellsOf(&h.State),
	}
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

// selectHeader also reads, in the same statement, what every commit reports.
var selectHeader = `
SELECT s.number, s.version, s.step_count, s.resume_count, s.message_count, s.last_commit,
       s.checkpoint_id, s.checkpoint_newest, s.checkpoint_number, s.checkpoint_source, s.checkpointed_at,
       s.snapshot_bytes, s.delta_bytes, s.run_steps, s.run_usage, s.run_reason, s.updated_at,
       s.status, s.owner, s.epoch, s.lease_until, s.turn, s.current_run, s.run_status, s.run_runtime, s.run_requires, s.close_owed_at,
       ` + columnNames("s.", "") + `, s.created_at,
       EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = s.tenant AND i.session_id = s.id AND i.consumed = 0),
       x.kind, x.reason, x.at
FROM sessions s
LEFT JOIN stops x ON x.tenant = s.tenant AND x.session_id = s.id AND x.run_id = s.current_run
WHERE s.tenant = ? AND s.id = ?`

// header reads a session's row, or returns nil.
func (s *sessions) header(c Conn, id string) (*header, error) {
	r, err := c.One(selectHeader, s.tenant, id)
	if err != nil || r == nil {
		return nil, err
	}
	h := &header{}
	h.Tenant, h.ID, h.number = s.tenant, id, r.Int64()
	h.Version, h.StepCount, h.ResumeCount, h.MessageCount, h.LastCommit = r.Int64(), r.Int(), r.Int(), r.Int(), r.Text()
	h.CheckpointID, h.checkpointNewest, h.checkpointNumber = r.Text(), r.Text(), r.Int()
	h.CheckpointSource, h.CheckpointedAt = session.CheckpointSource(r.Text()), r.Time()
	h.snapshotBytes, h.deltaBytes = r.Int64(), r.Int64()
	h.runSteps, h.runUsage, h.runReason, h.UpdatedAt = r.Int(), r.Bytes(), session.CompletionReason(r.Text()), r.Time()
	h.Status = session.Status(r.Text())
	h.Lease = session.Lease{Owner: r.Text(), Epoch: r.Int64(), ExpiresAt: r.Time()}
	h.Turn, h.CurrentRunID, h.runStatus, h.runRuntime = r.Int(), r.Text(), session.RunStatus(r.Text()), r.Text()
	h.Requires = stored.SplitNames(r.Text())
	h.closePendingAt = r.Time()
	h.ClosePending = !h.closePendingAt.IsZero()
	r.columns(&h.State)
	h.CreatedAt = r.Time()
	h.inbox = r.Bool()
	if kind := r.Text(); kind != "" {
		h.stop = &session.Stop{RunID: h.CurrentRunID, Kind: session.StopKind(kind), Reason: r.Text(), At: r.Time()}
	}
	h.stored = h.cold()
	return h, nil
}

func (s *sessions) mustHeader(c Conn, id string) (*header, error) {
	h, err := s.header(c, id)
	if err == nil && h == nil {
		err = session.NotFound(id)
	}
	return h, err
}

var insertHeader = `
INSERT INTO sessions (
       version, step_count, resume_count, message_count, last_commit,
       checkpoint_id, checkpoint_newest, checkpoint_number, checkpoint_source, checkpointed_at,
       snapshot_bytes, delta_bytes, run_steps, run_usage, run_reason, updated_at,
       status, owner, epoch, lease_until, turn, current_run, run_status, run_runtime, run_requires, close_owed_at,
       ` + columnNames("", "") + `, created_at, tenant, id)
VALUES (?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ` + placeholders(len(stored.Columns)) + `, ?, ?, ?)`

const updateHeader = `
UPDATE sessions
SET version = ?, step_count = ?, resume_count = ?, message_count = ?, last_commit = ?,
    checkpoint_id = ?, checkpoint_newest = ?, checkpoint_number = ?, checkpoint_source = ?, checkpointed_at = ?,
    snapshot_bytes = ?, delta_bytes = ?, run_steps = ?, run_usage = ?, run_reason = ?, updated_at = ?
WHERE number = ?`

var updateHeaderCold = `
UPDATE sessions
SET status = ?, owner = ?, epoch = ?, lease_until = ?, turn = ?, current_run = ?, run_status = ?, run_runtime = ?,
    run_requires = ?, close_owed_at = ?, ` + columnNames("", " = ?") + `
WHERE number = ?`

func (h *header) hotArgs() []any {
	return []any{
		h.Version, h.StepCount, h.ResumeCount, h.MessageCount, h.LastCommit,
		h.CheckpointID, h.checkpointNewest, h.checkpointNumber, h.CheckpointSource, h.CheckpointedAt,
		h.snapshotBytes, h.deltaBytes, h.runSteps, h.runUsage, h.runReason, h.UpdatedAt,
	}
}

// insertHeader adds the row of a new session and sets its number.
func (s *sessions) insertHeader(t *Tx, h *header) (err error) {
	h.stored = h.cold()
	args := concat(h.hotArgs(), h.turnArgs(), columnArgs(&h.State), []any{h.CreatedAt, s.tenant, h.ID})
	h.number, err = t.Insert(insertHeader, args...)
	if s.b.IsDuplicate(err) {
		return session.Exists(&h.State)
	}
	return err
}

// writeHeader stores the row: the hot columns always, the others if they have
// changed.
func (s *sessions) writeHeader(t *Tx, h *header) error {
	if _, err := t.Exec(updateHeader, append(h.hotArgs(), h.number)...); err != nil {
		return err
	}
	return s.writeCold(t, h)
}

// writeCold stores the row's other columns if they have changed. It is the last
// write of an operation.
func (s *sessions) writeCold(t *Tx, h *header) error {
	if cold := h.cold(); cold != h.stored {
		h.stored = cold
		_, err := t.Exec(updateHeaderCold, concat(h.turnArgs(), columnArgs(&h.State), []any{h.number})...)
		if err != nil {
			return err
		}
	}
	t.cache.remember(h)
	return nil
}

func (h *header) turnArgs() []any {
	return []any{
		h.Status, h.Lease.Owner, h.Lease.Epoch, h.Lease.ExpiresAt, h.Turn, h.CurrentRunID, h.runStatus, h.runRuntime,
		stored.JoinNames(h.Requires), h.closePendingAt,
	}
}

// instant is a time in a form that can be compared with ==, regardless of its
// location.
type instant struct {
	seconds int64
	nanos   int
}

func instantOf(t time.Time) instant { return instant{t.Unix(), t.Nanosecond()} }

func concat(parts ...[]any) []any {
	out := make([]any, 0, 40)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// committed returns the result of a write that left the session in its current
// state.
func (h *header) committed() session.Committed {
	out := session.Committed{
		Version: h.Version, MessageCount: h.MessageCount, CheckpointID: h.CheckpointID, Inbox: h.inbox,
	}
	if h.stop != nil && h.runStatus == session.RunRunning {
		out.Stop = new(*h.stop)
	}
	return out
}
