package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func viewCases() []testCase {
	return []testCase{
		{"from", "MessagesFrom reads the messages from a number on, byte for byte, and none after the end", 0, messagesFrom},
		{"trims", "a trim leaves the messages in view that the marker before it does", 0, trimMarks},
		{"marks", "the document says where the markers are, whichever write appends them", 0, marksFollowMarkers},
		{"rewind", "a rewind before a marker leaves the marks of earlier ones, and one behind it all", 0, rewindMarks},
		{"clone", "a copy has the marks of the messages that it has", 0, cloneMarks},
		{"save", "replacing the document keeps its marks, whatever it says about them", 0, saveMarks},
		{"refused", "a refused change leaves the marks as they are", 0, refusedMarks},
		{"random", "after any series of changes, rewinds and copies the view that is read is that of the whole transcript", 0, randomMarks},
		{"second", "another handle reads the same view", second, secondMarks},
		{"old-rewind", "marks of messages that a process without markers has dropped do not change the view", 0, foreignMarks},
	}
}

// marker returns a marker that keeps messages.
func (t *bed) marker(id string, kept int) session.Message {
	t.Helper()
	m, err := session.Compaction{Kind: session.CompactionSummary, Kept: kept, TokensBefore: 1000, TokensAfter: 100, Model: "m"}.
		Marker("Summary of what came before.", session.Text("What extensions kept of it."))
	t.ok(err, "make a marker")
	m.ID = id
	return m
}

// trimMarker returns a marker that cuts results.
func (t *bed) trimMarker(id string, kept int) session.Message {
	t.Helper()
	m, err := session.Compaction{Kind: session.CompactionTrim, Kept: kept, Arguments: 300, Results: 300}.Marker("Cut.")
	t.ok(err, "make a trim")
	m.ID = id
	return m
}

// marksAre compares the marks of a session's document.
func (t *bed) marksAre(id string, want ...session.Mark) {
	t.Helper()
	got := t.load(id).Marks
	if len(got) == 0 && len(want) == 0 {
		return
	}
	equal(t, "marks", got, session.Marks(want))
}

// viewIs checks that the view which the document leads to is that of the whole
// transcript, and returns how many messages were read for it.
func (t *bed) viewIs(s session.Store, id string) int {
	t.Helper()
	state, err := s.Load(t.Context(), id)
	t.ok(err, "Load")
	tail, err := session.ReadView(t.Context(), s, state)
	t.ok(err, "ReadView")
	all, err := s.AllMessages(t.Context(), id)
	t.ok(err, "AllMessages")
	equal(t, "messages before and in the view", tail.Before+len(tail.Messages), len(all))
	got, want := session.View(tail.Messages), session.View(all)
	equal(t, "messages of the view", len(got), len(want))
	for i := range want {
		if !got[i].Equal(&want[i]) {
			t.Fatalf("message %d of the view: got %s, want %s", i, show(&got[i]), show(&want[i]))
		}
	}
	return len(tail.Messages)
}

func messagesFrom(t *bed) {
	t.numbered("a", 5)
	t.numbered("b", 3)
	for from, want := range map[int]int{-1: 5, 0: 5, 1: 5, 2: 4, 5: 1, 6: 0, 7: 0, 1 << 40: 0} {
		got, err := t.store().MessagesFrom(t.Context(), "a", from)
		t.ok(err, "MessagesFrom")
		equal(t, fmt.Sprintf("messages from %d", from), len(got), want)
		for i := range got {
			equal(t, "message id", got[i].ID, fmt.Sprintf("m%d", 5-want+i))
		}
	}
	t.create("odd")
	want := oddMessages()
	_, err := session.AppendMessages(t.Context(), t.store(), "odd", want)
	t.ok(err, "append")
	got, err := t.store().MessagesFrom(t.Context(), "odd", 2)
	t.ok(err, "MessagesFrom")
	for i := range got {
		if !got[i].Equal(&want[1+i]) {
			t.Fatalf("message %d: got %s, want %s", 1+i, show(&got[i]), show(&want[1+i]))
		}
	}
}

func marksFollowMarkers(t *bed) {
	t.create("a", func(s *session.State) { s.Marks = session.Marks{{Marker: 7, From: 3}} })
	t.marksAre("a")
	_, err := session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("u1", "a"), user("u2", "b"), t.marker("k1", 1), user("u3", "c")})
	t.ok(err, "append")
	t.marksAre("a", session.Mark{Marker: 3, From: 2})
	equal(t, "messages read", t.viewIs(t.store(), "a"), 3)

	start := t.startOf("a", "run-1")
	start.Messages = []session.Message{user("u4", "d"), t.marker("k2", 0)}
	r := t.begin(start)
	t.marksAre("a", session.Mark{Marker: 3, From: 2}, session.Mark{Marker: 6, From: 6})
	equal(t, "messages read", t.viewIs(t.store(), "a"), 1)

	r.commit(step(1, "cp1", reply("m1", "c1"), result("c1", `1`)))
	c := r.request(step(1, "cp2", t.marker("k3", 2)))
	out, _, err := t.Backend.Commit(t.Context(), &store.Commit{Tenant: t.tenant, Commit: c, Stream: "a", Batch: t.batch("a", r)})
	t.ok(err, "commit with chunks")
	equal(t, "message count", out.MessageCount, 9)
	equal(t, "checkpoint", out.CheckpointID, "cp2")
	last := session.Mark{Marker: 9, From: 7}
	t.marksAre("a", session.Mark{Marker: 3, From: 2}, session.Mark{Marker: 6, From: 6}, last)
	again, _, err := t.Backend.Commit(t.Context(), &store.Commit{Tenant: t.tenant, Commit: c, Stream: "a", Batch: t.batch("a", r)})
	t.ok(err, "the same commit again")
	equal(t, "repeated", again.Repeated, true)
	r.version, r.commits = out.Version, r.commits+1
	r.commit(step(2, "cp3", reply("m2")))
	t.marksAre("a", session.Mark{Marker: 3, From: 2}, session.Mark{Marker: 6, From: 6}, last)
	equal(t, "messages read", t.viewIs(t.store(), "a"), 4)
	r.finish(session.RunCompleted)
	equal(t, "messages read", t.viewIs(t.store(), "a"), 4)

	created := createAndStart(blank("b"), "run-1")
	created.Messages = []session.Message{user("u1", "a"), t.marker("k1", 5)}
	t.begin(created)
	t.marksAre("b", session.Mark{Marker: 2, From: 1})
	equal(t, "messages read", t.viewIs(t.store(), "b"), 2)
}

func trimMarks(t *bed) {
	t.create("a")
	long := result("c1", `"`+strings.Repeat("x", 1000)+`"`)
	_, err := session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("u1", "a"), reply("r1", "c1"), long, t.trimMarker("k1", 0)})
	t.ok(err, "append")
	t.marksAre("a", session.Mark{Marker: 4, From: 1})
	equal(t, "messages read", t.viewIs(t.store(), "a"), 4)
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("u2", "b"), t.marker("k2", 3)})
	t.ok(err, "append")
	marks := []session.Mark{{Marker: 4, From: 1}, {Marker: 6, From: 3}}
	t.marksAre("a", marks...)
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("u3", "c"), t.trimMarker("k3", 1), user("u4", "d"), t.trimMarker("k4", 0)})
	t.ok(err, "append")
	marks = append(marks, session.Mark{Marker: 8, From: 3}, session.Mark{Marker: 10, From: 3})
	t.marksAre("a", marks...)
	equal(t, "messages read", t.viewIs(t.store(), "a"), 7) // a result without its call is not kept
	_, err = t.store().Edit(t.Context(), &session.Edit{SessionID: "a", Change: session.Change{
		KeepMessages: new(5), Messages: []session.Message{t.trimMarker("k5", 2)},
	}})
	t.ok(err, "rewind")
	t.marksAre("a", marks[0], session.Mark{Marker: 6, From: 1})
	t.viewIs(t.store(), "a")

	r := t.start("a", "run-1")
	r.commit(step(1, "cp1", user("u5", "e"), t.marker("k6", 1), t.trimMarker("k7", 1)))
	t.marksAre("a", marks[0], session.Mark{Marker: 6, From: 1}, session.Mark{Marker: 8, From: 7}, session.Mark{Marker: 9, From: 7})
	equal(t, "messages read", t.viewIs(t.store(), "a"), 3)
}

// batch returns the first chunk of a turn.
func (t *bed) batch(id string, r *turn) stream.Batch {
	t.Helper()
	by := stream.Producer{Session: id, Epoch: r.fence.Epoch, RunID: r.run}
	_, err := t.streams().Reactivate(t.Context(), id, by)
	t.ok(err, "open the stream")
	return stream.Batch{Producer: by, First: 1, Chunks: numberedTexts(1, 1)}
}

// marked makes a session of 12 messages with markers at 4 and 9, and checkpoints
// with 3, 4, 9 and 12 messages.
func (t *bed) marked(id string) *turn {
	t.Helper()
	t.numbered(id, 3)
	r := t.start(id, "run-1")
	r.commit(step(1, "cp3"))
	r.commit(step(1, "cp4", t.marker("k1", 1)))
	r.commit(step(2, "cp8", user("m4", "x"), user("m5", "x"), user("m6", "x"), user("m7", "x")))
	r.commit(step(2, "cp9", t.marker("k2", 3)))
	r.commit(step(3, "cp12", user("m9", "x"), user("m10", "x"), user("m11", "x")))
	return r
}

var firstMark, secondMark = session.Mark{Marker: 4, From: 3}, session.Mark{Marker: 9, From: 6}

func rewindMarks(t *bed) {
	for keep, want := range map[int][]session.Mark{
		12: {firstMark, secondMark}, 9: {firstMark, secondMark}, 8: {firstMark}, 4: {firstMark}, 3: nil, 0: nil,
	} {
		id := fmt.Sprintf("edit-%d", keep)
		t.marked(id).finish(session.RunCompleted)
		_, err := session.TruncateMessages(t.Context(), t.store(), id, keep)
		t.ok(err, "truncate")
		t.marksAre(id, want...)
		t.viewIs(t.store(), id)

		id = fmt.Sprintf("commit-%d", keep)
		t.marked(id).commit(session.Change{KeepMessages: new(keep), Messages: []session.Message{t.marker("k3", 0)}})
		t.marksAre(id, append(want, session.Mark{Marker: keep + 1, From: keep + 1})...)
		equal(t, "messages read", t.viewIs(t.store(), id), 1)

		id = fmt.Sprintf("start-%d", keep)
		t.marked(id).finish(session.RunCompleted)
		start := t.startOf(id, "run-2")
		start.KeepMessages, start.Messages = new(keep), []session.Message{user("u", "x")}
		t.begin(start)
		t.marksAre(id, want...)
		t.viewIs(t.store(), id)
	}
}

func cloneMarks(t *bed) {
	t.marked("a")
	for at, want := range map[string][]session.Mark{
		"": {firstMark, secondMark}, "cp12": {firstMark, secondMark}, "cp9": {firstMark, secondMark},
		"cp8": {firstMark}, "cp4": {firstMark}, "cp3": nil,
	} {
		id := "copy-" + at
		copied, err := t.store().Clone(t.Context(), &session.Clone{From: "a", CheckpointID: at, To: *blank(id)})
		t.ok(err, "Clone")
		equal(t, "marks of the answer", len(copied.Marks), len(want))
		t.marksAre(id, want...)
		t.viewIs(t.store(), id)
	}
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", MessageCount: new(8), To: *blank("count")})
	t.ok(err, "Clone")
	t.marksAre("count", firstMark)
	_, err = session.AppendMessages(t.Context(), t.store(), "count", []session.Message{t.marker("other", 2)})
	t.ok(err, "append")
	t.marksAre("count", firstMark, session.Mark{Marker: 9, From: 7})
	t.marksAre("a", firstMark, secondMark)
	t.viewIs(t.store(), "count")
}

func saveMarks(t *bed) {
	t.marked("a").finish(session.RunCompleted)
	state := t.load("a")
	state.UserID, state.Marks = "somebody", session.Marks{{Marker: 2, From: 1}}
	t.ok(session.Save(t.Context(), t.store(), state), "Save")
	t.marksAre("a", firstMark, secondMark)
	_, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: []session.Status{session.Completed}, To: session.Paused})
	t.ok(err, "SetStatus")
	t.ok(session.PatchMetadata(t.Context(), t.store(), "a", map[string]*string{"a": new("b")}), "PatchMetadata")
	t.marksAre("a", firstMark, secondMark)
	_, err = t.store().Edit(t.Context(), &session.Edit{SessionID: "a", Version: t.load("a").Version, Document: t.load("a"), Change: session.Change{
		KeepMessages: new(5), Messages: []session.Message{t.marker("k9", 1)},
	}})
	t.ok(err, "Edit")
	t.marksAre("a", firstMark, session.Mark{Marker: 6, From: 5})
	t.viewIs(t.store(), "a")
}

func refusedMarks(t *bed) {
	r := t.marked("a")
	stale := r.request(step(4, "cp13", t.marker("k3", 1)))
	stale.Version--
	r.refuse(stale, session.ErrStale)
	twice := r.request(step(4, "cp13", t.marker("k1", 1)))
	r.refuse(twice, session.ErrInvalid)
	r.refuse(r.request(session.Change{KeepMessages: new(13), Messages: []session.Message{t.marker("k3", 1)}}), session.ErrInvalid)
	t.marksAre("a", firstMark, secondMark)
}

func randomMarks(t *bed) {
	for round := range 5 {
		random := rand.New(rand.NewPCG(uint64(round), 7))
		id := fmt.Sprintf("s%d", round)
		t.create(id)
		var model session.Marks
		count, made := 0, 0
		for n := range 25 {
			var change session.Change
			if count > 0 && random.IntN(4) == 0 {
				change.KeepMessages = new(random.IntN(count + 1))
			}
			for range random.IntN(4) {
				made++
				switch m := user(fmt.Sprintf("m%d", made), "x"); random.IntN(6) {
				case 0:
					change.Messages = append(change.Messages, t.marker(m.ID, random.IntN(6)))
				case 1:
					change.Messages = append(change.Messages, t.trimMarker(m.ID, random.IntN(6)))
				default:
					change.Messages = append(change.Messages, m)
				}
			}
			model = model.After(count, &change)
			if change.KeepMessages != nil {
				count = *change.KeepMessages
			}
			count += len(change.Messages)
			_, err := t.store().Edit(t.Context(), &session.Edit{SessionID: id, Change: change})
			t.ok(err, "Edit")
			if random.IntN(6) == 0 {
				copied := fmt.Sprintf("%s-%d", id, n)
				at := random.IntN(count + 1)
				_, err := t.store().Clone(t.Context(), &session.Clone{From: id, MessageCount: new(at), To: *blank(copied)})
				t.ok(err, "Clone")
				id, count, model = copied, at, model.Within(at)
			}
			t.marksAre(id, model...)
			t.viewIs(t.store(), id)
		}
	}
}

func secondMarks(t *bed) {
	t.marked("a")
	equal(t, "messages read", t.viewIs(t.sessionsOf(t.reopened()), "a"), 7)
}

// foreignMarks reads with the marks that a document would have after a process that
// does not know them has rewound it and continued.
func foreignMarks(t *bed) {
	t.marked("a").finish(session.RunCompleted)
	was := t.load("a")
	_, err := session.TruncateMessages(t.Context(), t.store(), "a", 5)
	t.ok(err, "truncate")
	check := func(marks string) {
		tail, err := session.ReadView(t.Context(), t.store(), was)
		t.ok(err, "ReadView with marks "+marks)
		equal(t, "first message of the view with marks "+marks, session.View(tail.Messages)[0].ID, "k1")
		equal(t, "all messages", tail.Before+len(tail.Messages), t.load("a").MessageCount)
	}
	check("past the end")
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{
		user("n1", "x"), user("n2", "x"), user("n3", "x"), user("n4", "x"), user("n5", "x"), user("n6", "x"),
	})
	t.ok(err, "append")
	check("of other messages")
}
