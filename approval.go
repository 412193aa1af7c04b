package helix

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/helixagents/helix/session"
)

// Approval reports whether a person must approve a call before it runs. It is called once,
// when the model makes the call. An error or a panic requires approval.
type Approval func(ctx context.Context, call *Call, input json.RawMessage) (bool, error)

// RequireApproval requires approval for every call.
func RequireApproval(context.Context, *Call, json.RawMessage) (bool, error) { return true, nil }

// RequireApprovalWhen requires approval for calls whose input makes needs return true.
func RequireApprovalWhen[In any](needs func(ctx context.Context, in In) (bool, error)) Approval {
	return func(ctx context.Context, _ *Call, input json.RawMessage) (bool, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return true, fmt.Errorf("decode the input: %w", err)
		}
		return needs(ctx, in)
	}
}

// Answer is the argument of [Tool.Approver]: a submitted answer to a waiting call, before
// it is accepted.
type Answer struct {
	// By is the user who answers.
	By User
	// Owner is the id of the user who owns the session.
	Owner string
	// SessionID is the session that made the call. RootID is the session of the
	// conversation.
	SessionID string
	RootID    string
	CallID    string
	Tool      string
	Input     json.RawMessage
	// Prompt is the question that the call asks, if it asks one.
	Prompt   string
	Response session.Response
}
