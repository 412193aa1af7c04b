package helix

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/helixagents/helix/session"
)

// Approval says whether a person must approve a call before it is carried out. It
// is asked once, when the model makes the call; an error or a panic means yes.
type Approval func(ctx context.Context, call *Call, input json.RawMessage) (bool, error)

// ApproveAlways asks for every call.
func ApproveAlways(context.Context, *Call, json.RawMessage) (bool, error) { return true, nil }

// ApproveWhen asks for the calls whose input needs says so of.
func ApproveWhen[In any](needs func(ctx context.Context, in In) (bool, error)) Approval {
	return func(ctx context.Context, _ *Call, input json.RawMessage) (bool, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return true, fmt.Errorf("decode the input: %w", err)
		}
		return needs(ctx, in)
	}
}

// Answer is what an Approver decides on: an answer to a waiting call that has not
// been taken yet.
type Answer struct {
	// By is who answers.
	By User
	// Owner is the user whose session it is.
	Owner string
	// SessionID is the session that made the call, RootID that of the conversation.
	SessionID string
	RootID    string
	CallID    string
	Tool      string
	Input     json.RawMessage
	// Response is the answer itself.
	Response session.Response
}
