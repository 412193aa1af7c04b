package host

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// Start is the input of a run's workflow. It has ids and small values only.
type Start struct {
	Tenant    string          `json:"tenant,omitempty"`
	SessionID string          `json:"sessionId"`
	RunID     string          `json:"runId"`
	Agent     string          `json:"agent"`
	Turn      int             `json:"turn"`
	Kind      session.RunKind `json:"kind"`
	// Position is set if the process that opened the turn still holds it. Otherwise a
	// process has to take the turn over first.
	Position *machine.Position `json:"position,omitempty"`
	// Detached is set for the turn of a detached companion.
	Detached bool `json:"detached,omitempty"`
}

// StartOf returns the workflow start for a turn that this process opened.
func StartOf(opened *engine.Opened) Start {
	start := startOf(opened.Key, &opened.Run)
	start.Position, start.Detached = &opened.Position, opened.Detached
	return start
}

func startOf(key session.Key, run *session.Run) Start {
	return Start{Tenant: key.Tenant, SessionID: key.ID, RunID: run.ID, Agent: run.Agent, Turn: run.Turn, Kind: run.Kind}
}

// Key returns the key of the session.
func (s *Start) Key() session.Key { return session.Key{Tenant: s.Tenant, ID: s.SessionID} }

// maxWorkflowID is the longest id that workflow engines accept.
const maxWorkflowID = 255

// WorkflowID returns the id of the run's workflow. Every process computes the same id,
// so that a run has one workflow.
func (s *Start) WorkflowID(prefix string) string {
	id := prefix + "__"
	if s.Tenant != "" && s.Tenant != session.DefaultTenant {
		id += "@" + s.Tenant + "__"
	}
	id += s.Agent + "__" + s.SessionID
	switch {
	case s.Turn <= 1:
	case s.Kind == session.RunResume:
		id += "__resume-" + strconv.Itoa(s.Turn)
	default:
		id += "__turn-" + strconv.Itoa(s.Turn)
	}
	if len(id) <= maxWorkflowID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	tail := "__" + hex.EncodeToString(sum[:16])
	return id[:maxWorkflowID-len(tail)] + tail
}
