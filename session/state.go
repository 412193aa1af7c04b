package session

import (
	"encoding/json"
	"slices"
	"time"
)

// DefaultTenant is the tenant of a deployment that configures none.
const DefaultTenant = "default"

// Key addresses a session: ids are unique per tenant.
type Key struct {
	Tenant string `json:"tenant"`
	ID     string `json:"sessionId"`
}

// State is a session's document: everything about it except its messages, runs,
// checkpoints and calls, which are rows of their own.
type State struct {
	Tenant string `json:"tenant,omitempty"`
	ID     string `json:"sessionId,omitempty"`
	// Agent is the name of the agent the session belongs to.
	Agent string `json:"agentType,omitempty"`
	// StreamID names the stream its chunks go to: the root session's id.
	StreamID string `json:"streamId,omitempty"`
	// ParentID links a sub-agent's session to its caller's.
	ParentID string `json:"parentSessionId,omitempty"`
	// RootID is the session whose lease this one shares. It is empty for a session
	// that holds a lease of its own: a root, or a companion that runs by itself.
	RootID string `json:"rootSessionId,omitempty"`

	Status Status `json:"status,omitempty"`
	// Custom is the application's state.
	Custom    Document        `json:"customState"`
	StepCount int             `json:"stepCount,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *Error          `json:"error,omitempty"`
	// FailureReason tells failures apart that recovery treats differently.
	FailureReason string            `json:"failureReason,omitempty"`
	Interrupt     *InterruptContext `json:"interruptContext,omitempty"`

	// SuspendedStep is the assistant message whose calls are still waited for.
	SuspendedStep string `json:"suspendedStepId,omitempty"`
	// Pending lists the session's own calls that wait for a person, and those
	// answered but not yet consumed. Children lists sub-agents whose outcome the
	// session waits for. Both are rows of their own, gathered by Load.
	Pending          []Pending  `json:"pendingClientToolCalls,omitempty"`
	AwaitingChildren []ChildRef `json:"suspendedAwaitingChildren,omitempty"`

	Tracing      *TracingContext `json:"tracingContext,omitempty"`
	WorkspaceRef json.RawMessage `json:"workspaceRef,omitempty"`
	// Mode is kept readable for sessions that other systems wrote; nothing here
	// sets it.
	Mode string `json:"mode,omitempty"`

	UserID   string            `json:"userId,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	// Version grows by one with every write of the document.
	Version     int64 `json:"version,omitempty"`
	ResumeCount int   `json:"resumeCount,omitempty"`
	// Turn is the number of the latest run; MessageCount that of the messages.
	Turn         int    `json:"turn,omitempty"`
	MessageCount int    `json:"messageCount,omitempty"`
	CurrentRunID string `json:"currentRunId,omitempty"`
	// LastCommit is the effect key of the last commit.
	LastCommit string `json:"lastCommit,omitempty"`
	// CloseOwed is set while a run has ended whose stream may not have.
	CloseOwed bool  `json:"closeOwed,omitempty"`
	Lease     Lease `json:"lease,omitzero"`

	CheckpointID     string           `json:"checkpointId,omitempty"`
	CheckpointedAt   time.Time        `json:"checkpointedAt,omitzero"`
	CheckpointSource CheckpointSource `json:"checkpointSource,omitempty"`

	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`

	Extra Extra `json:"-"`
}

// InterruptContext tells why a session was interrupted or paused.
type InterruptContext struct {
	RunID  string    `json:"runId,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Step   int       `json:"stepCount,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// TracingContext keeps one trace over all runs of a session.
type TracingContext struct {
	TraceID    string `json:"traceId"`
	RootSpanID string `json:"rootSpanId"`
}

// Lease is who may write a session's document.
type Lease struct {
	Owner string `json:"owner,omitempty"`
	// Epoch only grows; every change of owner raises it.
	Epoch int64 `json:"epoch,omitempty"`
	// ExpiresAt permits a takeover, on the store's clock; zero never expires, for
	// an engine that owns liveness itself.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// FirstEpoch is what the epochs of the n-th session that a store ever made begin
// above. One that was deleted and made again thus repeats none, so that nobody who
// held its lease before can write to it.
func FirstEpoch(n int64) int64 { return n << 24 }

// Fence returns what the lease's holder shows with every write.
func (l Lease) Fence() Fence { return Fence{Owner: l.Owner, Epoch: l.Epoch} }

// Live reports whether somebody holds the lease at the store's time now.
func (l Lease) Live(now time.Time) bool {
	return l.Owner != "" && (l.ExpiresAt.IsZero() || now.Before(l.ExpiresAt))
}

// Fence is proof of a lease.
type Fence struct {
	Owner string `json:"owner"`
	Epoch int64  `json:"epoch"`
}

// Suspension is what a session waits for.
type Suspension struct {
	Pending  []Pending
	Children []ChildRef
}

// Waiting reports whether there is anything to wait for.
func (s Suspension) Waiting() bool { return len(s.Pending) > 0 || len(s.Children) > 0 }

// Suspension tells what the session waits for: calls without an answer, and
// children.
func (s *State) Suspension() Suspension {
	out := Suspension{Children: s.AwaitingChildren}
	for i := range s.Pending {
		if s.Pending[i].State == PendingWaiting {
			out.Pending = append(out.Pending, s.Pending[i])
		}
	}
	return out
}

// Saw is what a refused writer is told about the session.
func (s *State) Saw() Saw {
	return Saw{Status: s.Status, Version: s.Version, RunID: s.CurrentRunID, Owner: s.Lease.Owner, Epoch: s.Lease.Epoch}
}

// Check reports what is wrong with a state that is to be created or saved.
func (s *State) Check() error {
	if err := CheckID(s.ID); err != nil {
		return err
	}
	if s.Agent == "" {
		return Invalid("agent", "must not be empty")
	}
	err := checkTexts("agent", s.Agent, "user id", s.UserID, "stream id", s.StreamID, "mode", s.Mode,
		"failure reason", s.FailureReason, "suspended step", s.SuspendedStep)
	if err != nil {
		return err
	}
	if !s.Status.Valid() {
		return Invalid("status", "%q is none of %v", s.Status, Statuses())
	}
	for _, tag := range s.Tags {
		if tag == "" || len(tag) > MaxIDBytes {
			return Invalid("tag", "%.40q must have 1 to %d bytes", tag, MaxIDBytes)
		}
		if err := CheckText("tag", tag); err != nil {
			return err
		}
	}
	for name, value := range s.Metadata {
		if err := checkMetadata(name, value); err != nil {
			return err
		}
	}
	for _, id := range []struct{ field, id string }{{"parent session id", s.ParentID}, {"root session id", s.RootID}} {
		if id.id == "" {
			continue
		}
		if err := checkID(id.field, id.id); err != nil {
			return err
		}
	}
	if err := CheckJSON("output", s.Output); err != nil {
		return err
	}
	if err := CheckJSON("workspace reference", s.WorkspaceRef); err != nil {
		return err
	}
	return s.Custom.Check()
}

func checkMetadata(name, value string) error {
	if name == "" {
		return Invalid("metadata name", "must not be empty")
	}
	return checkTexts("metadata name", name, "metadata value", value)
}

// CheckMetadata reports a change of metadata that cannot be stored; a nil value
// deletes.
func CheckMetadata(patch map[string]*string) error {
	for name, value := range patch {
		text := ""
		if value != nil {
			text = *value
		}
		if err := checkMetadata(name, text); err != nil {
			return err
		}
	}
	return nil
}

// UniqueTags is tags without those that repeat an earlier one. The result is the
// caller's own.
func UniqueTags(tags []string) []string {
	var out []string
	for i, tag := range tags {
		if !slices.Contains(tags[:i], tag) {
			out = append(out, tag)
		}
	}
	return out
}

type stateJSON State

type versionedState struct {
	V int `json:"v"`
	stateJSON
}

// MarshalJSON implements [json.Marshaler].
func (s State) MarshalJSON() ([]byte, error) {
	return encodeWithExtra(&versionedState{FormatVersion, stateJSON(s)}, s.Extra)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *State) UnmarshalJSON(data []byte) error {
	var doc versionedState
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*s = State(doc.stateJSON)
	s.Extra = extra
	return checkFormat("session "+s.ID, doc.V)
}
