package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// Commit implements [store.Backend]. Chunks and commit are one statement if the
// producer of the chunks was the last to write to the stream, which is the case for
// all steps of a turn but its first, unless sub-agents write to the same stream.
// Otherwise the statement of the append and that of the commit are one transaction,
// sent in one round trip. Whatever that does not settle is done one after the other:
// a batch whose front the stream already has, a refusal by the stream, a change that
// takes several statements.
//
// The stream's row is locked before the session's; every operation that locks both
// does so in this order.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	tenant := cmp.Or(commit.Tenant, session.DefaultTenant)
	j := &joint{commit: commit, streams: &streams{b, tenant}, sessions: &sessions{b, tenant}}
	var err error
	if j.chunks, err = stored.EncodeBatch(commit.Stream, &commit.Batch, b.config.MaxChunk); err != nil {
		return nil, 0, err
	}
	if j.draft, err = draftOf(commit.Commit); err != nil {
		return nil, 0, err
	}
	if len(j.chunks) == 0 || j.draft.rewinds() {
		return store.AppendThenCommit(ctx, b, commit)
	}
	j.batch = stored.Join(j.chunks)
	err = b.repeat(ctx, what(commit.SessionID, "commit"), func(ctx context.Context) error { return j.send(ctx) })
	if err := j.sessions.conflict(ctx, err, commit.SessionID, j.draft); err != nil {
		return nil, 0, err
	}
	return j.settle(ctx)
}

// joint is a batch and a commit that are written together.
type joint struct {
	commit   *store.Commit
	streams  *streams
	sessions *sessions
	chunks   []stored.Chunk
	batch    stored.Batch // of chunks
	draft    *draft
	alone    bool // it failed together with others

	// The results.
	added addition
	made  changed
}

// next returns the producer's number after the batch.
func (j *joint) next() int64 { return j.commit.Batch.First + int64(len(j.chunks)) }

func (j *joint) send(ctx context.Context) error {
	b, by := j.streams.b, j.commit.Batch.Producer
	key := j.streams.key(j.commit.Stream)
	if b.writers.last(key) == by.Session {
		if err := j.sendAsOne(ctx); err != nil || j.added.last != nil {
			return err
		}
		b.writers.forget(key)
	}
	return j.sendInTurn(ctx)
}

// sendAsOne sends one statement that adds the batch and makes the change. If the
// batch does not continue what its producer has written last, the statement writes
// nothing.
func (j *joint) sendAsOne(ctx context.Context) error {
	j.added, j.made = addition{}, changed{}
	spared, number := j.streams.b.known.spare(j.sessions.tenant, j.commit.Commit, j.draft)
	text, args := j.sessions.changeStatement(spared, guard{
		Commit: j.commit.Commit, chunks: &chunksPart{j.commit.Stream, j.commit.Batch.Producer, j.commit.Batch.First, j.next(), j.batch}, number: number,
	}, true)
	return j.streams.carry(ctx, &j.alone, j.commit.Stream, j.commit.SessionID, part{query: text, args: args, done: j.tell, row: func(rows pgx.Rows) error {
		r := rawRow{rows: rows, values: rows.RawValues()}
		if r.null(lastColumn) {
			return nil
		}
		last := r.int(lastColumn)
		j.added.last, j.added.number = &last, r.int(lastColumn+1)
		if r.err != nil {
			return r.err
		}
		return j.made.scan(rows)
	}})
}

// sendInTurn sends a statement that adds the batch, and another that makes the
// change if the batch is in the stream.
func (j *joint) sendInTurn(ctx context.Context) error {
	j.added, j.made = addition{}, changed{}
	b, by := j.streams.b, j.commit.Batch.Producer
	spared, number := b.known.spare(j.sessions.tenant, j.commit.Commit, j.draft)
	text, args := j.sessions.changeStatement(spared, guard{
		Commit: j.commit.Commit, batch: &batchGuard{j.commit.Stream, by, j.next()}, number: number,
	}, true)
	return j.streams.carry(ctx, &j.alone, j.commit.Stream, j.commit.SessionID,
		part{
			query: b.sql(appendBatch), args: j.streams.appendArgs(j.commit.Stream, by, j.commit.Batch.First, len(j.chunks), &j.batch),
			row: j.added.scan(j.commit.Stream, by.Session), done: j.tell,
		},
		part{query: text, args: args, row: j.made.scan},
	)
}

// tell tells readers of the batch.
func (j *joint) tell() {
	j.streams.added(j.commit.Stream, j.commit.Batch.Producer, &j.added, &j.batch)
}

// carry sends statements about a stream and a session as one transaction, perhaps
// together with others. If one of the others failed, alone is set: the next attempt is
// sent alone.
func (s *streams) carry(ctx context.Context, alone *bool, id, sessionID string, parts ...part) error {
	if *alone {
		return s.b.send(ctx, parts...)
	}
	err := s.b.lanes.carry(ctx, s.tenant+"/"+id+"/"+sessionID, parts...)
	*alone = errors.Is(err, errAlone)
	return err
}

// settle returns the results of both. A commit that was applied had its batch in
// the stream; a commit that was refused although its batch was added is refused
// for good, unless it was only overtaken.
func (j *joint) settle(ctx context.Context) (*session.Committed, int64, error) {
	added, b := &j.added, j.streams.b
	if added.last == nil && (!j.made.ok || added.h == nil) {
		return store.AppendThenCommit(ctx, b, j.commit)
	}
	var last int64
	if added.last != nil {
		last = *added.last
	} else {
		var err error
		if last, err = j.streams.sequenceOf(ctx, added.h, j.commit.Batch.Producer, j.next()-1); err != nil {
			return nil, 0, err
		}
	}
	committed, err := j.sessions.settleCommit(&j.made, j.commit.Commit, j.draft)
	if errors.Is(err, errAgain) {
		committed, err = j.sessions.Commit(ctx, j.commit.Commit)
	}
	return committed, last, err
}

// batchGuard requires that a batch is in its stream, whose row an earlier
// statement of the transaction has locked: that statement has added it, or it was
// added before as the last batch of the stream's last producer.
type batchGuard struct {
	stream string
	by     stream.Producer
	next   int64
}

// add adds the guard to a statement.
func (g *batchGuard) add(q *statement) {
	q.where("EXISTS (SELECT FROM helix.streams b WHERE b.tenant = ", q.tenant, " AND b.stream_id = ", q.arg(g.stream),
		" AND b.writer = ", q.arg(g.by.Session), " AND b.writer_epoch = ", q.arg(g.by.Epoch), " AND b.writer_next >= ", q.arg(g.next), ")")
}

// chunksPart is a batch that a commit's statement adds.
type chunksPart struct {
	stream      string
	by          stream.Producer
	first, next int64 // the producer's numbers of the first chunk, and after the last
	stored.Batch
}

// lastColumn is the column of the statement's result that has the batch's last
// sequence; the stream's number follows.
const lastColumn = 12

// add adds the batch to a statement. The update of the session joins that of the
// stream, so that the stream's row is locked first, and nothing is written if the
// batch does not continue what its producer was the last to write. All conditions
// are on the stream's own row, so they are tested on its latest state.
func (f *chunksPart) add(q *statement) {
	next, lines, body := q.arg(f.next), q.arg(f.Lines), q.arg(f.Body)
	by, epoch, run := q.arg(f.by.Session), q.arg(f.by.Epoch), q.arg(f.by.RunID)
	id := q.arg(f.stream)
	q.add(`streamed AS (
    UPDATE helix.streams t
    SET revision = t.revision + 1, last_sequence = t.last_sequence + `, lines, `, writer_next = `, next, `, updated_at = `, q.clock, `,
        run_id = CASE WHEN `, run, `::text <> '' AND (t.run_id = '' OR t.writer = t.stream_id) THEN `, run, ` ELSE t.run_id END,
        bytes = t.bytes + length(`, body, `::bytea)
    WHERE t.tenant = `, q.tenant, ` AND t.stream_id = `, id, ` AND t.status = 'active' AND t.writer = `, by, ` AND t.writer_epoch = `, epoch, `
      AND t.writer_next IN (0, `, q.arg(f.first), `::bigint)
    RETURNING t.number, t.last_sequence, t.updated_at
),
chunked AS (
    INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
    SELECT streamed.number, streamed.last_sequence, streamed.last_sequence - `, lines, ` + 1, `, by, `, `, epoch, `, `, next, `, `, q.arg(f.RunID), `, `,
		q.arg(f.Step), `, streamed.updated_at, `, q.arg(f.Pieces), `, `, body, `
    FROM streamed
),
`)
}
