package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// A commit is one statement, made of the parts that its change has. It locks the
// session's row, decides, and writes everything or nothing; it always tells what
// the row held, so that whoever is refused learns it in the same round trip.
//
// While a statement waits for the lock, others may change what it reads: it sees
// the locked row as it is then, but other tables as they were when it began. What
// protects each fact that a commit relies on:
//
//   - version, lease, run, status, counts, the stop request, waiting messages: they
//     are columns of the locked row;
//   - ids of messages and checkpoints: unique indexes, which know no snapshot;
//   - waits, settled calls, keys of custom state, inbox entries, child references:
//     whoever changes them raises the row's version or its count "touched". The
//     statement reads both twice, under the lock and as of its beginning. If they
//     differ it writes nothing, and is made again by a transaction of two statements,
//     of which the first takes the lock: the second then sees what there is.
type statement struct {
	text strings.Builder
	args []any
}

// arg adds a parameter and gives its place.
func (q *statement) arg(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d", len(q.args))
}

// part adds a common table expression.
func (q *statement) part(name, format string, args ...any) {
	fmt.Fprintf(&q.text, ",\n%s AS (%s)", name, fmt.Sprintf(format, args...))
}

// changeStatement is the statement that makes a change: of a commit, with its
// guards, or of a run that starts, whose transaction holds the lock already.
func (s *sessions) changeStatement(d *draft, c *session.Commit, raise bool) *statement {
	q := &statement{}
	tenant, id := q.arg(s.tenant), q.arg(d.sessionID)
	fmt.Fprintf(&q.text, `
WITH cur AS MATERIALIZED (
    SELECT number, tenant, id, version, touched, message_count, last_commit, checkpoint_id, inbox_waiting, stop_kind, stop_reason, stop_at,
           status, owner, epoch, current_run, run_status, coalesce(%s::timestamptz, clock_timestamp()) AS now
    FROM helix.sessions
    WHERE tenant = %s AND id = %s
    FOR NO KEY UPDATE
)`, q.arg(s.b.clock()), tenant, id)
	sets, wheres := []string{"updated_at = cur.now"}, []string{"s.number = cur.number"}
	set := func(format string, args ...any) { sets = append(sets, fmt.Sprintf(format, args...)) }
	where := func(format string, args ...any) { wheres = append(wheres, fmt.Sprintf(format, args...)) }
	if raise {
		set("version = s.version + 1")
	}
	if c != nil {
		set("last_commit = %s", q.arg(c.Key))
		where("cur.version = %s AND cur.owner = %s AND cur.epoch = %s AND cur.current_run = %s AND cur.run_status = 'running'",
			q.arg(c.Version), q.arg(c.Fence.Owner), q.arg(c.Fence.Epoch), q.arg(c.RunID))
		if c.Key != "" {
			where("cur.last_commit <> %s", q.arg(c.Key))
		}
	}
	from, fresh := "cur", "true"
	answered, unsettled, unlisted := s.doubts(q, d, where)
	if c != nil && d.looksElsewhere() {
		fmt.Fprintf(&q.text, `,
seen AS MATERIALIZED (SELECT version, touched FROM helix.sessions WHERE tenant = %s AND id = %s)`, tenant, id)
		from, fresh = "cur, seen", "(SELECT seen.version = cur.version AND seen.touched = cur.touched FROM seen)"
		where("seen.version = cur.version AND seen.touched = cur.touched")
	}
	s.rowChanges(q, d, c, set, where)
	fmt.Fprintf(&q.text, `,
ok AS (
    UPDATE helix.sessions s SET %s
    FROM %s
    WHERE %s
    RETURNING s.number, s.tenant, s.id, s.version, s.message_count, s.checkpoint_id, s.checkpoint_number, s.inbox_waiting,
              s.snapshot_bytes, s.delta_bytes, s.status, s.turn, s.run_steps, s.run_usage, s.run_reason, cur.now
)`, strings.Join(sets, ", "), from, strings.Join(wheres, " AND "))
	s.insertParts(q, d)
	fmt.Fprintf(&q.text, `
SELECT cur.number, cur.version, cur.message_count, cur.last_commit, cur.checkpoint_id, cur.inbox_waiting,
       cur.stop_kind, cur.stop_reason, cur.stop_at, cur.status, cur.owner, cur.epoch, cur.current_run, cur.run_status,
       %s, %s, %s, %s,
       ok.version, ok.message_count, ok.checkpoint_id, ok.inbox_waiting, ok.snapshot_bytes, ok.delta_bytes
FROM cur LEFT JOIN ok ON true`, fresh, answered, unsettled, unlisted)
	return q
}

// looksElsewhere reports whether a change depends on rows of other tables, which
// a statement may see as they no longer are.
func (d *draft) looksElsewhere() bool {
	return len(d.Waits) > 0 || d.fromRows || d.writes != nil || len(d.Children) > 0 || len(d.Consume) > 0
}

// doubts adds what may keep a change from being made, and gives the expressions
// that tell of it.
func (s *sessions) doubts(q *statement, d *draft, where func(string, ...any)) (answered, unsettled, unlisted string) {
	answered, unsettled, unlisted = "NULL::text[]", "NULL::text[]", "NULL::bytea"
	if len(d.Waits) > 0 {
		q.part("answered", `
    SELECT p.call_id FROM cur JOIN helix.pending p ON p.session = cur.number AND p.call_id = ANY (%s::text[]) AND p.state <> 'waiting'
`, q.arg(d.Waits))
		where("NOT EXISTS (SELECT FROM answered)")
		answered = "(SELECT array_agg(call_id) FROM answered)"
	}
	if d.fromRows {
		ids, calls, bodies := columns(d.promoted)
		q.part("promoted", `
    SELECT p.n, p.call_id, coalesce(c.result_id, p.id) AS id, p.calls, coalesce(p.body, c.result) AS body
    FROM cur
    CROSS JOIN unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[]) WITH ORDINALITY p(call_id, id, calls, body, n)
    LEFT JOIN helix.calls c
      ON p.body IS NULL AND c.session = cur.number AND c.message_id = %s AND c.call_id = p.call_id AND c.status = 'settled'
`, q.arg(d.callIDs), q.arg(ids), q.arg(calls), q.arg(bodies), q.arg(d.Promote.MessageID))
		where("NOT EXISTS (SELECT FROM promoted WHERE body IS NULL)")
		unsettled = "(SELECT array_agg(call_id ORDER BY n) FROM promoted WHERE body IS NULL)"
	}
	if len(d.appended) > 0 {
		q.part("unlisted", `
    SELECT k.digest FROM cur JOIN helix.state_keys k ON k.session = cur.number AND k.digest = ANY (%s::bytea[]) AND NOT k.is_list
`, q.arg(digests(d.appended)))
		where("NOT EXISTS (SELECT FROM unlisted)")
		unlisted = "(SELECT digest FROM unlisted LIMIT 1)"
	}
	return answered, unsettled, unlisted
}

// rowChanges adds what a change does to the session's own row.
func (s *sessions) rowChanges(q *statement, d *draft, c *session.Commit, set, where func(string, ...any)) {
	if n := len(d.messages) + len(d.promoted); n > 0 {
		set("message_count = s.message_count + %s", q.arg(n))
	}
	if d.Status != "" {
		set("status = %s", q.arg(string(d.Status)))
		if c != nil {
			where("cur.status = ANY (%s::text[])", q.arg(befores(d.Status)))
		}
	}
	if d.StepCount != nil && c != nil {
		n := q.arg(*d.StepCount)
		set("step_count = %s, run_steps = %s", n, n)
	}
	if d.writes != nil {
		set("delta_bytes = s.delta_bytes + %s", q.arg(len(d.writes)))
	}
	if point := d.Checkpoint; point != nil {
		set("checkpoint_id = %s, checkpoint_number = s.checkpoint_number + 1, checkpoint_source = %s, checkpointed_at = cur.now",
			q.arg(d.checkpointID), q.arg(string(sourceOf(point))))
	}
	if len(d.Consume) > 0 {
		set("inbox_waiting = s.inbox_waiting - (SELECT count(*) FROM helix.inbox i"+
			" WHERE i.session = s.number AND i.entry_id = ANY (%s::text[]) AND NOT i.consumed)", q.arg(d.Consume))
	}
	if run := d.Run; run != nil {
		if run.CompletionReason != "" {
			set("run_reason = %s", q.arg(string(run.CompletionReason)))
		}
		if run.Usage != (session.Usage{}) {
			set("run_usage = %s", sumOfUsage(q.arg(usageArray(run.Usage))))
		}
	}
	if d.Outcome != nil {
		set("run_status = %s, close_owed_at = cur.now, stop_kind = '', stop_reason = '', stop_at = NULL", q.arg(string(d.Outcome.Status)))
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
func (s *sessions) insertParts(q *statement, d *draft) {
	s.messageParts(q, d)
	s.stateParts(q, d)
	s.callParts(q, d)
	s.pendingParts(q, d)
	s.treeParts(q, d)
	if d.Checkpoint != nil {
		q.part("pointed", `
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    SELECT ok.number, ok.checkpoint_number, ok.checkpoint_id, %s, ok.turn, %s, ok.status, %s, ok.version, ok.message_count, %s, ok.now
    FROM ok
`, q.arg(d.runID), q.arg(d.Checkpoint.Step), q.arg(string(sourceOf(d.Checkpoint))), q.arg(d.Checkpoint.StreamSequence))
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
		selects = append(selects, fmt.Sprintf(`
    SELECT ok.number, ok.message_count - %s + m.n, m.id, m.calls, m.body
    FROM ok, unnest(%s::text[], %s::bytea[], %s::bytea[]) WITH ORDINALITY m(id, calls, body, n)`,
			q.arg(total), q.arg(ids), q.arg(calls), q.arg(bodies)))
	}
	if len(d.promoted) > 0 {
		selects = append(selects, fmt.Sprintf(`
    SELECT ok.number, ok.message_count - %s + m.n, m.id, m.calls, m.body
    FROM ok, promoted m`, q.arg(len(d.promoted))))
	}
	q.part("said", `
    INSERT INTO helix.messages (session, number, message_id, calls, body)%s
`, strings.Join(selects, " UNION ALL "))
}

func (s *sessions) stateParts(q *statement, d *draft) {
	if d.writes == nil {
		return
	}
	q.part("logged", `
    INSERT INTO helix.state_log (session, version, body) SELECT ok.number, ok.version, %s FROM ok
`, q.arg(d.writes))
	if len(d.keys) > 0 {
		// A key that is as it was is left alone: updating it would cost as much as adding
		// one.
		q.part("keyed", `
    INSERT INTO helix.state_keys (session, digest, is_list)
    SELECT ok.number, k.digest, k.is_list
    FROM ok, unnest(%s::bytea[], %s::boolean[]) k(digest, is_list)
    WHERE (SELECT x.is_list FROM helix.state_keys x WHERE x.session = ok.number AND x.digest = k.digest) IS DISTINCT FROM k.is_list
    ON CONFLICT (session, digest) DO UPDATE SET is_list = excluded.is_list
`, q.arg(digests(d.keys)), q.arg(d.lists))
	}
	if len(d.deleted) > 0 {
		q.part("unkeyed", `
    DELETE FROM helix.state_keys k USING ok WHERE k.session = ok.number AND k.digest = ANY (%s::bytea[])
`, q.arg(digests(d.deleted)))
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
    SET status = %s, ended_at = ok.now, step_count = ok.run_steps, reason = ok.run_reason, usage = ok.run_usage, outcome = %s, output = %s
    FROM ok
    WHERE r.session = ok.number AND r.turn = ok.turn
`, q.arg(string(o.Status)), q.arg(d.outcome), q.arg(d.output))
	set := fmt.Sprintf("ending = %s, suspended_step = %s", q.arg(d.ending), q.arg(o.SuspendedStep))
	if o.Status == session.RunCompleted || o.Status == session.RunFailed { // as State.Finish has it
		set += ", output = " + q.arg(d.output)
	}
	q.part("told", `
    UPDATE helix.session_docs d SET %s FROM ok WHERE d.session = ok.number
`, set)
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
	was   header // as far as guards and refusals need it
	fresh bool   // whether the statement saw other tables as they were when it had the lock
	refusal
	ok                        bool // whether the change was made: then it is as follows
	version                   int64
	messageCount              int
	checkpointID              string
	inbox                     int
	snapshotBytes, deltaBytes int64
}

func (c *changed) scan(rows pgx.Rows) error {
	h := &c.was
	var (
		stopKind, stopReason, status, runStatus string
		stopAt                                  time.Time
		version, snapshotBytes, deltaBytes      *int64
		messageCount, inbox                     *int
		checkpointID                            *string
	)
	var fresh *bool // unset if the session was not there when the statement began
	c.found = true
	err := rows.Scan(&h.number, &h.Version, &h.MessageCount, &h.LastCommit, &h.CheckpointID, &h.inbox,
		&stopKind, &stopReason, instant{&stopAt}, &status, &h.Lease.Owner, &h.Lease.Epoch, &h.CurrentRunID, &runStatus,
		&fresh, &c.answered, &c.unsettled, &c.unlisted,
		&version, &messageCount, &checkpointID, &inbox, &snapshotBytes, &deltaBytes)
	if err != nil {
		return err
	}
	c.fresh = fresh != nil && *fresh
	h.Status, h.runStatus = session.Status(status), session.RunStatus(runStatus)
	if stopKind != "" {
		h.stop = &session.Stop{RunID: h.CurrentRunID, Kind: session.StopKind(stopKind), Reason: stopReason, At: stopAt}
	}
	if c.ok = version != nil; c.ok {
		c.version, c.messageCount, c.checkpointID, c.inbox = *version, *messageCount, *checkpointID, *inbox
		c.snapshotBytes, c.deltaBytes = *snapshotBytes, *deltaBytes
	}
	return nil
}

// committed is the outcome of a change that was made. A request to stop that it
// has consumed is told, too.
func (c *changed) committed(d *draft) *session.Committed {
	out := &session.Committed{
		Version: c.version, MessageCount: c.messageCount, CheckpointID: c.checkpointID, Inbox: c.inbox > 0, Warnings: d.warnings,
	}
	if c.was.stop != nil {
		out.Stop = new(*c.was.stop)
	}
	return out
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
		s.b.snapshots.consider(c.was.number, s.tenant, commit.SessionID, c.snapshotBytes, c.deltaBytes)
		return c.committed(d), nil
	}
	h := &c.was
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
