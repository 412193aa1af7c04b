package storetest

import (
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func closingCases() []testCase {
	return []testCase{
		{"all", "a close writes the last chunks, ends the stream and releases the lease", 0, closingAll},
		{"paused", "a close of a suspended run pauses the stream, and the next run continues it", 0, closingPaused},
		{"failed", "a close of a failed run fails the stream", 0, closingFailed},
		{"readers", "a reader gets the last chunks, then the end", 0, closingReaders},
		{"sub-agent", "a close of a sub-agent writes its chunks to the root's stream, which stays open", 0, closingSubAgent},
		{"repeated", "a repeated close is refused as stale and changes nothing", 0, closingRepeated},
		{"chunks-there", "a close whose chunks were written before adds none", 0, closingChunksThere},
		{"ended-before", "a close of a stream that was ended keeps that end and closes the run", 0, closingEndedBefore},
		{"lost-lease", "a close without the lease does not change the session", 0, closingLostLease},
		{"next-run", "a close that comes after the next run has begun leaves that run and its stream alone", 0, closingNextRun},
		{"stale-chunks", "a close whose chunks have an earlier epoch is not made", 0, closingStaleChunks},
		{"closed", "a close whose chunks find the stream closed is not made", 0, closingClosed},
		{"missing", "a close whose stream does not exist is not made", 0, closingMissing},
		{"deleted", "a close of a session that was deleted finds nothing", 0, closingDeleted},
		{"gap", "a close whose chunks leave a gap is not made", 0, closingGap},
		{"too-large", "a close with a chunk over the limit is not made", 0, closingTooLarge},
		{"running", "a close of a run that has not ended releases it for a takeover", 0, closingRunning},
		{"race", "of concurrent closes one is made", 0, closingRace},
	}
}

// ending returns the close of a turn, with chunks.
func (r *turn) ending(chunks ...stream.Chunk) *store.CloseRun {
	by := stream.Producer{Session: r.id, Epoch: r.fence.Epoch, RunID: r.run}
	return &store.CloseRun{
		Tenant: r.t.tenant, SessionID: r.id, Fence: r.fence, Stream: r.id,
		Batch: stream.Batch{
			Producer: stream.Producer{Session: r.id + "/close/" + r.run, Epoch: r.fence.Epoch, RunID: r.run}, First: 1, Chunks: chunks,
		},
		By: by, End: &stream.End{Status: stream.EndCompleted, Output: raw(`{"a":  1}`)},
	}
}

// ended returns session "a", whose run has ended and whose stream is open, with a chunk.
func (t *bed) ended(status session.RunStatus) *turn {
	t.Helper()
	r := t.streamed("a")
	t.append("a", producer("a", r.fence.Epoch), 1, text("x"))
	r.commit(outcome(status))
	return r
}

// closedAs requires that its run is closed, and how its stream is.
func (t *bed) closedAs(status stream.Status, chunks ...string) {
	t.Helper()
	state := t.load("a")
	equal(t, "owner", state.Lease.Owner, "")
	equal(t, "the lease's end is unset", state.Lease.ExpiresAt.IsZero(), true)
	equal(t, "close pending", state.ClosePending, false)
	equal(t, "status of the stream", t.info("a").Status, status)
	equal(t, "chunks", t.deltas("a", 0), chunks)
}

// notClosed requires that a close is refused and does not change the session.
func (t *bed) notClosed(c *store.CloseRun, want *session.Error, what string) {
	t.Helper()
	t.unchanged(c.SessionID, func() { t.refused(t.Backend.CloseRun(t.Context(), c), want, what) })
}

func closingAll(t *bed) {
	r := t.ended(session.RunCompleted)
	epoch := t.load("a").Lease.Epoch
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("y"), text("z"))), "close")
	t.closedAs(stream.StatusEnded, "x", "y", "z")
	info := t.info("a")
	equal(t, "output", string(info.End.Output), `{"a":  1}`)
	equal(t, "end", info.End.Status, stream.EndCompleted)
	equal(t, "run of the stream", info.RunID, "run-1")
	equal(t, "epoch", t.load("a").Lease.Epoch, epoch)
	equal(t, "version", t.load("a").Version, r.version)
	equal(t, "closes that are due", len(t.due("PendingCloses", t.closes)), 0)
	if next := t.start("a", "run-2"); next.fence.Epoch <= r.fence.Epoch {
		t.Fatalf("the next run's epoch %d is not above %d", next.fence.Epoch, r.fence.Epoch)
	}
}

func closingPaused(t *bed) {
	r := t.ended(session.RunSuspendedClientTool)
	end := r.ending(text("y"))
	end.End = &stream.End{Status: stream.EndPaused}
	t.ok(t.Backend.CloseRun(t.Context(), end), "close")
	t.closedAs(stream.StatusPaused, "x", "y")
	next := t.start("a", "run-2")
	t.open("a", producer("a", next.fence.Epoch))
	t.append("a", producer("a", next.fence.Epoch), 1, text("z"))
	next.commit(outcome(session.RunCompleted))
	t.ok(t.Backend.CloseRun(t.Context(), next.ending(text("!"))), "close the next run")
	t.closedAs(stream.StatusEnded, "x", "y", "z", "!")
}

func closingFailed(t *bed) {
	r := t.ended(session.RunFailed)
	end := r.ending(text("y"))
	end.End, end.Failure = nil, session.ErrInternal.WithMessage("broken")
	t.ok(t.Backend.CloseRun(t.Context(), end), "close")
	t.closedAs(stream.StatusFailed, "x", "y")
	equal(t, "failure", t.info("a").Error.Message, "broken")
}

func closingReaders(t *bed) {
	r := t.ended(session.RunCompleted)
	reader := t.read(t.streams(), "a", 0, false)
	reader.chunks(0, "x")
	reader.frame(stream.FrameCaughtUp)
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("y"))), "close")
	reader.chunks(1, "y")
	reader.frame(stream.FrameEnd)
	reader.over()
}

func closingSubAgent(t *bed) {
	root := t.streamed("root")
	kid := t.member("kid", "root", "root", "owner-run-1", time.Hour)
	kid.commit(outcome(session.RunCompleted))
	end := kid.ending(text("y"))
	end.Stream, end.End = "root", nil
	t.ok(t.Backend.CloseRun(t.Context(), end), "close")
	state := t.load("kid")
	equal(t, "owner", state.Lease.Owner, "")
	equal(t, "close pending", state.ClosePending, false)
	equal(t, "status of the stream", t.info("root").Status, stream.StatusActive)
	t.append("root", producer("root", root.fence.Epoch), 1, text("z"))
	t.stands(root, root.version, "y", "z")
	equal(t, "owner of the root", t.load("root").Lease.Owner, root.fence.Owner)
	t.notClosed(end, session.ErrStale, "a repeated close of a sub-agent")
}

func closingRepeated(t *bed) {
	r := t.ended(session.RunCompleted)
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("y"))), "close")
	again := r.ending(text("y"))
	again.End = &stream.End{Status: stream.EndInterrupted}
	t.notClosed(again, session.ErrStale, "a repeated close")
	t.closedAs(stream.StatusEnded, "x", "y")
	equal(t, "end", t.info("a").End.Status, stream.EndCompleted)
}

func closingChunksThere(t *bed) {
	r := t.ended(session.RunCompleted)
	end := r.ending(text("y"), text("z"))
	t.append("a", end.Batch.Producer, 1, text("y"))
	t.ok(t.Backend.CloseRun(t.Context(), end), "close")
	t.closedAs(stream.StatusEnded, "x", "y", "z")
}

func closingEndedBefore(t *bed) {
	r := t.ended(session.RunCompleted)
	end := r.ending(text("y"))
	t.append("a", end.Batch.Producer, 1, text("y"))
	t.end("a", end.By, stream.EndInterrupted)
	t.ok(t.Backend.CloseRun(t.Context(), end), "close")
	t.closedAs(stream.StatusEnded, "x", "y")
	equal(t, "end", t.info("a").End.Status, stream.EndInterrupted)
}

func closingLostLease(t *bed) {
	r := t.ended(session.RunCompleted)
	for _, fence := range []session.Fence{{Owner: "somebody", Epoch: r.fence.Epoch}, {Owner: r.fence.Owner, Epoch: r.fence.Epoch + 1}, {}} {
		end := r.ending(text("y"))
		end.Fence = fence
		t.notClosed(end, session.ErrStale, "a close without the lease")
	}
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("y"))), "close")
	t.closedAs(stream.StatusEnded, "x", "y")
}

func closingNextRun(t *bed) {
	r := t.ended(session.RunCompleted)
	end := r.ending(text("y"))
	t.append("a", end.Batch.Producer, 1, text("y"))
	t.end("a", end.By, stream.EndCompleted)
	next := t.start("a", "run-2")
	t.open("a", producer("a", next.fence.Epoch))
	t.append("a", producer("a", next.fence.Epoch), 1, text("z"))
	t.notClosed(end, session.ErrStale, "a close of the run before")
	equal(t, "status of the stream", t.info("a").Status, stream.StatusActive)
	equal(t, "chunks", t.deltas("a", 0), []string{"x", "y", "z"})
}

func closingStaleChunks(t *bed) {
	r := t.ended(session.RunCompleted)
	later := r.ending().Batch.Producer
	later.Epoch++
	t.append("a", later, 1, text("later"))
	t.notClosed(r.ending(text("y")), session.ErrStale, "a close with chunks of an earlier epoch")
	equal(t, "chunks", t.deltas("a", 0), []string{"x", "later"})
}

func closingClosed(t *bed) {
	r := t.ended(session.RunCompleted)
	t.end("a", producer("a", r.fence.Epoch), stream.EndCompleted)
	t.notClosed(r.ending(text("y")), session.ErrStreamClosed, "a close with chunks for a closed stream")
}

func closingMissing(t *bed) {
	r := t.running("a")
	r.commit(outcome(session.RunCompleted))
	t.notClosed(r.ending(text("y")), session.ErrNotFound, "a close of no stream")
}

func closingDeleted(t *bed) {
	r := t.ended(session.RunCompleted)
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "release the lease")
	t.ok(t.delete("a"), "delete")
	t.refused(t.Backend.CloseRun(t.Context(), r.ending(text("y"))), session.ErrNotFound, "a close of a deleted session")
	t.exists("a", false)
	_, err := t.streams().Info(t.Context(), "a")
	t.refused(err, session.ErrNotFound, "its stream")
}

func closingGap(t *bed) {
	r := t.ended(session.RunCompleted)
	end := r.ending(text("z"))
	t.append("a", end.Batch.Producer, 1, text("y"))
	end.Batch.First = 3
	t.notClosed(end, session.ErrInvalid, "a close whose chunks leave a gap")
	equal(t, "status of the stream", t.info("a").Status, stream.StatusActive)
}

func closingTooLarge(t *bed) {
	r := t.ended(session.RunCompleted)
	t.notClosed(r.ending(t.overlong()), session.ErrTooLarge, "a close with a chunk over the limit")
	equal(t, "status of the stream", t.info("a").Status, stream.StatusActive)
}

func closingRunning(t *bed) {
	r := t.streamed("a")
	t.ok(t.Backend.CloseRun(t.Context(), r.ending(text("y"))), "close")
	equal(t, "owner", t.load("a").Lease.Owner, "")
	_, err := t.store().TakeOver(t.Context(), r.takeOver("taker"))
	t.ok(err, "take the run over")
}

func closingRace(t *bed) {
	r := t.ended(session.RunCompleted)
	errs := make([]error, 4)
	together(len(errs), func(i int) { errs[i] = t.Backend.CloseRun(t.Context(), r.ending(text("y"))) })
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
			continue
		}
		t.refused(err, session.ErrStale, "a close that came later")
	}
	equal(t, "closes that were made", made, 1)
	t.closedAs(stream.StatusEnded, "x", "y")
}
