package storetest

import (
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

func callCases() []testCase {
	return []testCase{
		{"rows", "a reply commit's calls are listed in call order with all their fields", 0, callRows},
		{"claim", "an open call is claimed once; later claims find it begun", dated, claim},
		{"claim-settled", "a settled call is returned with its result, not begun again", 0, claimSettled},
		{"claim-in-commit", "a call written as begun is a claim", 0, claimInCommit},
		{"claim-refused", "a claim with another version or fence, or of an unknown call, is refused", 0, claimRefused},
		{"settle", "a settled call keeps its result, writes and time", dated, settle},
		{"settle-first-wins", "the first to settle wins and everyone gets its row", 0, settleFirstWins},
		{"settle-refused", "settling without the lease or an unknown call is refused and changes nothing", 0, settleRefused},
		{"settle-version", "settling does not raise the version", 0, settleVersion},
		{"across-runs", "a resumed run finds the rows of the run that suspended", 0, callsAcrossRuns},
		{"drop", "dropping a message's calls leaves those of others", 0, dropCalls},
		{"clean", "cleaning deletes old rows that no step will use, and only those", alone | dated, cleanCalls},
		{"clean-many", "cleaning reaches all steps, however many have old rows", alone | dated, cleanManyCalls},
	}
}

func callRows(t *bed) {
	r := t.running("a")
	odd := call("m1", "c2", 1)
	odd.Kind, odd.ReadOnly, odd.Idempotent, odd.FinishWith, odd.Serial = session.CallSubAgent, true, true, true, true
	odd.Rejected = &session.Error{Code: session.CodeToolUnknown, Category: "tool", Message: "no <such> tool"}
	odd.Extra = session.Extra{"fromTheFuture": raw(`{"a":1}`)}
	r.commit(session.Change{
		Messages: []session.Message{reply("m1", "c1", "c2", "c3")},
		Calls:    []session.Call{call("m1", "c3", 2), odd, call("m1", "c1", 0)},
	})
	t.callsAre("a", "m1", "c1 open", "c2 open", "c3 open")
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	sameJSON(t, "row", &rows[1], &odd)
	_, err = t.store().Calls(t.Context(), "nobody", "m1")
	t.refused(err, session.ErrNotFound, "Calls of nothing")
	none, err := t.store().Calls(t.Context(), "a", "m9")
	t.ok(err, "Calls of an unknown message")
	equal(t, "calls", len(none), 0)
}

// claim claims a call of message m1.
func (t *bed) claim(r *turn, callID string) (session.Call, bool) {
	t.Helper()
	c, fresh, err := t.store().Claim(t.Context(), r.id, r.version, r.fence, "m1", callID)
	t.ok(err, "claim "+callID)
	return c, fresh
}

func claim(t *bed) {
	r := t.replied("a")
	version := t.load("a").Version
	before := t.now()
	got, fresh := t.claim(r, "c2")
	equal(t, "fresh", fresh, true)
	equal(t, "status", got.Status, session.CallBegun)
	equal(t, "call", got.ID, "c2")
	t.between("begun at", got.BegunAt, before, t.now())
	again, fresh := t.claim(r, "c2")
	equal(t, "fresh", fresh, false)
	sameJSON(t, "the row found", &again, &got)
	t.callsAre("a", "m1", "c1 open", "c2 begun", "c3 open")
	equal(t, "version", t.load("a").Version, version)
	r.commit(session.Change{})
}

func claimSettled(t *bed) {
	r := t.replied("a")
	t.settle(r, call("m1", "c1", 0), `"done"`)
	got, fresh := t.claim(r, "c1")
	equal(t, "fresh", fresh, false)
	equal(t, "status", got.Status, session.CallSettled)
	if got.Result == nil || got.Result.Parts[0].Text != "done" {
		t.Fatalf("the settled call has no result: %s", show(&got))
	}
}

func claimInCommit(t *bed) {
	r := t.running("a")
	begun := call("m1", "c1", 0)
	begun.Status, begun.BegunAt = session.CallBegun, noon
	r.commit(session.Change{Messages: []session.Message{reply("m1", "c1")}, Calls: []session.Call{begun}})
	_, fresh := t.claim(r, "c1")
	equal(t, "fresh", fresh, false)
	t.callsAre("a", "m1", "c1 begun")
}

func claimRefused(t *bed) {
	r := t.replied("a")
	thief, older := r.fence, r.fence
	thief.Owner = "thief"
	older.Epoch--
	for what, try := range map[string]struct {
		version int64
		fence   session.Fence
	}{
		"an older version": {r.version - 1, r.fence},
		"a future version": {r.version + 1, r.fence},
		"another owner":    {r.version, thief},
		"an older epoch":   {r.version, older},
	} {
		t.unchanged("a", func() {
			_, _, err := t.store().Claim(t.Context(), "a", try.version, try.fence, "m1", "c1")
			t.conflict(err, session.ErrStale, t.load("a"), "claim with "+what)
		})
	}
	t.unchanged("a", func() {
		_, _, err := t.store().Claim(t.Context(), "a", r.version, r.fence, "m1", "c9")
		t.refused(err, session.ErrNotFound, "claim of an unknown call")
		_, _, err = t.store().Claim(t.Context(), "a", r.version, r.fence, "m9", "c1")
		t.refused(err, session.ErrNotFound, "claim of an unknown message's call")
	})
	_, _, err := t.store().Claim(t.Context(), "nobody", 1, r.fence, "m1", "c1")
	t.refused(err, session.ErrNotFound, "claim in no session")
}

func settle(t *bed) {
	r := t.replied("a")
	t.claim(r, "c1")
	done := settled(call("m1", "c1", 0), `{ "spaced" : "<1>" }`)
	done.Writes = push("list", `1`)
	done.Writes.Warnings = []string{"careful"}
	before := t.now()
	got, err := t.store().Settle(t.Context(), "a", r.fence, done)
	t.ok(err, "settle")
	equal(t, "status", got.Status, session.CallSettled)
	equal(t, "result", string(got.Result.Parts[0].Output), `{ "spaced" : "<1>" }`)
	sameJSON(t, "writes", got.Writes, done.Writes)
	t.between("settled at", got.SettledAt, before, t.now())
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	sameJSON(t, "the row", &rows[0], &got)
	t.callsAre("a", "m1", "c1 settled", "c2 open", "c3 open")
	t.customIs("a", `{}`) // the results commit applies the writes
}

func settleFirstWins(t *bed) {
	r := t.replied("a")
	first := t.settle(r, call("m1", "c1", 0), `"first"`)
	second := t.settle(r, call("m1", "c1", 0), `"second"`)
	sameJSON(t, "what the second got", &second, &first)
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	sameJSON(t, "the row", &rows[0], &first)
}

func settleRefused(t *bed) {
	r := t.replied("a")
	thief, older := r.fence, r.fence
	thief.Owner = "thief"
	older.Epoch--
	for what, fence := range map[string]session.Fence{"another owner": thief, "an older epoch": older} {
		t.unchanged("a", func() {
			_, err := t.store().Settle(t.Context(), "a", fence, settled(call("m1", "c1", 0), `1`))
			t.conflict(err, session.ErrStale, t.load("a"), "settle with "+what)
		})
	}
	t.unchanged("a", func() {
		_, err := t.store().Settle(t.Context(), "a", r.fence, settled(call("m1", "c9", 0), `1`))
		t.refused(err, session.ErrNotFound, "settle an unknown call")
	})
	_, err := t.store().Settle(t.Context(), "nobody", r.fence, settled(call("m1", "c1", 0), `1`))
	t.refused(err, session.ErrNotFound, "settle in no session")
}

func settleVersion(t *bed) {
	r := t.replied("a")
	version := t.load("a").Version
	t.settle(r, call("m1", "c1", 0), `1`)
	equal(t, "version", t.load("a").Version, version)
	r.commit(session.Change{})
}

func callsAcrossRuns(t *bed) {
	r := t.replied("a")
	t.settle(r, call("m1", "c1", 0), `1`)
	r.finish(session.RunSuspendedPartial)
	r = t.start("a", "run-2")
	t.callsAre("a", "m1", "c1 settled", "c2 open", "c3 open")
	_, fresh := t.claim(r, "c2")
	equal(t, "fresh", fresh, true)
	two, three := result("c2", `2`), result("c3", `3`)
	r.commit(session.Change{Promote: &session.Promotion{MessageID: "m1", Results: []session.Promoted{
		{CallID: "c1"}, {CallID: "c2", Message: &two}, {CallID: "c3", Message: &three},
	}}})
	t.messagesAre("a", "u1", "m1", "c1.r", "c2.r", "c3.r")
	t.callsAre("a", "m1")
}

func dropCalls(t *bed) {
	r := t.replied("a")
	r.commit(session.Change{Messages: []session.Message{reply("m2", "d1")}, Calls: []session.Call{call("m2", "d1", 0)}})
	r.finish(session.RunSuspendedPartial)
	t.ok(session.DropCalls(t.Context(), t.store(), "a", "m1"), "DropCalls")
	t.callsAre("a", "m1")
	t.callsAre("a", "m2", "d1 open")
	t.ok(session.DropCalls(t.Context(), t.store(), "a", "m1"), "DropCalls again")
	t.ok(session.DropCalls(t.Context(), t.store(), "a", "m9"), "DropCalls of an unknown message")
}

func cleanCalls(t *bed) {
	t.replied("live")
	waiting := t.replied("suspended")
	waiting.commit(session.Change{Outcome: &session.Outcome{Status: session.RunSuspendedPartial, SuspendedStep: "m1"}})
	ended := t.replied("ended")
	ended.finish(session.RunCompleted)
	past := t.replied("past")
	past.commit(session.Change{Messages: []session.Message{
		result("c1", `1`), result("c2", `2`), result("c3", `3`), reply("m2"),
	}})
	behind := t.replied("behind") // messages that arrived follow the suspended step
	behind.commit(session.Change{
		Messages: []session.Message{user("u2", "and?")},
		Outcome:  &session.Outcome{Status: session.RunSuspendedPartial, SuspendedStep: "m1"},
	})

	n, err := t.store().CleanCalls(t.Context(), t.now().Add(-time.Hour))
	t.ok(err, "CleanCalls")
	equal(t, "rows older than an hour ago", n, 0)
	n, err = t.store().CleanCalls(t.Context(), t.now().Add(time.Hour))
	t.ok(err, "CleanCalls")
	t.callsAre("live", "m1", "c1 open", "c2 open", "c3 open")
	t.callsAre("suspended", "m1", "c1 open", "c2 open", "c3 open")
	t.callsAre("behind", "m1", "c1 open", "c2 open", "c3 open")
	t.callsAre("ended", "m1")
	t.callsAre("past", "m1")
	equal(t, "rows deleted", n, 6)
	n, err = t.store().CleanCalls(t.Context(), t.now().Add(time.Hour))
	t.ok(err, "CleanCalls again")
	equal(t, "rows deleted", n, 0)
}

// cleanManyCalls leaves the rows of more steps than a store lists at a time.
func cleanManyCalls(t *bed) {
	const steps = 110 // more than a page
	first := t.replied("first")
	t.replied("live")
	var change session.Change
	for i := range steps {
		message, id := fmt.Sprintf("n%03d", i), fmt.Sprint("d", i)
		change.Messages = append(change.Messages, reply(message, id))
		change.Calls = append(change.Calls, call(message, id, 0))
	}
	first.commit(change)
	n, err := t.store().CleanCalls(t.Context(), t.now().Add(time.Hour))
	t.ok(err, "CleanCalls")
	equal(t, "rows deleted", n, 3+steps-1) // no message follows the last step
	t.callsAre("first", "m1")
	t.callsAre("first", "n000")
	t.callsAre("first", fmt.Sprintf("n%03d", steps-1), fmt.Sprintf("d%d open", steps-1))
	t.callsAre("live", "m1", "c1 open", "c2 open", "c3 open")
}
