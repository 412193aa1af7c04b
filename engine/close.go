package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// closer ends runs and closes streams on behalf of processes that could not. Its
// fields never change.
type closer struct {
	h        *Handler
	sessions session.Store // of the session's tenant
}

func (h *Handler) closer(sessions session.Store) *closer { return &closer{h: h, sessions: sessions} }

// closeTurn tells the hooks and the stream that the turn is over and releases the
// lease. All that it announces is in the store, so another process can do it after a
// crash.
func (t *turn) closeTurn(ctx context.Context) (machine.Result, error) {
	if t.ended == nil {
		return t.endFailed(ctx, t.run.ID+"/close", session.ErrInternal.WithMessage("the turn was closed before it had ended"), true)
	}
	t.hooks.runEnded(ctx, &t.run, t.ended, t.step, time.Since(t.run.StartedAt))
	if err := t.reportEnd(ctx); err != nil {
		return machine.Result{}, err
	}
	if err := t.out.Flush(ctx); err != nil {
		return machine.Result{}, err
	}
	wake, err := t.h.closer(t.sessions).wakeAfter(ctx, &t.state, t.ended)
	if err != nil {
		return machine.Result{}, err
	}
	if err := t.closeRun(ctx); err != nil {
		return machine.Result{}, err
	}
	return machine.Result{Status: t.ended.Status, Abort: t.abort, Wake: wake || t.detached, StopUndelivered: t.stopUndelivered.Load()}, nil
}

// closeRun writes the turn's last chunks, closes the stream and releases the lease.
// If the lease was lost, the process that has it has closed the run.
func (t *turn) closeRun(ctx context.Context) error {
	if t.remote != nil { // watchers saw the remote's own end
		err := t.sessions.CloseRun(ctx, t.key.ID, t.fence, true)
		if lostTurn(err) {
			err = nil
		}
		return err
	}
	end := streamClose(t.streams.Limits(), &t.state, &t.run, t.ended, t.step, time.Now().UTC())
	end.Tenant, end.SessionID, end.Fence = t.key.Tenant, t.key.ID, t.fence
	err := t.h.cfg.Backend.CloseRun(ctx, end)
	if errors.Is(err, session.ErrStale) {
		err = nil
	}
	return err
}

// SettleClose closes the stream of a run that ended in a process that could not close
// it, and tells the hooks. It does nothing while that process still holds the lease.
func (h *Handler) SettleClose(ctx context.Context, due session.Due) error {
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return err
	}
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	if !state.ClosePending || state.Lease.Live(now) {
		return nil
	}
	return h.closer(sessions).settle(ctx, state, true)
}

// settle closes the stream of an ended run and, with callHooks, calls the hooks.
func (c *closer) settle(ctx context.Context, state *session.State, callHooks bool) error {
	run, err := c.sessions.Run(ctx, state.ID, state.CurrentRunID)
	if err != nil {
		return err
	}
	if !run.Status.Ended() || run.Outcome == nil {
		return nil
	}
	if callHooks {
		if err := c.callEndHooks(ctx, state, run); err != nil {
			return err
		}
	}
	if run.CheckpointID != "" && run.StepCount == 0 { // it may have ended before it ended what the rewind undid
		messages, err := c.sessions.AllMessages(ctx, state.ID)
		if err != nil {
			return err
		}
		if err := c.h.tree(c.sessions).endUndone(ctx, state.ID, callsOf(messages)); err != nil {
			return err
		}
	}
	if err := c.h.tree(c.sessions).endAwaited(ctx, state.ID, run.Outcome); err != nil {
		return err
	}
	if c.h.remote(state.Agent) == nil {
		err = c.closeStream(ctx, state, run)
	}
	if err != nil && !errors.Is(err, session.ErrStreamClosed) && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrStale) {
		return err
	}
	if _, err := c.wakeAfter(ctx, state, run.Outcome); err != nil {
		return err
	}
	return c.sessions.SettleClose(ctx, state.ID, run.ID)
}

// callEndHooks tells hooks and observers how a run ended, unless its agent is not known here.
func (c *closer) callEndHooks(ctx context.Context, state *session.State, run *session.Run) error {
	agent, err := c.h.Agent(ctx, state)
	switch {
	case session.IsRetryable(err), err != nil && ctx.Err() != nil: // it may be known another time
		return err
	case err != nil:
		return nil
	}
	t := c.h.newTurn(agent, nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
	defer t.finish()
	t.transcript, t.ended, t.step = &session.Transcript{}, run.Outcome, run.StepCount
	t.begin(ctx)
	t.hooks.runEnded(t.inTurn(ctx), &t.run, t.ended, t.step, time.Since(t.run.StartedAt))
	return t.reportEnd(ctx)
}

// closeEarlier closes the stream of the previous run. If this process is closing it,
// closeEarlier waits, and the start is planned again.
func (c *closer) closeEarlier(ctx context.Context, state *session.State) error {
	if closing, here := c.h.held(state.CurrentRunID); here {
		select {
		case <-closing.done:
			return session.ErrStale.WithMessage("run %s has just ended", state.CurrentRunID).WithSaw(state.Saw())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	now, err := c.sessions.Now(ctx)
	if err != nil {
		return err
	}
	// A process that still holds the lease is closing the run, too, and calls the
	// hooks.
	return c.settle(ctx, state, !state.Lease.Live(now))
}

// closeStream closes the stream of a run.
func (c *closer) closeStream(ctx context.Context, state *session.State, run *session.Run) error {
	streams := c.h.cfg.Backend.Streams().Tenant(state.Tenant)
	info, err := streams.Info(ctx, state.StreamID)
	if err != nil {
		return err
	}
	// A run that failed as it started may not have opened it.
	if run.Status == session.RunFailed && state.StreamID == state.ID && info.RunID != run.ID {
		history, err := session.ReadView(ctx, c.sessions, state)
		if err != nil {
			return err
		}
		agent, err := c.h.agentOr(ctx, state)
		if err != nil {
			return err
		}
		t := c.h.newTurn(agent, nil, state, *run, state.Lease.Fence(), new(atomic.Int64))
		defer t.finish()
		if t.transcript, err = history.Transcript(); err != nil {
			return err
		}
		if err := t.openStream(ctx); err != nil {
			return err
		}
	}
	return streamClose(streams.Limits(), state, run, run.Outcome, run.StepCount, time.Now().UTC()).CloseStream(ctx, streams)
}

// wakeAfter puts a wake for a session if what its run suspended for has arrived
// meanwhile, or if a companion completed although it has messages. It reports whether
// it did.
func (c *closer) wakeAfter(ctx context.Context, state *session.State, ended *session.Outcome) (bool, error) {
	ready := false
	switch {
	case c.h.remote(state.Agent) != nil: // its wakes are for stops to deliver
	case ended.Status.Suspended():
		stop, err := c.sessions.StopRequest(ctx, state.ID, state.CurrentRunID)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return false, err
		}
		if ready, err = c.h.tree(c.sessions).companionEnded(ctx, state.ID, ended.Children); err != nil {
			return false, err
		}
		ready = ready || (stop != nil && stop.Kind == session.StopAbort) // it was requested while the run suspended
	case detached(state):
		entries, err := c.sessions.Inbox(ctx, state.ID)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return false, err
		}
		ready = len(entries) > 0 && ended.Status == session.RunCompleted
	}
	if !ready {
		return false, nil
	}
	err := c.sessions.PutWake(ctx, session.Wake{
		Tenant: state.Tenant, SessionID: state.ID, ChildID: state.ID, RunID: state.CurrentRunID, At: time.Now().UTC(),
	})
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// failRun fails a run that cannot be continued, so that sweeps do not find it again.
// The agents in below end with it: the process that closes the run ends them; see
// [tree.endAwaited].
func (c *closer) failRun(ctx context.Context, due session.Due, taken *session.TakenOver, failure *session.Error, below []session.ChildRef) error {
	fence := taken.Lease.Fence()
	change := session.Change{
		Status: session.Failed, Children: below, Outcome: &session.Outcome{Status: session.RunFailed, Error: failure, Children: below},
	}
	state, err := c.sessions.Load(ctx, due.ID)
	if err != nil {
		return err
	}
	for i := range state.Pending {
		change.Resolve = append(change.Resolve, session.Resolution{CallID: state.Pending[i].CallID, State: session.PendingAbandoned})
	}
	if err := c.h.remoteLink(c.sessions).requestStop(ctx, state, session.Stop{Kind: session.StopAbort, Reason: failure.Message}); err != nil {
		return err
	}
	if detached(state) {
		change.Wake = &session.Wake{Tenant: due.Tenant, SessionID: state.ParentID, ChildID: due.ID, RunID: due.RunID}
	}
	c.lostTasks(ctx, state, due.RunID, &change)
	_, err = c.sessions.Commit(ctx, &session.Commit{
		SessionID: due.ID, RunID: due.RunID, Key: due.RunID + "/abandon", Version: taken.Version, Fence: fence, Change: change,
	})
	if err != nil {
		return err
	}
	c.h.tasksAdded(change.Tasks)
	c.h.logEnd(ctx, state, due.RunID, change.Outcome)
	return c.sessions.CloseRun(ctx, due.ID, fence, false)
}

// logEnd writes the one error line of a failed run. The process whose commit ended
// the run writes it, so that a crash before the run is closed does not lead to a
// second line. An aborted run is no error.
func (h *Handler) logEnd(ctx context.Context, state *session.State, runID string, end *session.Outcome) {
	if end.Status != session.RunFailed {
		return
	}
	level, failure := slog.LevelError, end.Error
	if failure == nil {
		failure = session.ErrInternal
	}
	if failure.Code == session.CodeCancelled {
		level = slog.LevelInfo
	}
	h.log.Log(ctx, level, "run.failed", "tenant", state.Tenant, "session", state.ID, "run", runID, "agent", state.Agent,
		"code", string(failure.Code), "error", failure.Error())
}

// restoreStatus gives a session its [settledStatus]. The error says that what was
// read of the session is stale.
func (c *closer) restoreStatus(ctx context.Context, state *session.State, run *session.Run, to session.Status) error {
	change := session.StatusChange{Expect: []session.Status{session.Active}, ExpectVersion: state.Version, To: to}
	if run.Outcome != nil {
		change.Error, change.FailureReason = run.Outcome.Error, run.Outcome.FailureReason
	}
	if _, err := c.sessions.SetStatus(ctx, state.ID, change); err != nil && !errors.Is(err, session.ErrAlreadyRunning) {
		return err
	}
	return session.ErrStale.WithMessage("run %s has ended", run.ID).WithSaw(state.Saw())
}

// streamClose is how a run ends its stream: the last chunks, and the end that the
// outcome asks for. The chunks have a producer of their own, so that they are written
// once, whichever process closes the run.
func streamClose(limits stream.Limits, state *session.State, run *session.Run, outcome *session.Outcome, step int, now time.Time) *store.CloseRun {
	base := stream.Chunk{AgentID: state.ID, AgentType: state.Agent, At: now, Step: step, RunID: run.ID, Turn: run.Turn}
	end := &store.CloseRun{
		Stream: state.StreamID,
		Batch: stream.Batch{
			Producer: stream.Producer{Session: state.ID + "/close/" + run.ID, Epoch: state.Lease.Epoch, RunID: run.ID},
			First:    1,
		},
		By: stream.Producer{Session: state.ID, Epoch: state.Lease.Epoch, RunID: run.ID},
	}
	if outcome.Status == session.RunCompleted && outcome.Output != nil {
		output := base
		output.Kind, output.Data = stream.Output, outcome.Output
		streamwriter.Fit(&output, limits.MaxChunk)
		end.Batch.Chunks = append(end.Batch.Chunks, output)
	}
	if outcome.Status.Suspended() {
		suspended := base
		suspended.Kind, suspended.Data = stream.Suspended, encoded(Suspension{Status: outcome.Status, Pending: outcome.Pending})
		streamwriter.Fit(&suspended, limits.MaxChunk)
		end.Batch.Chunks = append(end.Batch.Chunks, suspended)
	}
	end.Batch.Chunks = append(end.Batch.Chunks, endChunk(base, outcome))
	switch {
	case state.StreamID != state.ID: // the caller's stream stays open
	case outcome.Status != session.RunFailed:
		end.End = new(streamEnd(outcome, &run.Usage))
	case outcome.Error != nil:
		end.Failure = outcome.Error
	default:
		end.Failure = session.ErrInternal
	}
	return end
}

// Suspension is the data of a [stream.Suspended] chunk.
type Suspension struct {
	Status session.RunStatus `json:"status"`
	// Pending lists the calls that wait for people, at any depth.
	Pending []session.Pending `json:"pending,omitempty"`
}

// streamEnd is how a run that did not fail ends its stream.
func streamEnd(outcome *session.Outcome, used *session.Usage) stream.End {
	switch outcome.Status {
	case session.RunCompleted:
		return stream.End{Status: stream.EndCompleted, Output: outcome.Output, Usage: used, FinishReason: outcome.FinishReason}
	case session.RunInterrupted:
		return stream.End{Status: stream.EndInterrupted, Usage: used}
	}
	return stream.End{Status: stream.EndPaused, Usage: used}
}

// endChunk is the last chunk of a run. A stop writes no error.
func endChunk(c stream.Chunk, o *session.Outcome) stream.Chunk {
	switch {
	case o.Status == session.RunCompleted:
		c.Kind = stream.RunCompleted
	case o.Status == session.RunInterrupted:
		c.Kind = stream.RunInterrupted
		if o.Interrupt != nil {
			c.Reason = o.Interrupt.Reason
		}
	case o.Status == session.RunFailed && errors.Is(o.Error, session.ErrCancelled):
		c.Kind, c.Reason = stream.RunInterrupted, o.Error.Message
	case o.Status == session.RunFailed:
		c.Kind, c.Error = stream.Failure, o.Error
	default:
		c.Kind = stream.RunPaused
	}
	return c
}
