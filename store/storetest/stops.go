package storetest

import (
	"github.com/helixagents/helix/session"
)

func stopCases() []testCase {
	return []testCase{
		{"request", "a stop request is kept until the run ends, and does not change the version", 0, stopRequest},
		{"repeat", "a repeated request changes nothing", 0, stopRepeat},
		{"abort-overrides", "an abort overrides an interrupt, never the reverse", 0, stopOverrides},
		{"none", "a run without a request has none", 0, stopNone},
		{"refused", "a stop of a run that is not current or has ended is stale", 0, stopRefused},
		{"later-run", "a request never stops a later run", 0, stopLaterRun},
	}
}

// stop asks for run-1 of session "a" to be stopped.
func (t *bed) stop(kind session.StopKind, reason string) session.Stop {
	t.Helper()
	got, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: kind, Reason: reason, At: noon})
	t.ok(err, "RequestStop")
	return got
}

// standing returns the request for run-1 of session "a".
func (t *bed) standing() session.Stop {
	t.Helper()
	got, err := t.store().StopRequest(t.Context(), "a", "run-1")
	t.ok(err, "StopRequest")
	if got == nil {
		t.Fatalf("there is no stop request")
	}
	return *got
}

func stopRequest(t *bed) {
	r := t.running("a")
	version := t.load("a").Version
	got := t.stop(session.StopInterrupt, "tired <b>")
	equal(t, "run", got.RunID, "run-1")
	equal(t, "kind", got.Kind, session.StopInterrupt)
	equal(t, "reason", got.Reason, "tired <b>")
	sameJSON(t, "the stored request", t.standing(), got)
	equal(t, "version", t.load("a").Version, version)
	r.commit(session.Change{})
	sameJSON(t, "the request after a commit", t.standing(), got)
}

func stopRepeat(t *bed) {
	t.running("a")
	first := t.stop(session.StopInterrupt, "first")
	again := t.stop(session.StopInterrupt, "second")
	sameJSON(t, "the request returned", again, first)
	sameJSON(t, "the stored request", t.standing(), first)
}

func stopOverrides(t *bed) {
	t.running("a")
	t.stop(session.StopInterrupt, "soft")
	abort := t.stop(session.StopAbort, "hard")
	equal(t, "kind", abort.Kind, session.StopAbort)
	equal(t, "reason", abort.Reason, "hard")
	sameJSON(t, "an interrupt after an abort", t.stop(session.StopInterrupt, "soft again"), abort)
	sameJSON(t, "the stored request", t.standing(), abort)
}

func stopNone(t *bed) {
	t.running("a")
	for _, run := range []string{"run-1", "run-9"} {
		got, err := t.store().StopRequest(t.Context(), "a", run)
		t.ok(err, "StopRequest")
		if got != nil {
			t.Fatalf("a request for %s: %+v", run, *got)
		}
	}
}

func stopRefused(t *bed) {
	t.create("a")
	request := func(id, run string) error {
		_, err := t.store().RequestStop(t.Context(), id, session.Stop{RunID: run, Kind: session.StopAbort})
		return err
	}
	t.refused(request("a", "run-1"), session.ErrStale, "stop of a session without runs")
	r := t.start("a", "run-1")
	t.unchanged("a", func() {
		t.conflict(request("a", "run-0"), session.ErrStale, t.load("a"), "stop of another run")
	})
	r.commit(outcome(session.RunCompleted))
	t.unchanged("a", func() {
		t.conflict(request("a", "run-1"), session.ErrStale, t.load("a"), "stop of a run that has ended")
	})
	t.refused(request("nobody", "run-1"), session.ErrNotFound, "stop of nothing")
	_, err := t.store().StopRequest(t.Context(), "nobody", "run-1")
	t.refused(err, session.ErrNotFound, "StopRequest of nothing")
	t.running("b")
	_, err = t.store().RequestStop(t.Context(), "b", session.Stop{RunID: "run-1", Kind: "nonsense"})
	t.refused(err, session.ErrInvalid, "a stop of no kind")
}

func stopLaterRun(t *bed) {
	r := t.running("a")
	t.stop(session.StopInterrupt, "")
	r.finish(session.RunInterrupted)
	t.start("a", "run-2")
	for _, run := range []string{"run-1", "run-2"} {
		got, err := t.store().StopRequest(t.Context(), "a", run)
		t.ok(err, "StopRequest")
		if got != nil {
			t.Fatalf("there is a request for %s: %+v", run, *got)
		}
	}
	t.unchanged("a", func() {
		_, err := t.store().RequestStop(t.Context(), "a", session.Stop{RunID: "run-1", Kind: session.StopAbort})
		t.refused(err, session.ErrStale, "stop of the earlier run")
	})
}
