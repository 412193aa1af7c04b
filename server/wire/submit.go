package wire

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Submit is the body of POST /submit-tool-result: the answer to a call that waits
// for a person. It has exactly one of Result, Error and Approval. With a Kind, an
// approval is not in Approval but in the fields ApprovalID, Approved and Reason, which
// is the form of the TypeScript framework.
type Submit struct {
	// SessionID is the session of the conversation, also where one of its sub-agents
	// waits.
	SessionID  string `json:"sessionId"`
	ToolCallID string `json:"toolCallId"`
	// Kind may say which answer it is: client-tool-result, with Result or Error, or
	// approval-response, with ApprovalID, Approved and Reason. Fields of another kind are
	// then refused.
	Kind SubmitKind `json:"kind,omitempty"`
	// Result is what a client tool came to.
	Result json.RawMessage `json:"result,omitempty"`
	// Error says why there is no result, or why nobody could decide.
	Error    string    `json:"error,omitempty"`
	Approval *Approval `json:"approval,omitempty"`
	// ApprovalID and Approved are needed with the kind approval-response, and with that
	// only; Approval says the same without a Kind.
	ApprovalID string `json:"approvalId,omitempty"`
	Approved   *bool  `json:"approved,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Seen binds the answer to what the person was shown: it is refused if the call
	// is another.
	Seen *Seen `json:"seen,omitempty"`
	// Resume continues the conversation with the answer, if nothing does so already.
	Resume bool `json:"resume,omitempty"`
}

// SubmitKind tells the answers apart.
type SubmitKind string

// The kinds of answers.
const (
	SubmitResult   SubmitKind = "client-tool-result"
	SubmitApproval SubmitKind = "approval-response"
)

// Approval is a person's decision on a call that waits for one.
type Approval struct {
	ApprovalID string `json:"approvalId"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitempty"`
}

// Seen is a call as a person was shown it.
type Seen struct {
	ToolName string          `json:"toolName"`
	Input    json.RawMessage `json:"input"`
}

// Submitted says what became of an answer. With the outcome unknown_tool_call it is
// the body of a 404, and has the fields of [Error] as well.
type Submitted struct {
	Outcome session.SubmitOutcome `json:"outcome"`
	// Continuation says how the work goes on: "caller_resumes" or "running".
	Continuation string `json:"continuation,omitempty"`
	// SessionID is the session that made the call, RootSessionID that of the
	// conversation.
	SessionID     string `json:"sessionId"`
	RootSessionID string `json:"rootSessionId"`
	// RunID is the run that goes on with the answer, when resuming was asked for and
	// done.
	RunID string `json:"runId,omitempty"`

	Message string       `json:"error,omitempty"`
	Code    session.Code `json:"code,omitempty"`
}
