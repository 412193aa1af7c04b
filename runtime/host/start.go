package host

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// Start is what an engine's workflow is started with: the run, and where its turn
// stands.
type Start struct {
	Tenant    string          `json:"tenant,omitempty"`
	SessionID string          `json:"sessionId"`
	RunID     string          `json:"runId"`
	Agent     string          `json:"agent"`
	Turn      int             `json:"turn"`
	Kind      session.RunKind `json:"kind"`
	// Position is where the turn stands, held by the process that opened it; nil if the
	// first process that works on it has to take it over.
	Position *machine.Position `json:"position,omitempty"`
	// Detached is set for the turn of a companion that works by itself.
	Detached bool `json:"detached,omitempty"`
}

// StartOf is how the workflow of a turn is started that was opened here.
func StartOf(opened *engine.Opened) Start {
	start := startOf(opened.Key, &opened.Run)
	start.Position, start.Detached = &opened.Position, opened.Detached
	return start
}

func startOf(key session.Key, run *session.Run) Start {
	return Start{Tenant: key.Tenant, SessionID: key.ID, RunID: run.ID, Agent: run.Agent, Turn: run.Turn, Kind: run.Kind}
}

// Key is that of the session.
func (s *Start) Key() session.Key { return session.Key{Tenant: s.Tenant, ID: s.SessionID} }

// maxWorkflowID is the longest id that engines keep.
const maxWorkflowID = 255

// WorkflowID is the id under which an engine drives the run. It is the same whoever
// asks, so that a run has one workflow.
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
