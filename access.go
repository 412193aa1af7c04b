package helix

import (
	"encoding/json"

	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

//nolint:gochecknoinits // the engine needs these, and applications must not see them
func init() {
	access.BindScope = func(scope any, env access.Env) { scope.(*Scope).env = env }
	access.InitialState = func(stateType any, given json.RawMessage) (session.CustomState, error) {
		return stateType.(*StateType).initial(given)
	}
	access.IsNamed = func(agent any) bool { a := agent.(*Agent); return a != nil && a.named }
	access.CheckSubmission = func(submission any) error { return submission.(*Submission).check() }
}
