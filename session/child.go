package session

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// ChildMode says how long a sub-agent lives.
type ChildMode string

// The modes of children.
const (
	ChildEphemeral  ChildMode = "ephemeral"  // one call, one answer
	ChildPersistent ChildMode = "persistent" // a companion
)

// ChildStatus is the status of a child as its parent recorded it.
type ChildStatus string

// The statuses of a child reference.
const (
	ChildRunning    ChildStatus = "running"
	ChildWaiting    ChildStatus = "waiting" // the child waits for a person, and so does its parent
	ChildCompleted  ChildStatus = "completed"
	ChildFailed     ChildStatus = "failed"
	ChildTerminated ChildStatus = "terminated"
	ChildSuperseded ChildStatus = "superseded"
)

// ChildRef links a session to a sub-agent's session. Lineage is read from here,
// never parsed from ids.
type ChildRef struct {
	SessionID string `json:"sessionId"`
	Agent     string `json:"agentType"`
	// CallID is the parent's call that the child currently works for.
	CallID string      `json:"parentToolCallId,omitempty"`
	RunID  string      `json:"runId,omitempty"`
	Mode   ChildMode   `json:"mode"`
	Status ChildStatus `json:"status"`
	// Name and Blocking describe a companion.
	Name     string `json:"name,omitempty"`
	Blocking bool   `json:"blocking,omitempty"`
	// Awaited is set while the parent is suspended until the child ends.
	Awaited bool `json:"awaited,omitempty"`
	// Remote describes a child on another server: its address and how far its stream
	// has been relayed. A reference with a Remote stays remote.
	Remote json.RawMessage `json:"remote,omitempty"`
	// StopPending is set while the child has not confirmed a stop.
	StopPending bool      `json:"stopOwed,omitempty"`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
	UpdatedAt   time.Time `json:"updatedAt,omitzero"`
	Extra       Extra     `json:"-"`
}

// Check returns an error if the reference cannot be stored.
func (c *ChildRef) Check() error {
	if c.SessionID == "" {
		return Invalid("child session id", "must not be empty")
	}
	if err := checkTexts("child session id", c.SessionID, "agent", c.Agent, "tool call id", c.CallID, "name", c.Name); err != nil {
		return err
	}
	return CheckJSON("remote", c.Remote)
}

// Replace copies from was what a new reference inherits: the creation time and Remote,
// unless c has its own.
func (c *ChildRef) Replace(was *ChildRef) {
	if c.CreatedAt.IsZero() {
		c.CreatedAt = was.CreatedAt
	}
	if c.Remote == nil {
		c.Remote = was.Remote
	}
}

// Update applies change to c. It returns an error if change does, if the result
// cannot be stored, or if it refers to another session. The creation time and
// Remote are preserved, as by [ChildRef.Replace].
func (c *ChildRef) Update(change func(*ChildRef) error) error {
	was := ChildRef{SessionID: c.SessionID, CreatedAt: c.CreatedAt, Remote: slices.Clone(c.Remote)}
	if err := change(c); err != nil {
		return err
	}
	if c.SessionID != was.SessionID {
		return Invalid("child session id", "%q must stay %q", c.SessionID, was.SessionID)
	}
	c.Replace(&was)
	return c.Check()
}

type childJSON ChildRef

type versionedChild struct {
	V int `json:"v"`
	childJSON
}

// MarshalJSON implements [json.Marshaler].
func (c ChildRef) MarshalJSON() ([]byte, error) {
	return encodeWithExtra(&versionedChild{FormatVersion, childJSON(c)}, c.Extra)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *ChildRef) UnmarshalJSON(data []byte) error {
	var doc versionedChild
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*c = ChildRef(doc.childJSON)
	c.Extra = extra
	return checkFormat("child "+c.SessionID, doc.V)
}

// Ownership routes a submission, which always goes to the root session, to the
// session that owns the call.
type Ownership struct {
	CallID    string `json:"toolCallId"`
	SessionID string `json:"sessionId"`
	// CompletedAt is set as soon as the call is answered, not only when the answer is
	// consumed: a late submission then gets "already completed" instead of "unknown",
	// and the root no longer suspends because of the call; see [Change.Waits].
	CompletedAt time.Time `json:"completedAt,omitzero"`
}

// Check returns an error if the row cannot be stored.
func (o *Ownership) Check() error {
	return checkTexts("tool call id", o.CallID, "owner session id", o.SessionID)
}

// InboxEntry is a message to a session that arrives outside its run: the
// completion of a companion, or a message to a companion.
type InboxEntry struct {
	ID   string          `json:"id"`
	From string          `json:"from,omitempty"`
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
	At   time.Time       `json:"at,omitzero"`
}

// Check returns an error if the entry cannot be stored.
func (e *InboxEntry) Check() error {
	if err := CheckKeyID("inbox entry id", e.ID); err != nil {
		return err
	}
	if err := checkTexts("inbox kind", e.Kind, "sender", e.From); err != nil {
		return err
	}
	return CheckJSON("body", e.Body)
}

// Wake says that a session can continue because a child it waited for has ended.
// It is delivered at least once.
type Wake struct {
	Tenant    string    `json:"tenant,omitempty"`
	SessionID string    `json:"sessionId"`
	ChildID   string    `json:"childId"`
	RunID     string    `json:"runId,omitempty"`
	At        time.Time `json:"at,omitzero"`
}

// Compare orders wakes by time, then by tenant, session and child, bytewise.
func (w *Wake) Compare(v *Wake) int {
	return cmp.Or(w.At.Compare(v.At), cmp.Compare(w.Tenant, v.Tenant),
		cmp.Compare(w.SessionID, v.SessionID), cmp.Compare(w.ChildID, v.ChildID))
}

// Check returns an error if the wake cannot be stored.
func (w *Wake) Check() error {
	if err := CheckID(w.SessionID); err != nil {
		return err
	}
	return checkTexts("child session id", w.ChildID, "run id", w.RunID)
}

// StopKind says how a run is to be stopped.
type StopKind string

// The kinds of stops.
const (
	StopInterrupt StopKind = "interrupt" // soft: the session can be resumed
	StopAbort     StopKind = "abort"     // hard: the run fails
)

// Stop is a durable request to stop one run. It never affects a later run.
type Stop struct {
	RunID  string    `json:"runId"`
	Kind   StopKind  `json:"kind"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Check returns an error if the request is not valid.
func (s *Stop) Check() error {
	switch s.Kind {
	case StopInterrupt, StopAbort:
	default:
		return Invalid("stop kind", "%q is neither %s nor %s", s.Kind, StopInterrupt, StopAbort)
	}
	return checkTexts("run id", s.RunID, "stop reason", s.Reason)
}

// OverriddenBy reports whether next replaces the stored request s: only an abort
// overrides an interrupt.
func (s *Stop) OverriddenBy(next *Stop) bool {
	return s.Kind == StopInterrupt && next.Kind == StopAbort
}
