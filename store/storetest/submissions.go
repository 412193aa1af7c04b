package storetest

import (
	"strings"

	"github.com/helixagents/helix/session"
)

func submissionCases() []testCase {
	return []testCase{
		{"accepted", "the first answer is accepted and stored with its submitter and time, and does not change the version", dated, submitAccepted},
		{"already", "a second answer is already completed and changes nothing", 0, submitAlready},
		{"running", "answers may arrive during a run, and the holder can still commit", 0, submitRunning},
		{"late", "after a timeout was consumed the first late answer is recorded", 0, submitLate},
		{"ended", "abandoned, superseded and consumed calls accept no answer", 0, submitEnded},
		{"unknown", "an answer to an unknown call is reported as unknown", 0, submitUnknown},
		{"kind", "an answer that does not fit the call is refused and nothing is stored", 0, submitKind},
		{"limits", "an answer over the limits is refused and nothing is stored", 0, submitLimits},
		{"bytes", "an answer's result keeps its bytes", 0, submitBytes},
		{"list", "entries are listed oldest first, all or the open ones", 0, listPending},
		{"own", "ownership routes a call to its session and outlives its completion", dated, own},
		{"own-running", "ownership may be written while another owner holds the lease", 0, ownRunning},
		{"own-missing", "ownership on a session that does not exist is not found", 0, ownMissing},
	}
}

// asking creates a session with a suspended run that waits for calls.
func (t *bed) asking(id string, entries ...session.Pending) {
	t.Helper()
	r := t.running(id)
	change := session.Change{Pending: entries, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool}}
	r.commit(change)
	t.ok(t.store().CloseRun(t.Context(), id, r.fence, true), "close run")
}

func (t *bed) submit(id string, s session.Submission) session.SubmitOutcome {
	t.Helper()
	got, err := t.store().Submit(t.Context(), id, s)
	t.ok(err, "submit")
	return got
}

func (t *bed) entry(id, callID string) session.Pending {
	t.Helper()
	all, err := t.store().PendingCalls(t.Context(), id, true)
	t.ok(err, "PendingCalls")
	for _, p := range all {
		if p.CallID == callID {
			return p
		}
	}
	t.Fatalf("no entry for call %s", callID)
	return session.Pending{}
}

func submitAccepted(t *bed) {
	t.asking("a", waiting("p1"), waiting("p2"))
	version := t.load("a").Version
	before := t.now()
	equal(t, "outcome", t.submit("a", answer("p1", `{"yes":true}`)), session.SubmitAccepted)
	got := t.entry("a", "p1")
	equal(t, "state", got.State, session.PendingAnswered)
	equal(t, "result", string(got.Response.Result), `{"yes":true}`)
	equal(t, "by", got.Response.By, "someone")
	t.between("submitted at", got.SubmittedAt, before, t.now())
	equal(t, "the other entry", t.entry("a", "p2").State, session.PendingWaiting)
	state := t.load("a")
	equal(t, "version", state.Version, version)
	equal(t, "entries in the document", len(state.Pending), 2) // answered ones are still open
	equal(t, "entries the session waits for", len(state.Suspension().Pending), 1)
}

func submitAlready(t *bed) {
	t.asking("a", waiting("p1"))
	t.submit("a", answer("p1", `1`))
	t.unchanged("a", func() {
		equal(t, "outcome", t.submit("a", answer("p1", `2`)), session.SubmitAlreadyCompleted)
	})
	equal(t, "result", string(t.entry("a", "p1").Response.Result), `1`)
}

func submitRunning(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}})
	equal(t, "outcome", t.submit("a", answer("p1", `1`)), session.SubmitAccepted)
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "p1", State: session.PendingConsumed}}})
	t.pendingAre("a", "p1 consumed")
}

func submitLate(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}})
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "p1", State: session.PendingTimedOut}}})
	equal(t, "outcome", t.submit("a", answer("p1", `"late"`)), session.SubmitLate)
	equal(t, "late answer", string(t.entry("a", "p1").Late.Result), `"late"`)
	equal(t, "outcome of another", t.submit("a", answer("p1", `"later"`)), session.SubmitLate)
	got := t.entry("a", "p1")
	equal(t, "late answer", string(got.Late.Result), `"late"`)
	equal(t, "state", got.State, session.PendingTimedOut)
}

func submitEnded(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1"), waiting("p2"), waiting("p3")}})
	r.commit(session.Change{Resolve: []session.Resolution{
		{CallID: "p1", State: session.PendingConsumed},
		{CallID: "p2", State: session.PendingAbandoned},
		{CallID: "p3", State: session.PendingSuperseded},
	}})
	t.unchanged("a", func() {
		for _, callID := range []string{"p1", "p2", "p3"} {
			equal(t, "outcome for "+callID, t.submit("a", answer(callID, `1`)), session.SubmitAlreadyCompleted)
		}
	})
}

func submitUnknown(t *bed) {
	t.asking("a", waiting("p1"))
	t.unchanged("a", func() {
		equal(t, "outcome", t.submit("a", answer("p9", `1`)), session.SubmitUnknownCall)
	})
	_, err := t.store().Submit(t.Context(), "nobody", answer("p1", `1`))
	t.refused(err, session.ErrNotFound, "submit to nothing")
}

func submitKind(t *bed) {
	approval := waiting("p2")
	approval.Kind, approval.ApprovalID = session.PendingApproval, "ap-1"
	t.asking("a", waiting("p1"), approval)
	approve := func(callID, approvalID string) session.Submission {
		return session.Submission{CallID: callID, ApprovalID: approvalID, Response: session.Response{Kind: session.PendingApproval, Approved: true}}
	}
	t.unchanged("a", func() {
		for what, s := range map[string]session.Submission{
			"an approval of a client tool":        approve("p1", "ap-1"),
			"an approval with another id":         approve("p2", "ap-2"),
			"an approval without its id":          approve("p2", ""),
			"a client tool's result for approval": answer("p2", `1`),
		} {
			_, err := t.store().Submit(t.Context(), "a", s)
			t.refused(err, session.ErrSubmissionKind, what)
		}
	})
	equal(t, "outcome", t.submit("a", approve("p2", "ap-1")), session.SubmitAccepted)
	equal(t, "approved", t.entry("a", "p2").Response.Approved, true)
}

func submitLimits(t *bed) {
	t.asking("a", waiting("p1"))
	kind := session.PendingClientTool
	t.unchanged("a", func() {
		for what, try := range map[string]struct {
			s    session.Submission
			want *session.Error
		}{
			"a huge result": {answer("p1", `"`+strings.Repeat("x", session.MaxSubmissionResult)+`"`), session.ErrTooLarge},
			"a huge error": {session.Submission{CallID: "p1", Response: session.Response{
				Kind: kind, Error: strings.Repeat("x", session.MaxSubmissionError+1),
			}}, session.ErrTooLarge},
			"a result that is no JSON": {answer("p1", `{`), session.ErrInvalid},
			"no call id":               {answer("", `1`), session.ErrInvalid},
			"a huge call id":           {answer(strings.Repeat("x", session.MaxIDBytes+1), `1`), session.ErrInvalid},
			"an unknown kind":          {session.Submission{CallID: "p1", Response: session.Response{Kind: "telepathy"}}, session.ErrInvalid},
			"result and error": {session.Submission{CallID: "p1", Response: session.Response{
				Kind: kind, Error: "x", Result: raw(`1`),
			}}, session.ErrInvalid},
		} {
			_, err := t.store().Submit(t.Context(), "a", try.s)
			t.refused(err, try.want, "submit "+what)
		}
	})
	big := answer("p1", `"`+strings.Repeat("x", session.MaxSubmissionResult-2)+`"`)
	equal(t, "outcome of a result of just the limit", t.submit("a", big), session.SubmitAccepted)
	equal(t, "its size", len(t.entry("a", "p1").Response.Result), session.MaxSubmissionResult)
}

func submitBytes(t *bed) {
	t.asking("a", waiting("p1"), waiting("p2"))
	value := `{"html":"<a>&","uni":"é\u2028😀","n":1.0,"big":12345678901234567890}`
	t.submit("a", answer("p1", value))
	equal(t, "result", string(t.entry("a", "p1").Response.Result), value)
	t.submit("a", session.Submission{CallID: "p2", Response: session.Response{
		Kind: session.PendingClientTool, Error: "it <broke> é", By: "me & you",
	}})
	got := t.entry("a", "p2").Response
	equal(t, "error", got.Error, "it <broke> é")
	equal(t, "by", got.By, "me & you")
}

func listPending(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("z"), waiting("m")}})
	r.commit(session.Change{Pending: []session.Pending{waiting("a")}, Resolve: []session.Resolution{{CallID: "m", State: session.PendingAbandoned}}})
	t.pendingAre("a", "z waiting", "m abandoned", "a waiting")
	open, err := t.store().PendingCalls(t.Context(), "a", false)
	t.ok(err, "PendingCalls")
	equal(t, "open entries", len(open), 2)
	equal(t, "the oldest", open[0].CallID, "z")
	_, err = t.store().PendingCalls(t.Context(), "nobody", true)
	t.refused(err, session.ErrNotFound, "PendingCalls of nothing")
	t.create("b")
	none, err := t.store().PendingCalls(t.Context(), "b", true)
	t.ok(err, "PendingCalls")
	equal(t, "entries of a session without", len(none), 0)
}

func own(t *bed) {
	t.create("root")
	version := t.load("root").Version
	t.ok(t.store().Own(t.Context(), "root", []session.Ownership{{CallID: "c1", SessionID: "kid"}, {CallID: "c2", SessionID: "root"}}), "Own")
	got, err := t.store().Owner(t.Context(), "root", "c1")
	t.ok(err, "Owner")
	equal(t, "call", got.CallID, "c1")
	equal(t, "owner", got.SessionID, "kid")
	_, err = t.store().Owner(t.Context(), "root", "c9")
	t.refused(err, session.ErrNotFound, "Owner of an unknown call")
	t.create("other")
	_, err = t.store().Owner(t.Context(), "other", "c1")
	t.refused(err, session.ErrNotFound, "Owner in another tree")
	before := t.now()
	t.ok(t.store().Disown(t.Context(), "root", []string{"c1"}), "Disown")
	got, err = t.store().Owner(t.Context(), "root", "c1")
	t.ok(err, "Owner of a completed call")
	equal(t, "owner", got.SessionID, "kid")
	t.between("completed at", got.CompletedAt, before, t.now())
	t.ok(t.store().Disown(t.Context(), "root", []string{"c1"}), "Disown again")
	got, err = t.store().Owner(t.Context(), "root", "c2")
	t.ok(err, "Owner")
	equal(t, "completed", got.CompletedAt.IsZero(), true)
	equal(t, "version", t.load("root").Version, version)
}

func ownRunning(t *bed) {
	r := t.running("root")
	t.ok(t.store().Own(t.Context(), "root", []session.Ownership{{CallID: "c1", SessionID: "kid"}}), "Own during a run")
	t.ok(t.store().Disown(t.Context(), "root", []string{"c1"}), "Disown during a run")
	r.commit(session.Change{})
}

func ownMissing(t *bed) {
	t.refused(t.store().Own(t.Context(), "nobody", []session.Ownership{{CallID: "c1", SessionID: "kid"}}), session.ErrNotFound, "Own")
	_, err := t.store().Owner(t.Context(), "nobody", "c1")
	t.refused(err, session.ErrNotFound, "Owner")
	t.exists("nobody", false)
}
