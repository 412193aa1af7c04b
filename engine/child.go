package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// waitingChild is what a turn knows of an agent that one of its calls is for.
type waitingChild struct {
	pending []session.Pending // the calls below that wait for people
	shown   bool              // watchers saw it begin
	asked   bool              // hooks were, and let it be called
	began   time.Time
	fault   *session.Error // why it could not be called
	turn    *turn          // that of the agent, while it is driven
	owed    bool           // it is remote, and was not told to stop
}

// caller is the turn whose call a child's session is for.
type caller struct {
	state    *session.State
	streamed *atomic.Int64 // how many bytes its stream holds
	detached bool          // the child works by itself
}

// decideAgent records that a call is for another agent, or why it is not carried
// out; it reports whether the tool is one of those.
func (t *turn) decideAgent(row *session.Call, part *session.Part, finishOnly bool) bool {
	sub, isSub := t.agent.SubAgent(part.Tool)
	companion := companionSchema(t.agent, part.Tool)
	schema := companion
	if isSub {
		schema = sub.InputSchema()
	}
	if schema == nil {
		return false
	}
	if finishOnly {
		row.Rejected = toolError(session.CodeToolNotRun, "only %s may be called now", session.FinishTool)
		return true
	}
	if err := schema.ValidateInput(part.Input); err != nil {
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
		return true
	}
	row.Idempotent = true // a call finds the session that it made before
	switch {
	case isSub && sub.Remote != nil:
		row.Kind, row.Child = session.CallRemote, session.NewChildID(t.key.ID, "remote", row.ID)
		return true
	case isSub:
		row.Kind, row.Child = session.CallSubAgent, session.NewChildID(t.key.ID, "sub", row.ID)
		return true
	}
	row.Kind = session.CallCompanion
	return true
}

// ref is the reference to the agent that a call is for.
func (c *call) ref(runID string) session.ChildRef {
	ref := session.ChildRef{SessionID: c.Child, CallID: c.ID, RunID: runID, Mode: session.ChildEphemeral, Status: session.ChildRunning}
	if forSubAgent(c.Kind) {
		ref.Agent = c.Tool[len(helix.SubAgentPrefix):]
		ref.StopOwed = c.child != nil && c.child.owed
		return ref
	}
	if c.companion != nil {
		ref.Agent, ref.Name, ref.Blocking, ref.Mode = c.companion.agent, c.Name, c.companion.blocking, session.ChildPersistent
	}
	return ref
}

// refs are the references that a reply's commit makes.
func (f *flight) refs(runID string) []session.ChildRef {
	var refs []session.ChildRef
	for _, c := range f.calls {
		if c.Rejected == nil && (forSubAgent(c.Kind) || (c.companion != nil && c.companion.spawns)) {
			ref := c.ref(runID)
			if c.Kind == session.CallRemote {
				ref.Remote = encoded(progress{Peer: session.NewPeerID(c.Child)})
			}
			refs = append(refs, ref)
		}
	}
	return refs
}

// OpenChild opens the turn of the agent that an effect calls, or takes it up again
// where it was left. It gives nothing if there is nothing to drive: the agent has
// come to an end, still waits for somebody, or could not be called. The driver
// drives the turn to its end, and then hands the effect to [Handler.Handle]; a
// turn that is Detached it drives on its own and does not wait for.
func (h *Handler) OpenChild(ctx context.Context, of machine.Effect) (*Opened, error) {
	e := newEffect(of)
	t, err := h.turn(ctx, e)
	if err != nil {
		if lost(err) {
			return nil, nil // the effect will say so
		}
		return nil, err
	}
	t.mu.Lock()
	var c *call
	if f := t.flight; f != nil && f.step == e.Step && t.ended == nil {
		c = f.call(e.CallID)
	}
	over := c == nil || c.settled != nil || c.Rejected != nil
	if !over && c.child == nil {
		c.child = &waitingChild{began: h.cfg.Now()}
	}
	t.mu.Unlock()
	if over {
		return nil, nil
	}
	var opened *Opened
	err = usercode.Guard(func() (err error) {
		if forSubAgent(c.Kind) {
			opened, err = t.openSubAgent(ctx, e, c)
		} else {
			opened, err = t.openCompanion(ctx, e, c)
		}
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case session.IsRetryable(err):
		return nil, err
	default: // if the turn itself is lost, the effect will say so
		h.log.ErrorContext(ctx, "subagent.dispatch_failed", t.attrs("tool", c.Tool, "call", c.ID, "error", err)...)
		fault := (&session.Error{Code: session.CodeSubAgent}).WithCause(err, "%s could not be called", c.Tool)
		if errors.Is(err, session.ErrUnknownAgent) { // why a factory failed is for operators
			fault = toolError(session.CodeSubAgent, "%s could not be called (%s)", c.Tool, session.CodeUnknownAgent)
		}
		c.child.fault = t.bounded(fault)
		return nil, t.writeOffChild(ctx, c)
	}
	if opened == nil {
		return nil, nil
	}
	if child, ok := h.held(opened.Run.ID); ok && !opened.Detached {
		c.child.turn = child
		t.adopt(child)
	}
	return opened, nil
}

func (t *turn) openSubAgent(ctx context.Context, e effect, c *call) (*Opened, error) {
	sub, ok := t.agent.SubAgent(c.Tool)
	if !ok {
		return nil, toolError(session.CodeToolUnknown, "there is no tool named %q any more", c.Tool)
	}
	state, err := t.sessions.Load(ctx, c.Child)
	if err == nil {
		if err := childOf(t.key.ID, state); err != nil {
			return nil, err
		}
		return t.takeUp(ctx, e, c, state)
	}
	if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if t.stopRequest() != nil || !t.beforeAgent(ctx, e, c) {
		return nil, nil
	}
	message, err := sub.Message(c.part.Input)
	if err != nil {
		return nil, fmt.Errorf("make its first message: %w", err)
	}
	agent, err := t.callee(ctx, sub.AgentName(), c.Child)
	if err != nil {
		return nil, err
	}
	return t.startChild(ctx, c, agent, message, false)
}

// beforeAgent asks the hooks whether another agent may be called.
func (t *turn) beforeAgent(ctx context.Context, e effect, c *call) bool {
	ctx, cancel := t.stoppable(ctx)
	defer cancel()
	writes, err := t.hooks.beforeAgent(ctx, e.Key(), c)
	c.writes = writes
	c.child.asked = err == nil
	if err != nil {
		c.child.fault = t.bounded(session.AsError(err))
	}
	return err == nil
}

// startChild begins a session, or the next turn of one, for a call.
func (t *turn) startChild(ctx context.Context, c *call, agent *helix.Agent, message session.Message, detached bool) (*Opened, error) {
	return t.openChild(ctx, c, detached, OpenRequest{
		Kind: session.RunExecute, Agent: agent, RequestID: c.ID, Input: helix.Input{Message: message},
	})
}

// openChild opens a turn of a child's session.
func (t *turn) openChild(ctx context.Context, c *call, detached bool, req OpenRequest) (*Opened, error) {
	req.Tenant, req.SessionID = t.key.Tenant, c.Child
	req.caller = &caller{state: &t.state, streamed: t.out.Config().Bytes, detached: detached}
	req.RunID = session.ChildRunID(t.run.ID, c.ID, 0)
	if state, err := t.sessions.Load(ctx, c.Child); err == nil {
		if err := childOf(t.key.ID, state); err != nil {
			return nil, err
		}
		req.RunID = session.ChildRunID(t.run.ID, c.ID, state.Turn)
	} else if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if err := t.show(ctx, c, detached); err != nil {
		return nil, err
	}
	opened, err := t.h.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	if opened.Existing { // somebody has taken the same call up meanwhile
		return nil, session.ErrUnavailable.WithMessage("session %s: another process began the call", c.Child)
	}
	opened.Detached = detached
	return opened, nil
}

// show tells watchers that a child's chunks follow.
func (t *turn) show(ctx context.Context, c *call, detached bool) error {
	if detached || c.child.shown {
		return nil
	}
	c.child.shown = true
	t.emit(stream.Chunk{Kind: stream.SubAgentStart, CallID: c.ID, Tool: c.Tool, Child: c.Child, Arguments: c.part.Input})
	return t.out.Flush(ctx)
}

// takeUp goes on with the session of a call where it was left.
func (t *turn) takeUp(ctx context.Context, e effect, c *call, state *session.State) (*Opened, error) {
	if !c.child.asked && !t.resumed() && !t.beforeAgent(ctx, e, c) { // what hooks did to the state was lost with a process
		return nil, t.writeOffChild(ctx, c)
	}
	run, err := t.sessions.CurrentRun(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	agent, err := t.callee(ctx, state.Agent, state.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case state.Status == session.Paused:
		return nil, nil // an operator holds it
	case run.Status == session.RunRunning:
		if err := t.show(ctx, c, false); err != nil {
			return nil, err
		}
		if child, ok := t.h.held(run.ID); ok { // the same effect, delivered again
			return child.opened(), nil
		}
		return t.h.takeOver(ctx, session.Due{
			Key: session.Key{Tenant: t.key.Tenant, ID: state.ID}, Agent: state.Agent, RunID: run.ID, Lease: state.Lease,
		}, true)
	case state.Status == session.Failed && state.FailureReason == session.FailureParentSuspended && t.stopRequest() == nil:
		return t.openChild(ctx, c, false, OpenRequest{Kind: session.RunRetry, Agent: agent})
	case !run.Status.Suspended() || state.Status != session.Active || t.stopRequest() != nil:
		c.child.shown = true
		if state.CloseOwed { // by a process that has died: watchers see its end before the call's
			return nil, t.h.settleClose(ctx, t.sessions, state, true)
		}
		return nil, nil // it has come to an end, or is brought to one
	}
	now, err := t.sessions.Now(ctx)
	if err != nil {
		return nil, err
	}
	tree := waitingTree{}
	if err := t.h.addWaits(ctx, t.sessions, state, now, &tree); err != nil || !tree.ready {
		return nil, err
	}
	return t.openChild(ctx, c, false, OpenRequest{Kind: session.RunResume, Agent: agent})
}

// consultation is what an agent made of a call, or nil if the call has to wait for
// it.
func (t *turn) consultation(ctx context.Context, e effect, c *call) (*settled, error) {
	if rejected := c.Rejected; rejected != nil {
		return t.failed(c, rejected, 0), nil
	}
	if c.child == nil {
		c.child = &waitingChild{began: t.h.cfg.Now()}
	}
	if fault := c.child.fault; fault != nil {
		if err := t.lookForDebt(ctx, c); err != nil {
			return nil, err
		}
		if err := t.unmark(ctx, c); err != nil {
			return nil, err
		}
		return t.concluded(ctx, e, c, nil, fault), nil
	}
	if c.Kind == session.CallCompanion {
		return t.companionResult(ctx, e, c)
	}
	run, err := t.childRun(ctx, c)
	if err != nil {
		return nil, err
	}
	return t.childResult(ctx, e, c, run, said)
}

// childRun is the latest run of the session that a call is for, or nil if there is
// none.
func (t *turn) childRun(ctx context.Context, c *call) (*session.Run, error) {
	if c.child != nil && c.child.turn != nil { // a turn that was opened here was checked then
		run, err := t.sessions.CurrentRun(ctx, c.Child)
		return run, absent(err)
	}
	return childRun(ctx, t.sessions, t.key.ID, c.Child)
}

// childResult makes a call's result of the run of the agent that it is for, which
// is nil if there was none.
func (t *turn) childResult(
	ctx context.Context, e effect, c *call, run *session.Run, render func(*session.Outcome) json.RawMessage,
) (*settled, error) {
	if c.child.turn != nil {
		t.disown(c.child.turn)
		c.child.turn = nil
	}
	if err := t.lookForDebt(ctx, c); err != nil {
		return nil, err
	}
	stop := t.stopRequest()
	switch {
	case run != nil && run.Status == session.RunCompleted:
		return t.concluded(ctx, e, c, render(run.Outcome), nil), nil
	case stop != nil:
		why := stoppedCall(stop)
		if run != nil && c.owns() {
			if err := t.endChild(ctx, c, why); err != nil {
				return nil, err
			}
			if err := t.lookForDebt(ctx, c); err != nil {
				return nil, err
			}
		}
		return t.concluded(ctx, e, c, nil, why), nil
	case run == nil:
		return t.concluded(ctx, e, c, nil, toolError(session.CodeSubAgent, "%s was never started", c.Tool)), nil
	case run.Status == session.RunRunning:
		state, err := t.sessions.Load(ctx, c.Child)
		if err != nil || state.Status == session.Paused {
			return nil, err
		}
		return nil, session.ErrStale.WithMessage("session %s: somebody else runs it", run.SessionID)
	case run.Status.Suspended():
		return t.abandoned(ctx, e, c)
	case run.Status == session.RunInterrupted:
		return t.concluded(ctx, e, c, nil, toolError(session.CodeSubAgent, "the agent was interrupted")), nil
	}
	failure := toolError(session.CodeSubAgent, "the agent failed")
	if err := run.Outcome.Error; err != nil {
		failure = toolError(session.CodeSubAgent, "the agent failed: %s (%s)", childFault(err), err.Code)
	}
	return t.concluded(ctx, e, c, nil, t.bounded(failure)), nil
}

// childFault says why an agent failed, to the model and so to the user of its caller. What
// a provider said, and faults of this program, are for operators: they are in the agent's
// own session and in the log.
func childFault(err *session.Error) string {
	switch {
	case strings.HasPrefix(string(err.Code), "provider_"):
		return "its model could not answer"
	case err.Code == session.CodeInternal:
		return "something went wrong in it"
	}
	return err.Message
}

// abandoned is the result of a call whose agent was suspended and then given up;
// nil if the agent still waits.
func (t *turn) abandoned(ctx context.Context, e effect, c *call) (*settled, error) {
	state, err := t.sessions.Load(ctx, c.Child)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if err == nil && state.Status != session.Failed && state.Status != session.Interrupted {
		return nil, nil
	}
	failure := toolError(session.CodeSubAgent, "the agent was given up")
	if err != nil { // it was deleted
		state = &session.State{}
	}
	switch {
	case state.Status == session.Interrupted || state.Error == nil:
	case state.Error.Code == session.CodeCancelled: // by somebody who aborted this very agent
		failure = t.bounded(toolError(session.CodeSubAgent, "the agent failed: %s (%s)", state.Error.Message, state.Error.Code))
	default:
		failure = t.bounded(state.Error)
	}
	return t.concluded(ctx, e, c, nil, failure), nil
}

// said is what a run that completed has to say: its output, or else its reply.
func said(o *session.Outcome) json.RawMessage {
	if o.Output != nil {
		return o.Output
	}
	text, _ := session.Encode(o.Reply) // a string always encodes
	return text
}

// concluded is the result of a call of another agent.
func (t *turn) concluded(ctx context.Context, e effect, c *call, output json.RawMessage, failure *session.Error) *settled {
	took := t.h.cfg.Now().Sub(c.child.began)
	if c.consults() {
		t.record(ctx, e.Step, usage.Entry{
			ID: t.run.ID + "/agent/" + c.ID, Kind: usage.SubAgent, Source: c.Tool, Duration: took, Success: failure == nil,
		})
	}
	if failure == nil && len(output) > t.h.cfg.MaxResult {
		failure = toolError(session.CodeToolOutput, "the result of %s has %d bytes, at most %d are allowed", c.Tool, len(output), t.h.cfg.MaxResult)
	}
	if failure != nil {
		result := t.failed(c, failure, took)
		result.writes = c.writes
		return result
	}
	return &settled{message: t.stamp(session.ToolResult(c.part, output)), writes: c.writes, took: took}
}

// childReady reports whether the agent that a call waits for has something for the
// call.
func (t *turn) childReady(ctx context.Context, c *call, now time.Time) (bool, error) {
	if c.child == nil {
		c.child = &waitingChild{began: t.h.cfg.Now()}
	}
	ref := c.ref(t.run.ID)
	tree, err := t.h.awaited(ctx, t.sessions, t.key.ID, &ref, now)
	c.child.pending = tree.pending
	return tree.ready, err
}

// settledRefs are the references of a step whose calls have ended.
func (t *turn) settledRefs(f *flight) []session.ChildRef {
	var refs []session.ChildRef
	for _, c := range f.calls {
		if c.settled == nil || c.Child == "" || c.Rejected != nil || !machine.WaitsForAgent(c.Kind) || !(c.owns() || t.awaits(c)) {
			continue
		}
		ref := c.ref(t.run.ID)
		switch err := c.settled.err; {
		case err == nil:
			ref.Status = session.ChildCompleted
		case c.owns() || err.Code == session.CodeSubAgent:
			ref.Status = session.ChildFailed
		}
		refs = append(refs, ref)
	}
	return refs
}

// awaits reports whether the run before suspended until the call's agent ends.
func (t *turn) awaits(c *call) bool {
	return slices.ContainsFunc(t.state.AwaitingChildren, func(ref session.ChildRef) bool { return ref.SessionID == c.Child })
}

// owns reports whether the call's end is that of its agent's work.
func (c *call) owns() bool {
	return forSubAgent(c.Kind) || (c.companion != nil && c.companion.blocking && c.companion.consults)
}

// consults reports whether the call gives an agent something to do.
func (c *call) consults() bool {
	return forSubAgent(c.Kind) || c.Tool == helix.SpawnAgentTool || c.Tool == helix.SendMessageTool
}

// endChildren ends the agents that calls of the step still wait for.
func (t *turn) endChildren(ctx context.Context, f *flight, why *session.Error) {
	for _, c := range f.calls {
		if c.settled != nil || c.Child == "" || !c.owns() {
			continue
		}
		if c.child == nil { // an earlier run has shown it to watchers
			c.child = &waitingChild{began: t.h.cfg.Now(), shown: true}
		}
		if err := t.endChild(ctx, c, why); err != nil {
			t.h.log.WarnContext(ctx, "sub-agent not ended", t.attrs("child", c.Child, "error", err)...)
		}
		if err := t.lookForDebt(ctx, c); err != nil {
			t.h.log.WarnContext(ctx, "sub-agent not looked at", t.attrs("child", c.Child, "error", err)...)
		}
	}
}

// endChild ends the agent of a call that is left. A companion keeps what it remembers,
// unless the turn is aborted.
func (t *turn) endChild(ctx context.Context, c *call, why *session.Error) error {
	if stop := t.stopRequest(); stop != nil && stop.Kind == session.StopAbort {
		return t.h.abandon(ctx, t.sessions, t.key.ID, c.Child, why)
	}
	return t.h.leaveChild(ctx, t.sessions, t.key.ID, c.Child, why)
}

// writeOffChild ends the session of a call that cannot be gone on with, and those
// below it. Nobody else runs them: their lease is the root's.
func (t *turn) writeOffChild(ctx context.Context, c *call) error {
	if c.Child == "" || !c.owns() {
		return nil
	}
	return t.h.walk(ctx, t.sessions, t.key.ID, c.Child, 1, false, func(state *session.State) (bool, error) {
		if state.RootID == "" { // it works by itself
			return false, nil
		}
		c.child.shown = true
		return true, t.h.abandonOne(ctx, t.sessions, state, c.child.fault, false)
	})
}

// forSubAgent reports whether a call of a kind is for a sub-agent, here or on
// another server.
func forSubAgent(kind session.CallKind) bool {
	return kind == session.CallSubAgent || kind == session.CallRemote
}

// callee is the agent of a session that the turn opens or goes on with.
func (t *turn) callee(ctx context.Context, name, id string) (*helix.Agent, error) {
	state := t.state
	state.ID = id
	agent, err := t.h.agentNamed(ctx, name, &state)
	if agent == nil && err == nil {
		agent = reached(t.agent, name)
	}
	if agent == nil && err == nil {
		err = unknownAgent(name)
	}
	return agent, err
}
