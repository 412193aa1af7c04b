package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// calledAgent is what a turn knows of the agent that one of its calls is for.
type calledAgent struct {
	pending         []session.Pending // the calls below it that wait for people
	shown           bool              // watchers saw it start
	permitted       bool              // hooks were asked, and let it be called
	began           time.Time
	values          context.Context //nolint:containedctx // of the observers of the call; it never ends
	observed        *observation
	fault           *session.Error // why it could not be called
	turn            *turn          // the agent's turn, while this process drives it
	stopUndelivered bool           // it is remote, and a stop for it is not delivered yet
}

// caller is the turn that calls a child's session.
type caller struct {
	state    *session.State
	streamed *atomic.Int64 // the size of its stream, in bytes
	detached bool          // the child is a companion that works by itself
	version  int64         // the version of the child at which its turn is opened, or not at all; 0 for any
}

// agentCall is a call of another agent: a sub-agent, a remote agent or a companion. It
// belongs to the goroutine that handles the call's effect.
type agentCall struct {
	t *turn
	e effect
	*call
}

func (t *turn) agentCall(e effect, c *call) *agentCall { return &agentCall{t: t, e: e, call: c} }

// OpenChild opens the turn of the agent that an effect calls, or resumes or recovers
// it. It returns nil if there is nothing to drive: the agent has ended, still waits,
// or could not be called. The driver drives the turn to its end and then passes the
// effect to [Handler.Handle]. A turn that is Detached is driven on its own, and the
// driver does not wait for it.
func (h *Handler) OpenChild(ctx context.Context, of machine.Effect) (*Opened, error) {
	e := newEffect(of)
	t, err := h.turn(ctx, e)
	if err != nil {
		if lostTurn(err) {
			return nil, nil // [Handler.Handle] will report it
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
		c.child = &calledAgent{began: time.Now()}
	}
	t.mu.Unlock()
	if over {
		return nil, nil
	}
	a := t.agentCall(e, c)
	ctx = t.inTurn(ctx)
	ctx = a.observe(ctx)
	var opened *Opened
	err = usercode.Guard(func() (err error) {
		if forSubAgent(c.Kind) {
			opened, err = a.openSubAgent(ctx)
		} else {
			opened, err = a.openCompanion(ctx)
		}
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case session.IsRetryable(err):
		return nil, err
	case errors.Is(err, session.ErrStale), errors.Is(err, session.ErrAnswered), forSubAgent(c.Kind) && errors.Is(err, session.ErrAlreadyRunning):
		err = a.readAgain(ctx, err)
		if lostTurn(err) {
			h.lose(ctx, t, err)
			return nil, nil // [Handler.Handle] will report it
		}
		return nil, err
	default:
		h.log.ErrorContext(ctx, "subagent.dispatch_failed", t.attrs("tool", c.Tool, "call", c.ID, "error", err)...)
		fault := (&session.Error{Code: session.CodeSubAgent}).WithCause(err, "%s could not be called", c.Tool)
		if errors.Is(err, session.ErrUnknownAgent) { // why a factory failed is for operators, not for the model
			fault = toolError(session.CodeSubAgent, "%s could not be called (%s)", c.Tool, session.CodeUnknownAgent)
		}
		c.child.fault = bounded(fault)
		return nil, a.discardChild(ctx)
	}
	if opened == nil {
		return nil, nil
	}
	if child, ok := h.held(opened.Run.ID); ok && !opened.Detached {
		c.child.turn = child
		t.stops.attach(child.stops)
		child.progress.attach(t.progress)
	}
	return opened, nil
}

// readAgain returns a retryable error if an agent's session has changed since it was
// read, as another error says. A process that was taken for dead may still write to it,
// for as long as nobody has taken the agent's run over. If it is this process that was,
// readAgain returns the error of a turn that is lost.
func (a *agentCall) readAgain(ctx context.Context, changed error) error {
	if err := a.checkFence(ctx); err != nil {
		return err
	}
	return session.ErrUnavailable.WithMessage("%v", changed)
}

// observe tells the observers of the call, unless they know of it, and returns the
// context in which the agent's turn is opened.
func (a *agentCall) observe(ctx context.Context) context.Context {
	if len(a.t.h.observers.list) == 0 {
		return ctx
	}
	if a.child.observed == nil {
		a.child.values, a.child.observed = a.t.observe(context.WithoutCancel(ctx), helix.ActivitySubAgent, a.e.Key(), a.Tool, a.ID, 0)
		a.t.noteCalled(a.child.observed)
	}
	return turnContext{ctx, a.child.values}
}

// report tells the observers of the call its result, or that it still waits.
func (c *calledAgent) report(t *turn, result *settled) {
	if c.observed == nil {
		return
	}
	t.mu.Lock()
	delete(t.called, c.observed)
	t.mu.Unlock()
	if result == nil {
		c.observed.end(helix.Ending{Waits: true})
		c.observed = nil // the call may be carried out again when its answer has arrived
		return
	}
	c.observed.end(helix.Ending{Error: result.err})
}

func (a *agentCall) openSubAgent(ctx context.Context) (*Opened, error) {
	sub := subAgentByTool(a.t.agent, a.Tool)
	if sub == nil {
		return nil, toolError(session.CodeToolUnknown, "there is no longer a tool named %q", a.Tool)
	}
	state, err := a.t.sessions.Load(ctx, a.Child)
	if err == nil {
		if err := childOf(a.t.key.ID, state); err != nil {
			return nil, err
		}
		return a.resume(ctx, state)
	}
	if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if a.t.stops.requested() != nil || !a.permitted(ctx) {
		return nil, nil
	}
	message, err := firstMessage(sub, a.part.Input)
	if err != nil {
		return nil, fmt.Errorf("make its first message: %w", err)
	}
	agent, err := a.callee(ctx, sub.AgentName(), a.Child)
	if err != nil {
		return nil, err
	}
	return a.startTurn(ctx, agent, message, false)
}

// permitted asks the hooks whether the agent may be called.
func (a *agentCall) permitted(ctx context.Context) bool {
	ctx, cancel := a.t.stops.watch(ctx)
	defer cancel()
	writes, err := a.t.hooks.beforeAgent(ctx, a.e.Key(), a.call)
	a.writes = writes
	a.child.permitted = err == nil
	if err != nil {
		a.child.fault = bounded(session.AsError(err))
	}
	return err == nil
}

// startTurn begins the agent's session, or its next turn, with a message.
func (a *agentCall) startTurn(ctx context.Context, agent *helix.Agent, message session.Message, detached bool) (*Opened, error) {
	return a.openTurn(ctx, detached, OpenRequest{
		Kind: session.RunExecute, Agent: agent, RequestID: a.ID, Input: helix.Input{Message: message},
	})
}

// openTurn opens a turn of the agent's session, whatever state the session is in.
func (a *agentCall) openTurn(ctx context.Context, detached bool, req OpenRequest) (*Opened, error) {
	turn := 0
	if state, err := a.t.sessions.Load(ctx, a.Child); err == nil {
		if err := childOf(a.t.key.ID, state); err != nil {
			return nil, err
		}
		turn = state.Turn
	} else if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	return a.openTurnAfter(ctx, turn, req, caller{detached: detached})
}

// continueTurn opens a turn of the agent's session that continues what the session was
// found to wait for, unless the session has changed since.
func (a *agentCall) continueTurn(ctx context.Context, found *session.State, req OpenRequest) (*Opened, error) {
	if err := a.checkFence(ctx); err != nil {
		return nil, err
	}
	return a.openTurnAfter(ctx, found.Turn, req, caller{version: found.Version})
}

// checkFence returns an error if the caller's turn was taken over: then the agent
// belongs to the turn that took its place. What was read of the agent before the check, and has
// not changed since, was not touched by that turn.
func (a *agentCall) checkFence(ctx context.Context) error {
	state, err := a.t.sessions.Load(ctx, a.t.key.ID)
	if err != nil {
		return err
	}
	return state.CheckFence(a.t.fence)
}

// openTurnAfter opens the turn of the agent's session that follows turn number turn.
func (a *agentCall) openTurnAfter(ctx context.Context, turn int, req OpenRequest, by caller) (*Opened, error) {
	by.state, by.streamed = &a.t.state, a.t.out.Config().Bytes
	req.Tenant, req.SessionID, req.RunID, req.caller = a.t.key.Tenant, a.Child, session.ChildRunID(a.t.run.ID, a.ID, turn), &by
	if err := a.show(ctx, by.detached); err != nil {
		return nil, err
	}
	opened, err := a.t.h.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	if opened.Existing { // another process began the same call meanwhile
		return nil, session.ErrUnavailable.WithMessage("session %s: another process began the call", a.Child)
	}
	opened.Detached = by.detached
	return opened, nil
}

// show tells watchers that the agent's chunks follow.
func (a *agentCall) show(ctx context.Context, detached bool) error {
	if detached || a.child.shown {
		return nil
	}
	a.child.shown = true
	a.t.emit(stream.Chunk{Kind: stream.SubAgentStart, CallID: a.ID, Tool: a.Tool, Child: a.Child, Arguments: a.part.Input})
	return a.t.out.Flush(ctx)
}

// resume continues the session of the call: it recovers a run in progress, resumes
// one that waited, or leaves one that has ended.
func (a *agentCall) resume(ctx context.Context, state *session.State) (*Opened, error) {
	if !a.child.permitted && !a.t.resumed() && !a.permitted(ctx) { // what hooks wrote was lost with the process that asked them
		return nil, a.discardChild(ctx)
	}
	run, err := a.t.sessions.CurrentRun(ctx, state.ID)
	if err != nil {
		return nil, err
	}
	agent, err := a.callee(ctx, state.Agent, state.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case state.Status == session.Paused:
		return nil, nil // an operator paused it
	case run.Status == session.RunRunning:
		if err := a.show(ctx, false); err != nil {
			return nil, err
		}
		if child, ok := a.t.h.held(run.ID); ok && child == a.child.turn { // the same effect, delivered again
			return child.opened(), nil
		}
		if err := a.checkFence(ctx); err != nil {
			return nil, err
		}
		return a.t.h.recoverRun(ctx, session.Due{
			Key: session.Key{Tenant: a.t.key.Tenant, ID: state.ID}, Agent: state.Agent, RunID: run.ID, Requires: run.Requires, Lease: state.Lease,
		}, byForce)
	case state.Status == session.Failed && state.FailureReason == session.FailureParentSuspended && a.t.stops.requested() == nil:
		return a.continueTurn(ctx, state, OpenRequest{Kind: session.RunRetry, Agent: agent})
	case !run.Status.Suspended() || state.Status != session.Active || a.t.stops.requested() != nil:
		a.child.shown = true
		if state.ClosePending { // its process died before it closed the run; watchers see that end before the call's
			return nil, a.t.h.closer(a.t.sessions).settle(ctx, state, true)
		}
		return nil, nil // it has ended, or is about to be ended
	}
	now, err := a.t.sessions.Now(ctx)
	if err != nil {
		return nil, err
	}
	tree := waitingTree{}
	if err := a.t.h.tree(a.t.sessions).addWaits(ctx, state, now, &tree); err != nil || !tree.ready {
		return nil, err
	}
	opened, err := a.continueTurn(ctx, state, OpenRequest{Kind: session.RunResume, Agent: agent})
	if err == nil || session.IsRetryable(err) {
		return opened, err
	}
	// An abort may have ended the session since it was read. The call then has that end as its result.
	if fresh, loadErr := a.t.sessions.Load(ctx, state.ID); loadErr == nil && fresh.Status != session.Active && childOf(a.t.key.ID, fresh) == nil {
		return a.resume(ctx, fresh)
	}
	return nil, err
}

// makeResult makes the call's result of what the agent did. It is nil if the call
// still waits for the agent.
func (a *agentCall) makeResult(ctx context.Context) (*settled, error) {
	if rejected := a.Rejected; rejected != nil {
		return a.t.failed(a.call, rejected, 0), nil
	}
	if a.child == nil {
		a.child = &calledAgent{began: time.Now()}
	}
	if fault := a.child.fault; fault != nil {
		if err := a.readStop(ctx); err != nil {
			return nil, err
		}
		if err := a.unmark(ctx); err != nil {
			return nil, err
		}
		return a.conclude(ctx, nil, fault), nil
	}
	if a.Kind == session.CallCompanion {
		return a.companionResult(ctx)
	}
	run, err := a.childRun(ctx)
	if err != nil {
		return nil, err
	}
	return a.childResult(ctx, run, resultOf)
}

// childRun returns the run of the agent that the call's result is made of, or nil if there is
// none: while this process drives the agent's turn, the run of that turn; else the latest run
// of the agent's session, or, if the call gives a companion work to do, the latest that does
// that work. Another run belongs to another call, or to a session that somebody created under
// the agent's id.
func (a *agentCall) childRun(ctx context.Context) (*session.Run, error) {
	if opened := a.child.turn; opened != nil {
		run, err := retry.Do(ctx, func() (*session.Run, error) { return a.t.sessions.Run(ctx, a.Child, opened.run.ID) })
		return run, absent(err)
	}
	run, err := childRun(ctx, a.t.sessions, a.t.key.ID, a.Child)
	if err != nil || run == nil || a.companion == nil || !a.companion.consults {
		return run, err
	}
	return a.workRun(ctx, run)
}

// childResult makes the call's result of a run of the agent, which is nil if there
// was none.
func (a *agentCall) childResult(ctx context.Context, run *session.Run, render func(*session.Outcome) json.RawMessage) (*settled, error) {
	if a.child.turn != nil {
		a.t.stops.detach(a.child.turn.stops)
		a.child.turn = nil
	}
	if err := a.readStop(ctx); err != nil {
		return nil, err
	}
	stop := a.t.stops.requested()
	switch {
	case run != nil && run.Status == session.RunCompleted:
		return a.conclude(ctx, render(run.Outcome), nil), nil
	case stop != nil:
		why := stoppedCall(stop)
		if run != nil && a.owns() {
			if err := a.end(ctx, why); err != nil {
				return nil, err
			}
			if err := a.readStop(ctx); err != nil {
				return nil, err
			}
		}
		return a.conclude(ctx, nil, why), nil
	case run == nil:
		return a.conclude(ctx, nil, toolError(session.CodeSubAgent, "%s was never started", a.Tool)), nil
	case run.Status == session.RunRunning:
		state, err := a.t.sessions.Load(ctx, a.Child)
		if err != nil || state.Status == session.Paused {
			return nil, err
		}
		return nil, session.ErrStale.WithMessage("session %s: another process runs it", run.SessionID)
	case run.Status.Suspended():
		return a.abandonedResult(ctx)
	case run.Status == session.RunInterrupted:
		return a.conclude(ctx, nil, toolError(session.CodeSubAgent, "the agent was interrupted")), nil
	}
	failure := toolError(session.CodeSubAgent, "the agent failed")
	if err := run.Outcome.Error; err != nil {
		failure = toolError(session.CodeSubAgent, "the agent failed: %s (%s)", childFault(err), err.Code)
	}
	return a.conclude(ctx, nil, bounded(failure)), nil
}

// childFault says why an agent failed, to the model and thereby to the caller's user.
// What a provider said, and internal errors, are for operators: they are in the
// agent's session and in the log.
func childFault(err *session.Error) string {
	switch {
	case strings.HasPrefix(string(err.Code), "provider_"):
		return "its model could not answer"
	case err.Code == session.CodeInternal:
		return "something went wrong in it"
	}
	return err.Message
}

// abandonedResult is the result of a call whose agent was suspended and then ended
// from outside. It is nil if the agent still waits.
func (a *agentCall) abandonedResult(ctx context.Context) (*settled, error) {
	state, err := a.t.sessions.Load(ctx, a.Child)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	if err == nil && state.Status != session.Failed && state.Status != session.Interrupted {
		return nil, nil
	}
	failure := toolError(session.CodeSubAgent, "the agent was stopped")
	if err != nil { // it was deleted
		state = &session.State{}
	}
	switch {
	case state.Status == session.Interrupted || state.Error == nil:
	case state.Error.Code == session.CodeCancelled: // somebody aborted this agent
		failure = bounded(toolError(session.CodeSubAgent, "the agent failed: %s (%s)", state.Error.Message, state.Error.Code))
	default:
		failure = bounded(state.Error)
	}
	return a.conclude(ctx, nil, failure), nil
}

// resultOf is the result of a run that completed: its output, or else its reply.
func resultOf(o *session.Outcome) json.RawMessage {
	if o.Output != nil {
		return o.Output
	}
	text, _ := session.Encode(o.Reply) // a string always encodes
	return text
}

// conclude makes the result of the call.
func (a *agentCall) conclude(ctx context.Context, output json.RawMessage, failure *session.Error) *settled {
	took := time.Since(a.child.began)
	if a.consults() {
		a.t.usage.record(ctx, a.e.Step, usage.Entry{
			ID: a.t.run.ID + "/agent/" + a.ID, Kind: usage.SubAgent, Source: a.Tool, Duration: took, Success: failure == nil,
		})
	}
	if limit := a.t.maxResult(a.call); failure == nil && len(output) > limit {
		failure = toolError(session.CodeToolOutput, "the result of %s has %d bytes, at most %d are allowed", a.Tool, len(output), limit)
	}
	if failure != nil {
		result := a.t.failed(a.call, failure, took)
		result.writes = a.writes
		return result
	}
	return &settled{message: a.t.stamp(session.ToolResult(a.part, output)), writes: a.writes, took: took, output: output}
}

// ready reports whether the agent has a result for the call, or can make progress.
func (a *agentCall) ready(ctx context.Context, now time.Time) (bool, error) {
	if a.child == nil {
		a.child = &calledAgent{began: time.Now()}
	}
	ref := a.ref(a.t.run.ID)
	tree, err := a.t.h.tree(a.t.sessions).awaited(ctx, a.t.key.ID, &ref, now)
	a.child.pending = tree.pending
	return tree.ready, err
}

// end ends the agent of a call whose result nobody needs. A companion keeps its
// transcript, unless the turn is aborted.
func (a *agentCall) end(ctx context.Context, why *session.Error) error {
	if stop := a.t.stops.requested(); stop != nil && stop.Kind == session.StopAbort {
		return a.t.h.tree(a.t.sessions).abandon(ctx, a.t.key.ID, a.Child, why, false)
	}
	return a.t.h.tree(a.t.sessions).abandon(ctx, a.t.key.ID, a.Child, why, true)
}

// discardChild ends the session of a call that cannot be continued, and the agents
// below it. No other process drives them: their lease is the root's.
func (a *agentCall) discardChild(ctx context.Context) error {
	if a.Child == "" || !a.owns() {
		return nil
	}
	return a.t.h.tree(a.t.sessions).walk(ctx, a.t.key.ID, a.Child, 1, false, func(state *session.State) (bool, error) {
		if state.RootID == "" { // it works by itself
			return false, nil
		}
		a.child.shown = true
		return true, a.t.h.tree(a.t.sessions).endOne(ctx, state, a.child.fault, false)
	})
}

// forSubAgent reports whether a call of a kind is for a sub-agent, here or on
// another server.
func forSubAgent(kind session.CallKind) bool {
	return kind == session.CallSubAgent || kind == session.CallRemote
}

// callee returns the agent of a session that the turn opens or resumes.
func (a *agentCall) callee(ctx context.Context, name, id string) (*helix.Agent, error) {
	state := a.t.state
	state.ID = id
	agent, err := a.t.h.agentNamed(ctx, name, &state)
	if agent == nil && err == nil {
		agent = reached(a.t.agent, name)
	}
	if agent == nil && err == nil {
		err = session.UnknownAgent(name)
	}
	return agent, err
}
