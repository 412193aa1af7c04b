package engine

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// Fail fails a session that no process runs, together with what it waits for, and
// reports whether it did. For a session that runs it returns
// [session.ErrAlreadyRunning].
//
// The failure is a run of its own, which is written as failed in the same write in
// which it starts, so that a session that was resumed or answered meanwhile stays as
// it is. Hooks, the stream, and an agent that waits for the session see that run
// fail. If the agent is not registered here, only the runtime's hooks are called.
func (h *Handler) Fail(ctx context.Context, key session.Key, why *session.Error, reason string) (bool, error) {
	return h.fail(ctx, key, why, reason, func(session.Store, *session.State) (bool, error) { return true, nil })
}

// fail is [Handler.Fail] for a session that still has to fail once it has been read.
func (h *Handler) fail(
	ctx context.Context, key session.Key, why *session.Error, reason string, still func(session.Store, *session.State) (bool, error),
) (bool, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	var err error
	for range openTries {
		var state *session.State
		if state, err = sessions.Load(ctx, key.ID); err != nil {
			return false, err
		}
		if err := h.checkSupport(state); err != nil {
			return false, err
		}
		if fails, err := still(sessions, state); err != nil || !fails {
			return false, err
		}
		var failed bool
		failed, err = h.closer(sessions).fail(ctx, state, why, reason)
		if !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAnswered) {
			return failed, err
		}
	}
	return false, err
}

// fail fails a session in the state in which it was read. If the session has changed
// since, the error says so.
func (c *closer) fail(ctx context.Context, state *session.State, why *session.Error, reason string) (bool, error) {
	switch state.Status {
	case session.Completed, session.Failed:
		return false, nil
	}
	run, err := c.sessions.CurrentRun(ctx, state.ID)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return false, err
	}
	if run != nil && run.Status == session.RunRunning {
		return false, session.ErrAlreadyRunning.WithMessage("run %s is running", run.ID).WithSaw(state.Saw())
	}
	if to := settledStatus(state, run); to != "" {
		return false, c.h.closer(c.sessions).restoreStatus(ctx, state, run, to)
	}
	if state.ClosePending {
		if err := c.h.closer(c.sessions).closeEarlier(ctx, state); err != nil {
			return false, err
		}
	}
	agent, err := c.h.agentOr(ctx, state)
	if err != nil {
		return false, err
	}
	p, err := c.planFailure(ctx, agent, state, why, reason)
	if err != nil {
		return false, err
	}
	started, err := c.sessions.StartRun(ctx, &p.start)
	if err != nil {
		return false, err
	}
	c.h.tasksAdded(p.start.Tasks)
	c.h.logEnd(ctx, state, started.Run.ID, p.start.Outcome)
	// From here on the session has failed. If the rest cannot be done, the next sweep
	// of a process that knows the agent does it.
	if err := c.announceFailure(ctx, agent, state, p, started); err != nil {
		c.h.log.WarnContext(ctx, "session.close_delayed", "tenant", state.Tenant, "session", state.ID, "error", err)
	}
	return true, nil
}

// planFailure prepares a run that fails as it starts.
func (c *closer) planFailure(
	ctx context.Context, agent *helix.Agent, state *session.State, why *session.Error, reason string,
) (*plan, error) {
	runID := session.NewRunID()
	outcome := &session.Outcome{Status: session.RunFailed, Error: why, FailureReason: reason}
	p := &plan{doc: state.Custom, start: session.StartRun{
		SessionID: state.ID, ExpectVersion: state.Version, ExpectRun: state.CurrentRunID,
		Owner: c.h.owner, TTL: c.h.cfg.LeaseTTL,
		Run: session.Run{
			ID: runID, Kind: session.RunResume, Status: session.RunRunning, Agent: state.Agent, Runtime: c.h.cfg.Runtime,
			PreviousRunID: state.CurrentRunID, Requires: state.Requires,
		},
		Change: session.Change{Status: session.Failed, Outcome: outcome},
	}}
	if detached(state) {
		p.start.Wake = &session.Wake{Tenant: state.Tenant, SessionID: state.ParentID, ChildID: state.ID, RunID: runID}
	}
	for _, ref := range state.AwaitingChildren {
		ref.Awaited, ref.Remote = false, nil // nil keeps what the store has of the remote
		if ref.Status = session.ChildRunning; ref.Mode != session.ChildPersistent || ref.Blocking {
			ref.Status = session.ChildFailed
			outcome.Children = append(outcome.Children, ref)
		}
		p.start.Children = append(p.start.Children, ref)
	}
	var err error
	if p.history, err = session.ReadView(ctx, c.sessions, state); err != nil {
		return nil, err
	}
	if state.SuspendedStep != "" {
		if err := c.h.opening(c.sessions, nil, state, p).answerOpenCalls(ctx, toolError(session.CodeAbandoned, "%s", why.Message)); err != nil {
			return nil, err
		}
	}
	now := time.Now().UTC()
	for i := range p.answers {
		p.answers[i].RunID, p.answers[i].At = runID, now
	}
	p.start.Messages = p.answers
	info, err := c.h.cfg.Backend.Streams().Tenant(state.Tenant).Info(ctx, state.StreamID)
	switch {
	case err == nil:
		p.start.Run.StartSequence = info.Last
	case !errors.Is(err, session.ErrNotFound):
		return nil, err
	}
	if p.transcript, err = p.history.Transcript(p.start.Messages...); err != nil {
		return nil, err
	}
	if c.followsRuns(agent) {
		run := p.start.Run
		run.Turn = state.Turn + 1
		c.endTasks(ctx, agent, state, run, p.transcript, &p.start.Change)
	}
	return p, nil
}

// announceFailure ends what the session waited for and tells the stream and the hooks
// that it failed.
func (c *closer) announceFailure(ctx context.Context, agent *helix.Agent, state *session.State, p *plan, started *session.Started) error {
	state.Version, state.MessageCount, state.Lease = started.Version, started.MessageCount, started.Lease
	state.Turn, state.CurrentRunID, state.Custom = started.Turn, started.Run.ID, p.doc
	t := c.h.newTurn(agent, nil, state, started.Run, started.Lease.Fence(), new(atomic.Int64))
	t.transcript, t.patches, t.ended = p.transcript, p.patches, p.start.Outcome
	t.state.Finish(t.ended)
	c.h.hold(ctx, t) // a start of the next turn in this process waits for it
	defer c.h.drop(t)
	t.reportEndedWaits(ctx, p.endedWaits)
	err := c.h.tree(c.sessions).endAwaited(ctx, state.ID, t.ended)
	if err == nil {
		err = t.openStream(ctx)
	}
	t.announceAnswers(ctx)
	if err == nil || errors.Is(err, session.ErrStreamClosed) { // another process closed it, and announced the end
		_, err = t.closeTurn(ctx)
	}
	if err != nil { // another process may do it at once
		c.h.release(ctx, t)
	}
	return err
}

// EndAborted ends a run that no process drives, if an abort was requested. If the
// agent is not registered here, no hooks are called.
func (h *Handler) EndAborted(ctx context.Context, due session.Due) error {
	if err := session.CheckFeatures(due.ID, due.Requires, h.cfg.Features); err != nil {
		return err
	}
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	stop, err := sessions.StopRequest(ctx, due.ID, due.RunID)
	if err != nil || stop == nil || stop.Kind != session.StopAbort {
		return err
	}
	taken, err := sessions.TakeOver(ctx, &session.TakeOver{
		SessionID: due.ID, RunID: due.RunID, Owner: h.owner, TTL: h.cfg.LeaseTTL, Epoch: due.Lease.Epoch, Expires: due.Lease.ExpiresAt,
	})
	if err != nil {
		return err
	}
	why := session.ErrCancelled.WithMessage("%s", cmp.Or(stop.Reason, session.ErrCancelled.Message))
	refs, err := sessions.Children(ctx, due.ID)
	if err != nil {
		return err
	}
	var below []session.ChildRef
	for _, ref := range refs {
		// Companions that work by themselves continue, as after any other failure.
		if ref.Mode == session.ChildPersistent && !ref.Blocking || ref.Status != session.ChildRunning && ref.Status != session.ChildWaiting {
			continue
		}
		ref.Status, ref.Awaited, ref.Remote = session.ChildFailed, false, nil // nil keeps what the store has of the remote
		below = append(below, ref)
	}
	if err := h.closer(sessions).failRun(ctx, due, taken, why, below); err != nil {
		return err
	}
	h.log.InfoContext(ctx, "run.aborted_unclaimed", "tenant", due.Tenant, "session", due.ID, "run", due.RunID)
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return err
	}
	return h.closer(sessions).settle(ctx, state, true)
}

// agentOr returns the agent of a session, or, if it is not known here, one that has
// only the name. An error means that it may be known another time.
func (h *Handler) agentOr(ctx context.Context, state *session.State) (*helix.Agent, error) {
	agent, err := h.Agent(ctx, state)
	switch {
	case session.IsRetryable(err), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return &helix.Agent{Name: state.Agent}, nil //nolint:nilerr // it stays unknown
	}
	return agent, nil
}

// endAwaited ends the agents that a failed session waited for.
func (r *tree) endAwaited(ctx context.Context, id string, ended *session.Outcome) error {
	if ended.Status != session.RunFailed {
		return nil
	}
	for i := range ended.Children {
		if err := r.abandon(ctx, id, ended.Children[i].SessionID, ended.Error, false); err != nil {
			return err
		}
	}
	return nil
}
