package helix

import (
	"encoding/json"

	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

//nolint:gochecknoinits // the engine needs these, and applications must not see them
func init() {
	access.BindScope = func(scope any, env access.Env) { scope.(*Scope).env = env }
	access.BindAnswers = func(call, answers any, memo json.RawMessage) {
		c := call.(*Call)
		c.answers, c.memo = answers.([]Answered), memo
	}
	access.InitialState = func(stateType any, given json.RawMessage) (session.CustomState, error) {
		return stateType.(*StateType).initial(given)
	}
	access.EmitOwn = func(scope any, name string, data any) { scope.(*Scope).emitOwn(name, data) }
	access.DraftOf = func(scoped any) *userstate.Draft { return draftOf(scoped.(Scoped)) }
	access.IsNamed = func(agent any) bool { a := agent.(*Agent); return a != nil && a.named }
	access.CheckTool = func(tool any, owner string, framework bool) error { return tool.(*Tool).check(owner, framework) }
	access.CheckSubmission = func(submission any) error { return submission.(*Submission).check() }
}
