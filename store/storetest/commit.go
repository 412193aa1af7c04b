package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

func commitCases() []testCase {
	return []testCase{
		{"version", "a commit raises the version by one and records its key", 0, commitVersion},
		{"empty", "a commit without any change still counts", 0, commitEmpty},
		{"messages", "a commit appends its messages in order, byte for byte", 0, commitMessages},
		{"keep-messages", "a commit truncates before it appends", 0, commitKeepMessages},
		{"state-then-writes", "a commit replaces custom state before it performs writes", 0, commitState},
		{"state-bytes", "a replaced custom state keeps its bytes", 0, commitStateBytes},
		{"not-a-list", "an append to a value that is not a list is refused or causes a warning", 0, commitNotAList},
		{"step-count", "a commit sets the step count of session and run", 0, commitStepCount},
		{"promote", "promoted results follow the commit's messages in the given order, and their rows are deleted", 0, commitPromote},
		{"promote-handed-in", "a promoted message that was never settled is stored unchanged", 0, commitPromoteHandedIn},
		{"promote-unsettled", "a call without a result cannot be promoted", 0, commitPromoteUnsettled},
		{"pending", "a commit adds pending entries, in order, which Load returns", 0, commitPending},
		{"resolve", "a commit resolves entries, which are kept for late answers", 0, commitResolve},
		{"waits", "a suspending commit is refused if a call that it waits on was answered in the meantime", 0, commitWaits},
		{"waits-tree", "a root's suspending commit is refused if a call of its tree was disowned in the meantime", 0, commitWaitsTree},
		{"waits-rewind", "a commit or start that rewinds and waits is refused in the same cases", 0, commitWaitsRewind},
		{"waits-own", "what a commit itself does to the calls that it waits on does not refuse it", 0, commitWaitsOwn},
		{"ownership", "a commit writes ownership and marks calls completed", 0, commitOwnership},
		{"children", "a commit adds and replaces child references", 0, commitChildren},
		{"consume", "a commit consumes inbox entries by key, and no others", 0, commitConsume},
		{"checkpoint", "a commit's checkpoint describes the session after it", 0, commitCheckpoint},
		{"run-change", "a commit changes the run's record and adds up its usage", 0, commitRunChange},
		{"outcome", "an outcome ends the run and is written to run and session", 0, commitOutcome},
		{"outcome-suspended", "a suspending outcome leaves the session active and records what it waits for", 0, commitSuspended},
		{"outcome-failed", "a failed outcome keeps its error with code and text", 0, commitFailed},
		{"reopen", "a new run clears the error and interrupt of the last one and keeps its output", 0, commitReopen},
		{"everything", "all parts of one commit are applied together", 0, commitEverything},
		{"repeated", "a commit repeated with its key returns the original outcome and does nothing", 0, commitRepeated},
		{"repeated-outcome", "a last commit repeated after the lease was released still succeeds", 0, commitRepeatedOutcome},
		{"repeated-older", "only the last key is remembered: an older commit again is stale", 0, commitRepeatedOlder},
		{"stale", "a wrong version, owner, epoch or run is refused with the state of the session, and changes nothing", 0, commitStale},
		{"ended", "a run that has ended accepts no further commit", 0, commitEnded},
		{"transition", "a status that the table does not allow is refused", 0, commitTransition},
		{"invalid", "an invalid change is refused as a whole", 0, commitInvalid},
		{"missing", "a commit to a session that does not exist is not found", 0, commitMissing},
		{"stop", "a commit reports a stop request and does not consume it", 0, commitStop},
		{"stop-consumed", "the commit that ends the run consumes its stop request", 0, commitStopConsumed},
		{"stop-repeated", "the commit that consumed a stop request returns it again when it is repeated", 0, commitStopRepeated},
		{"inbox", "a commit reports whether the inbox has entries", 0, commitInbox},
		{"caller-keeps", "later changes by the caller to a commit's parts do not reach the store", 0, commitCopies},
		{"cancelled", "a commit with a cancelled context is applied completely or not at all", 0, commitCancelled},
	}
}

func commitVersion(t *bed) {
	r := t.running("a")
	before := t.load("a")
	equal(t, "version after the start", before.Version, r.version)
	out := r.commit(session.Change{Messages: []session.Message{user("u1", "one")}})
	got := t.load("a")
	equal(t, "version", got.Version, before.Version+1)
	equal(t, "version returned", out.Version, got.Version)
	equal(t, "message count returned", out.MessageCount, 1)
	equal(t, "repeated", out.Repeated, false)
	equal(t, "last commit", got.LastCommit, "run-1/1")
	equal(t, "status", got.Status, session.Active)
	equal(t, "lease", got.Lease.Fence(), r.fence)
	if got.UpdatedAt.Before(before.UpdatedAt) {
		t.Fatalf("updated at went back from %v to %v", before.UpdatedAt, got.UpdatedAt)
	}
}

func commitEmpty(t *bed) {
	r := t.running("a")
	version := r.version
	r.commit(session.Change{})
	got := t.load("a")
	equal(t, "version", got.Version, version+1)
	equal(t, "last commit", got.LastCommit, "run-1/1")
	t.messagesAre("a")
}

// oddMessages returns messages that together have every field.
func oddMessages() []session.Message {
	return []session.Message{
		{
			ID: "u1", Role: session.RoleUser, RunID: "run-1", Step: 2, At: noon.Add(7),
			Parts: []session.Part{
				session.Text("line\nbreak\ttab \"quote\" \\ <b>&amp;</b> \u2028 é😀 \u0001"),
				{Kind: session.PartFile, URL: "data:text/plain;base64,eA==", MediaType: "text/plain", Filename: "x <1>.txt"},
			},
			Metadata: map[string]json.RawMessage{"hidden": raw(`true`), "odd": raw(`{ "spaced" : 1.0 }`)},
			Extra:    session.Extra{"fromTheFuture": raw(`[ 1, 2 ]`)},
		},
		{
			ID: "m1", Role: session.RoleAssistant, Parts: []session.Part{
				{Kind: session.PartReasoning, Text: "hm", Provider: raw(`{ "signature" : "s<>" }`)},
				{Kind: session.PartToolCall, CallID: "c1", ProviderCallID: "toolu_1", Tool: "tool", Input: raw(`{ "b":1.0,"a" : 1e2 }`)},
				{Kind: session.PartText, Text: "", Extra: session.Extra{"later": raw(`1`)}},
			},
		},
		{
			ID: "r1", Role: session.RoleTool, Parts: []session.Part{
				{Kind: session.PartToolResult, CallID: "c1", ProviderCallID: "toolu_1", Tool: "tool", Output: raw(`{ "z" : [ 1 , 2 ] }`)},
			},
		},
		{ID: "s1", Role: session.RoleSystem, Parts: []session.Part{session.Text("be kind")}},
	}
}

func commitMessages(t *bed) {
	r := t.running("a")
	want := oddMessages()
	r.commit(session.Change{Messages: want[:1]})
	r.commit(session.Change{Messages: want[1:]})
	t.messagesAre("a", "u1", "m1", "r1", "s1")
	t.sameMessages(want)
}

// sameMessages compares the transcript of session "a" byte for byte.
func (t *bed) sameMessages(want []session.Message) {
	t.Helper()
	got, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	equal(t, "number of messages", len(got), len(want))
	for i := range want {
		if !got[i].Equal(&want[i]) {
			t.Fatalf("message %d: got %s, want %s", i, show(&got[i]), show(&want[i]))
		}
	}
}

func commitKeepMessages(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Messages: []session.Message{user("u1", "1"), user("u2", "2"), user("u3", "3")}})
	out := r.commit(session.Change{KeepMessages: new(1), Messages: []session.Message{user("u4", "4")}})
	equal(t, "message count returned", out.MessageCount, 2)
	t.messagesAre("a", "u1", "u4")
	r.commit(session.Change{KeepMessages: new(2)})
	t.messagesAre("a", "u1", "u4")
	r.commit(session.Change{KeepMessages: new(0)})
	t.messagesAre("a")
	r.commit(session.Change{Messages: []session.Message{user("u1", "an id used before")}})
	t.messagesAre("a", "u1")
}

func commitState(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Writes: put("old", `1`)})
	replaced := document(`{"list":[1]}`)
	r.commit(session.Change{State: &replaced, Writes: push("list", `2`)})
	t.customIs("a", `{"list":[1,2]}`)
	empty := session.CustomState{}
	r.commit(session.Change{State: &empty})
	t.customIs("a", `{}`)
	r.commit(session.Change{State: &empty, Writes: put("new", `null`)})
	t.customIs("a", `{"new":null}`)
}

func commitStateBytes(t *bed) {
	r := t.running("a")
	value := `{ "spaced" : 1.0, "html": "<&>" }`
	var d session.CustomState
	d.Set("k", raw(value))
	r.commit(session.Change{State: &d})
	got := t.load("a")
	equal(t, "value", string(got.Custom.Get("k")), value)
}

func commitNotAList(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Writes: put("k", `"text"`)})
	before := t.snapshot("a")
	out, err := t.store().Commit(t.Context(), r.request(session.Change{
		Messages: []session.Message{user("u1", "one")}, Writes: push("k", `1`),
	}))
	if err != nil {
		t.refused(err, session.ErrInvalid, "append to a string")
		t.sameSnapshot("a", before)
		return
	}
	if len(out.Warnings) == 0 {
		t.Fatalf("an append to a string succeeded without a warning; custom state is %s", show(t.load("a").Custom))
	}
	t.messagesAre("a", "u1")
}

func commitStepCount(t *bed) {
	r := t.running("a")
	equal(t, "step count at the start", t.load("a").StepCount, 0)
	for n := 1; n <= 3; n++ {
		r.commit(session.Change{StepCount: new(n)})
		equal(t, "step count of the session", t.load("a").StepCount, n)
		run, err := t.store().CurrentRun(t.Context(), "a")
		t.ok(err, "CurrentRun")
		equal(t, "step count of the run", run.StepCount, n)
	}
	r.commit(session.Change{})
	equal(t, "step count after a commit without one", t.load("a").StepCount, 3)
}

// replied returns a turn whose reply m1 made the calls c1, c2 and c3.
func (t *bed) replied(id string) *turn {
	t.Helper()
	r := t.running(id)
	r.commit(session.Change{
		Messages: []session.Message{user("u1", "go"), reply("m1", "c1", "c2", "c3")},
		Calls:    []session.Call{call("m1", "c1", 0), call("m1", "c2", 1), call("m1", "c3", 2)},
	})
	return r
}

func (t *bed) settle(r *turn, c session.Call, output string) session.Call {
	t.Helper()
	got, err := t.store().Settle(t.Context(), r.id, r.fence, settled(c, output))
	t.ok(err, "settle "+c.ID)
	return got
}

func (t *bed) callsAre(id, messageID string, want ...string) {
	t.Helper()
	rows, err := t.store().Calls(t.Context(), id, messageID)
	t.ok(err, "Calls")
	got := make([]string, len(rows))
	for i := range rows {
		got[i] = rows[i].ID + " " + string(rows[i].Status)
	}
	sameJSON(t, "calls of "+messageID, got, append([]string{}, want...))
}

func commitPromote(t *bed) {
	r := t.replied("a")
	for i, id := range []string{"c3", "c1", "c2"} { // settled in another order than called
		t.settle(r, call("m1", id, i), `{ "of" : "`+id+`" }`)
	}
	out := r.commit(session.Change{
		Messages: []session.Message{user("note", "before the results")},
		Promote:  &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}, {CallID: "c2"}, {CallID: "c3"}}},
	})
	equal(t, "message count", out.MessageCount, 6)
	t.messagesAre("a", "u1", "m1", "note", "c1.r", "c2.r", "c3.r")
	t.callsAre("a", "m1")
	messages, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	equal(t, "the result's bytes", string(messages[3].Parts[0].Output), `{ "of" : "c1" }`)
	if _, err := t.store().Settle(t.Context(), "a", r.fence, settled(call("m1", "c1", 0), `"again"`)); err == nil {
		t.Fatalf("a promoted call could be settled again")
	}
	t.callsAre("a", "m1")
}

func commitPromoteHandedIn(t *bed) {
	r := t.replied("a")
	t.settle(r, call("m1", "c2", 1), `2`)
	one, three := result("c1", `{ "own" : 1 }`), result("c3", `3`)
	r.commit(session.Change{Promote: &session.Promotion{MessageID: "m1", Results: []session.Promoted{
		{CallID: "c1", Message: &one}, {CallID: "c2"}, {CallID: "c3", Message: &three},
	}}})
	t.messagesAre("a", "u1", "m1", "c1.r", "c2.r", "c3.r")
	messages, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	if !messages[2].Equal(&one) || !messages[4].Equal(&three) {
		t.Fatalf("inline results changed: %s, %s", show(&messages[2]), show(&messages[4]))
	}
	t.callsAre("a", "m1")

	// A reply whose calls are all read-only has no rows.
	four := result("c4", `4`)
	r.commit(session.Change{
		Messages: []session.Message{reply("m2", "c4")},
		Promote:  &session.Promotion{MessageID: "m2", Results: []session.Promoted{{CallID: "c4", Message: &four}}},
	})
	t.messagesAre("a", "u1", "m1", "c1.r", "c2.r", "c3.r", "m2", "c4.r")
}

func commitPromoteUnsettled(t *bed) {
	r := t.replied("a")
	t.settle(r, call("m1", "c1", 0), `1`)
	for _, missing := range []string{"c2", "c9"} {
		before := t.snapshot("a")
		_, err := t.store().Commit(t.Context(), r.request(session.Change{
			Messages: []session.Message{user("u2", "two")},
			Promote:  &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}, {CallID: missing}}},
		}))
		if _, ok := errors.AsType[*session.Error](err); !ok {
			t.Fatalf("promoting call %s, which has no result, gave %v, want a typed error", missing, err)
		}
		t.sameSnapshot("a", before)
	}
}

func commitPending(t *bed) {
	r := t.running("a")
	first := waiting("p1")
	first.MessageID, first.SessionID, first.RunID = "m1", "a", "run-1"
	first.CreatedAt, first.Deadline = noon, noon.Add(24*time.Hour)
	first.Input = raw(`{ "q" : "<why>" }`)
	first.Extra = session.Extra{"fromTheFuture": raw(`1`)}
	approval := waiting("p2")
	approval.Kind, approval.ApprovalID, approval.Fingerprint = session.PendingApproval, "ap-1", "f00"
	approval.CreatedAt = noon.Add(time.Second)
	r.commit(session.Change{Pending: []session.Pending{first, approval}})
	state := t.load("a")
	equal(t, "pending in the document", len(state.Pending), 2)
	sameTime(t, "created at", state.Pending[0].CreatedAt, first.CreatedAt)
	sameTime(t, "deadline", state.Pending[0].Deadline, first.Deadline)
	t.samePending(state.Pending[0], first)
	t.samePending(state.Pending[1], approval)
	listed, err := t.store().PendingCalls(t.Context(), "a", false)
	t.ok(err, "PendingCalls")
	sameJSON(t, "pending calls", pointers(listed), pointers(state.Pending))
}

// samePending compares persisted entries, except for the whitespace of embedded
// JSON, which encoding/json changes.
func (t *bed) samePending(got, want session.Pending) {
	t.Helper()
	equal(t, "input of "+want.CallID, string(got.Input), string(want.Input))
	got.SessionID, got.RunID = want.SessionID, want.RunID // the store may fill these in
	sameJSON(t, "pending "+want.CallID, &got, &want)
}

func (t *bed) pendingAre(id string, want ...string) {
	t.Helper()
	all, err := t.store().PendingCalls(t.Context(), id, true)
	t.ok(err, "PendingCalls")
	got := make([]string, len(all))
	for i := range all {
		got[i] = all[i].CallID + " " + string(all[i].State)
	}
	sameJSON(t, "pending calls of "+id, got, append([]string{}, want...))
}

func commitResolve(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1"), waiting("p2"), waiting("p3"), waiting("p4")}})
	_, err := t.store().Submit(t.Context(), "a", answer("p1", `1`))
	t.ok(err, "submit")
	r.commit(session.Change{Resolve: []session.Resolution{
		{CallID: "p1", State: session.PendingConsumed},
		{CallID: "p2", State: session.PendingTimedOut},
		{CallID: "p3", State: session.PendingAbandoned},
	}})
	t.pendingAre("a", "p1 consumed", "p2 timed_out", "p3 abandoned", "p4 waiting")
	open, err := t.store().PendingCalls(t.Context(), "a", false)
	t.ok(err, "PendingCalls")
	equal(t, "open entries", len(open), 1)
	equal(t, "open entry", open[0].CallID, "p4")
	equal(t, "open entries in the document", len(t.load("a").Pending), 1)
	for callID, want := range map[string]session.SubmitOutcome{
		"p1": session.SubmitAlreadyCompleted, "p2": session.SubmitLate, "p3": session.SubmitAlreadyCompleted,
	} {
		got, err := t.store().Submit(t.Context(), "a", answer(callID, `"late"`))
		t.ok(err, "submit")
		equal(t, "outcome for "+callID, got, want)
	}
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "p2", State: session.PendingTimedOut, Noticed: true}}})
	all, err := t.store().PendingCalls(t.Context(), "a", true)
	t.ok(err, "PendingCalls")
	equal(t, "noticed", all[1].LateNoticed, true)
	if all[1].Late == nil || string(all[1].Late.Result) != `"late"` {
		t.Fatalf("the late answer is not kept: %s", show(&all[1]))
	}
}

func commitWaits(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1"), waiting("p2")}})
	outcome, err := t.store().Submit(t.Context(), "a", answer("p2", `2`))
	t.ok(err, "submit")
	equal(t, "outcome", outcome, session.SubmitAccepted)
	suspend := session.Change{
		Messages: []session.Message{user("u1", "1")},
		Waits:    []string{"p1", "p2"}, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool},
	}
	r.refuse(r.request(suspend), session.ErrAnswered)
	suspend.Waits = []string{"p1"}
	suspend.Resolve = []session.Resolution{{CallID: "p2", State: session.PendingConsumed}}
	r.commit(suspend)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	equal(t, "run status", run.Status, session.RunSuspendedClientTool)
}

// owning returns a root in a run, with calls of its tree: c1 and c2 are open, d1
// and d2 completed. Of its own calls p1 and d2 are answered, p2 is not.
func (t *bed) owning(id string) *turn {
	t.Helper()
	r := t.running(id)
	r.commit(session.Change{
		Messages: []session.Message{user("u1", "1"), user("u2", "2")},
		Pending:  []session.Pending{waiting("p1"), waiting("p2"), waiting("d2")},
		Own:      owned("c1", "c2", "d1", "d2"),
	})
	for _, callID := range []string{"p1", "d2"} {
		equal(t, "outcome", t.submit(id, answer(callID, `1`)), session.SubmitAccepted)
	}
	t.ok(t.store().Disown(t.Context(), id, []string{"d1", "d2", "unknown"}), "Disown")
	return r
}

// owned returns ownerships of calls of a descendant.
func owned(callIDs ...string) []session.Ownership {
	out := make([]session.Ownership, len(callIDs))
	for i, callID := range callIDs {
		out[i] = session.Ownership{CallID: callID, SessionID: "kid"}
	}
	return out
}

// waitingOn returns the change of a run that suspends because of calls.
func waitingOn(callIDs ...string) session.Change {
	return session.Change{Waits: callIDs, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}}
}

// answered requires an error because calls were answered, which names these, each
// once, and carries the state of the session.
func (t *bed) answered(err error, holds *session.State, what string, calls ...string) {
	t.Helper()
	t.conflict(err, session.ErrAnswered, holds, what)
	equal(t, what+": calls", slices.Sorted(slices.Values(session.AsError(err).Calls)), calls)
}

// waited lists calls that a change of owning's root may wait on, and which of them
// refuse it.
var waited = []struct{ on, answered []string }{
	{on: []string{"c1", "c2"}},
	{on: []string{"unknown"}},
	{on: []string{"c1", "p2", "unknown"}},
	{on: []string{"d1"}, answered: []string{"d1"}},
	{on: []string{"c1", "p1", "p2", "d1"}, answered: []string{"d1", "p1"}},
	{on: []string{"d2", "d1", "c2"}, answered: []string{"d1", "d2"}},
}

func commitWaitsTree(t *bed) {
	for i, w := range waited {
		id := fmt.Sprintf("s%d", i)
		r := t.owning(id)
		change := waitingOn(w.on...)
		change.Messages = []session.Message{user("u9", "9")}
		if w.answered == nil {
			r.commit(change)
			continue
		}
		t.unchanged(id, func() {
			_, err := t.store().Commit(t.Context(), r.request(change))
			t.answered(err, t.load(id), fmt.Sprintf("a commit that waits on %v", w.on), w.answered...)
		})
		change.Waits = []string{"c1"}
		r.commit(change)
	}
	// The calls of another root's tree do not concern the session.
	t.create("other")
	t.ok(t.store().Own(t.Context(), "other", owned("c1")), "Own")
	t.ok(t.store().Disown(t.Context(), "other", []string{"c1"}), "Disown")
	t.owning("root").commit(waitingOn("c1"))
}

func commitWaitsRewind(t *bed) {
	rewinds := map[string]func(*session.Change){
		"messages": func(c *session.Change) { c.KeepMessages = new(1) },
		"state":    func(c *session.Change) { c.State = new(document(`{"a":1}`)) },
		"both":     func(c *session.Change) { c.KeepMessages, c.State = new(1), new(document(`{"a":1}`)) },
	}
	for name, rewind := range rewinds {
		r := t.owning(name)
		change := waitingOn("c1", "d1", "p1")
		rewind(&change)
		t.unchanged(name, func() {
			_, err := t.store().Commit(t.Context(), r.request(change))
			t.answered(err, t.load(name), "a commit that rewinds "+name, "d1", "p1")
		})
		r.finish(session.RunInterrupted)
		start := t.startOf(name, "run-2")
		start.Waits = []string{"c1", "d1", "p1"}
		rewind(&start.Change)
		t.unchanged(name, func() {
			_, err := t.store().StartRun(t.Context(), start)
			t.answered(err, t.load(name), "a start that rewinds "+name, "d1", "p1")
		})
		start.Waits = []string{"c1", "unknown"}
		next := t.begin(start)
		change.Waits = []string{"c1", "unknown"}
		next.commit(change)
	}
}

func commitWaitsOwn(t *bed) {
	r := t.owning("a")
	done := session.Ownership{CallID: "c3", SessionID: "kid", CompletedAt: noon}
	r.commit(session.Change{Waits: []string{"c1", "c3"}, Disown: []string{"c1"}, Own: []session.Ownership{done}})
	again := waitingOn("c1", "c3")
	again.Own = owned("c1", "c3") // which opens no call again
	t.unchanged("a", func() {
		_, err := t.store().Commit(t.Context(), r.request(again))
		t.answered(err, t.load("a"), "a commit after them", "c1", "c3")
	})
}

func commitOwnership(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Own: []session.Ownership{{CallID: "c1", SessionID: "a"}, {CallID: "c2", SessionID: "kid"}}})
	got, err := t.store().Owner(t.Context(), "a", "c2")
	t.ok(err, "Owner")
	equal(t, "owner", got.SessionID, "kid")
	equal(t, "completed", got.CompletedAt.IsZero(), true)
	r.commit(session.Change{Disown: []string{"c2"}})
	got, err = t.store().Owner(t.Context(), "a", "c2")
	t.ok(err, "Owner of a completed call")
	equal(t, "owner", got.SessionID, "kid")
	if got.CompletedAt.IsZero() {
		t.Fatalf("the call is disowned and not marked as completed")
	}
	got, err = t.store().Owner(t.Context(), "a", "c1")
	t.ok(err, "Owner")
	equal(t, "completed", got.CompletedAt.IsZero(), true)
}

func commitChildren(t *bed) {
	r := t.running("a")
	one, two := child("kid-1"), child("kid-2")
	r.commit(session.Change{Children: []session.ChildRef{one, two}})
	one.Status, one.Awaited = session.ChildWaiting, true
	r.commit(session.Change{Children: []session.ChildRef{one}})
	children, err := t.store().Children(t.Context(), "a")
	t.ok(err, "Children")
	equal(t, "children", len(children), 2)
	equal(t, "first", children[0].SessionID, "kid-1")
	equal(t, "its status", children[0].Status, session.ChildWaiting)
	awaited := t.load("a").AwaitingChildren
	equal(t, "awaited children", len(awaited), 1)
	equal(t, "awaited child", awaited[0].SessionID, "kid-1")
}

func commitConsume(t *bed) {
	r := t.running("a")
	for _, id := range []string{"e1", "e2", "e3"} {
		t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: id, Kind: "note"}), "Send")
	}
	out := r.commit(session.Change{Consume: []string{"e1", "e3", "never-sent"}})
	equal(t, "inbox after the commit", out.Inbox, true)
	t.inboxIs("a", "e2")
	out = r.commit(session.Change{Consume: []string{"e2"}})
	equal(t, "inbox after the commit", out.Inbox, false)
	t.inboxIs("a")
}

func commitCheckpoint(t *bed) {
	r := t.running("a")
	change := step(1, "cp1", user("u1", "one"), reply("m1"))
	change.Writes = put("k", `[1]`)
	change.Checkpoint.StreamSequence = 42
	out := r.commit(change)
	equal(t, "checkpoint returned", out.CheckpointID, "cp1")
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	equal(t, "id", cp.ID, "cp1")
	equal(t, "session", cp.SessionID, "a")
	equal(t, "run", cp.RunID, "run-1")
	equal(t, "turn", cp.Turn, 1)
	equal(t, "step", cp.Step, 1)
	equal(t, "status", cp.Status, session.Active)
	equal(t, "source", cp.Source, session.FromStep)
	equal(t, "version", cp.Version, out.Version)
	equal(t, "message count", cp.MessageCount, 2)
	equal(t, "stream sequence", cp.StreamSequence, 42)
	if cp.At.IsZero() {
		t.Fatalf("the checkpoint has no time")
	}
	t.documentIs("state", cp.State, `{"k":[1]}`)
	state := t.load("a")
	equal(t, "checkpoint in the document", state.CheckpointID, "cp1")
	equal(t, "source in the document", state.CheckpointSource, session.FromStep)
	if state.CheckpointedAt.IsZero() {
		t.Fatalf("the document does not say when it was checkpointed")
	}
	r.commit(session.Change{Writes: push("k", `2`)})
	equal(t, "checkpoint in the document after a commit without one", t.load("a").CheckpointID, "cp1")
}

func commitRunChange(t *bed) {
	r := t.running("a")
	use := session.Usage{InputTokens: 10, OutputTokens: 5, ReasoningTokens: 4, CacheReadTokens: 3, CacheWriteTokens: 2, ModelCalls: 1}
	r.commit(session.Change{Run: &session.RunChange{Usage: use}})
	r.commit(session.Change{Run: &session.RunChange{Usage: session.Usage{InputTokens: 1, ToolCalls: 2}, CompletionReason: session.ReasonFinish}})
	r.commit(session.Change{Run: &session.RunChange{}})
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	want := use
	want.InputTokens, want.ToolCalls = 11, 2
	equal(t, "usage", run.Usage, want)
	equal(t, "reason", run.CompletionReason, session.ReasonFinish)
}

func commitOutcome(t *bed) {
	r := t.running("a")
	out := session.Outcome{Status: session.RunCompleted, Output: raw(`{ "answer" : 42 }`), Reply: "done <3"}
	change := session.Change{Status: session.Completed, Outcome: &out}
	r.commit(change)
	state := t.load("a")
	equal(t, "status", state.Status, session.Completed)
	equal(t, "output", compact(string(state.Output)), `{"answer":42}`)
	equal(t, "close pending", state.ClosePending, true)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	equal(t, "run status", run.Status, session.RunCompleted)
	if run.EndedAt.IsZero() {
		t.Fatalf("the ended run has no end time")
	}
	if run.Outcome == nil {
		t.Fatalf("the run has no outcome")
	}
	sameJSON(t, "outcome", run.Outcome, &out)
}

func commitSuspended(t *bed) {
	r := t.running("a")
	ref := child("kid")
	ref.Awaited, ref.Status = true, session.ChildWaiting
	r.commit(session.Change{
		Pending: []session.Pending{waiting("p1")}, Children: []session.ChildRef{ref}, Waits: []string{"p1"},
		Outcome: &session.Outcome{
			Status: session.RunSuspendedPartial, SuspendedStep: "m1", Pending: []session.Pending{waiting("p1"), waiting("deeper")},
		},
	})
	state := t.load("a")
	equal(t, "status", state.Status, session.Active)
	equal(t, "suspended step", state.SuspendedStep, "m1")
	suspension := state.Suspension()
	equal(t, "pending", len(suspension.Pending), 1)
	equal(t, "children", len(suspension.Children), 1)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	equal(t, "run status", run.Status, session.RunSuspendedPartial)
	equal(t, "pending calls of every depth", len(run.Outcome.Pending), 2)
}

func commitFailed(t *bed) {
	r := t.running("a")
	failure := session.ErrCancelled.WithMessage("the user <left>")
	r.commit(session.Change{Status: session.Failed, Outcome: &session.Outcome{
		Status: session.RunFailed, Error: failure, FailureReason: "aborted",
		Interrupt: &session.InterruptContext{RunID: "run-1", Reason: "why", Step: 2, At: noon},
	}})
	state := t.load("a")
	equal(t, "status", state.Status, session.Failed)
	if !errors.Is(state.Error, session.ErrCancelled) || state.Error.Message != failure.Message {
		t.Fatalf("error: got %v, want %v", state.Error, failure)
	}
	equal(t, "failure reason", state.FailureReason, "aborted")
	sameTime(t, "interrupted at", state.Interrupt.At, noon)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	if !errors.Is(run.Outcome.Error, session.ErrCancelled) {
		t.Fatalf("error of the run: got %v", run.Outcome.Error)
	}
}

func commitReopen(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Status: session.Failed, Outcome: &session.Outcome{
		Status: session.RunFailed, Error: session.ErrMaxSteps, FailureReason: "x", Output: raw(`1`),
		Interrupt: &session.InterruptContext{Reason: "y"},
	}})
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "close run")
	t.start("a", "run-2")
	state := t.load("a")
	equal(t, "status", state.Status, session.Active)
	if state.Error != nil || state.FailureReason != "" || state.Interrupt != nil {
		t.Fatalf("a new run has begun, and the document still has error %v, reason %q, interrupt %v",
			state.Error, state.FailureReason, state.Interrupt)
	}
	equal(t, "output", string(state.Output), `1`)
	first, err := t.store().Run(t.Context(), "a", "run-1")
	t.ok(err, "Run")
	equal(t, "status of the run before", first.Status, session.RunFailed)
}

// everything returns a change with all parts.
func everything(r *turn) session.Change {
	ref := child("kid")
	return session.Change{
		Status: session.Completed, KeepMessages: new(1), Messages: []session.Message{user("u9", "nine")},
		Writes: put("k", `1`), StepCount: new(4), Calls: []session.Call{call("m9", "c9", 0)},
		Promote: &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}}},
		Pending: []session.Pending{waiting("p9")}, Resolve: []session.Resolution{{CallID: "p1", State: session.PendingConsumed}},
		Waits: []string{"p9"}, Own: []session.Ownership{{CallID: "c9", SessionID: r.id}}, Disown: []string{"c1"},
		Children: []session.ChildRef{ref}, Consume: []string{"e1"},
		Checkpoint: &session.NewCheckpoint{ID: "cp9", Step: 4, Source: session.FromStep},
		Run:        &session.RunChange{CompletionReason: session.ReasonReply, Usage: session.Usage{InputTokens: 1}},
		Outcome:    &session.Outcome{Status: session.RunCompleted, Output: raw(`"out"`)},
	}
}

func commitEverything(t *bed) {
	r := t.crowd("a")
	t.settle(r, call("m1", "c1", 0), `1`)
	_, err := t.store().Submit(t.Context(), "a", answer("p1", `1`))
	t.ok(err, "submit")
	r.commit(everything(r))
	state := t.load("a")
	equal(t, "status", state.Status, session.Completed)
	equal(t, "step count", state.StepCount, 4)
	equal(t, "output", string(state.Output), `"out"`)
	t.customIs("a", `{"k":1}`)
	t.messagesAre("a", "u1", "u9", "c1.r")
	t.callsAre("a", "m1")
	t.callsAre("a", "m9", "c9 open")
	t.pendingAre("a", "p1 consumed", "p9 waiting")
	t.inboxIs("a")
	cp, err := t.store().LatestCheckpoint(t.Context(), "a")
	t.ok(err, "LatestCheckpoint")
	equal(t, "latest checkpoint", cp.ID, "cp9")
	stop, err := t.store().StopRequest(t.Context(), "a", "run-1")
	t.ok(err, "StopRequest")
	if stop != nil {
		t.Fatalf("the run has ended and still has its stop request")
	}
}

func commitRepeated(t *bed) {
	r := t.running("a")
	change := step(1, "cp1", user("u1", "one"))
	change.Writes = push("list", `1`)
	change.Run = &session.RunChange{Usage: session.Usage{ModelCalls: 1}}
	request := r.request(change)
	first, err := t.store().Commit(t.Context(), request)
	t.ok(err, "commit")
	for range 2 {
		t.unchanged("a", func() {
			again, err := t.store().Commit(t.Context(), request)
			t.ok(err, "the same commit again")
			equal(t, "repeated", again.Repeated, true)
			equal(t, "version", again.Version, first.Version)
			equal(t, "message count", again.MessageCount, first.MessageCount)
			equal(t, "checkpoint", again.CheckpointID, first.CheckpointID)
		})
	}
}

func commitRepeatedOutcome(t *bed) {
	r := t.running("a")
	request := r.request(outcome(session.RunCompleted))
	first, err := t.store().Commit(t.Context(), request)
	t.ok(err, "commit")
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "close run")
	t.unchanged("a", func() {
		again, err := t.store().Commit(t.Context(), request)
		t.ok(err, "the last commit again")
		equal(t, "repeated", again.Repeated, true)
		equal(t, "version", again.Version, first.Version)
	})
}

func commitRepeatedOlder(t *bed) {
	r := t.running("a")
	old := r.request(session.Change{Messages: []session.Message{user("u1", "one")}})
	_, err := t.store().Commit(t.Context(), old)
	t.ok(err, "commit")
	r.version, r.commits = r.version+1, 1
	r.commit(session.Change{Messages: []session.Message{user("u2", "two")}})
	t.unchanged("a", func() {
		_, err := t.store().Commit(t.Context(), old)
		t.conflict(err, session.ErrStale, t.load("a"), "an older commit again")
	})
}

func commitStale(t *bed) {
	r := t.crowd("a")
	for what, spoil := range map[string]func(*session.Commit){
		"an older version":   func(c *session.Commit) { c.Version-- },
		"a future version":   func(c *session.Commit) { c.Version++ },
		"another owner":      func(c *session.Commit) { c.Fence.Owner = "thief" },
		"no owner":           func(c *session.Commit) { c.Fence.Owner = "" },
		"an older epoch":     func(c *session.Commit) { c.Fence.Epoch-- },
		"a future epoch":     func(c *session.Commit) { c.Fence.Epoch++ },
		"another run":        func(c *session.Commit) { c.RunID = "run-0" },
		"no key, no version": func(c *session.Commit) { c.Key, c.Version = "", 0 },
	} {
		request := r.request(session.Change{
			Messages: []session.Message{user("u2", "two")}, Writes: put("k", `2`), StepCount: new(9),
			Calls: []session.Call{call("m1", "c9", 9)}, Pending: []session.Pending{waiting("p9")},
			Children: []session.ChildRef{child("other")}, Consume: []string{"e1"},
			Checkpoint: &session.NewCheckpoint{ID: "cp9", Step: 9}, Outcome: &session.Outcome{Status: session.RunFailed},
		})
		spoil(request)
		t.unchanged("a", func() {
			_, err := t.store().Commit(t.Context(), request)
			t.conflict(err, session.ErrStale, t.load("a"), "commit with "+what)
		})
	}
	r.commit(session.Change{})
}

func commitEnded(t *bed) {
	for _, status := range []session.RunStatus{session.RunCompleted, session.RunSuspendedClientTool} {
		r := t.running(string(status))
		r.commit(outcome(status))
		r.refuse(r.request(session.Change{Messages: []session.Message{user("u1", "late")}}), session.ErrStale)
	}
}

func commitTransition(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Status: session.Paused})
	done := outcome(session.RunCompleted)
	done.Messages = []session.Message{user("u1", "1")}
	r.refuse(r.request(done), session.ErrTransition)
	// A session does not end without its run.
	for _, status := range []session.Status{session.Completed, session.Failed, session.Interrupted} {
		r.refuse(r.request(session.Change{Status: status}), session.ErrInvalid)
	}
}

func commitInvalid(t *bed) {
	r := t.crowd("a")
	for what, change := range map[string]session.Change{
		"an unknown status":            {Status: "dreaming"},
		"more messages than there are": {KeepMessages: new(99), Messages: []session.Message{user("u9", "nine")}},
		"a negative message count":     {KeepMessages: new(-1)},
		"a message of no role":         {Messages: []session.Message{user("u2", "fine"), {ID: "x", Parts: []session.Part{session.Text("x")}}}},
		"a message without content":    {Messages: []session.Message{{ID: "x", Role: session.RoleUser}}},
		"an outcome that is no end":    {Outcome: &session.Outcome{Status: session.RunRunning}},
		"a write without a key":        {Writes: session.Writes{Ops: []session.Op{{Kind: session.OpDelete}}}},
		"a write that is no JSON":      {Messages: []session.Message{user("u2", "fine")}, Writes: put("k", `{`)},
		"a message with broken input":  {Messages: []session.Message{{ID: "x", Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartToolCall, CallID: "c", Tool: "t", Input: raw(`{`)}}}}},
	} {
		r.t.unchanged("a", func() {
			_, err := t.store().Commit(t.Context(), r.request(change))
			t.refused(err, session.ErrInvalid, "commit of "+what)
		})
	}
	r.commit(session.Change{})
}

func commitMissing(t *bed) {
	_, err := t.store().Commit(t.Context(), &session.Commit{
		SessionID: "nobody", RunID: "r", Key: "k", Version: 1, Fence: session.Fence{Owner: "o", Epoch: 1},
		Change: session.Change{Messages: []session.Message{user("u1", "one")}},
	})
	t.refused(err, session.ErrNotFound, "commit")
	t.exists("nobody", false)
}

func commitStop(t *bed) {
	r := t.running("a")
	out := r.commit(session.Change{})
	if out.Stop != nil {
		t.Fatalf("no stop was requested, but the commit reports %+v", *out.Stop)
	}
	_, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort, Reason: "enough"})
	t.ok(err, "RequestStop")
	for range 2 {
		out = r.commit(session.Change{})
		if out.Stop == nil || out.Stop.Kind != session.StopAbort || out.Stop.RunID != "run-1" || out.Stop.Reason != "enough" {
			t.Fatalf("the commit reports stop %+v, want the abort", out.Stop)
		}
	}
}

func commitStopConsumed(t *bed) {
	r := t.running("a")
	_, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopInterrupt})
	t.ok(err, "RequestStop")
	r.finish(session.RunInterrupted)
	stop, err := t.store().StopRequest(t.Context(), "a", "run-1")
	t.ok(err, "StopRequest")
	if stop != nil {
		t.Fatalf("the run has ended and still has its stop request: %+v", *stop)
	}
	next := t.start("a", "run-2")
	out := next.commit(session.Change{})
	if out.Stop != nil {
		t.Fatalf("an old request stops a later run: %+v", *out.Stop)
	}
}

func commitStopRepeated(t *bed) {
	r := t.running("a")
	_, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort, Reason: "enough"})
	t.ok(err, "RequestStop")
	request := r.request(outcome(session.RunSuspendedClientTool))
	for _, what := range []string{"the commit", "the commit repeated"} {
		out, err := t.store().Commit(t.Context(), request)
		t.ok(err, what)
		if out.Stop == nil || out.Stop.Kind != session.StopAbort || out.Stop.Reason != "enough" || out.Stop.RunID != "run-1" {
			t.Fatalf("%s returns the stop %+v", what, out.Stop)
		}
	}
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "CloseRun")
	merged, err := session.Merge(t.Context(), t.store(), "a", session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: raw(`1`)}}})
	t.ok(err, "Merge")
	if merged.Stop != nil {
		t.Fatalf("a later write returns the stop %+v", merged.Stop)
	}
	if out := t.start("a", "run-2").commit(session.Change{}); out.Stop != nil {
		t.Fatalf("an old request stops a later run: %+v", *out.Stop)
	}
}

func commitInbox(t *bed) {
	r := t.running("a")
	equal(t, "inbox", r.commit(session.Change{}).Inbox, false)
	t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: "e1", Kind: "note"}), "Send")
	equal(t, "inbox", r.commit(session.Change{}).Inbox, true)
}

func commitCopies(t *bed) {
	r := t.running("a")
	message := user("u1", "mine")
	message.Metadata = map[string]json.RawMessage{"k": raw(`1`)}
	value := raw(`"mine"`)
	pending := waiting("p1")
	r.commit(session.Change{
		Messages: []session.Message{message}, Pending: []session.Pending{pending},
		Writes: session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: value}}},
		Calls:  []session.Call{call("m1", "c1", 0)},
	})
	before := t.snapshot("a")
	message.Parts[0].Text = "scribbled"
	message.Metadata["k"] = raw(`2`)
	copy(value, `"XXXX"`)
	copy(pending.Input, `XXXX`)
	t.sameSnapshot("a", before)
	got, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	got[0].Parts[0].Text = "scribbled"
	got[0].Metadata["k"] = raw(`3`)
	t.sameSnapshot("a", before)
}

func commitCancelled(t *bed) {
	r := t.running("a")
	before := t.snapshot("a")
	ctx, cancel := withCancel(t)
	cancel()
	_, err := t.store().Commit(ctx, r.request(session.Change{Messages: []session.Message{user("u1", "one")}, Writes: put("k", `1`)}))
	if err == nil {
		t.messagesAre("a", "u1")
		t.customIs("a", `{"k":1}`)
		return
	}
	if t.load("a").LastCommit == "" {
		t.sameSnapshot("a", before)
	} else {
		t.messagesAre("a", "u1")
	}
}
