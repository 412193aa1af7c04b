package wire

import (
	"encoding/json"
)

// ChatSubmit is the body of POST /chat/{id}/submit-tool-result: a [Submit] for the session
// in the path.
type ChatSubmit struct {
	ToolCallID string          `json:"toolCallId"`
	Kind       SubmitKind      `json:"kind,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	Approval   *Approval       `json:"approval,omitempty"`
	Answer     json.RawMessage `json:"answer,omitempty"`
	Declined   bool            `json:"declined,omitempty"`
	ApprovalID string          `json:"approvalId,omitempty"`
	Approved   *bool           `json:"approved,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Seen       *Seen           `json:"seen,omitempty"`
	Resume     bool            `json:"resume,omitempty"`
}

// ChatStop is the body of POST /chat/{id}/interrupt and /abort: a [Stop] for the session in
// the path.
type ChatStop struct {
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
}
