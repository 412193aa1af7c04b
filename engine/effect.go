package engine

import (
	"strconv"

	"github.com/helixagents/helix/session"
)

// EffectKind says what an effect does.
type EffectKind string

// The effects of a turn.
const (
	// CallModel asks the model for a reply and commits it.
	CallModel EffectKind = "model"
	// CallTool carries out one call of the reply.
	CallTool EffectKind = "tool"
	// CallChild takes in what another agent made of a call. Before that the driver
	// opens the agent's turn, see [Handler.OpenChild], and drives it.
	CallChild EffectKind = "child"
	// Gather takes in what people have answered and says what there is to do about it;
	// if nothing, and answers are missing, it suspends the turn.
	Gather EffectKind = "gather"
	// CommitStep takes the results of all calls into the transcript.
	CommitStep EffectKind = "commit"
	// CloseTurn tells the stream and the hooks that the turn is over.
	CloseTurn EffectKind = "close"
)

// Effect is something the machine asks to be done. It carries ids and small
// values only; content stays in the store.
type Effect struct {
	Kind      EffectKind `json:"kind"`
	Tenant    string     `json:"tenant,omitempty"`
	SessionID string     `json:"sessionId"`
	RunID     string     `json:"runId"`
	Step      int        `json:"step"`
	CallID    string     `json:"callId,omitempty"`
	// Round counts how often the step has taken in answers before.
	Round int `json:"round,omitempty"`
	// Finish makes a model call offer nothing but the finish tool; the step's commit
	// repeats it.
	Finish bool `json:"finish,omitempty"`

	key string // Key, once the effect is being handled
}

// Key identifies the effect among all that ever were.
func (e Effect) Key() string {
	if e.key != "" {
		return e.key
	}
	key := e.RunID + "/" + strconv.Itoa(e.Step) + "/" + string(e.Kind)
	if e.CallID != "" {
		key += "/" + e.CallID
	}
	if e.Round > 0 {
		key += "/" + strconv.Itoa(e.Round)
	}
	return key
}

func (e Effect) session() session.Key { return session.Key{Tenant: e.Tenant, ID: e.SessionID} }

// Next says what follows an effect.
type Next string

// What may follow. Handlers decide it, because they know the agent's definition;
// the machine only obeys, so that a deploy cannot change what was decided.
const (
	NextNone   Next = ""       // nothing of its own: a call of a wave
	NextTools  Next = "tools"  // carry out calls
	NextGather Next = "gather" // take in answers again
	NextModel  Next = "model"  // another step
	NextFinish Next = "finish" // another step in which the model can only finish
	NextClose  Next = "close"  // the turn's last commit is done
	NextLost   Next = "lost"   // somebody else owns the turn now
)

// PlannedCall is a call of a reply as the machine needs to know it.
type PlannedCall struct {
	ID   string           `json:"id"`
	Kind session.CallKind `json:"kind"`
	// Last puts the call into phase 2, after all others, one by one.
	Last bool `json:"last,omitempty"`
	// Ready says that what the call waited for is there.
	Ready bool `json:"ready,omitempty"`
}

// waits reports whether the call may have to wait: for a person or another agent.
func (c *PlannedCall) waits() bool { return waitsFor(c.Kind) }

func waitsFor(kind session.CallKind) bool { return forPerson(kind) || forAgent(kind) }

// forPerson and forAgent tell whose answer a call is for.
func forPerson(kind session.CallKind) bool {
	return kind == session.CallClient || kind == session.CallApproval
}

func forAgent(kind session.CallKind) bool {
	return forSubAgent(kind) || kind == session.CallCompanion
}

// forSubAgent tells a call of a sub-agent, here or on another server.
func forSubAgent(kind session.CallKind) bool {
	return kind == session.CallSubAgent || kind == session.CallRemote
}

// Result is what became of an effect.
type Result struct {
	Next  Next          `json:"next,omitempty"`
	Calls []PlannedCall `json:"calls,omitempty"`
	// Status is set by CloseTurn: how the run ended.
	Status session.RunStatus `json:"status,omitempty"`
	// Abort is set by CloseTurn when a run suspended that somebody had asked to abort
	// at the last moment: the session is to be aborted now.
	Abort *session.Stop `json:"abort,omitempty"`
	// Wake is set by CloseTurn when the session, or another one, has something to go
	// on with, Owes when a remote agent is to be told to stop.
	Wake bool `json:"wake,omitempty"`
	Owes bool `json:"owes,omitempty"`
}

// Outcome is the turn's, of the result of its CloseTurn.
func (r *Result) Outcome() *Outcome {
	return &Outcome{Status: r.Status, Abort: r.Abort, Wake: r.Wake, Owes: r.Owes}
}
