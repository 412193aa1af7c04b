package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// flight is the step in flight: a reply and its calls. Its fields are changed only by
// effects that run alone; see [turn].
type flight struct {
	step      int
	reply     session.Message
	calls     []*call
	committed bool // the reply is in the store
	// replyCommit and resultsCommit are kept once prepared, so that a commit that may
	// have been applied is sent again unchanged. next is what follows it.
	replyCommit   *session.Commit
	resultsCommit *session.Commit
	next          machine.Next
	announced     bool // watchers know which calls wait
	// round is the last round in which answers were gathered, and gathered its result.
	round    int
	gathered machine.Result
	// tasks are those that follow the run if it suspends in the round tasksRound. They are
	// kept, so that extensions are not asked again when the effect is delivered again.
	tasks      []session.Task
	tasksRound int
}

// waits reports whether the step has calls that may have to wait for a person or an
// agent.
func (f *flight) waits() bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool { return machine.Waits(c.Kind) })
}

// holdsUp reports whether a serial call has others behind it that have not ended.
func (f *flight) holdsUp(c *call) bool {
	return slices.ContainsFunc(f.calls[c.Index+1:], func(other *call) bool { return other.Serial && other.settled == nil })
}

// call is one call of the step in flight.
type call struct {
	// These are changed by the effect that carries the call out, or by effects that run
	// alone.
	session.Call
	part      session.Part
	claimed   bool           // this turn began the call, rather than finding it begun
	result    *settled       // the result, if it could not be settled yet: the tool does not run again
	child     *calledAgent   // what is known of the agent that the call is for
	companion *companionCall // what the call asks of a companion, once that is known
	writes    session.Writes // by hooks, before another agent was called
	asked     *question      // what it asks, until answers are gathered
	// waitReported is set when it was reported how long the call waited.
	waitReported bool

	// These are guarded by turn.mu; effects that run alone read them without. Before the
	// step is in flight, its goroutine owns them.
	running  chan struct{}    // closed when the effect that carries the call out returns; nil if there is none
	settling bool             // it has its result and is about to settle it
	settled  *settled         // its result
	unseen   bool             // it was settled before the turn was recovered, and not shown since
	pending  *session.Pending // the entry of its wait for a person

	// These are changed by effects that run alone.
	expired   bool // its result is that nobody answered in time
	abandoned bool // its result is that nobody answered before the step was abandoned
}

// refused reports whether the call was rejected when the reply arrived.
func (c *call) refused() bool { return c.Rejected != nil }

// settled is a call's result.
type settled struct {
	message session.Message
	writes  session.Writes
	err     *session.Error
	took    time.Duration
	stored  bool // the row in the store has it
	// output is what the tool returned to this process, if the message was made of it.
	output json.RawMessage
	// whole is the result of a FinishWith call, if the message has only a preview of it and
	// this process knows it; see wholeOutputs.
	whole json.RawMessage
}

// json is the result that watchers see.
func (s *settled) json() json.RawMessage {
	part := &s.message.Parts[0]
	// A string without escapes is encoded as the tool returned it.
	if n := len(s.output); part.Output == nil && n == len(part.Text)+len(`""`) && string(s.output[1:n-1]) == part.Text {
		return s.output
	}
	return part.ResultJSON()
}

func (f *flight) plan() []machine.PlannedCall {
	plan := make([]machine.PlannedCall, len(f.calls))
	for i, c := range f.calls {
		// A serial call that has its result holds up no other.
		plan[i] = machine.PlannedCall{ID: c.ID, Kind: c.Kind, Last: c.FinishWith, Serial: c.Serial && c.settled == nil}
	}
	return plan
}

func (f *flight) call(id string) *call {
	for _, c := range f.calls {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// readOnly reports whether the reply may be lost without harm: none of its calls has
// an effect.
func (f *flight) readOnly() bool {
	for _, c := range f.calls {
		if machine.Waits(c.Kind) || (c.Kind != session.CallFinish && c.Rejected == nil && !c.ReadOnly) {
			return false
		}
	}
	return true
}

// appendWrites appends what the step's calls wrote to the state, in the order in
// which it applies: phase 2 saw what phase 1 wrote.
func (f *flight) appendWrites(written []session.Writes) []session.Writes {
	for _, last := range [...]bool{false, true} {
		for _, c := range f.calls {
			if c.FinishWith == last && c.settled != nil {
				written = append(written, c.settled.writes)
			}
		}
	}
	return written
}

// results lists the results of the step's calls, all of which are settled. It is nil
// if there are no calls.
func (f *flight) results() []session.Message {
	var results []session.Message
	for _, c := range f.calls {
		results = append(results, c.settled.message)
	}
	return results
}

// output is the output with which the step completes the turn: the arguments of the
// finish call, or the result of the first FinishWith call that succeeded.
func (f *flight) output() (json.RawMessage, bool) {
	for _, c := range f.calls {
		if c.Kind == session.CallFinish && c.settled.err == nil {
			return c.part.Input, true
		}
	}
	for _, c := range f.calls {
		switch {
		case !c.FinishWith || c.settled.err != nil:
		case c.settled.whole != nil:
			return c.settled.whole, true
		default:
			return c.settled.message.Parts[0].ResultJSON(), true
		}
	}
	return nil, false
}

// cutShort reports whether a stop deprives a call of the step of its result. Then the
// step does not finish the turn either: the run that resumes finishes it with all
// results.
func (f *flight) cutShort(stop *session.Stop) bool {
	return stop != nil && slices.ContainsFunc(f.calls, func(c *call) bool {
		switch {
		case c.Kind == session.CallFinish || c.Rejected != nil:
			return false
		case c.settled != nil:
			return c.settled.err != nil && c.settled.err.Code == session.CodeRunStopped
		}
		return c.result == nil
	})
}

// waiting reports whether a call of the step has no answer yet.
func (f *flight) waiting() bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool { return c.settled == nil && machine.Waits(c.Kind) })
}

// resolutions says how the step's waits for people ended, for the commit that ends
// them. waits lists the calls that must not have been answered meanwhile.
func (f *flight) resolutions() (resolve []session.Resolution, waits []string) {
	for _, c := range f.calls {
		if c.pending == nil {
			continue
		}
		r := session.Resolution{CallID: c.pending.CallID, State: session.PendingAbandoned}
		switch {
		case c.expired:
			r.State = session.PendingTimedOut
			waits = append(waits, r.CallID)
		case c.pending.State == session.PendingAnswered:
			r.State = session.PendingConsumed
		case !c.pending.Open(): // it has ended before
			continue
		default:
			waits = append(waits, r.CallID)
		}
		resolve = append(resolve, r)
	}
	return resolve, waits
}

// refs are the references to other agents that the reply's commit adds.
func (f *flight) refs(runID string) []session.ChildRef {
	var refs []session.ChildRef
	for _, c := range f.calls {
		if c.Rejected == nil && (forSubAgent(c.Kind) || (c.companion != nil && c.companion.spawns)) {
			ref := c.ref(runID)
			if c.Kind == session.CallRemote {
				ref.Remote = encoded(remoteProgress{Peer: session.NewPeerID(c.Child)})
			}
			refs = append(refs, ref)
		}
	}
	return refs
}

// declined reports whether the call ended because a person did not approve it.
func (c *call) declined() bool {
	if c.Kind != session.CallApproval || c.settled == nil || c.settled.err == nil {
		return false
	}
	return c.settled.err.Code == session.CodeToolDenied || c.settled.err.Code == session.CodeToolNotRun
}

// releasedBy reports whether a person's answer lets the call run: an approval, or the
// answer to its question.
func (c *call) releasedBy(p *session.Pending) bool {
	if p == nil || p.State != session.PendingAnswered || p.Response == nil {
		return false
	}
	switch c.Kind {
	case session.CallApproval:
		return p.Response.Kind == session.PendingApproval && p.Response.Approved
	case session.CallQuestion:
		return p.Response.Kind == session.PendingQuestion
	}
	return false
}

// timedOut reports whether nobody answered the call in time. That is in the entry of
// the wait, not in the call's row.
func (c *call) timedOut() bool {
	return c.expired || (c.pending != nil && c.pending.State == session.PendingTimedOut)
}

// ref is the reference to the agent that the call is for.
func (c *call) ref(runID string) session.ChildRef {
	ref := session.ChildRef{SessionID: c.Child, CallID: c.ID, RunID: runID, Mode: session.ChildEphemeral, Status: session.ChildRunning}
	if forSubAgent(c.Kind) {
		ref.Agent = c.Tool[len(helix.SubAgentPrefix):]
		ref.StopPending = c.child != nil && c.child.stopUndelivered
		return ref
	}
	if c.companion != nil {
		ref.Agent, ref.Name, ref.Blocking, ref.Mode = c.companion.agent, c.Name, c.companion.blocking, session.ChildPersistent
	}
	return ref
}

// owns reports whether the agent's work ends with the call.
func (c *call) owns() bool {
	return forSubAgent(c.Kind) || (c.companion != nil && c.companion.blocking && c.companion.consults)
}

// consults reports whether the call gives an agent work to do.
func (c *call) consults() bool {
	return forSubAgent(c.Kind) || c.Tool == helix.SpawnAgentTool || c.Tool == helix.SendMessageTool
}

// ends makes a chunk that shows the call's result.
func (c *call) ends(chunk *stream.Chunk) {
	part := &c.settled.message.Parts[0]
	chunk.Kind, chunk.CallID, chunk.Tool, chunk.Error, chunk.Success = stream.ToolEnd, c.ID, c.Tool, part.Error, part.Error == nil
	if part.Error == nil {
		chunk.Result, chunk.Data = c.settled.json(), c.settled.message.Metadata[session.MetaEvicted]
	}
}

// lostCall is the error of a call that a lost process began and that has no result.
func lostCall(c *call) *session.Error {
	return toolError(session.CodeToolOutcome, "the process that ran %s was lost; whether it took effect is unknown", c.Tool)
}

// settledRow is a result that the store has.
func settledRow(row *session.Call) *settled {
	return &settled{message: *row.Result, writes: row.Writes, err: row.Result.Parts[0].Error, stored: true}
}
