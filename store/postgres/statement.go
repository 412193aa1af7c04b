package postgres

import (
	"strconv"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// A commit is one statement, composed of the parts that its change needs. It
// updates the session's row if that matches what the commit expects, and then
// writes everything else; otherwise it returns the row's actual contents, so that
// the caller learns them in the same round trip.
//
// While a statement waits for the row, others may change what it reads: it decides
// on the current row, but sees other tables as they were when it began. What
// protects each fact that a commit relies on:
//
//   - version, lease, run, status, counts, the stop request, waiting messages: they
//     are columns of the row, and conditions on it are tested on its latest state;
//   - ids of messages and checkpoints: unique indexes, which ignore snapshots;
//   - keys of custom state: only a new version changes them, and whoever states the
//     version has it from the store, so the statement began after it was reached. What
//     this process knows of them from its last commit is true of the same version;
//   - waits, ownership of calls, settled calls, inbox entries, child references: whoever
//     else changes them raises the row's counter "touched". The statement compares it
//     with its value when the statement began. If it differs, the statement writes
//     nothing and is repeated in a transaction of two statements, of which the first
//     takes the lock: the second then sees the current rows.
//
// A refused commit gets the row from a function that reads it again: the statement
// itself would see it as it was when it began.
type statement struct {
	shape shape
	text  *strings.Builder // nil if the text is already known
	args  []any

	tenant, id  string // placeholders that most parts need
	now, clock  string // the store's time: when the statement began, and as it runs
	run, source string
	// sets and wheres are the assignments and conditions of the update of the
	// session's row; the others return what prevented it.
	sets, wheres                         []string
	fresh, answered, unsettled, unlisted string
	doubtful                             bool // whether any of these can occur
}

// guard has the conditions of a change's statement: a commit's own guards, a batch
// of chunks that must be in its stream or is added to it, the session's number. Each
// may be missing.
type guard struct {
	*session.Commit
	batch  *batchGuard
	chunks *chunksPart
	number int64
}

// shape is everything that a statement's text depends on, so that each text is
// built only once.
type shape struct {
	commit, joint, chunks, numbered, raise, status, steps, promote, renewed, writes, deleted, appended bool
	waits, disown, consume, wake, checkpoint, reason, outcome, output, expires                         bool
	messages, promoted, keys, calls, pending, resolve, own, children, tasks                            rowCount
	usage                                                                                              usageMask
}

// single reports whether a change appends exactly one message.
func (s *shape) single() bool { return s.messages == 1 && s.promoted == 0 }

// rowCount is a number of rows, as far as a text depends on it: a few are written
// out, more are unnested from arrays.
type rowCount uint8

// maxSpelled is how many rows are written out: as many as most steps have.
const maxSpelled = 4

func countOf(n int) rowCount { return rowCount(min(n, maxSpelled+1)) }

// shapeOf returns the shape of a change's statement.
func shapeOf(d *draft, on guard, raise bool) shape {
	commit := on.Commit != nil
	out := shape{
		commit: commit, joint: on.batch != nil, chunks: on.chunks != nil, numbered: on.number != 0, raise: raise, status: d.Status != "", steps: d.StepCount != nil && commit,
		promote: d.Promote != nil, renewed: len(d.renewed) > 0,
		writes: d.writes != nil, deleted: len(d.deleted) > 0, appended: len(d.appended) > 0,
		waits: len(d.Waits) > 0, disown: len(d.disowned) > 0, consume: len(d.Consume) > 0, wake: d.Wake != nil,
		checkpoint: d.Checkpoint != nil, outcome: d.Outcome != nil, expires: d.ExpiresAt != nil,
		messages: countOf(len(d.messages)), promoted: countOf(len(d.promoted)), keys: countOf(len(d.keys)), calls: countOf(len(d.calls)),
		pending: countOf(len(d.pending)), resolve: countOf(len(d.resolve)), own: countOf(len(d.owned)), children: countOf(len(d.children)), tasks: countOf(len(d.Tasks)),
	}
	if d.Run != nil {
		out.reason, out.usage = d.Run.CompletionReason != "", maskOf(&d.Run.Usage)
	}
	if o := d.Outcome; o != nil { // as in State.Finish
		out.output = o.Status == session.RunCompleted || o.Status == session.RunFailed
	}
	return out
}

// add appends to the text, unless it is already known.
func (q *statement) add(parts ...string) { q.write(q.text, parts...) }

// write appends to a part of the text, unless the text is already known.
func (q *statement) write(to *strings.Builder, parts ...string) {
	if q.text == nil {
		return
	}
	for _, part := range parts {
		to.WriteString(part)
	}
}

// arg adds a parameter and returns its placeholder.
func (q *statement) arg(v any) string {
	q.args = append(q.args, v)
	if q.text == nil {
		return ""
	}
	return "$" + strconv.Itoa(len(q.args))
}

func (q *statement) set(parts ...string) {
	if q.text != nil {
		q.sets = append(q.sets, strings.Join(parts, ""))
	}
}

func (q *statement) where(parts ...string) {
	if q.text != nil {
		q.wheres = append(q.wheres, strings.Join(parts, ""))
	}
}

// column is a column of the rows that are passed to a statement: as an array, or
// value by value.
type column struct {
	name, kind string
	values     interface {
		array() any
		value(i int) any
	}
}

func col[T any](name, kind string, values []T) column { return column{name, kind, cells[T](values)} }

// cells are the values of a column.
type cells[T any] []T

func (c cells[T]) array() any      { return []T(c) }
func (c cells[T]) value(i int) any { return c[i] }

// rows returns rows as a table with their number in a column n. A few rows, which
// is what most changes have, are written out, because unnesting arrays takes time.
func (q *statement) rows(alias string, n rowCount, columns ...column) string {
	var table strings.Builder
	if n > maxSpelled {
		for i, c := range columns {
			place := q.arg(c.values.array())
			q.write(&table, pick(i == 0, "unnest(", ", "), place, "::", c.kind, "[]")
		}
		q.write(&table, ") WITH ORDINALITY ")
	} else {
		for row := range int(n) {
			q.write(&table, pick(row == 0, "(VALUES (", "), ("))
			for _, c := range columns {
				q.write(&table, q.arg(c.values.value(row)), "::", c.kind, ", ")
			}
			q.write(&table, strconv.Itoa(row+1))
		}
		q.write(&table, ")) ")
	}
	q.write(&table, alias, "(")
	for _, c := range columns {
		q.write(&table, c.name, ", ")
	}
	q.write(&table, "n)")
	return table.String()
}

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// changeStatement returns the statement of a change: of a commit, with its guards,
// or of a run that starts, whose transaction already has the lock.
func (s *sessions) changeStatement(d *draft, on guard, raise bool) (text string, args []any) {
	q := newStatement(d, on, raise)
	known, ok := s.b.texts.Load(q.shape)
	if ok {
		q.text = nil
	}
	s.build(q, d, on)
	if ok {
		return known.(string), q.args
	}
	text = s.b.sql(q.text.String())
	s.b.texts.Store(q.shape, text)
	return text, q.args
}

func newStatement(d *draft, on guard, raise bool) *statement {
	return &statement{shape: shapeOf(d, on, raise), text: &strings.Builder{}, args: make([]any, 0, 32)}
}

// build builds a statement, or only its parameters if the text is known. It may
// depend only on the statement's shape.
func (s *sessions) build(q *statement, d *draft, on guard) {
	q.tenant, q.id, q.run = q.arg(s.tenant), q.arg(d.sessionID), q.arg(d.runID)
	if now := q.arg(s.b.clock()); q.text != nil {
		q.now = "coalesce(" + now + "::timestamptz, statement_timestamp())"
		q.clock = "coalesce(" + now + "::timestamptz, clock_timestamp())"
	}
	q.add("WITH ")
	from := ""
	if q.shape.chunks {
		on.chunks.add(q)
		from = "\n    FROM streamed"
	}
	q.where("s.tenant = ", q.tenant, " AND s.id = ", q.id)
	q.fresh, q.answered, q.unsettled, q.unlisted = "true", "NULL::text[]", "NULL::text[]", "NULL::bytea"
	s.doubts(q, d)
	s.guards(q, d, on)
	s.rowChanges(q, d)
	q.add("ok AS (\n    UPDATE helix.sessions s SET ", strings.Join(q.sets, ", "), from, "\n    WHERE ", strings.Join(q.wheres, " AND "), `
    RETURNING s.number, s.version, s.message_count, s.checkpoint_id, s.checkpoint_number, s.inbox_waiting, s.snapshot_bytes, s.delta_bytes,
              s.status, s.turn, s.stop_kind, s.stop_reason, s.stop_at`)
	if q.shape.outcome {
		q.add(", s.run_steps, s.run_usage, s.run_reason")
	}
	q.add("\n)")
	s.insertParts(q, d)
	q.answer()
}

// answer adds the result of the statement: the updated row, or the current row
// and, if other tables may have prevented the change, what they contain.
func (q *statement) answer() {
	const became = `
SELECT ok.number, ok.version, ok.message_count, ok.checkpoint_id, ok.inbox_waiting, ok.snapshot_bytes, ok.delta_bytes,
       ok.stop_kind, ok.stop_reason, ok.stop_at, `
	last := "" // the sequence that the batch ends at, and the stream's number; NULL if nothing was written
	if q.shape.chunks {
		last = ", (SELECT last_sequence FROM streamed), (SELECT number FROM streamed)"
	}
	if !q.doubtful {
		q.add(became, `CASE WHEN ok.number IS NULL THEN helix.session_row(`, q.tenant, `, `, q.id, `) END, NULL::json`, last, `
FROM (SELECT) once LEFT JOIN ok ON true`)
		return
	}
	q.add(became, `NULL::json, NULL::json`, last, `
FROM ok
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, row_to_json(cur),
       json_build_object('fresh', `, q.fresh, `, 'answered', `, q.answered, `, 'unsettled', `, q.unsettled, `, 'unlisted', encode(`, q.unlisted, `, 'base64'))`, last, `
FROM helix.session_now(`, q.tenant, `, `, q.id, `) cur
WHERE NOT EXISTS (SELECT FROM ok)`)
}

// doubts adds what may prevent a change, and what reports it afterwards. Rows that
// processes other than the holder of the lease may write are only trusted if they
// have not changed since the statement began.
func (s *sessions) doubts(q *statement, d *draft) {
	if q.shape.waits || d.fromRows || q.shape.children > 0 || q.shape.consume {
		q.fresh = "touched = (SELECT touched FROM helix.sessions WHERE tenant = " + q.tenant + " AND id = " + q.id + ")"
		q.where("s.", q.fresh)
		q.fresh, q.doubtful = "cur."+q.fresh, true
	}
	if q.shape.waits {
		named := "call_id = ANY (" + q.arg(d.Waits) + "::text[])"
		pending := " FROM helix.pending WHERE " + named + " AND state <> 'waiting' AND session = "
		owned := " FROM helix.ownership WHERE " + named + " AND completed_at IS NOT NULL AND session = "
		q.where("NOT EXISTS (SELECT", pending, "s.number) AND NOT EXISTS (SELECT", owned, "s.number)")
		q.answered = "(SELECT array_agg(call_id) FROM (SELECT call_id" + pending + "cur.number UNION SELECT call_id" + owned + "cur.number) a)"
	}
	if q.shape.promoted > 0 {
		ids, calls, bodies := columns(d.promoted)
		q.add(`promoted AS MATERIALIZED (
    SELECT p.n, p.call_id, coalesce(c.result_id, p.id) AS id, p.calls, coalesce(p.body, c.result) AS body
    FROM `, q.rows("p", q.shape.promoted, col("call_id", "text", d.callIDs), col("id", "text", ids), col("calls", "bytea", calls), col("body", "bytea", bodies)), `
    LEFT JOIN helix.calls c
      ON p.body IS NULL AND c.session = (SELECT number FROM helix.sessions WHERE tenant = `, q.tenant, ` AND id = `, q.id, `)
     AND c.message_id = `, q.arg(d.Promote.MessageID), ` AND c.call_id = p.call_id AND c.status = 'settled'
),
`)
		q.where("NOT EXISTS (SELECT FROM promoted WHERE body IS NULL)")
		q.unsettled = "(SELECT array_agg(call_id ORDER BY n) FROM promoted WHERE body IS NULL)"
	}
	if q.shape.appended {
		from := " FROM helix.state_keys k WHERE k.digest = ANY (" + q.arg(digests(d.appended)) + "::bytea[]) AND NOT k.is_list AND k.session = "
		q.where("NOT EXISTS (SELECT", from, "s.number)")
		q.unlisted, q.doubtful = "(SELECT k.digest"+from+"cur.number LIMIT 1)", true
	}
}

// guards adds the conditions of a commit: on the session's row, those of
// [session.Commit.Guard] and that the run has not ended; and that its batch is in
// the stream.
func (s *sessions) guards(q *statement, d *draft, on guard) {
	c := on.Commit
	if !q.shape.commit {
		q.where(q.run, "::text IS NOT NULL") // every parameter must be used
		return
	}
	if q.shape.numbered {
		q.where("s.number = ", q.arg(on.number))
	}
	if q.shape.joint {
		on.batch.add(q)
	}
	q.where("s.version = ", q.arg(c.Version), " AND s.owner = ", q.arg(c.Fence.Owner), " AND s.owner <> '' AND s.epoch = ", q.arg(c.Fence.Epoch),
		" AND s.current_run = ", q.run, " AND s.run_status = 'running'")
	key := q.arg(c.Key)
	q.set("last_commit = ", key)
	q.where("(s.last_commit <> ", key, " OR ", key, " = '')")
	if q.shape.status {
		q.where("s.status = ANY (", q.arg(statusesBefore(d.Status)), "::text[])")
	}
}

// rowChanges adds what a change does to the session's own row. The stop request of
// a run that ends stays in the row, to be returned again, but has no further
// effect.
func (s *sessions) rowChanges(q *statement, d *draft) {
	q.set("updated_at = ", q.now)
	if q.shape.raise {
		q.set("version = s.version + 1")
	}
	switch {
	case q.shape.single():
		q.set("message_count = s.message_count + 1")
	case q.shape.messages > 0 || q.shape.promoted > 0:
		q.set("message_count = s.message_count + ", q.arg(len(d.messages)+len(d.promoted)))
	}
	if q.shape.status {
		q.set("status = ", q.arg(string(d.Status)))
	}
	if q.shape.expires {
		q.set("expires_at = ", q.arg(when(*d.ExpiresAt)), "::timestamptz")
	}
	if q.shape.steps {
		n := q.arg(*d.StepCount)
		q.set("step_count = ", n, ", run_steps = ", n)
	}
	if q.shape.writes {
		q.set("delta_bytes = s.delta_bytes + ", q.arg(len(d.writes)))
	}
	if q.shape.checkpoint {
		q.source = q.arg(string(sourceOf(d.Checkpoint)))
		q.set("checkpoint_id = ", q.arg(d.checkpointID), ", checkpoint_number = s.checkpoint_number + 1, checkpoint_source = ", q.source,
			", checkpointed_at = ", q.now)
	}
	if q.shape.consume {
		q.set("inbox_waiting = s.inbox_waiting - (SELECT count(*) FROM helix.inbox i",
			" WHERE i.session = s.number AND i.entry_id = ANY (", q.arg(d.Consume), "::text[]) AND NOT i.consumed)")
	}
	if q.shape.reason {
		q.set("run_reason = ", q.arg(string(d.Run.CompletionReason)))
	}
	if q.shape.usage != 0 { // the counts of a run are all set at its start
		for i, n := range stored.Usage(&d.Run.Usage) {
			if q.shape.usage.has(i) {
				at := strconv.Itoa(i + 1)
				q.set("run_usage[", at, "] = s.run_usage[", at, "] + ", q.arg(*n))
			}
		}
	}
	if q.shape.outcome {
		q.set("run_status = ", q.arg(string(d.Outcome.Status)), ", close_owed_at = ", q.now)
	}
}

// statusesBefore lists the statuses that may change to one.
func statusesBefore(to session.Status) (out []string) {
	for _, from := range session.Statuses() {
		if from.CanBecome(to) {
			out = append(out, string(from))
		}
	}
	return out
}

// usageMask says which counts of a usage are set; the others are not updated,
// because each costs the server time.
type usageMask uint8

func maskOf(u *session.Usage) (mask usageMask) {
	for i, n := range stored.Usage(u) {
		if *n != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

func (m usageMask) has(i int) bool { return m&(1<<i) != 0 }

// insertParts adds the rows that a change writes beside the session's own.
func (s *sessions) insertParts(q *statement, d *draft) {
	s.messageParts(q, d)
	s.stateParts(q, d)
	s.callParts(q, d)
	s.pendingParts(q, d)
	s.treeParts(q, d)
	s.taskParts(q, d)
	if q.shape.checkpoint {
		q.add(`,
pointed AS (
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    SELECT ok.number, ok.checkpoint_number, ok.checkpoint_id, `, q.run, `, ok.turn, `, q.arg(d.Checkpoint.Step), `, ok.status, `, q.source,
			`, ok.version, ok.message_count, `, q.arg(d.Checkpoint.StreamSequence), `, `, q.now, `
    FROM ok
)`)
	}
	s.outcomeParts(q, d)
}

func (s *sessions) messageParts(q *statement, d *draft) {
	if q.shape.messages == 0 && q.shape.promoted == 0 {
		return
	}
	q.add(`,
said AS (
    INSERT INTO helix.messages (session, number, message_id, calls, body)`)
	if q.shape.single() {
		q.add(`
    SELECT ok.number, ok.message_count, `, q.arg(d.messages[0].ID), `, `, q.arg(d.messages[0].Calls), `, `, q.arg(d.messages[0].Body), ` FROM ok
)`)
		return
	}
	if q.shape.messages > 0 {
		ids, calls, bodies := columns(d.messages)
		q.add(`
    SELECT ok.number, ok.message_count - `, q.arg(len(d.messages)+len(d.promoted)), `::integer + m.n, m.id, m.calls, m.body
    FROM ok, `, q.rows("m", q.shape.messages, col("id", "text", ids), col("calls", "bytea", calls), col("body", "bytea", bodies)))
	}
	if q.shape.messages > 0 && q.shape.promoted > 0 {
		q.add(" UNION ALL")
	}
	if q.shape.promoted > 0 {
		q.add(`
    SELECT ok.number, ok.message_count - `, q.arg(len(d.promoted)), `::integer + m.n, m.id, m.calls, m.body
    FROM ok, promoted m`)
	}
	q.add("\n)")
}

func (s *sessions) stateParts(q *statement, d *draft) {
	if q.shape.writes {
		q.add(`,
logged AS (
    INSERT INTO helix.state_log (session, version, body) SELECT ok.number, ok.version, `, q.arg(d.writes), ` FROM ok
)`)
	}
	if q.shape.keys > 0 {
		// An unchanged key is skipped: updating it would cost as much as adding one.
		q.add(`,
keyed AS (
    INSERT INTO helix.state_keys (session, digest, is_list)
    SELECT ok.number, k.digest, k.is_list
    FROM ok, `, q.rows("k", q.shape.keys, col("digest", "bytea", digests(d.keys)), col("is_list", "boolean", d.lists)), `
    WHERE (SELECT x.is_list FROM helix.state_keys x WHERE x.session = ok.number AND x.digest = k.digest) IS DISTINCT FROM k.is_list
    ON CONFLICT (session, digest) DO UPDATE SET is_list = excluded.is_list
)`)
	}
	if q.shape.deleted {
		q.add(`,
unkeyed AS (
    DELETE FROM helix.state_keys k USING ok WHERE k.session = ok.number AND k.digest = ANY (`, q.arg(digests(d.deleted)), `::bytea[])
)`)
	}
}

// outcomeParts ends the run.
func (s *sessions) outcomeParts(q *statement, d *draft) {
	if !q.shape.outcome {
		return
	}
	q.add(`,
ended AS (
    UPDATE helix.runs r
    SET status = `, q.arg(string(d.Outcome.Status)), `, ended_at = `, q.now, `, step_count = ok.run_steps, reason = ok.run_reason, usage = ok.run_usage,
        outcome = `, q.arg(d.outcome), `, output = `, q.arg(d.output), `
    FROM ok
    WHERE r.session = ok.number AND r.turn = ok.turn
),
told AS (
    UPDATE helix.session_docs d SET ending = `, q.arg(d.ending), `, suspended_step = `, q.arg(d.Outcome.SuspendedStep))
	if q.shape.output {
		q.add(", output = ", q.arg(d.output))
	}
	q.add(`
    FROM ok
    WHERE d.session = ok.number
)`)
}

func sourceOf(c *session.NewCheckpoint) session.CheckpointSource {
	if c.Source == "" {
		return session.FromSave
	}
	return c.Source
}
