package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func streamCases() []testCase {
	return []testCase{
		{"append", "chunks are numbered densely from 1 and read back as written", 0, appendChunks},
		{"append-every-field", "every field of a chunk of every kind round-trips", 0, appendEveryField},
		{"append-ordered", "an append is ordered before what its caller writes next", 0, appendOrdered},
		{"append-reused", "chunks are read as they were appended, though their slice is used again", second, appendReused},
		{"repeat", "a repeated batch is ignored and returns its original sequence", 0, appendRepeat},
		{"repeat-front", "the repeated front of a batch is ignored, the rest is added", 0, appendRepeatFront},
		{"epochs", "a later epoch counts from its own start; an earlier one is stale", 0, appendEpochs},
		{"epochs-aside", "an epoch that was only announced counts, whoever writes next", 0, appendEpochsAside},
		{"gap", "a batch that skips its producer's numbers is refused; an epoch may begin with any number", 0, appendGap},
		{"repeat-split", "a repeated chunk returns its original sequence, even next to one that was split", 0, appendRepeatSplit},
		{"producers", "each producer has its own epochs and numbers on one stream", 0, appendProducers},
		{"later-kind", "a chunk of a kind that only later programs know is stored and read as it is", 0, appendLaterKind},
		{"atomic", "a batch with a chunk that cannot be written writes nothing", 0, appendAtomic},
		{"split", "text over the limit is split between runes; the pieces join to the original", 0, appendSplit},
		{"too-large", "anything else over the limit is refused", 0, appendTooLarge},
		{"limits", "the manager reports its limit", 0, streamLimits},
		{"read-all", "a reader of an ended stream gets every chunk, then the end", 0, readAll},
		{"read-from", "a reader resumes after any sequence without loss or repetition", 0, readFrom},
		{"read-live", "a reader that has caught up gets what is written next", 0, readLive},
		{"read-second", "a reader on another handle gets what is written on this one", second, readSecond},
		{"read-several", "several readers get everything, each at its own pace", 0, readSeveral},
		{"read-slow", "a reader that pauses blocks neither the writer nor other readers", 0, readSlow},
		{"read-break", "leaving the loop ends the read", 0, readBreak},
		{"read-cancel", "the end of its context ends a waiting read", 0, readCancel},
		{"read-missing", "a stream that does not exist is not found, or waited for", 0, readMissing},
		{"read-wait-second", "a reader waits for a stream that another handle creates", second, readWaitSecond},
		{"read-beyond", "a reader beyond the end of the stream, as after a restore, gets a truncated frame", 0, readBeyond},
		{"read-negative", "a negative sequence is refused", 0, readNegative},
		{"read-delete", "deleting a stream ends its reads", 0, readDelete},
		{"read-remade", "a read does not continue into another stream with the same id", 0, readRemade},
		{"end", "each kind of end reaches early and late readers with its payload", 0, endStream},
		{"end-omits", "an end whose payload exceeds the limit names what it omits", 0, endOmits},
		{"pause", "a paused stream ends for its readers and continues when reactivated", 0, pauseStream},
		{"fail", "a failed stream yields its chunks, then the failure", 0, failStream},
		{"end-stale", "an end or failure by an earlier epoch does nothing", 0, endStale},
		{"closed", "a closed stream accepts no chunks until it is reactivated", 0, closedRefuses},
		{"reactivate", "reactivating keeps the chunks and clears the end", 0, reactivate},
		{"reactivate-child", "a sub-agent that opens its root's stream does not change its run", 0, reactivateChild},
		{"reactivate-stale", "an earlier epoch does not reopen a stream", 0, reactivateStale},
		{"trim", "trimming drops from the front by count, sequence and age, and moves the floor", 0, trim},
		{"trim-truncated", "a reader below the floor gets a truncated frame with the floor", 0, trimTruncated},
		{"trim-numbers", "numbering continues after everything was trimmed", 0, trimNumbers},
		{"trim-reading", "a reader that was overtaken by trimming gets a truncated frame", 0, trimReading},
		{"rewound", "readers of a rewound session get a rewound frame with its sequence", 0, rewoundFrame},
		{"chunks", "Chunks lists a part without waiting", 0, listChunks},
		{"from-step", "ChunksFromStep lists a run's chunks from a step on", 0, chunksFromStep},
		{"info", "Info describes the stream", 0, streamInfo},
		{"bytes", "Info reports the size of the stream's chunks in bytes", 0, streamBytes},
		{"bytes-repeat", "a chunk that is sent again, or to a closed stream, is not counted", 0, streamBytesRepeat},
		{"bytes-trim", "trimmed chunks no longer count", 0, streamBytesTrim},
		{"bytes-second", "chunks of several producers, on several handles, and with commits are all counted", second, streamBytesSecond},
		{"missing", "operations on a stream that does not exist are not found", 0, streamMissing},
		{"delete", "a deleted stream does not exist; a new one with its id starts at 1", 0, deleteStream},
		{"concurrent", "concurrent appends of many producers are dense and each in order", 0, appendConcurrently},
		{"fold", "folding the chunks gives the messages, without discarded attempts", 0, foldChunks},
	}
}

func producer(id string, epoch int64) stream.Producer {
	return stream.Producer{Session: id, Epoch: epoch, RunID: "run-1"}
}

// text returns a chunk of the reply's text.
func text(delta string) stream.Chunk {
	return stream.Chunk{Kind: stream.TextDelta, AgentID: "a", AgentType: "tester", At: noon, Step: 1, RunID: "run-1", Delta: delta}
}

func numberedTexts(from, to int) []stream.Chunk {
	var out []stream.Chunk
	for i := from; i <= to; i++ {
		out = append(out, text(fmt.Sprintf("t%d", i)))
	}
	return out
}

// tryAppend appends and waits until the batch is durable.
func (t *bed) tryAppend(id string, by stream.Producer, first int64, chunks ...stream.Chunk) (int64, error) {
	out, err := t.streams().Append(t.Context(), id, stream.Batch{Producer: by, First: first, Chunks: chunks})
	if err != nil {
		return 0, err
	}
	return out.Wait(t.Context())
}

// open creates a stream, or opens it again.
func (t *bed) open(id string, by stream.Producer) *stream.Info {
	t.Helper()
	info, err := t.streams().Reactivate(t.Context(), id, by)
	t.ok(err, "Reactivate "+id)
	return info
}

// append is tryAppend for a batch that must be accepted; it creates the stream if
// necessary.
func (t *bed) append(id string, by stream.Producer, first int64, chunks ...stream.Chunk) int64 {
	t.Helper()
	if _, err := t.streams().Info(t.Context(), id); errors.Is(err, session.ErrNotFound) {
		t.open(id, by)
	}
	last, err := t.tryAppend(id, by, first, chunks...)
	t.ok(err, "append")
	return last
}

func (t *bed) items(id string, from int64) []stream.Item {
	t.Helper()
	items, err := t.streams().Chunks(t.Context(), id, from, 1<<20)
	t.ok(err, "Chunks")
	return items
}

// deltas lists the texts of a stream and checks that its numbers are dense.
func (t *bed) deltas(id string, from int64) []string {
	t.Helper()
	return t.dense(t.items(id, from), from)
}

// dense checks that items are chunks numbered without a gap, and returns their
// texts.
func (t *bed) dense(items []stream.Item, from int64) []string {
	t.Helper()
	out := []string{}
	for i, item := range items {
		if item.Sequence != from+int64(i)+1 {
			t.Fatalf("item %d after sequence %d has number %d: the stream is not dense", i, from, item.Sequence)
		}
		if item.Chunk == nil {
			t.Fatalf("item %d has no chunk: %s", i, show(item))
		}
		out = append(out, item.Chunk.Delta)
	}
	return out
}

func (t *bed) info(id string) *stream.Info {
	t.Helper()
	info, err := t.streams().Info(t.Context(), id)
	t.ok(err, "Info")
	return info
}

func (t *bed) end(id string, by stream.Producer, status stream.EndStatus) {
	t.Helper()
	t.ok(t.streams().End(t.Context(), id, by, stream.End{Status: status}), "End")
}

// reading is a reader that a case pulls from, with a limit on its waits.
type reading struct {
	t    *bed
	next func() (stream.Item, error, bool)
	stop func()
}

func (t *bed) read(m stream.Manager, id string, from int64, wait bool) *reading {
	next, stop := iter.Pull2(m.Read(eventually.Context(t), id, from, wait))
	t.Cleanup(stop)
	return &reading{t: t, next: next, stop: stop}
}

// item returns the reader's next item.
func (r *reading) item() stream.Item {
	r.t.Helper()
	item, err, ok := r.next()
	if !ok {
		r.t.Fatalf("the read ended without a terminal frame")
	}
	r.t.ok(err, "read")
	return item
}

// chunks expects texts, in order.
func (r *reading) chunks(after int64, want ...string) {
	r.t.Helper()
	for i, w := range want {
		item := r.item()
		equal(r.t, "frame", item.Frame, stream.FrameChunk)
		equal(r.t, "sequence", item.Sequence, after+int64(i)+1)
		equal(r.t, "text", item.Chunk.Delta, w)
	}
}

func (r *reading) frame(want stream.FrameKind) stream.Item {
	r.t.Helper()
	item := r.item()
	if item.Frame != want {
		r.t.Fatalf("frame: got %s, want %s", show(item), want)
	}
	return item
}

// over expects that nothing follows.
func (r *reading) over() {
	r.t.Helper()
	if item, err, ok := r.next(); ok {
		r.t.Fatalf("something follows the terminal frame: %s, %v", show(item), err)
	}
}

func appendChunks(t *bed) {
	last := t.append("a", producer("a", 1), 1, text("one"))
	equal(t, "sequence", last, 1)
	last = t.append("a", producer("a", 1), 2, text("two <b>&\u2028"), text("three"))
	equal(t, "sequence", last, 3)
	equal(t, "texts", t.deltas("a", 0), []string{"one", "two <b>&\u2028", "three"})
	got := t.items("a", 0)[0].Chunk
	sameTime(t, "at", got.At, noon)
	equal(t, "agent", got.AgentType, "tester")
}

func appendReused(t *bed) {
	p, chunks := producer("a", 1), numberedTexts(1, 2)
	t.append("a", p, 1, chunks...)
	here, there := t.read(t.streams(), "a", 0, false), t.read(t.streamsOf(t.second()), "a", 0, false)
	for _, r := range []*reading{here, there} {
		r.chunks(0, "t1", "t2")
		r.frame(stream.FrameCaughtUp)
	}
	for n := int64(3); n < 30; n += 2 { // readers may be behind
		copy(chunks, numberedTexts(int(n), int(n)+1))
		t.append("a", p, n, chunks...)
		clear(chunks)
	}
	t.end("a", p, stream.EndCompleted)
	var want []string
	for n := 3; n <= 30; n++ {
		want = append(want, fmt.Sprint("t", n))
	}
	here.chunks(2, want...)
	there.chunks(2, want...)
	equal(t, "texts", t.deltas("a", 0), append([]string{"t1", "t2"}, want...))
}

func appendEveryField(t *bed) {
	var chunks []stream.Chunk
	for i, kind := range stream.Kinds() {
		chunks = append(chunks, stream.Chunk{
			Kind: kind, AgentID: "a", AgentType: "tester", At: noon.Add(time.Duration(i) * time.Millisecond), Step: i, RunID: "run-1",
			Delta: "d<>&", MessageID: "m", MessageCount: new(0), Messages: oddMessages()[1:3], CallID: "c", Tool: "t",
			Arguments: raw("{\n  \"a\": [1,\r\n\tnull]\n}"), Result: raw(`"r"`), Success: true,
			Error: &session.Error{Code: session.CodeToolFailed, Category: "tool", Message: "m"}, ApprovalID: "ap", Child: "k",
			Patches: []session.Patch{{Op: "add", Path: "/x", Value: raw(`1`)}}, Name: "n", Data: raw(`{"d":1}`), Attempt: 2,
			Scope: stream.ScopeResults, CheckpointID: "cp", Turn: 3, Reason: "because",
		})
	}
	t.append("a", producer("a", 1), 1, chunks...)
	items := t.items("a", 0)
	equal(t, "chunks", len(items), len(chunks))
	for i := range chunks {
		sameJSON(t, "chunk "+string(chunks[i].Kind), items[i].Chunk, &chunks[i])
	}
}

func appendOrdered(t *bed) {
	r := t.running("a")
	t.open("a", producer("a", r.fence.Epoch))
	ctx := t.Context()
	for i := range 10 {
		_, err := t.streams().Append(ctx, "a", stream.Batch{
			Producer: producer("a", r.fence.Epoch), First: int64(i + 1), Chunks: []stream.Chunk{text(fmt.Sprintf("t%d", i))},
		})
		t.ok(err, "append")
		r.commit(session.Change{})
		equal(t, "chunks after the commit that followed", len(t.items("a", 0)), i+1)
	}
}

func appendRepeat(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, text("one"), text("two"))
	equal(t, "sequence of a repeated batch", t.append("a", p, 1, text("one"), text("two")), 2)
	t.append("a", p, 3, text("three"))
	equal(t, "sequence of an old batch", t.append("a", p, 1, text("one"), text("two")), 2)
	equal(t, "texts", t.deltas("a", 0), []string{"one", "two", "three"})
}

func appendRepeatFront(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 3)...)
	equal(t, "sequence", t.append("a", p, 2, numberedTexts(2, 5)...), 5)
	equal(t, "texts", t.deltas("a", 0), []string{"t1", "t2", "t3", "t4", "t5"})
}

func appendEpochs(t *bed) {
	t.append("a", producer("a", 3), 1, text("one"), text("two"))
	t.append("a", producer("a", 5), 1, text("three"))
	for _, epoch := range []int64{3, 4} {
		_, err := t.tryAppend("a", producer("a", epoch), 3, text("zombie"))
		t.refused(err, session.ErrStale, fmt.Sprintf("append under epoch %d after 5", epoch))
	}
	t.append("a", producer("a", 5), 2, text("four"))
	equal(t, "texts", t.deltas("a", 0), []string{"one", "two", "three", "four"})
}

func appendEpochsAside(t *bed) {
	t.append("a", producer("a", 5), 1, text("one"))
	t.open("a", producer("a", 6)) // a takeover that has written nothing yet
	zombie := func(when string) {
		t.Helper()
		_, err := t.tryAppend("a", producer("a", 5), 2, text("zombie"))
		t.refused(err, session.ErrStale, "append under an earlier epoch "+when)
	}
	zombie("at once")
	t.append("a", producer("kid", 1), 1, text("two"))
	zombie("after another has written")
	t.append("a", producer("a", 6), 1, text("three"))
	t.append("a", producer("kid", 1), 2, text("four"))
	zombie("after both have")
	equal(t, "texts", t.deltas("a", 0), []string{"one", "two", "three", "four"})
}

func appendGap(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 3, text("three")) // it may begin with any number
	_, err := t.tryAppend("a", p, 5, text("five"))
	e := t.refusal(err, session.ErrInvalid, "append of 5 after 3")
	if !strings.Contains(e.Message, "not 4") {
		t.Fatalf("the refusal does not say what is expected: %v", e)
	}
	t.append("a", producer("kid", 1), 9, text("kid's"))
	_, err = t.tryAppend("a", p, 6, text("six"))
	t.refused(err, session.ErrInvalid, "append of 6 after 3, with another's between")
	t.append("a", p, 4, text("four"))
	t.append("a", producer("a", 2), 7, text("seven"))
	equal(t, "texts", t.deltas("a", 0), []string{"three", "kid's", "four", "seven"})
}

func appendRepeatSplit(t *bed) {
	p := producer("a", 1)
	long := text(strings.Repeat("x", t.streams().Limits().MaxChunk*2))
	last := t.append("a", p, 1, text("one"), long, text("three"))
	equal(t, "sequence of the first", t.append("a", p, 1, text("one")), 1)
	equal(t, "sequence of the split one", t.append("a", p, 2, long), last-1)
	equal(t, "sequence of the front", t.append("a", p, 1, text("one"), long), last-1)
	equal(t, "sequence of the last", t.append("a", p, 3, text("three")), last)
	t.append("a", producer("kid", 1), 1, text("kid's"))
	t.append("a", p, 4, text("four"))
	equal(t, "sequence of the first, later", t.append("a", p, 1, text("one")), 1)
	equal(t, "sequence of the split one, later", t.append("a", p, 2, long), last-1)
}

func appendProducers(t *bed) {
	t.append("a", producer("a", 7), 1, text("a1"))
	t.append("a", producer("kid", 1), 1, text("k1"))
	t.append("a", producer("a", 7), 2, text("a2"))
	t.append("a", producer("kid", 1), 2, text("k2"))
	t.append("a", producer("kid", 1), 1, text("k1"), text("k2"))
	equal(t, "texts", t.deltas("a", 0), []string{"a1", "k1", "a2", "k2"})
	_, err := t.tryAppend("a", producer("kid", 0), 3, text("zombie"))
	t.refused(err, session.ErrStale, "append under an earlier epoch of its own")
}

func appendAtomic(t *bed) {
	t.append("a", producer("a", 1), 1, text("one"))
	_, err := t.tryAppend("a", producer("a", 1), 2, text("two"), stream.Chunk{Kind: "no sense"}, text("three"))
	t.refused(err, session.ErrInvalid, "append of what has no kind")
	_, err = t.tryAppend("a", producer("a", 1), 2, text("two"), stream.Chunk{Kind: stream.Custom, Data: raw(`{`)})
	t.refused(err, session.ErrInvalid, "append of broken JSON")
	equal(t, "texts", t.deltas("a", 0), []string{"one"})
	t.append("a", producer("a", 1), 2, text("two"))
	equal(t, "texts", t.deltas("a", 0), []string{"one", "two"})
}

func appendLaterKind(t *bed) {
	later := stream.Chunk{Kind: "gossip_2", AgentID: "a", AgentType: "tester", RunID: "run-1", Step: 1, Name: "n", Data: raw(`{"a":1}`)}
	t.append("a", producer("a", 1), 1, text("one"), later, text("two"))
	chunks, err := t.streams().Chunks(t.Context(), "a", 0, 10)
	t.ok(err, "Chunks")
	equal(t, "chunks", len(chunks), 3)
	equal(t, "kind", chunks[1].Chunk.Kind, later.Kind)
	equal(t, "data", string(chunks[1].Chunk.Data), `{"a":1}`)
}

func appendSplit(t *bed) {
	limit := t.streams().Limits().MaxChunk
	long := strings.Repeat("é😀x", limit/6)
	t.append("a", producer("a", 1), 1, text("before"), text(long), text("after"))
	items := t.items("a", 0)
	if len(items) < 4 {
		t.Fatalf("text of %d bytes is in %d chunks, the limit is %d", len(long), len(items)-2, limit)
	}
	var joined strings.Builder
	for _, delta := range t.dense(items, 0)[1 : len(items)-1] {
		joined.WriteString(delta)
	}
	equal(t, "the pieces join to the text", joined.String() == long, true)
	for i := range items {
		encoded, err := items[i].Chunk.Encode()
		t.ok(err, "encode")
		if len(encoded) > limit {
			t.Fatalf("a chunk of %d bytes is stored, the limit is %d", len(encoded), limit)
		}
	}
	t.append("a", producer("a", 1), 1, text("before"), text(long), text("after"))
	equal(t, "chunks after a repeat", len(t.items("a", 0)), len(items))
	t.append("a", producer("a", 1), 4, text("more"))
	equal(t, "chunks after one more", len(t.items("a", 0)), len(items)+1)
}

func appendTooLarge(t *bed) {
	limit := t.streams().Limits().MaxChunk
	t.append("a", producer("a", 1), 1, text("one"))
	huge := stream.Chunk{Kind: stream.Custom, Name: "huge", Data: raw(`"` + strings.Repeat("x", limit) + `"`)}
	_, err := t.tryAppend("a", producer("a", 1), 2, text("two"), huge)
	t.refused(err, session.ErrTooLarge, "append of a huge event")
	equal(t, "texts", t.deltas("a", 0), []string{"one"})
}

func streamLimits(t *bed) {
	if limit := t.streams().Limits().MaxChunk; limit < 1024 {
		t.Fatalf("the largest chunk has %d bytes", limit)
	}
}

func readAll(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 5)...)
	t.end("a", p, stream.EndCompleted)
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1", "t2", "t3", "t4", "t5")
	r.frame(stream.FrameEnd)
	r.over()
}

func readFrom(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 5)...)
	t.end("a", p, stream.EndCompleted)
	for from := range int64(6) {
		r := t.read(t.streams(), "a", from, false)
		for i := from + 1; i <= 5; i++ {
			r.chunks(i-1, fmt.Sprintf("t%d", i))
		}
		r.frame(stream.FrameEnd)
		r.over()
	}
}

func readLive(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 2)...)
	r := t.read(t.streams(), "a", 1, false)
	r.chunks(1, "t2")
	equal(t, "sequence of the caught-up frame", r.frame(stream.FrameCaughtUp).Sequence, 2)
	t.append("a", p, 3, numberedTexts(3, 4)...)
	r.chunks(2, "t3", "t4")
	t.append("a", p, 5, numberedTexts(5, 5)...)
	r.chunks(4, "t5")
	t.end("a", p, stream.EndInterrupted)
	equal(t, "end status", r.frame(stream.FrameEnd).End.Status, stream.EndInterrupted)
	r.over()
}

func readSecond(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 1)...)
	r := t.read(t.streamsOf(t.second()), "a", 0, false)
	r.chunks(0, "t1")
	r.frame(stream.FrameCaughtUp)
	for i := 2; i <= 4; i++ {
		t.append("a", p, int64(i), numberedTexts(i, i)...)
		r.chunks(int64(i-1), fmt.Sprintf("t%d", i))
	}
	t.end("a", p, stream.EndCompleted)
	r.frame(stream.FrameEnd)
	r.over()
}

// collected is what a reader in a goroutine received.
type collected struct {
	items []stream.Item
	err   error
}

// collect reads until a terminal frame or an error.
func collect(ctx context.Context, m stream.Manager, id string, from int64, wait bool) collected {
	var out collected
	for item, err := range m.Read(ctx, id, from, wait) {
		if err != nil {
			out.err = err
			return out
		}
		if item.Frame == stream.FrameCaughtUp {
			continue
		}
		out.items = append(out.items, item)
	}
	return out
}

func readSeveral(t *bed) {
	const readers, total = 5, 60
	p := producer("a", 1)
	t.append("a", p, 1, text("t1"))
	ctx := eventually.Context(t)
	var seen [readers]collected
	together(readers+1, func(i int) {
		if i < readers {
			seen[i] = collect(ctx, t.streams(), "a", 0, false)
			return
		}
		for n := 2; n <= total; n++ {
			if _, err := t.tryAppend("a", p, int64(n), numberedTexts(n, n)...); err != nil {
				return // the readers will report it
			}
		}
		_ = t.streams().End(ctx, "a", p, stream.End{Status: stream.EndCompleted})
	})
	for i := range seen {
		t.ok(seen[i].err, "reader")
		equal(t, "items", len(seen[i].items), total+1)
		equal(t, "last frame", seen[i].items[total].Frame, stream.FrameEnd)
		t.dense(seen[i].items[:total], 0)
	}
}

func readSlow(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, text("t1"))
	slow := t.read(t.streams(), "a", 0, false)
	slow.chunks(0, "t1")
	// The slow reader pauses from here on, while far more is written than any buffer
	// could hold.
	const total = 3000
	for n := 2; n <= total; n += 500 {
		t.append("a", p, int64(n), numberedTexts(n, min(n+499, total))...)
	}
	t.end("a", p, stream.EndCompleted)
	ctx := eventually.Context(t)
	fast := collect(ctx, t.streams(), "a", 0, false)
	t.ok(fast.err, "a reader beside the slow one")
	equal(t, "items", len(fast.items), total+1)
	for n := 2; n <= total; n++ {
		slow.chunks(int64(n-1), fmt.Sprintf("t%d", n))
	}
	item := slow.item()
	if item.Frame == stream.FrameCaughtUp {
		item = slow.item()
	}
	equal(t, "last frame of the slow reader", item.Frame, stream.FrameEnd)
}

func readBreak(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 3)...)
	for range 3 {
		for item, err := range t.streams().Read(t.Context(), "a", 0, false) {
			t.ok(err, "read")
			equal(t, "sequence", item.Sequence, 1)
			break
		}
	}
	t.append("a", p, 4, numberedTexts(4, 4)...)
	t.end("a", p, stream.EndCompleted)
	equal(t, "chunks", len(t.items("a", 0)), 4)
}

func withCancel(t *bed) (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }

func readCancel(t *bed) {
	t.append("a", producer("a", 1), 1, text("t1"))
	ctx, cancel := withCancel(t)
	defer cancel()
	done := make(chan collected, 1)
	caughtUp := make(chan struct{})
	go func() {
		var out collected
		for item, err := range t.streams().Read(ctx, "a", 0, false) {
			if err != nil {
				out.err = err
				break
			}
			if item.Frame == stream.FrameCaughtUp {
				close(caughtUp)
				continue
			}
			out.items = append(out.items, item)
		}
		done <- out
	}()
	eventually.Receive(t, "the reader catches up", caughtUp)
	cancel()
	out := eventually.Receive(t, "the read ends with its context", done)
	if out.err != nil && !errors.Is(out.err, context.Canceled) {
		t.Fatalf("the read ended with %v", out.err)
	}
	equal(t, "items", len(out.items), 1)
}

func readMissing(t *bed) {
	_, err, _ := t.read(t.streams(), "nobody", 0, false).next()
	t.refused(err, session.ErrNotFound, "read of nothing")
	r := t.read(t.streams(), "a", 0, true)
	got := make(chan stream.Item, 1)
	go func() {
		item, _, _ := r.next()
		if item.Frame == stream.FrameCaughtUp { // it saw the stream while it was empty
			item, _, _ = r.next()
		}
		got <- item
	}()
	p := producer("a", 1)
	t.append("a", p, 1, text("first"))
	equal(t, "sequence", eventually.Receive(t, "the reader sees the stream", got).Sequence, 1)
	t.end("a", p, stream.EndCompleted)
}

func readWaitSecond(t *bed) {
	ctx := eventually.Context(t)
	var seen collected
	together(2, func(i int) {
		if i == 0 {
			seen = collect(ctx, t.streamsOf(t.second()), "a", 0, true)
			return
		}
		p := producer("a", 1)
		if _, err := t.streams().Reactivate(ctx, "a", p); err != nil {
			return
		}
		if _, err := t.tryAppend("a", p, 1, text("t1"), text("t2")); err == nil {
			_ = t.streams().End(ctx, "a", p, stream.End{Status: stream.EndCompleted})
		}
	})
	t.ok(seen.err, "read")
	equal(t, "items", len(seen.items), 3)
}

func readBeyond(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 4)...)
	t.trim(stream.TrimPolicy{Through: 2}, 2)
	for _, status := range []stream.Status{stream.StatusActive, stream.StatusEnded} {
		if status == stream.StatusEnded {
			t.end("a", p, stream.EndCompleted)
		}
		for _, from := range []int64{5, 100, math.MaxInt64} {
			for _, wait := range []bool{false, true} {
				r := t.read(t.streams(), "a", from, wait)
				equal(t, "where to start over", r.frame(stream.FrameTruncated).Floor, 2)
				r.over()
			}
			_, err := t.streams().Chunks(t.Context(), "a", from, 10)
			t.refused(err, session.ErrTruncated, "Chunks from beyond the end")
			_, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-1", 1, from, 10)
			t.refused(err, session.ErrTruncated, "ChunksFromStep from beyond the end")
		}
	}
	r := t.read(t.streams(), "a", 2, false) // where it was to start over
	r.chunks(2, "t3", "t4")
	r.frame(stream.FrameEnd)
}

func readNegative(t *bed) {
	t.append("a", producer("a", 1), 1, text("t1"))
	_, err, _ := t.read(t.streams(), "a", -1, false).next()
	t.refused(err, session.ErrInvalid, "Read")
	_, err = t.streams().Chunks(t.Context(), "a", -1, 10)
	t.refused(err, session.ErrInvalid, "Chunks")
	_, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-1", 1, -1, 10)
	t.refused(err, session.ErrInvalid, "ChunksFromStep")
}

func readDelete(t *bed) {
	t.append("a", producer("a", 1), 1, text("t1"))
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1")
	r.frame(stream.FrameCaughtUp)
	t.ok(t.streams().Delete(t.Context(), "a"), "Delete")
	item, err, ok := r.next()
	switch {
	case !ok, errors.Is(err, session.ErrNotFound):
	case err != nil:
		t.Fatalf("the read of a deleted stream ended with %v", err)
	case !item.Terminal():
		t.Fatalf("the read of a deleted stream continued with %s", show(item))
	}
}

func readRemade(t *bed) {
	t.append("a", producer("a", 1), 1, text("old"))
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "old")
	r.frame(stream.FrameCaughtUp)
	t.ok(t.streams().Delete(t.Context(), "a"), "Delete")
	t.append("a", producer("a", 1), 1, numberedTexts(1, 3)...)
	_, err, _ := r.next()
	t.refused(err, session.ErrNotFound, "reading on")
}

func endStream(t *bed) {
	for _, status := range []stream.EndStatus{stream.EndCompleted, stream.EndInterrupted} {
		id := string(status)
		p := producer(id, 1)
		t.append(id, p, 1, text("t1"))
		early := t.read(t.streams(), id, 0, false)
		early.chunks(0, "t1")
		early.frame(stream.FrameCaughtUp)
		end := stream.End{Status: status, Output: raw(`{"out":"<1>"}`), Usage: &session.Usage{InputTokens: 3}}
		t.ok(t.streams().End(t.Context(), id, p, end), "End")
		late := t.read(t.streams(), id, 0, false)
		late.chunks(0, "t1")
		for _, r := range []*reading{early, late} {
			item := r.frame(stream.FrameEnd)
			sameJSON(t, "end", item.End, &end)
			r.over()
		}
		info := t.info(id)
		equal(t, "status", info.Status, stream.StatusEnded)
		sameJSON(t, "end", info.End, &end)
	}
	t.append("a", producer("a", 1), 1, text("t1"))
	err := t.streams().End(t.Context(), "a", producer("a", 1), stream.End{Status: "nonsense"})
	t.refused(err, session.ErrInvalid, "an end of no kind")
	equal(t, "status", t.info("a").Status, stream.StatusActive)
}

func endOmits(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, text("t1"))
	huge := raw(`"` + strings.Repeat("x", t.streams().Limits().MaxChunk) + `"`)
	t.ok(t.streams().End(t.Context(), "a", p, stream.End{Status: stream.EndCompleted, Output: huge}), "End")
	end := t.info("a").End
	equal(t, "status", end.Status, stream.EndCompleted)
	equal(t, "length of the output", len(end.Output), 0)
	equal(t, "omitted", end.Omitted, []string{"output"})
}

func pauseStream(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, text("t1"))
	t.end("a", p, stream.EndPaused)
	equal(t, "status", t.info("a").Status, stream.StatusPaused)
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1")
	equal(t, "end status", r.frame(stream.FrameEnd).End.Status, stream.EndPaused)
	r.over()
	next := producer("a", 2)
	info, err := t.streams().Reactivate(t.Context(), "a", next)
	t.ok(err, "Reactivate")
	equal(t, "status", info.Status, stream.StatusActive)
	t.append("a", next, 1, text("t2"))
	t.end("a", next, stream.EndCompleted)
	r = t.read(t.streams(), "a", 1, false)
	r.chunks(1, "t2")
	r.frame(stream.FrameEnd)
}

func failStream(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, text("t1"))
	early := t.read(t.streams(), "a", 0, false)
	early.chunks(0, "t1")
	early.frame(stream.FrameCaughtUp)
	failure := session.ErrMaxSteps.WithMessage("50 steps <enough>")
	t.ok(t.streams().Fail(t.Context(), "a", p, failure), "Fail")
	late := t.read(t.streams(), "a", 0, false)
	late.chunks(0, "t1")
	for _, r := range []*reading{early, late} {
		item := r.frame(stream.FrameFail)
		if !errors.Is(item.Error, session.ErrMaxSteps) || item.Error.Message != failure.Message {
			t.Fatalf("failure: got %v, want %v", item.Error, failure)
		}
		r.over()
	}
	info := t.info("a")
	equal(t, "status", info.Status, stream.StatusFailed)
	equal(t, "code", info.Error.Code, session.CodeMaxSteps)
}

func endStale(t *bed) {
	t.append("a", producer("a", 1), 1, text("t1"))
	t.append("a", producer("a", 2), 1, text("t2"))
	t.ok(t.streams().End(t.Context(), "a", producer("a", 1), stream.End{Status: stream.EndCompleted}), "End by an earlier epoch")
	equal(t, "status", t.info("a").Status, stream.StatusActive)
	t.ok(t.streams().Fail(t.Context(), "a", producer("a", 1), session.ErrInternal), "Fail by an earlier epoch")
	equal(t, "status", t.info("a").Status, stream.StatusActive)
	t.append("a", producer("a", 2), 2, text("t3"))
}

func closedRefuses(t *bed) {
	p := producer("a", 1)
	for i, shut := range []func() error{
		func() error { return t.streams().End(t.Context(), "a", p, stream.End{Status: stream.EndCompleted}) },
		func() error { return t.streams().End(t.Context(), "a", p, stream.End{Status: stream.EndPaused}) },
		func() error { return t.streams().Fail(t.Context(), "a", p, session.ErrInternal) },
	} {
		t.append("a", p, int64(i+1), text("t"))
		t.ok(shut(), "close")
		_, err := t.tryAppend("a", p, int64(i+2), text("late"))
		t.refused(err, session.ErrStreamClosed, "append to a closed stream")
		equal(t, "sequence of a repeated batch", t.append("a", p, int64(i+1), text("t")), int64(i+1))
		equal(t, "chunks", len(t.items("a", 0)), i+1)
		_, err = t.streams().Reactivate(t.Context(), "a", p)
		t.ok(err, "Reactivate")
	}
}

func reactivate(t *bed) {
	t.append("a", producer("a", 1), 1, text("t1"))
	t.ok(t.streams().Fail(t.Context(), "a", producer("a", 1), session.ErrInternal), "Fail")
	next := stream.Producer{Session: "a", Epoch: 2, RunID: "run-2"}
	info, err := t.streams().Reactivate(t.Context(), "a", next)
	t.ok(err, "Reactivate")
	equal(t, "status", info.Status, stream.StatusActive)
	equal(t, "last", info.Last, 1)
	equal(t, "run", info.RunID, "run-2")
	if info.Error != nil || info.End != nil {
		t.Fatalf("the reactivated stream still has error %v, end %v", info.Error, info.End)
	}
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1")
	r.frame(stream.FrameCaughtUp)
	t.append("a", next, 1, text("t2"))
	r.chunks(1, "t2")
}

func reactivateChild(t *bed) {
	t.open("a", stream.Producer{Session: "a", Epoch: 1, RunID: "roots"})
	info := t.open("a", stream.Producer{Session: "kid", Epoch: 1, RunID: "kids"})
	equal(t, "run", info.RunID, "roots")
	t.append("a", stream.Producer{Session: "kid", Epoch: 1, RunID: "kids"}, 1, text("kid's"))
	equal(t, "run", t.info("a").RunID, "roots")
}

func reactivateStale(t *bed) {
	t.append("a", producer("a", 2), 1, text("t1"))
	t.end("a", producer("a", 2), stream.EndCompleted)
	_, err := t.streams().Reactivate(t.Context(), "a", producer("a", 1))
	t.refused(err, session.ErrStale, "Reactivate by an earlier epoch")
	equal(t, "status", t.info("a").Status, stream.StatusEnded)
}

// trim trims the stream "a".
func (t *bed) trim(policy stream.TrimPolicy, want int64) {
	t.Helper()
	floor, err := t.streams().Trim(t.Context(), "a", policy)
	t.ok(err, "Trim")
	equal(t, "floor", floor, want)
	equal(t, "floor in Info", t.info("a").Floor, want)
}

func trim(t *bed) {
	var chunks []stream.Chunk
	for i := 1; i <= 10; i++ {
		c := text(fmt.Sprintf("t%d", i))
		c.At = noon.Add(time.Duration(i) * time.Minute)
		chunks = append(chunks, c)
	}
	t.append("a", producer("a", 1), 1, chunks...)
	t.trim(stream.TrimPolicy{}, 0)
	t.trim(stream.TrimPolicy{Through: 2}, 2)
	t.trim(stream.TrimPolicy{Through: 1}, 2)
	t.trim(stream.TrimPolicy{KeepLast: 20}, 2)
	t.trim(stream.TrimPolicy{KeepLast: 7}, 3)
	equal(t, "texts", t.deltas("a", 3), []string{"t4", "t5", "t6", "t7", "t8", "t9", "t10"})
	t.trim(stream.TrimPolicy{Through: 4, KeepLast: 5}, 5) // chunks that match any rule are dropped
	t.trim(stream.TrimPolicy{Before: time.Now().Add(1000 * time.Hour)}, 10)
	equal(t, "chunks", len(t.items("a", 10)), 0)
	equal(t, "last", t.info("a").Last, 10)
}

func trimTruncated(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 6)...)
	t.end("a", p, stream.EndCompleted)
	t.trim(stream.TrimPolicy{Through: 4}, 4)
	for from := range int64(4) {
		r := t.read(t.streams(), "a", from, false)
		equal(t, "floor", r.frame(stream.FrameTruncated).Floor, 4)
		r.over()
		items, err := t.streams().Chunks(t.Context(), "a", from, 10)
		switch {
		case err != nil:
			t.refused(err, session.ErrTruncated, "Chunks from below the floor")
		case len(items) == 0 || items[0].Frame != stream.FrameTruncated:
			t.Fatalf("Chunks from below the floor is silently short: %s", show(items))
		}
	}
	r := t.read(t.streams(), "a", 4, false)
	r.chunks(4, "t5", "t6")
	r.frame(stream.FrameEnd)
}

func trimNumbers(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, numberedTexts(1, 3)...)
	t.trim(stream.TrimPolicy{Through: 100}, 3)
	equal(t, "sequence of a repeated batch", t.append("a", p, 1, numberedTexts(1, 3)...), 3)
	equal(t, "sequence", t.append("a", p, 4, text("t4")), 4)
	equal(t, "texts", t.deltas("a", 3), []string{"t4"})
}

func trimReading(t *bed) {
	p := producer("a", 1)
	const total = 2000
	t.append("a", p, 1, numberedTexts(1, total)...)
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1")
	t.trim(stream.TrimPolicy{KeepLast: 1}, total-1)
	// What the reader had already fetched may still arrive, without a gap; then it
	// gets a truncated frame, or it had everything.
	for n := int64(2); ; n++ {
		item := r.item()
		if item.Frame == stream.FrameTruncated {
			equal(t, "floor", item.Floor, int64(total-1))
			return
		}
		if item.Frame == stream.FrameCaughtUp && n == total+1 {
			return
		}
		equal(t, "sequence", item.Sequence, n)
	}
}

func rewoundFrame(t *bed) {
	p := producer("a", 1)
	rewound := text("")
	rewound.Kind, rewound.MessageCount = stream.Rewound, new(2)
	t.append("a", p, 1, text("t1"), rewound, text("t2"))
	r := t.read(t.streams(), "a", 0, false)
	r.chunks(0, "t1")
	item := r.frame(stream.FrameRewound)
	equal(t, "sequence", item.Sequence, 2)
	if item.Chunk == nil || item.Chunk.MessageCount == nil || *item.Chunk.MessageCount != 2 {
		t.Fatalf("the rewound frame does not say how far: %s", show(item))
	}
	r.chunks(2, "t2")
}

func listChunks(t *bed) {
	t.append("a", producer("a", 1), 1, numberedTexts(1, 5)...)
	for _, c := range []struct {
		from  int64
		limit int
		want  int
	}{{0, 2, 2}, {0, 5, 5}, {0, 50, 5}, {3, 10, 2}, {5, 10, 0}} {
		items, err := t.streams().Chunks(t.Context(), "a", c.from, c.limit)
		t.ok(err, "Chunks")
		equal(t, fmt.Sprintf("chunks after %d, at most %d", c.from, c.limit), len(items), c.want)
		t.dense(items, c.from)
	}
}

func chunksFromStep(t *bed) {
	var chunks []stream.Chunk
	for _, run := range []string{"run-1", "run-2"} {
		for step := 1; step <= 3; step++ {
			c := text(fmt.Sprintf("%s/%d", run, step))
			c.RunID, c.Step = run, step
			chunks = append(chunks, c)
		}
	}
	t.append("a", producer("a", 1), 1, chunks...)
	items, err := stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-2", 2, 3, 100)
	t.ok(err, "ChunksFromStep")
	equal(t, "chunks", len(items), 2)
	equal(t, "sequence", items[0].Sequence, 5)
	equal(t, "text", items[0].Chunk.Delta, "run-2/2")
	equal(t, "text", items[1].Chunk.Delta, "run-2/3")
	items, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-9", 0, 0, 100)
	t.ok(err, "ChunksFromStep of an unknown run")
	equal(t, "chunks", len(items), 0)
	items, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-1", 0, 0, 100)
	t.ok(err, "ChunksFromStep")
	equal(t, "chunks", len(items), 3)
	// In parts: each begins after the last item of the previous one.
	var got []string
	for from := int64(0); ; {
		items, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-2", 1, from, 2)
		t.ok(err, "ChunksFromStep")
		if len(items) == 0 {
			break
		}
		for _, item := range items {
			got, from = append(got, item.Chunk.Delta), item.Sequence
		}
	}
	equal(t, "chunks in parts", got, []string{"run-2/1", "run-2/2", "run-2/3"})
	// A run whose chunks all exist is listed, whatever was trimmed before it.
	t.trim(stream.TrimPolicy{Through: 3}, 3)
	items, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-2", 1, 3, 100)
	t.ok(err, "ChunksFromStep of what was not trimmed")
	equal(t, "chunks", len(items), 3)
	for _, from := range []int64{0, 2} {
		_, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-1", 1, from, 100)
		t.refused(err, session.ErrTruncated, "ChunksFromStep of what was trimmed")
	}
	_, err = stream.ChunksFromStep(t.Context(), t.streams(), "a", "run-2", 1, 100, 100)
	t.refused(err, session.ErrTruncated, "ChunksFromStep from beyond the end")
}

func streamInfo(t *bed) {
	t.append("a", producer("a", 1), 1, numberedTexts(1, 3)...)
	info := t.info("a")
	equal(t, "id", info.ID, "a")
	equal(t, "status", info.Status, stream.StatusActive)
	equal(t, "last", info.Last, 3)
	equal(t, "floor", info.Floor, 0)
	equal(t, "run", info.RunID, "run-1")
	if info.CreatedAt.IsZero() || info.UpdatedAt.Before(info.CreatedAt) {
		t.Fatalf("created at %v, updated at %v", info.CreatedAt, info.UpdatedAt)
	}
}

// large returns a chunk of about size bytes.
func large(size int) stream.Chunk { return text(strings.Repeat("x", size)) }

// bytesAre checks the approximate size of the stream "a": the bytes of texts, and
// a few more for the other fields of n chunks.
func (t *bed) bytesAre(texts int64, n int) {
	t.Helper()
	if got := t.info("a").Bytes; got < texts || got > texts+int64(n)*512 {
		t.Fatalf("the stream has %d bytes, want %d for texts and at most 512 more for each of %d chunks", got, texts, n)
	}
}

func streamBytes(t *bed) {
	p := producer("a", 1)
	equal(t, "bytes of a new stream", t.open("a", p).Bytes, 0)
	t.append("a", p, 1, large(10_000))
	t.bytesAre(10_000, 1)
	t.append("a", p, 2, large(5_000), large(20_000))
	t.bytesAre(35_000, 3)
	limit := t.streams().Limits().MaxChunk
	t.append("a", p, 4, large(2*limit)) // it is split
	t.bytesAre(int64(35_000+2*limit), 7)
	t.end("a", p, stream.EndCompleted)
	t.bytesAre(int64(35_000+2*limit), 7)
	was := t.info("a").Bytes
	equal(t, "bytes once it is reactivated", t.open("a", producer("a", 2)).Bytes, was)
	t.append("a", producer("a", 2), 1, large(1_000))
	t.bytesAre(int64(36_000+2*limit), 8)
	t.ok(t.streams().Delete(t.Context(), "a"), "Delete")
	equal(t, "bytes of a new stream with its id", t.open("a", p).Bytes, 0)
}

func streamBytesRepeat(t *bed) {
	p := producer("a", 1)
	t.append("a", p, 1, large(1000), large(1000))
	was := t.info("a").Bytes
	t.append("a", p, 1, large(1000), large(1000))
	equal(t, "bytes after a repeated batch", t.info("a").Bytes, was)
	t.append("a", p, 2, large(1000), large(5000))
	t.bytesAre(7000, 3)
	was = t.info("a").Bytes
	_, err := t.tryAppend("a", producer("a", 0), 1, large(1000))
	t.refused(err, session.ErrStale, "append by an earlier epoch")
	t.end("a", p, stream.EndCompleted)
	_, err = t.tryAppend("a", p, 4, large(1000))
	t.refused(err, session.ErrStreamClosed, "append to a closed stream")
	equal(t, "bytes after appends that were refused", t.info("a").Bytes, was)
}

func streamBytesTrim(t *bed) {
	p := producer("a", 1)
	for i := range int64(10) {
		t.append("a", p, i+1, large(10_000))
	}
	t.trim(stream.TrimPolicy{Through: 4}, 4)
	t.bytesAre(60_000, 6)
	t.trim(stream.TrimPolicy{KeepLast: 2}, 8)
	t.bytesAre(20_000, 2)
	t.append("a", p, 11, large(10_000))
	t.bytesAre(30_000, 3)
	t.trim(stream.TrimPolicy{Through: 100}, 11)
	if got := t.info("a").Bytes; got < 0 || got > 11_000 { // the last row may have to stay
		t.Fatalf("a trimmed stream has %d bytes", got)
	}
	t.append("a", p, 12, large(10_000))
	t.trim(stream.TrimPolicy{Through: 11}, 11)
	t.append("a", p, 13, large(10_000))
	t.trim(stream.TrimPolicy{Through: 12}, 12)
	t.bytesAre(10_000, 1)
}

func streamBytesSecond(t *bed) {
	r := t.running("a")
	by := stream.Producer{Session: "a", Epoch: r.fence.Epoch, RunID: r.run}
	t.open("a", by)
	other := *t
	other.Backend = t.second()
	kid := producer("kid", 1)
	for i := range int64(4) {
		t.append("a", by, 2*i+1, large(1000))
		other.append("a", kid, i+1, large(1000))
		commit := r.request(step(int(i), fmt.Sprintf("cp%d", i)))
		out, _, err := t.Backend.Commit(t.Context(), &store.Commit{
			Tenant: t.tenant, Commit: commit, Stream: "a", Batch: stream.Batch{Producer: by, First: 2*i + 2, Chunks: []stream.Chunk{large(1000)}},
		})
		t.ok(err, "commit with chunks")
		r.version, r.commits = out.Version, r.commits+1
	}
	t.bytesAre(12_000, 12)
	equal(t, "bytes on another handle", other.info("a").Bytes, t.info("a").Bytes)
}

func streamMissing(t *bed) {
	m, ctx := t.streams(), t.Context()
	for what, do := range map[string]func() error{
		"Append": func() error {
			_, err := t.tryAppend("nobody", producer("nobody", 1), 1, text("x"))
			return err
		},
		"Append of nothing": func() error { _, err := t.tryAppend("nobody", producer("nobody", 1), 1); return err },
		"Info":              func() error { _, err := m.Info(ctx, "nobody"); return err },
		"Chunks":            func() error { _, err := m.Chunks(ctx, "nobody", 0, 10); return err },
		"ChunksFromStep":    func() error { _, err := stream.ChunksFromStep(ctx, m, "nobody", "r", 0, 0, 10); return err },
		"End": func() error {
			return m.End(ctx, "nobody", producer("nobody", 1), stream.End{Status: stream.EndCompleted})
		},
		"Fail": func() error { return m.Fail(ctx, "nobody", producer("nobody", 1), session.ErrInternal) },
		"Trim": func() error { _, err := m.Trim(ctx, "nobody", stream.TrimPolicy{KeepLast: 1}); return err },
	} {
		t.refused(do(), session.ErrNotFound, what)
	}
	t.quiet(m.Delete(ctx, "nobody"), "Delete")
	_, err := m.Info(ctx, "nobody")
	t.refused(err, session.ErrNotFound, "Info after all that")
}

func deleteStream(t *bed) {
	t.append("a", producer("a", 5), 1, numberedTexts(1, 3)...)
	t.append("b", producer("b", 1), 1, text("b1"))
	t.ok(t.streams().Delete(t.Context(), "a"), "Delete")
	_, err := t.streams().Info(t.Context(), "a")
	t.refused(err, session.ErrNotFound, "Info of a deleted stream")
	_, err = t.tryAppend("a", producer("a", 5), 4, text("late"))
	t.refused(err, session.ErrNotFound, "append to a deleted stream")
	equal(t, "the other stream", t.deltas("b", 0), []string{"b1"})
	equal(t, "sequence", t.append("a", producer("a", 6), 1, text("new")), 1)
	equal(t, "texts", t.deltas("a", 0), []string{"new"})
}

func appendConcurrently(t *bed) {
	const producers, batches = 6, 15
	t.open("a", producer("a", 1))
	errs := make([]error, producers)
	together(producers, func(i int) {
		p := producer(fmt.Sprintf("p%d", i), 1)
		for n := range batches {
			first := n*2 + 1
			chunks := []stream.Chunk{text(fmt.Sprintf("p%d-%d", i, first)), text(fmt.Sprintf("p%d-%d", i, first+1))}
			if _, err := t.tryAppend("a", p, int64(first), chunks...); err != nil {
				errs[i] = err
				return
			}
		}
	})
	t.ok(errors.Join(errs...), "append")
	got := t.deltas("a", 0)
	equal(t, "chunks", len(got), producers*batches*2)
	next := map[string]int{}
	for i := 0; i < len(got); i += 2 {
		who, _, _ := strings.Cut(got[i], "-")
		next[who]++
		equal(t, "a batch in its producer's order", got[i], fmt.Sprintf("%s-%d", who, next[who]))
		next[who]++
		equal(t, "a batch in one piece", got[i+1], fmt.Sprintf("%s-%d", who, next[who]))
	}
}

func foldChunks(t *bed) {
	chunk := func(kind stream.Kind, step int, change func(*stream.Chunk)) stream.Chunk {
		c := stream.Chunk{Kind: kind, AgentID: "a", AgentType: "tester", At: noon, Step: step, RunID: "run-1"}
		if change != nil {
			change(&c)
		}
		return c
	}
	input := user("u1", "go")
	p := producer("a", 1)
	t.append("a", p, 1,
		chunk(stream.InputReceived, 0, func(c *stream.Chunk) { c.Messages = []session.Message{input} }),
		chunk(stream.StepStarted, 1, func(c *stream.Chunk) { c.MessageID = "m1" }),
		chunk(stream.TextDelta, 1, func(c *stream.Chunk) { c.Delta = "wrong" }),
		chunk(stream.StepDiscarded, 1, func(c *stream.Chunk) { c.Scope = stream.ScopeReply }),
		chunk(stream.StepStarted, 1, func(c *stream.Chunk) { c.MessageID = "m1" }),
		chunk(stream.TextDelta, 1, func(c *stream.Chunk) { c.Delta = "rig" }),
		chunk(stream.TextDelta, 1, func(c *stream.Chunk) { c.Delta = "ht" }),
		chunk(stream.StepCommitted, 1, nil))
	t.end("a", p, stream.EndCompleted)
	var read []stream.Chunk
	for _, item := range t.items("a", 0) {
		read = append(read, *item.Chunk)
	}
	got := stream.Fold("a", read)
	equal(t, "messages", len(got), 2)
	equal(t, "input", got[0].Content(), "go")
	equal(t, "reply", got[1].Content(), "right")
}
