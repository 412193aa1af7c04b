package helix

import (
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

// Scope identifies the run that a tool, hook or prompt function is part of.
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
	// Key identifies the effect. It stays the same when the effect is repeated.
	Key string

	env access.Env // nil outside of a run
}

// Scoped is implemented by values that carry a [Scope]: calls, hook contexts and prompts.
type Scoped interface{ scope() *Scope }

func (s *Scope) scope() *Scope { return s }

// Emit sends a custom event to the readers of the stream. It is best effort: if data cannot
// be encoded, the event carries the error instead.
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

// RecordUsage records an amount of something that the application counts, such as pages or
// credits, in the runtime's usage sink.
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
