package helix

import (
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Scope is what a tool, hook or prompt knows of the run it is part of.
type Scope struct {
	Tenant    string
	SessionID string
	RunID     string
	Agent     string
	ParentID  string
	RootID    string
	UserID    string
	Tags      []string
	Metadata  map[string]string
	Turn      int
	Step      int
	// Key identifies the effect; it is the same when the effect is repeated.
	Key string

	env Env
}

// Env is how a scope reaches the run. Runtimes provide it.
type Env interface {
	// Draft is the custom state that may be read and written here.
	Draft() *Draft
	// Emit writes a custom event to the stream.
	Emit(name string, data json.RawMessage)
	// RecordUsage reports something the application counts.
	RecordUsage(name string, amount float64, data json.RawMessage)
}

// WithEnv returns the scope bound to a run.
func (s Scope) WithEnv(env Env) Scope {
	s.env = env
	return s
}

// Scoped is anything that carries a [Scope]: a call, a hook's context, a prompt.
type Scoped interface{ scope() *Scope }

func (s *Scope) scope() *Scope { return s }

// Emit sends a custom event to those who follow the stream. It is best effort:
// an event whose data cannot be encoded is sent with the reason instead.
func (s *Scope) Emit(name string, data any) {
	if s.env == nil {
		return
	}
	raw, err := session.Encode(data)
	if err != nil {
		raw, _ = session.Encode(map[string]string{"error": "the event's data cannot be encoded: " + err.Error()})
	}
	s.env.Emit(name, raw)
}

// RecordUsage reports an amount of something the application counts, such as
// pages or credits, to the runtime's usage sink.
func (s *Scope) RecordUsage(name string, amount float64, data any) {
	if s.env == nil {
		return
	}
	raw, err := session.Encode(data)
	if err != nil || data == nil {
		raw = nil
	}
	s.env.RecordUsage(name, amount, raw)
}
