package storetest

import (
	"sync"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func togetherCases() []testCase {
	return []testCase{
		{"both", "a commit with chunks writes both, and returns the sequence of the last chunk", 0, togetherBoth},
		{"repeated", "a repeated commit with chunks reports that it was repeated, and adds no chunk", 0, togetherRepeated},
		{"chunks-there", "a commit whose chunks were written before is applied, and adds none", 0, togetherChunksThere},
		{"stale-commit", "a refused commit does not change the session", 0, togetherStaleCommit},
		{"stale-chunks", "a commit whose chunks have an earlier epoch is not applied", 0, togetherStaleChunks},
		{"closed", "a commit whose stream is closed is not applied", 0, togetherClosed},
		{"missing", "a commit whose stream does not exist is not applied", 0, togetherMissing},
		{"gap", "a commit whose chunks leave a gap is not applied", 0, togetherGap},
		{"too-large", "a commit with a chunk over the limit is not applied", 0, togetherTooLarge},
		{"answered", "a commit with chunks that waits on a call that was answered is refused", 0, togetherAnswered},
		{"other-stream", "a sub-agent commits with chunks of its root's stream", 0, togetherOtherStream},
		{"race", "of concurrent commits with chunks by different owners one is applied, with its chunks", 0, togetherRace},
	}
}

// with returns a turn's next commit together with chunks.
func (r *turn) with(first int64, chunks ...stream.Chunk) *store.Commit {
	return &store.Commit{
		Tenant: r.t.tenant, Commit: r.request(session.Change{Messages: []session.Message{user("", "one")}}), Stream: r.id,
		Batch: stream.Batch{Producer: producer(r.id, r.fence.Epoch), First: first, Chunks: chunks},
	}
}

// streamed returns a session in a run, with its stream open.
func (t *bed) streamed(id string) *turn {
	t.Helper()
	r := t.running(id)
	t.open(id, producer(id, r.fence.Epoch))
	return r
}

// stands requires the contents of a session and its stream.
func (t *bed) stands(r *turn, version int64, chunks ...string) {
	t.Helper()
	equal(t, "version", t.load(r.id).Version, version)
	equal(t, "chunks", t.deltas(r.id, 0), append([]string{}, chunks...))
}

func togetherBoth(t *bed) {
	r := t.streamed("a")
	done, last, err := t.Backend.Commit(t.Context(), r.with(1, text("x"), text("y")))
	t.ok(err, "commit")
	equal(t, "version returned", done.Version, r.version+1)
	equal(t, "message count returned", done.MessageCount, 1)
	equal(t, "sequence returned", last, 2)
	t.stands(r, r.version+1, "x", "y")
}

func togetherRepeated(t *bed) {
	r := t.streamed("a")
	commit := r.with(1, text("x"), text("y"))
	_, _, err := t.Backend.Commit(t.Context(), commit)
	t.ok(err, "commit")
	done, last, err := t.Backend.Commit(t.Context(), commit)
	t.ok(err, "commit again")
	equal(t, "repeated", done.Repeated, true)
	equal(t, "sequence returned", last, 2)
	t.stands(r, r.version+1, "x", "y")
}

func togetherChunksThere(t *bed) {
	r := t.streamed("a")
	t.append("a", producer("a", r.fence.Epoch), 1, text("x"), text("y"))
	_, last, err := t.Backend.Commit(t.Context(), r.with(1, text("x"), text("y")))
	t.ok(err, "commit")
	equal(t, "sequence returned", last, 2)
	t.stands(r, r.version+1, "x", "y")
}

func togetherStaleCommit(t *bed) {
	r := t.streamed("a")
	commit := r.with(1, text("x"))
	commit.Version--
	holds := t.load("a")
	_, _, err := t.Backend.Commit(t.Context(), commit)
	t.conflict(err, session.ErrStale, holds, "a commit of an earlier version")
	equal(t, "version", t.load("a").Version, r.version)
	t.messagesAre("a")
}

func togetherStaleChunks(t *bed) {
	r := t.streamed("a")
	t.open("a", producer("a", r.fence.Epoch+1))
	_, _, err := t.Backend.Commit(t.Context(), r.with(1, text("x")))
	t.refused(err, session.ErrStale, "a commit with chunks of an earlier epoch")
	t.stands(r, r.version)
}

func togetherClosed(t *bed) {
	r := t.streamed("a")
	t.ok(t.streams().End(t.Context(), "a", producer("a", r.fence.Epoch), stream.End{Status: stream.EndCompleted}), "End")
	_, _, err := t.Backend.Commit(t.Context(), r.with(1, text("x")))
	t.refused(err, session.ErrStreamClosed, "a commit with chunks for a closed stream")
	equal(t, "version", t.load("a").Version, r.version)
}

func togetherMissing(t *bed) {
	r := t.running("a")
	_, _, err := t.Backend.Commit(t.Context(), r.with(1, text("x")))
	t.refused(err, session.ErrNotFound, "a commit with chunks for no stream")
	equal(t, "version", t.load("a").Version, r.version)
}

func togetherGap(t *bed) {
	r := t.streamed("a")
	t.append("a", producer("a", r.fence.Epoch), 1, text("x"))
	_, _, err := t.Backend.Commit(t.Context(), r.with(3, text("z")))
	t.refused(err, session.ErrInvalid, "a commit whose chunks leave a gap")
	t.stands(r, r.version, "x")
}

func togetherTooLarge(t *bed) {
	r := t.streamed("a")
	_, _, err := t.Backend.Commit(t.Context(), r.with(1, t.overlong()))
	t.refused(err, session.ErrTooLarge, "a commit with a chunk over the limit")
	t.stands(r, r.version)
}

// overlong returns a chunk over the limit that cannot be split.
func (t *bed) overlong() stream.Chunk {
	chunk := text("")
	chunk.Kind, chunk.Data = stream.Custom, append(append([]byte{'"'}, make([]byte, t.streams().Limits().MaxChunk)...), '"')
	for i := range chunk.Data[1 : len(chunk.Data)-1] {
		chunk.Data[i+1] = 'x'
	}
	return chunk
}

func togetherAnswered(t *bed) {
	r := t.owning("a")
	t.open("a", producer("a", r.fence.Epoch))
	commit := r.with(1, text("x"))
	commit.Waits = []string{"c1", "d1", "p1", "p2"}
	t.unchanged("a", func() {
		_, _, err := t.Backend.Commit(t.Context(), commit)
		t.answered(err, t.load("a"), "a commit with chunks", "d1", "p1")
	})
	commit.Waits = []string{"c1", "p2", "unknown"}
	_, last, err := t.Backend.Commit(t.Context(), commit) // its chunks may already be in the stream
	t.ok(err, "a commit that waits on open calls")
	equal(t, "sequence returned", last, 1)
	t.stands(r, r.version+1, "x")
}

func togetherOtherStream(t *bed) {
	root, child := t.streamed("root"), t.running("child")
	commit := child.with(1, text("x"))
	commit.Stream = "root"
	_, last, err := t.Backend.Commit(t.Context(), commit)
	t.ok(err, "commit")
	equal(t, "sequence returned", last, 1)
	equal(t, "version of the child", t.load("child").Version, child.version+1)
	t.stands(root, root.version, "x")
}

func togetherRace(t *bed) {
	r := t.streamed("a")
	taken, err := t.store().TakeOver(t.Context(), &session.TakeOver{
		SessionID: "a", RunID: r.run, Owner: "taker", Epoch: r.fence.Epoch, Force: true,
	})
	t.ok(err, "TakeOver")
	old, late := r.with(1, text("old")), r.with(1, text("new"))
	late.Key, late.Fence, late.Batch.Producer.Epoch = "late", taken.Lease.Fence(), taken.Lease.Epoch
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, commit := range []*store.Commit{old, late} {
		wg.Go(func() { _, _, errs[i] = t.Backend.Commit(t.Context(), commit) })
	}
	wg.Wait()
	t.refused(errs[0], session.ErrStale, "the commit of the previous owner")
	t.ok(errs[1], "the commit of the owner")
	equal(t, "version", t.load("a").Version, r.version+1)
	chunks := t.deltas("a", 0)
	equal(t, "last chunk", chunks[len(chunks)-1], "new")
}
