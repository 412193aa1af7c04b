package helix

import (
	"github.com/helixagents/helix/session"
)

// Submission is an answer to a call that waits for a person. Make one with
// [Approve], [Deny], [ToolResult], [ToolError], [Reply] or [Decline].
type Submission struct {
	session.Submission
	// User is the user who answers.
	User User

	err error // from encoding the result
}

// Approve approves a call that waits for approval. The answer is bound to the input in
// call, which is what the person saw: it is refused if the call's input differs.
func Approve(call session.Pending, by User) Submission {
	s := Submission{Submission: session.Decide(call.CallID, call.ApprovalID, true, "")}
	s.Fingerprint = session.Fingerprint(call.Tool, call.Input)
	return s.By(by)
}

// Deny denies a call that waits for approval. The model sees the reason, if any.
func Deny(call session.Pending, by User, reason string) Submission {
	return Submission{Submission: session.Decide(call.CallID, call.ApprovalID, false, reason)}.By(by)
}

// ToolResult answers a call of a client tool with its result.
func ToolResult(callID string, result any) Submission {
	raw, err := encodeResult(result)
	if err != nil {
		err = session.Invalid("result", "cannot be encoded: %v", err)
	}
	return Submission{err: err, Submission: session.Submission{
		CallID: callID, Response: session.Response{Kind: session.PendingClientTool, Result: raw},
	}}
}

// ToolError answers a call with an error: the client could not run it, nobody could decide
// on its approval, or nobody can answer its question. The call fails without running.
func ToolError(callID, message string) Submission {
	if message == "" {
		message = "the call failed"
	}
	return Submission{Submission: session.Submission{
		CallID: callID, Response: session.Response{Kind: session.PendingClientTool, Error: message},
	}}
}

// By returns the submission with the user who answers.
func (s Submission) By(user User) Submission {
	s.User, s.Response.By = user, user.ID
	return s
}

func (s *Submission) check() error {
	if s.err != nil {
		return s.err
	}
	return s.Submission.Check()
}

// Continuation is how the session continues after an answer.
type Continuation string

// How a session continues.
const (
	// CallerResumes means that nothing is running: the caller resumes the session, now or
	// after the other answers have been submitted.
	CallerResumes Continuation = "caller_resumes"
	// ContinuesRunning means that a run is active, or is being started, and uses the
	// answer.
	ContinuesRunning Continuation = "running"
)

// The outcomes of a submission.
const (
	SubmitAccepted         = session.SubmitAccepted
	SubmitAlreadyCompleted = session.SubmitAlreadyCompleted
	SubmitLate             = session.SubmitLate
	SubmitUnknownCall      = session.SubmitUnknownCall
)

// Submitted is the result of a submission.
type Submitted struct {
	Outcome session.SubmitOutcome
	// Continuation is set if the answer was accepted, or if the call has an answer that no
	// run has used yet.
	Continuation Continuation
	// SessionID is the session that made the call, RootID the one to resume.
	SessionID string
	RootID    string
}
