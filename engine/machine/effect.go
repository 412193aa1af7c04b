package machine

import (
	"strconv"

	"github.com/helixagents/helix/session"
)

// EffectKind is the kind of an effect.
type EffectKind string

// The effects of a turn.
const (
	// CallModel asks the model for a reply and commits it.
	CallModel EffectKind = "model"
	// CallTool carries out one call of the reply.
	CallTool EffectKind = "tool"
	// CallChild makes a call's result from what another agent did. The driver opens
	// and drives the agent's turn before it.
	CallChild EffectKind = "child"
	// Gather settles the calls that people and agents have answered. If nothing can be
	// carried out and answers are missing, it suspends the turn.
	Gather EffectKind = "gather"
	// CommitStep writes the results of all calls to the transcript.
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
	// Epoch is that of the [Position] with which the machine was made, or 0 if that is
	// not known.
	Epoch  int64  `json:"epoch,omitempty"`
	Step   int    `json:"step"`
	CallID string `json:"callId,omitempty"`
	// Round counts how often the step has gathered answers before. Of calls, those have
	// it that may be carried out several times: of other agents, and those that ask.
	Round int `json:"round,omitempty"`
	// Finish makes a model call offer nothing but the finish tool; the step's commit
	// repeats it.
	Finish bool `json:"finish,omitempty"`
}

// Key is unique to the effect.
func (e Effect) Key() string {
	key := append(append(make([]byte, 0, 128), e.RunID...), '/')
	key = append(strconv.AppendInt(key, int64(e.Step), 10), '/')
	key = append(key, e.Kind...)
	if e.CallID != "" {
		key = append(append(key, '/'), e.CallID...)
	}
	if e.Round > 0 {
		key = strconv.AppendInt(append(key, '/'), int64(e.Round), 10)
	}
	return string(key)
}

// Session is the key of the session whose turn the effect belongs to.
func (e Effect) Session() session.Key { return session.Key{Tenant: e.Tenant, ID: e.SessionID} }

// Next is what follows an effect.
type Next string

// What may follow. Handlers decide it, because they know the agent's definition;
// the machine follows the recorded decision, so that a deploy cannot change it.
const (
	NextNone   Next = ""       // the result of a call; the wave as a whole decides
	NextTools  Next = "tools"  // carry out calls
	NextGather Next = "gather" // gather answers again
	NextModel  Next = "model"  // another step
	NextFinish Next = "finish" // another step in which the model can only finish
	NextClose  Next = "close"  // the turn's last commit is done
	NextLost   Next = "lost"   // another process owns the turn now
)

// PlannedCall is what the machine needs to know of a reply's call.
type PlannedCall struct {
	ID   string           `json:"id"`
	Kind session.CallKind `json:"kind"`
	// Last puts the call into phase 2, after all others, one by one.
	Last bool `json:"last,omitempty"`
	// Serial keeps the call from running beside other serial calls.
	Serial bool `json:"serial,omitempty"`
	// Ready says that the answer which the call waited for has arrived.
	Ready bool `json:"ready,omitempty"`
}

// Waits reports whether a call of a kind may have to wait for a person or another
// agent.
func Waits(kind session.CallKind) bool { return WaitsForPerson(kind) || WaitsForAgent(kind) }

// WaitsForPerson reports whether a person answers calls of a kind.
func WaitsForPerson(kind session.CallKind) bool {
	return kind == session.CallClient || kind == session.CallApproval || kind == session.CallQuestion
}

// WaitsForAgent reports whether another agent answers calls of a kind.
func WaitsForAgent(kind session.CallKind) bool {
	return kind == session.CallSubAgent || kind == session.CallRemote || kind == session.CallCompanion
}

// Result is what an effect led to.
type Result struct {
	Next  Next          `json:"next,omitempty"`
	Calls []PlannedCall `json:"calls,omitempty"`
	// Waits is set by a call that has asked a question, so that its answer is gathered.
	Waits bool `json:"waits,omitempty"`
	// Status is set by CloseTurn: how the run ended.
	Status session.RunStatus `json:"status,omitempty"`
	// Abort is set by CloseTurn when an abort was requested while the run suspended.
	// The driver aborts the session now.
	Abort *session.Stop `json:"abort,omitempty"`
	// Wake is set by CloseTurn when there is a wake to deliver, to this session or to
	// another one.
	Wake bool `json:"wake,omitempty"`
	// StopUndelivered is set by CloseTurn when the stop of a remote agent is not
	// delivered yet.
	StopUndelivered bool `json:"owes,omitempty"`
}

// Outcome is the turn's outcome, made from the result of its CloseTurn.
func (r *Result) Outcome() *Outcome {
	return &Outcome{Status: r.Status, Abort: r.Abort, Wake: r.Wake, StopUndelivered: r.StopUndelivered}
}
