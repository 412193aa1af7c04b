package session_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

var (
	clientResult = session.Submission{CallID: "c", Response: session.Response{Kind: session.PendingClientTool, Result: json.RawMessage(`1`), By: "alice"}}
	clientError  = session.Submission{CallID: "c", Response: session.Response{Kind: session.PendingClientTool, Error: "no"}}
	approval     = session.Submission{CallID: "c", ApprovalID: "a-1", Response: session.Response{Kind: session.PendingApproval, Approved: true}}
	denial       = session.Submission{CallID: "c", ApprovalID: "a-1", Response: session.Response{Kind: session.PendingApproval, Reason: "no"}}
	wrongID      = session.Submission{CallID: "c", ApprovalID: "a-2", Response: session.Response{Kind: session.PendingApproval, Approved: true}}
	noID         = session.Submission{CallID: "c", Response: session.Response{Kind: session.PendingApproval, Approved: true}}
)

func TestAcceptBindsKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		kind       session.PendingKind
		submission session.Submission
		fits       bool
	}{
		{"a result for a client tool", session.PendingClientTool, clientResult, true},
		{"an error for a client tool", session.PendingClientTool, clientError, true},
		{"an approval for a client tool", session.PendingClientTool, approval, false},
		{"an approval", session.PendingApproval, approval, true},
		{"a denial", session.PendingApproval, denial, true},
		{"an error for an approval", session.PendingApproval, clientError, true},
		{"a result for an approval", session.PendingApproval, clientResult, false},
		{"another approval's answer", session.PendingApproval, wrongID, false},
		{"an approval without its id", session.PendingApproval, noID, false},
	} {
		for _, state := range []session.PendingState{
			session.PendingWaiting, session.PendingAnswered, session.PendingConsumed,
			session.PendingTimedOut, session.PendingAbandoned, session.PendingSuperseded,
		} {
			p := session.Pending{CallID: "c", Kind: test.kind, ApprovalID: "a-1", State: state}
			before := encode(&p)
			outcome, err := p.Accept(&test.submission, time.Unix(1, 0))
			if test.fits {
				if err != nil {
					t.Errorf("%s, %s: %v", test.name, state, err)
				}
				continue
			}
			var e *session.Error
			if !errors.Is(err, session.ErrSubmissionKind) || !errors.As(err, &e) || !slices.Equal(e.Calls, []string{"c"}) || outcome != "" {
				t.Errorf("%s, %s: got %q, %v", test.name, state, outcome, err)
			}
			if string(encode(&p)) != string(before) {
				t.Errorf("%s, %s: a refused answer changed %s to %s", test.name, state, before, encode(&p))
			}
		}
	}
}

func TestAcceptByState(t *testing.T) {
	t.Parallel()
	now := time.Unix(7, 0)
	for state, want := range map[session.PendingState]session.SubmitOutcome{
		session.PendingWaiting:    session.SubmitAccepted,
		session.PendingAnswered:   session.SubmitAlreadyCompleted,
		session.PendingConsumed:   session.SubmitAlreadyCompleted,
		session.PendingTimedOut:   session.SubmitLate,
		session.PendingAbandoned:  session.SubmitAlreadyCompleted,
		session.PendingSuperseded: session.SubmitAlreadyCompleted,
	} {
		p := session.Pending{CallID: "c", Kind: session.PendingClientTool, State: state}
		got, err := p.Accept(&clientResult, now)
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", state, got, err, want)
		}
		accepted, late := want == session.SubmitAccepted, want == session.SubmitLate
		if (p.Response != nil) != accepted || (p.Late != nil) != late || p.SubmittedAt.IsZero() == (accepted || late) {
			t.Errorf("%s: left %s", state, encode(&p))
		}
		if accepted && (p.State != session.PendingAnswered || p.Response.By != "alice") || !accepted && p.State != state {
			t.Errorf("%s: left %s", state, encode(&p))
		}
		if open := p.State == session.PendingWaiting || p.State == session.PendingAnswered; p.Open() != open {
			t.Errorf("%s: open is %v", p.State, p.Open())
		}
	}
}

func TestOnlyTheFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	for _, state := range []session.PendingState{session.PendingWaiting, session.PendingTimedOut} {
		p := session.Pending{CallID: "c", Kind: session.PendingClientTool, State: state}
		if _, err := p.Accept(&clientResult, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		first := encode(&p)
		if _, err := p.Accept(&clientError, time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
		if string(encode(&p)) != string(first) {
			t.Errorf("%s: a second answer changed %s to %s", state, first, encode(&p))
		}
	}
}

func TestSubmissionLimits(t *testing.T) {
	t.Parallel()
	number := func(bytes int) json.RawMessage { return json.RawMessage(strings.Repeat("1", bytes)) }
	for name, test := range map[string]struct {
		change func(*session.Submission)
		want   *session.Error
	}{
		"fine":                   {func(*session.Submission) {}, nil},
		"no call id":             {func(s *session.Submission) { s.CallID = "" }, session.ErrInvalid},
		"a call id at the limit": {func(s *session.Submission) { s.CallID = strings.Repeat("x", 256) }, nil},
		"a long call id":         {func(s *session.Submission) { s.CallID = strings.Repeat("x", 257) }, session.ErrInvalid},
		"a long approval id":     {func(s *session.Submission) { s.ApprovalID = strings.Repeat("x", 257) }, session.ErrInvalid},
		"an error at the limit":  {func(s *session.Submission) { s.Result, s.Error = nil, strings.Repeat("x", 8<<10) }, nil},
		"a long error":           {func(s *session.Submission) { s.Result, s.Error = nil, strings.Repeat("x", 8<<10+1) }, session.ErrTooLarge},
		"a long reason":          {func(s *session.Submission) { s.Reason = strings.Repeat("x", 8<<10+1) }, session.ErrTooLarge},
		"a result at the limit":  {func(s *session.Submission) { s.Result = number(1 << 20) }, nil},
		"a long result":          {func(s *session.Submission) { s.Result = number(1<<20 + 1) }, session.ErrTooLarge},
		"a broken result":        {func(s *session.Submission) { s.Result = json.RawMessage(`{`) }, session.ErrInvalid},
		"a result and an error":  {func(s *session.Submission) { s.Error = "x" }, session.ErrInvalid},
		"no kind":                {func(s *session.Submission) { s.Kind = "" }, session.ErrInvalid},
		"an unknown kind":        {func(s *session.Submission) { s.Kind = "telepathy" }, session.ErrInvalid},
	} {
		s := clientResult
		test.change(&s)
		err := s.Check()
		if test.want == nil && err != nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

func TestSuspension(t *testing.T) {
	t.Parallel()
	s := session.State{Pending: []session.Pending{
		{CallID: "w", State: session.PendingWaiting}, {CallID: "a", State: session.PendingAnswered},
	}}
	got := s.Suspension()
	if len(got.Pending) != 1 || got.Pending[0].CallID != "w" || !got.Waiting() {
		t.Errorf("waits for %+v", got)
	}
	s.Pending[0].State = session.PendingAnswered
	if s.Suspension().Waiting() {
		t.Error("waits although everything is answered")
	}
	s.AwaitingChildren = []session.ChildRef{{SessionID: "child"}}
	if !s.Suspension().Waiting() {
		t.Error("does not wait for its child")
	}
}
