package storetest

import (
	"slices"

	"github.com/helixagents/helix/session"
)

func casCases() []testCase {
	return []testCase{
		{"status", "SetStatus sets an expected status and returns the new version", 0, setStatus},
		{"unexpected", "SetStatus reports the current status and version when they are not expected", 0, setStatusUnexpected},
		{"version", "SetStatus with a version applies to that version only", 0, setStatusVersion},
		{"table", "SetStatus allows exactly the transitions of the table", 0, setStatusTable},
		{"details", "SetStatus records interrupt, error and reason with the status", 0, setStatusDetails},
		{"refused", "SetStatus of a missing session or to an unknown status is refused", 0, setStatusRefused},
		{"paused", "a paused session stays paused until it is set active", 0, setStatusPaused},
	}
}

func setStatus(t *bed) {
	t.create("a")
	out, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{
		Expect: []session.Status{session.Failed, session.Active}, To: session.Paused,
	})
	t.ok(err, "SetStatus")
	equal(t, "result", out, session.StatusResult{OK: true, Status: session.Paused, Version: 2})
	got := t.load("a")
	equal(t, "status", got.Status, session.Paused)
	equal(t, "version", got.Version, 2)
}

func setStatusUnexpected(t *bed) {
	t.create("a")
	t.unchanged("a", func() {
		for _, expect := range [][]session.Status{{session.Failed, session.Completed}, {}} {
			out, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: expect, To: session.Failed})
			t.ok(err, "SetStatus")
			equal(t, "result", out, session.StatusResult{OK: false, Status: session.Active, Version: 1})
		}
	})
}

func setStatusVersion(t *bed) {
	t.create("a")
	_, err := session.Merge(t.Context(), t.store(), "a", put("k", `1`))
	t.ok(err, "merge")
	change := session.StatusChange{Expect: []session.Status{session.Active}, To: session.Failed, ExpectVersion: 1}
	t.unchanged("a", func() {
		out, err := t.store().SetStatus(t.Context(), "a", change)
		t.ok(err, "SetStatus")
		equal(t, "result", out, session.StatusResult{OK: false, Status: session.Active, Version: 2})
	})
	change.ExpectVersion = 2
	out, err := t.store().SetStatus(t.Context(), "a", change)
	t.ok(err, "SetStatus")
	equal(t, "result", out, session.StatusResult{OK: true, Status: session.Failed, Version: 3})
}

func setStatusTable(t *bed) {
	for _, from := range session.Statuses() {
		for _, to := range session.Statuses() {
			id := string(from) + "-" + string(to)
			t.create(id, func(s *session.State) { s.Status = from })
			out, err := t.store().SetStatus(t.Context(), id, session.StatusChange{Expect: []session.Status{from}, To: to})
			if from.CanBecome(to) {
				t.ok(err, id)
				equal(t, id, out, session.StatusResult{OK: true, Status: to, Version: 2})
				continue
			}
			t.refused(err, session.ErrTransition, id)
			equal(t, "status after a refusal", t.load(id).Status, from)
			equal(t, "version after a refusal", t.load(id).Version, 1)
		}
	}
}

func setStatusDetails(t *bed) {
	t.create("a")
	_, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{
		Expect: []session.Status{session.Active}, To: session.Failed,
		Interrupt: &session.InterruptContext{RunID: "r", Reason: "why", Step: 2, At: noon},
		Error:     session.ErrCrashLoop, FailureReason: "session_expired",
	})
	t.ok(err, "SetStatus")
	got := t.load("a")
	equal(t, "failure reason", got.FailureReason, "session_expired")
	if got.Error == nil || got.Error.Code != session.CodeCrashLoop {
		t.Fatalf("error: got %v", got.Error)
	}
	if got.Interrupt == nil || got.Interrupt.Reason != "why" || !got.Interrupt.At.Equal(noon) {
		t.Fatalf("interrupt: got %+v", got.Interrupt)
	}
}

func setStatusRefused(t *bed) {
	_, err := t.store().SetStatus(t.Context(), "nobody", session.StatusChange{Expect: session.Statuses(), To: session.Failed})
	t.refused(err, session.ErrNotFound, "SetStatus of nothing")
	t.create("a")
	t.unchanged("a", func() {
		_, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: session.Statuses(), To: "dreaming"})
		t.refused(err, session.ErrInvalid, "SetStatus to an unknown status")
	})
}

func setStatusPaused(t *bed) {
	r := t.running("a")
	r.finish(session.RunInterrupted)
	all := slices.Clone(session.Statuses())
	for _, to := range []session.Status{session.Paused, session.Active} {
		out, err := t.store().SetStatus(t.Context(), "a", session.StatusChange{Expect: all, To: to})
		t.ok(err, "SetStatus")
		equal(t, "ok", out.OK, true)
		equal(t, "status", t.load("a").Status, to)
	}
	t.start("a", "run-2")
}
