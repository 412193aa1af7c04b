package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// A commit is one statement, made of the parts that its change has. It updates the
// session's row if that holds what the commit expects, and writes everything else
// if it did; if not, it tells what the row truly holds, so that whoever is refused
// learns it in the same round trip.
//
// While a statement waits for the row, others may change what it reads: it decides
// on the row as it is then, but sees other tables as they were when it began. What
// protects each fact that a commit relies on:
//
//   - version, lease, run, status, counts, the stop request, waiting messages: they
//     are columns of the row, and conditions on it are tested on its latest state;
//   - ids of messages and checkpoints: unique indexes, which know no snapshot;
//   - waits, settled calls, keys of custom state, inbox entries, child references:
//     whoever changes them raises the row's version or its count "touched". The
//     statement compares both with what they were when it began. If they differ it
//     writes nothing, and is made again by a transaction of two statements, of which
//     the first takes the lock: the second then sees what there is.
//
// What a refused commit is told comes from a reading that locks the row, because
// only such a one gives the row as it is and not as it was.
type statement struct {
	text strings.Builder
	args []any
	now  string // the store's time
	// sets and wheres are what the update of the session's row does, and on which
	// conditions.
	sets, wheres []string
}

// arg adds a parameter and gives its place.
func (q *statement) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *statement) set(parts ...string)   { q.sets = append(q.sets, strings.Join(parts, "")) }
func (q *statement) where(parts ...string) { q.wheres = append(q.wheres, strings.Join(parts, "")) }

// part adds a common table expression.
func (q *statement) part(name string, text ...string) {
	q.text.WriteString(",\n" + name + " AS (")
	for _, t := range text {
		q.text.WriteString(t)
	}
	q.text.WriteString(")")
}

// column is a column of rows that a statement is given.
type column struct {
	name, kind string
	all, first any
}

func col[T any](name, kind string, values []T) column {
	return column{name, kind, values, values[0]}
}

// rows gives rows as a table with their number in a column n. A single row, which
// is the most frequent case, is spelled out, for unfolding arrays takes time.
func (q *statement) rows(alias string, n int, columns ...column) string {
	var b strings.Builder
	if n == 1 {
		b.WriteString("(SELECT 1 AS n")
		for _, c := range columns {
			b.WriteString(", " + q.arg(c.first) + "::" + c.kind + " AS " + c.name)
		}
		b.WriteString(") " + alias)
		return b.String()
	}
	b.WriteString("unnest(")
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(q.arg(c.all) + "::" + c.kind + "[]")
	}
	b.WriteString(") WITH ORDINALITY " + alias + "(")
	for _, c := range columns {
		b.WriteString(c.name + ", ")
	}
	b.WriteString("n)")
	return b.String()
}

// changeStatement is the statement that makes a change: of a commit, with its
// guards, or of a run that starts, whose transaction holds the lock already.
func (s *sessions) changeStatement(d *draft, c *session.Commit, raise bool) *statement {
	q := &statement{args: make([]any, 0, 32)}
	q.text.Grow(4 << 10)
	tenant, id := q.arg(s.tenant), q.arg(d.sessionID)
	q.now = "coalesce(" + q.arg(s.b.clock()) + "::timestamptz, statement_timestamp())"
	q.text.WriteString("WITH ")
	from, fresh := "", "true"
	var answered, unsettled, unlisted = "NULL::text[]", "NULL::text[]", "NULL::bytea"
	if d.looksElsewhere() {
		q.text.WriteString(`seen AS MATERIALIZED (
    SELECT number, version, touched FROM helix.sessions WHERE tenant = ` + tenant + ` AND id = ` + id + `
)`)
		from, fresh = "FROM seen", "(SELECT seen.version = cur.version AND seen.touched = cur.touched FROM seen)"
		q.where("s.number = seen.number AND s.version = seen.version AND s.touched = seen.touched")
		answered, unsettled, unlisted = s.doubts(q, d)
		q.text.WriteString(",\n")
	} else {
		q.where("s.tenant = ", tenant, " AND s.id = ", id)
	}
	s.guards(q, d, c)
	s.rowChanges(q, d, c, raise)
	ended := ""
	if d.Outcome != nil {
		ended = ", s.run_steps, s.run_usage, s.run_reason"
	}
	q.text.WriteString(`ok AS (
    UPDATE helix.sessions s SET ` + strings.Join(q.sets, ", ") + `
    ` + from + `
    WHERE ` + strings.Join(q.wheres, " AND ") + `
    RETURNING s.number, s.version, s.message_count, s.checkpoint_id, s.checkpoint_number, s.inbox_waiting, s.snapshot_bytes, s.delta_bytes,
              s.status, s.turn, s.stop_kind, s.stop_reason, s.stop_at` + ended + `
)`)
	s.insertParts(q, d, tenant, id)
	q.text.WriteString(`,
cur AS MATERIALIZED (
    SELECT number, version, touched, message_count, last_commit, checkpoint_id, inbox_waiting, stop_kind, stop_reason, stop_at,
           status, owner, epoch, current_run, run_status
    FROM helix.sessions
    WHERE tenant = ` + tenant + ` AND id = ` + id + ` AND NOT EXISTS (SELECT FROM ok)
    FOR NO KEY UPDATE
)
SELECT true, number, version, message_count, checkpoint_id, inbox_waiting, stop_kind, stop_reason, stop_at, status,
       snapshot_bytes, delta_bytes, '', '', 0, '', '', true, NULL, NULL, NULL
FROM ok
UNION ALL
SELECT false, number, version, message_count, checkpoint_id, inbox_waiting, stop_kind, stop_reason, stop_at, status,
       0, 0, last_commit, owner, epoch, current_run, run_status, ` + fresh + `, ` + answered + `, ` + unsettled + `, ` + unlisted + `
FROM cur`)
	return q
}

// looksElsewhere reports whether a change depends on rows of other tables, which
// a statement may see as they no longer are.
func (d *draft) looksElsewhere() bool {
	return len(d.Waits) > 0 || d.fromRows || d.writes != nil || len(d.Children) > 0 || len(d.Consume) > 0
}

// doubts adds what may keep a change from being made, and gives the expressions
// that tell of it.
func (s *sessions) doubts(q *statement, d *draft) (answered, unsettled, unlisted string) {
	answered, unsettled, unlisted = "NULL::text[]", "NULL::text[]", "NULL::bytea"
	if len(d.Waits) > 0 {
		q.part("answered", `
    SELECT p.call_id
    FROM seen JOIN helix.pending p ON p.session = seen.number AND p.call_id = ANY (`, q.arg(d.Waits), `::text[]) AND p.state <> 'waiting'
`)
		q.where("NOT EXISTS (SELECT FROM answered)")
		answered = "(SELECT array_agg(call_id) FROM answered)"
	}
	if d.fromRows {
		ids, calls, bodies := columns(d.promoted)
		q.part("promoted", `
    SELECT p.n, p.call_id, coalesce(c.result_id, p.id) AS id, p.calls, coalesce(p.body, c.result) AS body
    FROM seen
    CROSS JOIN `, q.rows("p", len(ids), col("call_id", "text", d.callIDs), col("id", "text", ids), col("calls", "bytea", calls), col("body", "bytea", bodies)), `
    LEFT JOIN helix.calls c
      ON p.body IS NULL AND c.session = seen.number AND c.message_id = `, q.arg(d.Promote.MessageID), ` AND c.call_id = p.call_id AND c.status = 'settled'
`)
		q.where("NOT EXISTS (SELECT FROM promoted WHERE body IS NULL)")
		unsettled = "(SELECT array_agg(call_id ORDER BY n) FROM promoted WHERE body IS NULL)"
	}
	if len(d.appended) > 0 {
		q.part("unlisted", `
    SELECT k.digest
    FROM seen JOIN helix.state_keys k ON k.session = seen.number AND k.digest = ANY (`, q.arg(digests(d.appended)), `::bytea[]) AND NOT k.is_list
`)
		q.where("NOT EXISTS (SELECT FROM unlisted)")
		unlisted = "(SELECT digest FROM unlisted LIMIT 1)"
	}
	return answered, unsettled, unlisted
}

// guards adds the conditions of a commit on the session's row, those of
// [session.Commit.Guard] and that the run is not over.
func (s *sessions) guards(q *statement, d *draft, c *session.Commit) {
	if c == nil {
		return
	}
	q.where("s.version = ", q.arg(c.Version), " AND s.owner = ", q.arg(c.Fence.Owner), " AND s.owner <> '' AND s.epoch = ", q.arg(c.Fence.Epoch),
		" AND s.current_run = ", q.arg(c.RunID), " AND s.run_status = 'running'")
	key := q.arg(c.Key)
	q.set("last_commit = ", key)
	q.where("(s.last_commit <> ", key, " OR ", key, " = '')")
	if d.Status != "" {
		q.where("s.status = ANY (", q.arg(befores(d.Status)), "::text[])")
	}
}

// rowChanges adds what a change does to the session's own row. The request to stop
// a run that ends stays in it, to be told, and counts no more.
func (s *sessions) rowChanges(q *statement, d *draft, c *session.Commit, raise bool) {
	q.set("updated_at = ", q.now)
	if raise {
		q.set("version = s.version + 1")
	}
	if n := len(d.messages) + len(d.promoted); n > 0 {
		q.set("message_count = s.message_count + ", q.arg(n))
	}
	if d.Status != "" {
		q.set("status = ", q.arg(string(d.Status)))
	}
	if d.StepCount != nil && c != nil {
		n := q.arg(*d.StepCount)
		q.set("step_count = ", n, ", run_steps = ", n)
	}
	if d.writes != nil {
		q.set("delta_bytes = s.delta_bytes + ", q.arg(len(d.writes)))
	}
	if point := d.Checkpoint; point != nil {
		q.set("checkpoint_id = ", q.arg(d.checkpointID), ", checkpoint_number = s.checkpoint_number + 1, checkpoint_source = ",
			q.arg(string(sourceOf(point))), ", checkpointed_at = ", q.now)
	}
	if len(d.Consume) > 0 {
		q.set("inbox_waiting = s.inbox_waiting - (SELECT count(*) FROM helix.inbox i",
			" WHERE i.session = s.number AND i.entry_id = ANY (", q.arg(d.Consume), "::text[]) AND NOT i.consumed)")
	}
	if run := d.Run; run != nil {
		if run.CompletionReason != "" {
			q.set("run_reason = ", q.arg(string(run.CompletionReason)))
		}
		if run.Usage != (session.Usage{}) {
			q.set("run_usage = ", sumOfUsage(q.arg(usageArray(run.Usage))))
		}
	}
	if d.Outcome != nil {
		q.set("run_status = ", q.arg(string(d.Outcome.Status)), ", close_owed_at = ", q.now)
	}
}

// befores lists the statuses from which a session may get to one.
func befores(to session.Status) (out []string) {
	for _, from := range session.Statuses() {
		if from.CanBecome(to) {
			out = append(out, string(from))
		}
	}
	return out
}

// sumOfUsage adds an array of counts to those of the run in flight.
func sumOfUsage(add string) string {
	sums := make([]string, usageFields)
	for i := range sums {
		sums[i] = fmt.Sprintf("coalesce(s.run_usage[%d], 0) + (%s::bigint[])[%d]", i+1, add, i+1)
	}
	return "ARRAY[" + strings.Join(sums, ", ") + "]"
}

// insertParts adds the rows that a change writes beside the session's own.
func (s *sessions) insertParts(q *statement, d *draft, tenant, id string) {
	s.messageParts(q, d)
	s.stateParts(q, d)
	s.callParts(q, d)
	s.pendingParts(q, d, tenant, id)
	s.treeParts(q, d, tenant)
	if point := d.Checkpoint; point != nil {
		q.part("pointed", `
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    SELECT ok.number, ok.checkpoint_number, ok.checkpoint_id, `, q.arg(d.runID), `, ok.turn, `, q.arg(point.Step), `, ok.status, `,
			q.arg(string(sourceOf(point))), `, ok.version, ok.message_count, `, q.arg(point.StreamSequence), `, `, q.now, `
    FROM ok
`)
	}
	s.outcomeParts(q, d)
}

func (s *sessions) messageParts(q *statement, d *draft) {
	total := len(d.messages) + len(d.promoted)
	if total == 0 {
		return
	}
	var selects []string
	if len(d.messages) > 0 {
		ids, calls, bodies := columns(d.messages)
		selects = append(selects, `
    SELECT ok.number, ok.message_count - `+q.arg(total)+`::integer + m.n, m.id, m.calls, m.body
    FROM ok, `+q.rows("m", len(ids), col("id", "text", ids), col("calls", "bytea", calls), col("body", "bytea", bodies)))
	}
	if len(d.promoted) > 0 {
		selects = append(selects, `
    SELECT ok.number, ok.message_count - `+q.arg(len(d.promoted))+`::integer + m.n, m.id, m.calls, m.body
    FROM ok, promoted m`)
	}
	q.part("said", `
    INSERT INTO helix.messages (session, number, message_id, calls, body)`, strings.Join(selects, " UNION ALL "), "\n")
}

func (s *sessions) stateParts(q *statement, d *draft) {
	if d.writes == nil {
		return
	}
	q.part("logged", `
    INSERT INTO helix.state_log (session, version, body) SELECT ok.number, ok.version, `, q.arg(d.writes), ` FROM ok
`)
	if len(d.keys) > 0 {
		// A key that is as it was is left alone: updating it would cost as much as adding
		// one.
		q.part("keyed", `
    INSERT INTO helix.state_keys (session, digest, is_list)
    SELECT ok.number, k.digest, k.is_list
    FROM ok, `, q.rows("k", len(d.keys), col("digest", "bytea", digests(d.keys)), col("is_list", "boolean", d.lists)), `
    WHERE (SELECT x.is_list FROM helix.state_keys x WHERE x.session = ok.number AND x.digest = k.digest) IS DISTINCT FROM k.is_list
    ON CONFLICT (session, digest) DO UPDATE SET is_list = excluded.is_list
`)
	}
	if len(d.deleted) > 0 {
		q.part("unkeyed", `
    DELETE FROM helix.state_keys k USING ok WHERE k.session = ok.number AND k.digest = ANY (`, q.arg(digests(d.deleted)), `::bytea[])
`)
	}
}

// outcomeParts ends the run.
func (s *sessions) outcomeParts(q *statement, d *draft) {
	o := d.Outcome
	if o == nil {
		return
	}
	q.part("ended", `
    UPDATE helix.runs r
    SET status = `, q.arg(string(o.Status)), `, ended_at = `, q.now, `, step_count = ok.run_steps, reason = ok.run_reason, usage = ok.run_usage,
        outcome = `, q.arg(d.outcome), `, output = `, q.arg(d.output), `
    FROM ok
    WHERE r.session = ok.number AND r.turn = ok.turn
`)
	set := "ending = " + q.arg(d.ending) + ", suspended_step = " + q.arg(o.SuspendedStep)
	if o.Status == session.RunCompleted || o.Status == session.RunFailed { // as State.Finish has it
		set += ", output = " + q.arg(d.output)
	}
	q.part("told", `
    UPDATE helix.session_docs d SET `, set, ` FROM ok WHERE d.session = ok.number
`)
}

func sourceOf(c *session.NewCheckpoint) session.CheckpointSource {
	if c.Source == "" {
		return session.FromSave
	}
	return c.Source
}

// changed is what a change's statement tells.
type changed struct {
	found bool
	ok    bool   // whether the change was made
	is    header // the session then, as far as guards, refusals and outcomes need it
	fresh bool   // whether a statement that refused saw other tables as they were when it had the lock
	refusal
}

func (c *changed) scan(rows pgx.Rows) error {
	h := &c.is
	var (
		stopKind, stopReason, status, runStatus string
		stopAt                                  time.Time
		fresh                                   *bool // unset if the session was not there when the statement began
	)
	c.found = true
	err := rows.Scan(&c.ok, &h.number, &h.Version, &h.MessageCount, &h.CheckpointID, &h.inbox, &stopKind, &stopReason, instant{&stopAt}, &status,
		&h.snapshotBytes, &h.deltaBytes, &h.LastCommit, &h.Lease.Owner, &h.Lease.Epoch, &h.CurrentRunID, &runStatus,
		&fresh, &c.answered, &c.unsettled, &c.unlisted)
	h.Status, h.runStatus, c.fresh = session.Status(status), session.RunStatus(runStatus), fresh != nil && *fresh
	if stopKind != "" && (c.ok || h.runStatus == session.RunRunning) {
		h.stop = &session.Stop{RunID: h.CurrentRunID, Kind: session.StopKind(stopKind), Reason: stopReason, At: stopAt}
	}
	return err
}

// committed is the outcome of a change that was made. A request to stop that it
// has consumed is told, too.
func (c *changed) committed(d *draft) *session.Committed {
	out := c.is.committed()
	if out.Stop != nil {
		out.Stop.RunID = d.runID
	}
	out.Warnings = d.warnings
	return &out
}

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (committed *session.Committed, err error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	d, err := newDraft(&commit.Change, commit.SessionID, commit.RunID, time.Now())
	if err != nil {
		return nil, err
	}
	if d.KeepMessages != nil || d.whole != nil {
		return s.rewind(ctx, commit, d)
	}
	locked := false
	err = s.b.repeat(ctx, what(commit.SessionID, "commit"), func() error {
		var c changed
		q := s.changeStatement(d, commit, true)
		err := s.b.behind(ctx, locked, lockOnly, []any{s.tenant, commit.SessionID}, q.text.String(), q.args, c.scan)
		if err != nil {
			return err
		}
		committed, err = s.settleCommit(&c, commit, d)
		locked = true // the next time, if there is one
		return err
	})
	if err = s.conflict(ctx, err, commit.SessionID, d); err != nil {
		return nil, err
	}
	return committed, nil
}

const lockOnly = `
SELECT FROM helix.sessions WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE`

// settleCommit says what became of a commit: of one that was not made and for
// which no reason is found, that it has to be made again.
func (s *sessions) settleCommit(c *changed, commit *session.Commit, d *draft) (*session.Committed, error) {
	if !c.found {
		return nil, notFound("session %s", commit.SessionID)
	}
	if c.ok {
		s.b.snapshots.consider(c.is.number, s.tenant, commit.SessionID, c.is.snapshotBytes, c.is.deltaBytes)
		return c.committed(d), nil
	}
	h := &c.is
	h.ID = commit.SessionID
	repeated, err := commit.Guard(&h.State)
	if err != nil {
		return nil, err
	}
	if repeated {
		out := h.committed()
		out.Repeated = true
		return &out, nil
	}
	if err := h.holds(commit); err != nil {
		return nil, err
	}
	if !c.fresh {
		return nil, errAgain
	}
	if err := c.err(d, h.Saw()); err != nil {
		return nil, err
	}
	return nil, session.ErrInternal.WithMessage("session %s: a commit was refused without a reason", commit.SessionID)
}

// holds refuses a commit of a run that is over or whose lease was given back, as
// the guard, which knows of neither, does the others.
func (h *header) holds(commit *session.Commit) error {
	if err := h.hold(commit.Fence); err != nil {
		return err
	}
	if h.runStatus != session.RunRunning {
		return session.ErrStale.WithMessage("session %s: run %s is %s", h.ID, commit.RunID, h.runStatus).WithSaw(h.Saw())
	}
	return nil
}

// conflict turns a refusal by a unique index into the domain's error.
func (s *sessions) conflict(ctx context.Context, err error, id string, d *draft) error {
	switch {
	case isDuplicate(err, "messages_by_id"):
		ids, _, _ := columns(append(d.messages, d.promoted...))
		for _, callID := range d.callIDs {
			ids = append(ids, session.ResultID(callID))
		}
		return s.duplicate(ctx, id, ids)
	case isDuplicate(err, "checkpoints_by_id"):
		return s.sameCheckpoint(ctx, id, d.checkpointID)
	}
	return err
}
