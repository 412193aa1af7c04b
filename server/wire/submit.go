package wire

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Submit is the body of POST /submit-tool-result: the answer to a call that waits for a
// person. It has exactly one of Result, Error, Approval, Answer and Declined. With a Kind, an approval is in
// the fields ApprovalID, Approved and Reason instead, which is the form of the TypeScript
// framework.
type Submit struct {
	// SessionID is the session of the conversation, even if one of its sub-agents waits.
	SessionID string `json:"sessionId"`
	// ToolCallID is the call, or the question that it asks.
	ToolCallID string `json:"toolCallId"`
	// Kind is optional: client-tool-result, with Result or Error, approval-response, with
	// ApprovalID, Approved and Reason, or question, with Answer, or Declined and Reason. Fields
	// of another kind are then refused. The kind question alone confirms that what a
	// question's address is for was done.
	Kind SubmitKind `json:"kind,omitempty"`
	// Result is the result of a client tool.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is the reason why there is no result, or why nobody could decide.
	Error    string    `json:"error,omitempty"`
	Approval *Approval `json:"approval,omitempty"`
	// Answer is the answer to a question. Declined says that there will be none; Reason may
	// say why.
	Answer   json.RawMessage `json:"answer,omitempty"`
	Declined bool            `json:"declined,omitempty"`
	// ApprovalID and Approved are required with the kind approval-response, and only allowed
	// with it; without a Kind use Approval.
	ApprovalID string `json:"approvalId,omitempty"`
	Approved   *bool  `json:"approved,omitempty"`
	Reason     string `json:"reason,omitempty"`
	// Seen binds the answer to the call that the person saw: it is refused if the call
	// differs.
	Seen *Seen `json:"seen,omitempty"`
	// Resume continues the conversation with the answer, unless it is already running.
	Resume bool `json:"resume,omitempty"`
}

// SubmitKind is the kind of an answer.
type SubmitKind string

// The kinds of answers.
const (
	SubmitResult   SubmitKind = "client-tool-result"
	SubmitApproval SubmitKind = "approval-response"
	SubmitAnswer   SubmitKind = "question"
)

// Approval is a person's decision on a call.
type Approval struct {
	ApprovalID string `json:"approvalId"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitempty"`
}

// Seen is the call as the person saw it.
type Seen struct {
	ToolName string          `json:"toolName"`
	Input    json.RawMessage `json:"input"`
}

// Submitted is the response to an answer. With the outcome unknown_tool_call it is the body
// of a 404, and also has the fields of [Error].
type Submitted struct {
	Outcome session.SubmitOutcome `json:"outcome"`
	// Continuation is how the conversation continues: "caller_resumes" or "running".
	Continuation string `json:"continuation,omitempty"`
	// SessionID is the session that made the call, RootSessionID the session of the
	// conversation.
	SessionID     string `json:"sessionId"`
	RootSessionID string `json:"rootSessionId"`
	// RunID is the run that continues with the answer, if the request resumed one.
	RunID string `json:"runId,omitempty"`

	Message string       `json:"error,omitempty"`
	Code    session.Code `json:"code,omitempty"`
}
