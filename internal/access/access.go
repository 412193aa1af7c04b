// Package access gives the engine what package helix keeps from applications. It cannot
// import helix, which imports it: helix sets the functions when it is initialised, and they
// take its types as any.
package access

import (
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
	// RecordUsage records an amount of something that the application counts.
	RecordUsage(name string, amount float64, data json.RawMessage)
}

var (
	// BindScope connects a *helix.Scope to a run.
	BindScope func(scope any, env Env)
	// InitialState returns the custom state of a new session: that of the caller, if any,
	// merged over the defaults of a *helix.StateType. It refuses keys that the type does not
	// have.
	InitialState func(stateType any, given json.RawMessage) (session.CustomState, error)
	// IsNamed reports whether a *helix.Agent is a reference from helix.Named, without a
	// definition.
	IsNamed func(agent any) bool
	// CheckSubmission returns an error if no call would accept a *helix.Submission.
	CheckSubmission func(submission any) error
)
