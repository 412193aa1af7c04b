package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// divergenceCases cover differences between databases that are easy to overlook.
func divergenceCases() []testCase {
	return []testCase{
		{"nested-merge", "a replaced value replaces all of the old one, nested keys included", 0, nestedMerge},
		{"nulls", "null is a value: it is kept, at the top and nested, and differs from absence", 0, nulls},
		{"timestamps", "times are ordered as instants, regardless of zone and number of fractional digits", 0, timestamps},
		{"row-ids", "rows that replace deleted ones inherit nothing and keep their order", 0, rowIDs},
		{"sentinels", "zero times mean never and zero counts mean all", clock, sentinels},
		{"extreme-times", "times in the distant past and future are kept and compared correctly", 0, extremeTimes},
		{"bad-member", "of many concurrent commits only the bad ones fail", 0, badMember},
		{"conflicting-insert", "a refused insert does not change the existing row", 0, conflictingInsert},
		{"same-ids", "ids of rows are scoped to their session: two sessions may use the same id", 0, sameIDs},
	}
}

func nestedMerge(t *bed) {
	t.create("a", custom(`{"k":{"keep":{"x":1},"list":[1,2]},"other":{"y":1}}`))
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", `{"new":{"z":1}}`))
	t.ok(err, "merge")
	t.customIs("a", `{"k":{"new":{"z":1}},"other":{"y":1}}`)
	r := t.start("a", "run-1")
	r.commit(session.Change{Writes: put("other", `{"y":{"deep":2}}`)})
	t.customIs("a", `{"k":{"new":{"z":1}},"other":{"y":{"deep":2}}}`)
	r.commit(session.Change{Writes: put("k", `{}`)})
	t.customIs("a", `{"k":{},"other":{"y":{"deep":2}}}`)
}

func nulls(t *bed) {
	t.create("a", custom(`{"a":null,"b":{"c":null,"d":[null]}}`))
	t.customIs("a", `{"a":null,"b":{"c":null,"d":[null]}}`)
	_, err := session.Merge(t.Context(), t.store(), "a", session.Compose(
		put("b", `{"c":1,"d":null}`), put("e", `null`), push("l", `null`, `[null]`), drop("a"),
	))
	t.ok(err, "merge")
	t.customIs("a", `{"b":{"c":1,"d":null},"e":null,"l":[null,[null]]}`)
	state := t.load("a")
	equal(t, "a null exists", state.Custom.Has("e"), true)
	equal(t, "a deleted key exists", state.Custom.Has("a"), false)
	r := t.start("a", "run-1")
	change := step(1, "cp1")
	change.Writes = put("b", `null`)
	r.commit(change)
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	t.documentIs("state at the checkpoint", cp.State, `{"b":null,"e":null,"l":[null,[null]]}`)
	r.commit(session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted, Output: raw(`null`)}})
	equal(t, "output", string(t.load("a").Output), `null`)
}

func timestamps(t *bed) {
	base := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	east, west := time.FixedZone("east", 9*3600), time.FixedZone("west", -(8*3600+1800))
	// As text these would sort differently: fractions of different lengths, whole
	// seconds, offsets.
	times := []time.Time{
		base.Add(-time.Second).In(east), base, base.Add(time.Microsecond).In(west), base.Add(10 * time.Microsecond),
		base.Add(100 * time.Millisecond), base.Add(120 * time.Millisecond).In(east), base.Add(123 * time.Millisecond).In(west),
		base.Add(999999 * time.Microsecond), base.Add(time.Second).In(west), base.Add(9 * time.Second), base.Add(10 * time.Second),
	}
	var want []string
	for i, when := range times {
		id := fmt.Sprintf("s%d", (i*7)%len(times))
		t.create(id, at(when), func(s *session.State) { s.ExpiresAt = when.Add(-365 * 24 * time.Hour) })
		want = append(want, id)
		sameTime(t, "created at", t.load(id).CreatedAt, when)
	}
	equal(t, "sessions by expiry", keys(t.due("ExpiredSessions", t.sessions)), want)
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 3, 20} {
		equal(t, fmt.Sprintf("sessions in pages of %d", limit), pages(t, limit, t.listPage(session.Query{}), summaryID), want)
	}
	for i := range times {
		found := t.listed(session.Query{CreatedAfter: times[i].Add(-time.Nanosecond * 500), CreatedBefore: times[i].Add(time.Nanosecond * 500)})
		equal(t, "the session of an instant", found, []string{want[len(want)-1-i]})
	}
}

func rowIDs(t *bed) {
	// The newest session is deleted with everything that belongs to it; the next one
	// takes its place.
	t.crowd("older")
	t.crowd("newest")
	t.ok(t.delete("newest"), "delete")
	t.create("next")
	r := t.start("next", "run-1")
	r.commit(session.Change{Messages: []session.Message{reply("m1", "c1")}})
	t.callsAre("next", "m1")
	t.pendingAre("next")
	t.inboxIs("next")
	equal(t, "children", len(t.children("next")), 0)
	if _, err := t.store().LatestCheckpoint(t.Context(), "next"); t.load("next").CheckpointID == "" {
		t.refused(err, session.ErrNotFound, "LatestCheckpoint")
	}

	// The last rows of a session are deleted; later rows still follow the remaining
	// ones.
	for _, id := range []string{"e1", "e2", "e3"} {
		t.ok(t.store().Send(t.Context(), "next", session.InboxEntry{ID: id, Kind: "note", At: noon}), "Send")
	}
	r.commit(session.Change{Consume: []string{"e3"}})
	t.ok(t.store().Send(t.Context(), "next", session.InboxEntry{ID: "e0", Kind: "note", At: noon}), "Send")
	t.inboxIs("next", "e1", "e2", "e0")
	r.commit(session.Change{Messages: []session.Message{user("u2", "2"), user("u3", "3")}})
	first, err := t.store().Messages(t.Context(), "next", session.PageRequest{Limit: 2})
	t.ok(err, "Messages")
	r.commit(session.Change{KeepMessages: new(2), Messages: []session.Message{user("u4", "4"), user("u5", "5")}})
	t.messagesAre("next", "m1", "u2", "u4", "u5")
	rest, err := t.store().Messages(t.Context(), "next", session.PageRequest{Limit: 5, Cursor: first.Next})
	t.ok(err, "Messages")
	equal(t, "messages after the cursor", len(rest.Items), 2)
	equal(t, "the first of them", rest.Items[0].ID, "u4")
	r.commit(step(1, "z"))
	t.latest("next", "z")
}

func sentinels(t *bed) {
	t.create("a") // no ExpiresAt
	r := t.start("a", "run-1")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}}) // no Deadline
	state := t.load("a")
	equal(t, "expires at", state.ExpiresAt.IsZero(), true)
	equal(t, "interrupt", state.Interrupt == nil, true)
	equal(t, "deadline", state.Pending[0].Deadline.IsZero(), true)
	equal(t, "submitted at", state.Pending[0].SubmittedAt.IsZero(), true)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	equal(t, "ended at", run.EndedAt.IsZero(), true)
	t.append("a", producer("a", 1), 1, numberedTexts(1, 5)...)
	t.trim(stream.TrimPolicy{}, 0)
	t.pass(2 * t.ttl())
	t.dueAre("sessions", t.sessions)
	t.dueAre("deadlines", t.deadlines)
	equal(t, "every session is listed without dates", t.listed(session.Query{}), []string{"a"})
}

func extremeTimes(t *bed) {
	past, ahead := time.Date(1902, 1, 2, 3, 4, 5, 6000, time.UTC), time.Date(2250, 12, 31, 23, 59, 59, 999999000, time.UTC)
	t.create("past", at(past), func(s *session.State) { s.ExpiresAt = past })
	t.create("ahead", at(ahead), func(s *session.State) { s.ExpiresAt = ahead })
	sameTime(t, "created at", t.load("past").CreatedAt, past)
	sameTime(t, "expires at", t.load("ahead").ExpiresAt, ahead)
	equal(t, "sessions", t.listed(session.Query{}), []string{"ahead", "past"})
	equal(t, "pages", pages(t, 1, t.listPage(session.Query{}), summaryID), []string{"ahead", "past"})
	t.dueAre("sessions", t.sessions, "past")
}

func badMember(t *bed) {
	const n = 12
	turns := make([]*turn, n)
	requests := make([]*session.Commit, n)
	for i := range n {
		turns[i] = t.running(fmt.Sprintf("s%d", i))
		requests[i] = turns[i].request(session.Change{Messages: []session.Message{user("u1", "one")}, Writes: put("k", `1`)})
		switch i % 4 {
		case 1:
			requests[i].Version += 7
		case 2:
			requests[i].SessionID = "nobody"
		case 3:
			requests[i].Writes = put("k", `{`)
		}
	}
	errs := make([]error, n)
	together(n, func(i int) { _, errs[i] = t.store().Commit(t.Context(), requests[i]) })
	for i, err := range errs {
		id := fmt.Sprintf("s%d", i)
		if i%4 == 0 {
			t.ok(err, "a good commit among bad ones")
			t.messagesAre(id, "u1")
			continue
		}
		t.refused(err, []*session.Error{nil, session.ErrStale, session.ErrNotFound, session.ErrInvalid}[i%4], "a bad commit")
		t.messagesAre(id)
		t.customIs(id, `{}`)
	}
}

func conflictingInsert(t *bed) {
	t.crowd("a")
	t.create("b")
	s, ctx := t.store(), t.Context()
	t.unchanged("a", func() {
		other := full()
		t.refused(session.Create(ctx, s, other), session.ErrExists, "Create")
		_, err := s.StartRun(ctx, createAndStart(full(), "run-9"))
		t.refused(err, session.ErrExists, "StartRun that creates")
		_, err = s.Clone(ctx, &session.Clone{From: "b", To: *full()})
		t.refused(err, session.ErrExists, "Clone")
		t.ok(s.Send(ctx, "a", session.InboxEntry{ID: "e1", Kind: "other", Body: raw(`"other"`), From: "other"}), "Send again")
	})
	conflictingRows(t)
	summary, err := s.List(ctx, session.Query{Tags: []string{"alpha"}})
	t.ok(err, "List")
	equal(t, "sessions under the refused document's tags", len(summary.Items), 0)
}

// conflictingRows writes calls and entries again that a person or a tool has
// answered in the meantime: whether that is refused or ignored, the answer is
// kept.
func conflictingRows(t *bed) {
	r := t.replied("rows")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}})
	t.settle(r, call("m1", "c1", 0), `"settled"`)
	t.submit("rows", answer("p1", `"answered"`))
	for what, change := range map[string]session.Change{
		"a call":   {Calls: []session.Call{call("m1", "c1", 0)}},
		"an entry": {Pending: []session.Pending{waiting("p1")}},
	} {
		out, err := t.store().Commit(t.Context(), r.request(change))
		if err == nil {
			r.version = out.Version
			r.commits++
		} else if !errors.Is(err, session.ErrInvalid) && !errors.Is(err, session.ErrExists) {
			t.Fatalf("a commit of an existing %s: %v", what, err)
		}
	}
	t.callsAre("rows", "m1", "c1 settled", "c2 open", "c3 open")
	t.pendingAre("rows", "p1 answered")
}

func sameIDs(t *bed) {
	a, b := t.crowd("a"), t.crowd("b")
	b.commit(session.Change{
		Messages: []session.Message{user("u9", "b's own")}, Pending: []session.Pending{waiting("p9")},
		Checkpoint: &session.NewCheckpoint{ID: "cp", Step: 1, Source: session.FromStep}, Writes: put("k", `"b"`),
	})
	before := t.snapshot("a")
	a.commit(session.Change{
		Messages: []session.Message{user("u9", "a's own")}, Pending: []session.Pending{waiting("p9")},
		Checkpoint: &session.NewCheckpoint{ID: "cp", Step: 1, Source: session.FromStep}, Writes: put("k", `"a"`),
	})
	if before == t.snapshot("a") {
		t.Fatalf("the commit changed nothing")
	}
	for id, want := range map[string]string{"a": `{"k":"a"}`, "b": `{"k":"b"}`} {
		cp, err := t.store().Checkpoint(t.Context(), id, "cp")
		t.ok(err, "Checkpoint")
		equal(t, "session of the checkpoint", cp.SessionID, id)
		t.documentIs("state at the checkpoint of "+id, cp.State, want)
	}
	t.submit("a", answer("p9", `"a's"`))
	equal(t, "b's entry", t.entry("b", "p9").State, session.PendingWaiting)
	before = t.snapshot("b")
	t.settle(a, call("m1", "c1", 0), `"a's"`)
	if _, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort}); err != nil {
		t.Fatalf("RequestStop: %v", err)
	}
	a.finish(session.RunSuspendedPartial)
	t.ok(errors.Join(session.DropCalls(t.Context(), t.store(), "a", "m1"), t.delete("a")), "delete a")
	t.sameSnapshot("b", before)
}
