// Package usage reports what agents consume: tokens, tool calls, sub-agents, time spent
// waiting for people, and whatever applications count themselves.
package usage

import (
	"context"
	"encoding/json"
	"time"

	"github.com/helixagents/helix/session"
)

// Kind is what an entry counts.
type Kind string

// The kinds of entries.
const (
	Tokens         Kind = "tokens"
	Tool           Kind = "tool"
	SubAgent       Kind = "subagent"
	Custom         Kind = "custom"
	ClientToolWait Kind = "client_tool_wait_ms"
)

// Entry is one unit of consumption. Its ID stays the same when the process that made it
// reports it again, so that a store can deduplicate it. A model that is asked again by the
// process that takes a run over consumes again, and so does a tool that runs again: these
// entries have IDs of their own. Entries about sub-agents and about waits for people are one
// per call, whichever process reports them.
type Entry struct {
	ID        string          `json:"id"`
	Kind      Kind            `json:"kind"`
	Tenant    string          `json:"tenant,omitempty"`
	SessionID string          `json:"sessionId"`
	ParentID  string          `json:"parentSessionId,omitempty"`
	RootID    string          `json:"rootSessionId,omitempty"`
	RunID     string          `json:"runId,omitempty"`
	Agent     string          `json:"agentType,omitempty"`
	UserID    string          `json:"userId,omitempty"`
	Step      int             `json:"stepCount"`
	Source    string          `json:"source,omitempty"` // the tool, model or event
	At        time.Time       `json:"timestamp"`
	Duration  time.Duration   `json:"durationNs,omitempty"`
	Success   bool            `json:"success"`
	Usage     session.Usage   `json:"usage,omitzero"`
	Amount    float64         `json:"amount,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

// Sink receives entries as they occur. It must not block for long and handles its own
// errors.
type Sink interface {
	Record(ctx context.Context, entry Entry)
}

// SinkFunc adapts a function to a [Sink].
type SinkFunc func(ctx context.Context, entry Entry)

// Record implements [Sink].
func (f SinkFunc) Record(ctx context.Context, entry Entry) { f(ctx, entry) }
