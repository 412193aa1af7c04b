package helix

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Submission is an answer to a call that waits for a person. Make one with
// [Approve], [Deny], [ToolResult] or [ToolError].
type Submission struct {
	session.Submission
	// User is who answers.
	User User

	err error // of making it
}

// Approve lets a call that waits for approval be carried out.
func Approve(callID, approvalID string) Submission {
	return Submission{Submission: session.Submission{
		CallID: callID, ApprovalID: approvalID,
		Response: session.Response{Kind: session.PendingApproval, Approved: true},
	}}
}

// Deny refuses a call that waits for approval; the model is told the reason, if
// there is one.
func Deny(callID, approvalID, reason string) Submission {
	return Submission{Submission: session.Submission{
		CallID: callID, ApprovalID: approvalID,
		Response: session.Response{Kind: session.PendingApproval, Reason: reason},
	}}
}

// ToolResult answers a call of a tool that runs on the client.
func ToolResult(callID string, result any) Submission {
	raw, err := encodeResult(result)
	if err != nil {
		err = session.Invalid("result", "cannot be encoded: %v", err)
	}
	return Submission{err: err, Submission: session.Submission{
		CallID: callID, Response: session.Response{Kind: session.PendingClientTool, Result: raw},
	}}
}

// ToolError answers a call with an error: it could not be carried out, or, where
// it waits for approval, nobody could decide.
func ToolError(callID, message string) Submission {
	if message == "" {
		message = "the call failed"
	}
	return Submission{Submission: session.Submission{
		CallID: callID, Response: session.Response{Kind: session.PendingClientTool, Error: message},
	}}
}

// By says who answers.
func (s Submission) By(user User) Submission {
	s.User, s.Response.By = user, user.ID
	return s
}

// Seen binds the answer to the input that the person was shown: it is refused if
// the call's is another.
func (s Submission) Seen(tool string, input json.RawMessage) Submission {
	s.Fingerprint = session.Fingerprint(tool, input)
	return s
}

// Check reports a submission that cannot be taken, whatever the call.
func (s *Submission) Check() error {
	if s.err != nil {
		return s.err
	}
	return s.Submission.Check()
}

// Continuation says how the work goes on after an answer.
type Continuation string

// The ways to go on.
const (
	// CallerResumes: nothing runs. Whoever submitted resumes the session, now or when
	// the other answers are there.
	CallerResumes Continuation = "caller_resumes"
	// ContinuesRunning: a run is live, or is being started, and takes the answer up.
	ContinuesRunning Continuation = "running"
)

// The outcomes of a submission.
const (
	SubmitAccepted         = session.SubmitAccepted
	SubmitAlreadyCompleted = session.SubmitAlreadyCompleted
	SubmitLate             = session.SubmitLate
	SubmitUnknownCall      = session.SubmitUnknownCall
)

// Submitted is what became of a submission.
type Submitted struct {
	Outcome session.SubmitOutcome
	// Continuation is set when the answer was accepted, or when one is there already
	// that no run has taken up.
	Continuation Continuation
	// SessionID is the session that made the call, RootID the one to resume.
	SessionID string
	RootID    string
}
