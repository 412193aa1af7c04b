// Package access gives the engine what package helix keeps from applications. It cannot
// import helix, which imports it: helix sets the functions when it is initialised, and they
// take its types as any.
package access

import (
	"context"
	"encoding/json"

	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// Env connects a scope to its run.
type Env interface {
	// Draft returns the custom state that may be read and written here.
	Draft() *userstate.Draft
	// Emit writes a custom event to the stream.
	Emit(name string, data json.RawMessage)
	// EmitOwn is Emit for a name that is reserved for the framework's own events.
	EmitOwn(name string, data json.RawMessage)
	// PutBlob stores bytes that belong to the conversation, and returns their reference.
	PutBlob(ctx context.Context, data []byte) (string, error)
	// Blob returns bytes that belong to the conversation.
	Blob(ctx context.Context, ref string) ([]byte, error)
	// RecordUsage records an amount of something that the application counts.
	RecordUsage(name string, amount float64, data json.RawMessage)
	// View returns the conversation as the model was sent it.
	View() []session.Message
}

// Framework is embedded by the framework's own extensions. Their tools may have names that
// are reserved for them.
type Framework struct{}

func (Framework) framework() {}

// IsFramework reports whether an extension embeds [Framework].
func IsFramework(extension any) bool { _, ok := extension.(interface{ framework() }); return ok }

var (
	// BindScope connects a *helix.Scope to a run.
	BindScope func(scope any, env Env)
	// BindAnswers gives a *helix.Call the answers to its questions, of type []helix.Answered,
	// and its memo.
	BindAnswers func(call, answers any, memo json.RawMessage)
	// InitialState returns the custom state of a new session: that of the caller, if any,
	// merged over the defaults of a *helix.StateType. It refuses keys that the type does not
	// have.
	InitialState func(stateType any, given json.RawMessage) (session.CustomState, error)
	// EmitOwn sends an event of the framework to the readers of the stream of a *helix.Scope.
	EmitOwn func(scope any, name string, data any)
	// DraftOf returns the custom state that a helix.Scoped may read and write, or nil. Its
	// reserved keys are for packages of this module only.
	DraftOf func(scoped any) *userstate.Draft
	// IsNamed reports whether a *helix.Agent is a reference from helix.Named, without a
	// definition.
	IsNamed func(agent any) bool
	// CheckSubmission returns an error if no call would accept a *helix.Submission.
	CheckSubmission func(submission any) error
	// CheckTool returns an error that names the owner if a *helix.Tool is invalid. framework
	// is set for a tool of the framework's own extensions.
	CheckTool func(tool any, owner string, framework bool) error
)
