package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// Commit implements [store.Backend]. The statement of the append and that of the
// commit are one transaction, sent in one round trip. Whatever that does not
// settle is done one after the other: a batch whose front the stream already has,
// a refusal by the stream, a change that takes several statements.
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
	err = b.repeat(ctx, what(commit.SessionID, "commit"), func() error { return j.send(ctx) })
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
	draft    *draft
	alone    bool // it failed together with others

	// The results.
	added addition
	made  changed
}

// next returns the producer's number after the batch.
func (j *joint) next() int64 { return j.commit.Batch.First + int64(len(j.chunks)) }

func (j *joint) send(ctx context.Context) error {
	j.added, j.made = addition{}, changed{}
	b, by := j.streams.b, j.commit.Batch.Producer
	spared, number := b.known.spare(j.sessions.tenant, j.commit.Commit, j.draft)
	text, args := j.sessions.changeStatement(spared, guard{
		Commit: j.commit.Commit, batch: &batchGuard{j.commit.Stream, by, j.next()}, number: number,
	}, true)
	parts := []part{
		{b.sql(appendBatch), j.streams.appendArgs(j.commit.Stream, by, j.commit.Batch.First, j.chunks), j.added.scan(j.commit.Stream, by.Session)},
		{text, args, j.made.scan},
	}
	var err error
	if j.alone {
		err = b.send(ctx, parts...)
	} else {
		err = b.lanes.carry(ctx, j.sessions.tenant+"/"+j.commit.Stream+"/"+j.commit.SessionID, parts...)
	}
	if err != nil {
		j.alone = j.alone || errors.Is(err, errAlone)
		return err
	}
	if j.added.last != nil {
		b.changed(j.streams.key(j.commit.Stream))
	}
	return nil
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
