package session

import (
	"encoding/json"
	"strings"
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
	// Agent is the name of the session's agent.
	Agent string `json:"agentType,omitempty"`
	// StreamID names the stream that receives the session's chunks: the root session's
	// id.
	StreamID string `json:"streamId,omitempty"`
	// ParentID is the session of the caller, for a sub-agent's session.
	ParentID string `json:"parentSessionId,omitempty"`
	// RootID is the session whose lease this one shares. It is empty for a session
	// that holds a lease of its own: a root, or a companion that runs by itself.
	RootID string `json:"rootSessionId,omitempty"`

	Status Status `json:"status,omitempty"`
	// Activity is the session's current activity. A store derives it when it reads the
	// session and ignores it in writes.
	Activity Activity `json:"activity,omitempty"`
	// Custom is the application's state.
	Custom    CustomState     `json:"customState"`
	StepCount int             `json:"stepCount,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *Error          `json:"error,omitempty"`
	// FailureReason distinguishes failures that recovery treats differently.
	FailureReason string            `json:"failureReason,omitempty"`
	Interrupt     *InterruptContext `json:"interruptContext,omitempty"`

	// SuspendedStep is the assistant message whose calls do not have all their results
	// yet.
	SuspendedStep string `json:"suspendedStepId,omitempty"`
	// Pending lists the session's own calls that wait for a person, and those that are
	// answered but not yet consumed. AwaitingChildren lists sub-agents whose outcome
	// the session waits for. Both are rows of their own, which Load collects.
	Pending          []Pending  `json:"pendingClientToolCalls,omitempty"`
	AwaitingChildren []ChildRef `json:"suspendedAwaitingChildren,omitempty"`

	Tracing      *TracingContext `json:"tracingContext,omitempty"`
	WorkspaceRef json.RawMessage `json:"workspaceRef,omitempty"`
	// Mode is kept readable for sessions that other systems wrote; Helix never sets
	// it.
	Mode string `json:"mode,omitempty"`

	UserID   string            `json:"userId,omitempty"`
	Tags     []string          `json:"tags,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	// Version increases by one with every write of the document.
	Version     int64 `json:"version,omitempty"`
	ResumeCount int   `json:"resumeCount,omitempty"`
	// Turn is the number of the latest run; MessageCount is the number of messages.
	Turn         int `json:"turn,omitempty"`
	MessageCount int `json:"messageCount,omitempty"`
	// Marks say where in the transcript the last markers are. A store derives them
	// from the messages and ignores them in writes.
	Marks        Marks  `json:"marks,omitempty"`
	CurrentRunID string `json:"currentRunId,omitempty"`
	// Requires names the abilities that the current run needs; see [Run.Requires].
	Requires []string `json:"requires,omitempty"`
	// LastCommit is the effect key of the last commit.
	LastCommit string `json:"lastCommit,omitempty"`
	// ClosePending is set after a run has ended until its stream is known to be closed.
	ClosePending bool  `json:"closeOwed,omitempty"`
	Lease        Lease `json:"lease,omitzero"`

	CheckpointID     string           `json:"checkpointId,omitempty"`
	CheckpointedAt   time.Time        `json:"checkpointedAt,omitzero"`
	CheckpointSource CheckpointSource `json:"checkpointSource,omitempty"`

	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`

	Extra Extra `json:"-"`
}

// InterruptContext says why a session was interrupted or paused.
type InterruptContext struct {
	RunID  string    `json:"runId,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Step   int       `json:"stepCount,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// TracingContext joins all runs of a session in one trace.
type TracingContext struct {
	TraceID    string `json:"traceId"`
	RootSpanID string `json:"rootSpanId"`
}

// Lease is the right to write a session's document.
type Lease struct {
	Owner string `json:"owner,omitempty"`
	// Epoch never decreases; every change of owner raises it.
	Epoch int64 `json:"epoch,omitempty"`
	// ExpiresAt is when a takeover becomes possible, on the store's clock. A zero
	// lease never expires; an engine that detects dead processes itself uses it.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// FirstEpoch returns a lower bound for the epochs of the n-th session that a store
// creates. Because of it, a session that is deleted and created again never
// repeats an epoch, so that no former holder of its lease can write to it.
func FirstEpoch(n int64) int64 { return n << 24 }

// Fence returns the proof that the lease's holder presents with every write.
func (l Lease) Fence() Fence { return Fence{Owner: l.Owner, Epoch: l.Epoch} }

// TTL returns for how long the owner's leases last after each renewal, or 0 if that is not
// known. The owner's token tells it and no field does, so that it is never that of an
// earlier owner, whichever version of a program took the lease over.
func (l Lease) TTL() time.Duration {
	_, ttl, _ := strings.Cut(l.Owner[strings.LastIndexByte(l.Owner, ':')+1:], "/")
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return 0
	}
	return max(d, 0)
}

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

// Suspension returns what the session waits for: calls without an answer, and
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

// Saw returns the state that an error reports to a refused writer.
func (s *State) Saw() Saw {
	return Saw{Status: s.Status, Version: s.Version, RunID: s.CurrentRunID, Owner: s.Lease.Owner, Epoch: s.Lease.Epoch}
}

// Check returns an error if the state cannot be created or saved.
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
		return Invalid("status", "%q is not one of %v", s.Status, Statuses())
	}
	if err := s.checkLabels(); err != nil {
		return err
	}
	if err := s.checkTimes(); err != nil {
		return err
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

// Limits of a session's labels. A store indexes every label, so a document or a
// change above the limits is refused before a store sees it. Documents that are
// already stored are read regardless of the limits.
const (
	MaxTags     = 64
	MaxMetadata = 64
	// MaxMetadataName and MaxMetadataValue are in bytes; a tag has at most
	// [MaxIDBytes].
	MaxMetadataName  = 256
	MaxMetadataValue = 4 << 10
)

func (s *State) checkLabels() error {
	if len(s.Tags) > MaxTags {
		return Invalid("tags", "has %d entries, at most %d are allowed", len(s.Tags), MaxTags)
	}
	for _, tag := range s.Tags {
		if err := CheckTag("tag", tag); err != nil {
			return err
		}
	}
	if len(s.Metadata) > MaxMetadata {
		return Invalid("metadata", "has %d entries, at most %d are allowed", len(s.Metadata), MaxMetadata)
	}
	for name, value := range s.Metadata {
		if err := checkMetadata(name, value); err != nil {
			return err
		}
	}
	return nil
}

// CheckTag returns an error if the tag cannot be stored.
func CheckTag(field, tag string) error {
	if tag == "" || len(tag) > MaxIDBytes {
		return Invalid(field, "%.40q must have 1 to %d bytes", tag, MaxIDBytes)
	}
	return CheckText(field, tag)
}

func checkMetadata(name, value string) error {
	switch {
	case name == "":
		return Invalid("metadata name", "must not be empty")
	case len(name) > MaxMetadataName:
		return Invalid("metadata name", "%.40q… has %d bytes, at most %d are allowed", name, len(name), MaxMetadataName)
	case len(value) > MaxMetadataValue:
		return Invalid("metadata value", "of %.40q has %d bytes, at most %d are allowed", name, len(value), MaxMetadataValue)
	}
	return checkTexts("metadata name", name, "metadata value", value)
}

// CheckMetadata returns an error if the change of metadata cannot be stored; a nil
// value deletes.
func CheckMetadata(patch map[string]*string) error {
	if len(patch) > MaxMetadata {
		return Invalid("metadata", "has %d changes, at most %d are allowed", len(patch), MaxMetadata)
	}
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

// UniqueTags returns tags without duplicates, in a new slice.
func UniqueTags(tags []string) []string {
	var out []string
	seen := make(map[string]bool, len(tags))
	for _, tag := range tags {
		if !seen[tag] {
			seen[tag] = true
			out = append(out, tag)
		}
	}
	return out
}

func (s *State) checkTimes() error {
	for _, at := range []struct {
		field string
		time  time.Time
	}{{"expiresAt", s.ExpiresAt}, {"createdAt", s.CreatedAt}} {
		if err := CheckTime(at.field, at.time); err != nil {
			return err
		}
	}
	return nil
}

// minTime and maxTime bound the times that every store returns unchanged. SQLite
// counts nanoseconds from 1970 in 64 bits, which cover the years 1677 to 2262.
var (
	minTime = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

// CheckTime returns an error if some store cannot keep the time: the years 1678 to
// 2261, in UTC, are valid. The zero time means none and is valid.
func CheckTime(field string, t time.Time) error {
	if !t.IsZero() && (t.Before(minTime) || !t.Before(maxTime)) {
		return Invalid(field, "must be within the years %d and %d in UTC", minTime.Year(), maxTime.Year()-1)
	}
	return nil
}

type stateJSON State

type versionedState struct {
	V int `json:"v"`
	stateJSON
}

// MarshalJSON implements [json.Marshaler]. An expiry that was stored before
// [CheckTime] refused it may have no representation in JSON, which ends with the
// year 9999; it is written as the nearest representable time, so that the session
// can be read.
func (s State) MarshalJSON() ([]byte, error) {
	switch year := s.ExpiresAt.UTC().Year(); {
	case year < 0:
		s.ExpiresAt = minTime
	case year > 9999:
		s.ExpiresAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
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
