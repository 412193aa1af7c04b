package session_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/helixagents/helix/session"
)

func TestSessionStatusTable(t *testing.T) {
	t.Parallel()
	// Rows are the current status, columns the next: active, completed, failed,
	// interrupted, paused.
	table := map[session.Status]string{
		session.Active:      "yyyyy",
		session.Completed:   "yyy-y",
		session.Failed:      "y-y-y",
		session.Interrupted: "y-yyy",
		session.Paused:      "y-yyy",
		"unheard of":        "-----",
		"":                  "-----",
	}
	all := session.Statuses()
	if len(all) != 5 {
		t.Fatalf("there are %d statuses", len(all))
	}
	for from, row := range table {
		for i, to := range all {
			want := row[i] == 'y'
			if from.CanBecome(to) != want {
				t.Errorf("%q to %q: want %v", from, to, want)
			}
			if err := session.Transition(from, to); (err == nil) != want || err != nil && !errors.Is(err, session.ErrTransition) {
				t.Errorf("%q to %q: %v", from, to, err)
			}
		}
		if from.CanBecome("unheard of") || from.Valid() != slices.Contains(all, from) {
			t.Errorf("%q: valid is %v", from, from.Valid())
		}
	}
}

func TestRunStatusTable(t *testing.T) {
	t.Parallel()
	all := session.RunStatuses()
	if len(all) != 7 {
		t.Fatalf("there are %d run statuses", len(all))
	}
	for _, from := range all {
		for _, to := range all {
			if want := from == to || from == session.RunRunning; from.CanBecome(to) != want {
				t.Errorf("%q to %q: want %v", from, to, want)
			}
		}
		if from.Ended() != (from != session.RunRunning) || !from.Valid() || from.CanBecome("unheard of") {
			t.Errorf("%q: ended %v, valid %v", from, from.Ended(), from.Valid())
		}
	}
	for status, want := range map[session.RunStatus]session.Status{
		session.RunRunning:             session.Active,
		session.RunCompleted:           session.Completed,
		session.RunFailed:              session.Failed,
		session.RunInterrupted:         session.Interrupted,
		session.RunSuspendedClientTool: session.Active,
		session.RunSuspendedChildren:   session.Active,
		session.RunSuspendedPartial:    session.Active,
	} {
		if got := status.SessionStatus(); got != want {
			t.Errorf("after %q the session is %q, want %q", status, got, want)
		}
		if waits := want == session.Active && status != session.RunRunning; status.Suspended() != waits {
			t.Errorf("%q: suspended is %v", status, status.Suspended())
		}
	}
	if unknown := session.RunStatus("unheard of"); unknown.Valid() || unknown.Ended() || unknown.Suspended() {
		t.Error("an unknown run status is accepted")
	}
}

func TestSuspensionStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		own, children, kept bool
		want                session.RunStatus
	}{
		{true, false, false, session.RunSuspendedClientTool},
		{false, true, false, session.RunSuspendedChildren},
		{true, true, false, session.RunSuspendedPartial},
		{true, false, true, session.RunSuspendedPartial},
		{false, true, true, session.RunSuspendedPartial},
		{true, true, true, session.RunSuspendedPartial},
	} {
		if got := session.SuspensionStatus(test.own, test.children, test.kept); got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}
