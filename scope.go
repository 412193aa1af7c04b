package helix

import (
	"encoding/json"

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
// be encoded, the event carries the error instead. A name that the framework uses for events
// of its own gets the prefix "app."; see [stream.Reserved].
func (s *Scope) Emit(name string, data any) {
	if s.env != nil {
		s.env.Emit(name, eventData(data))
	}
}

// emitOwn is Emit for the framework's own extensions, whose events have reserved names.
func (s *Scope) emitOwn(name string, data any) {
	if s.env != nil {
		s.env.EmitOwn(name, eventData(data))
	}
}

func eventData(data any) json.RawMessage {
	raw, err := session.Encode(data)
	if err != nil {
		raw, _ = session.Encode(map[string]string{"error": "the event's data cannot be encoded: " + err.Error()})
	}
	return raw
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
