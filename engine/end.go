package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/helixagents/helix/engine/internal/streamwriter"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// finalCommit is a turn's last commit where it is a commit of its own: after a stop
// or a failure outside of a step's regular commits.
type finalCommit struct {
	key    string
	change session.Change
}

// complete makes a change the last one of a turn that completed.
func (t *turn) complete(change *session.Change, reason session.CompletionReason, output json.RawMessage, reply string) {
	change.Status = session.Completed
	change.Outcome = &session.Outcome{Status: session.RunCompleted, Output: output, Reply: reply}
	change.Run = t.runChange(reason)
}

// completeWith is complete with the reply of a step.
func (t *turn) completeWith(f *flight, change *session.Change, reason session.CompletionReason, output json.RawMessage) {
	t.complete(change, reason, output, f.reply.Content())
	change.Outcome.FinishReason = f.reply.FinishReason()
}

// fail makes a change the last one of a turn that failed.
func (t *turn) fail(change *session.Change, err *session.Error) {
	change.Status = session.Failed
	change.Outcome = &session.Outcome{Status: session.RunFailed, Error: err}
	change.Run = t.runChange("")
}

// stopped makes a change the last one of a turn that was interrupted or aborted, with
// the part of the reply that had arrived.
func (t *turn) stopped(change *session.Change, stop *session.Stop, reply string) {
	if stop.Kind == session.StopAbort {
		t.fail(change, session.ErrCancelled.WithMessage("%s", cmp.Or(stop.Reason, "the run was aborted")))
		change.Outcome.Reply = reply
		return
	}
	change.Status = session.Interrupted
	change.Outcome = &session.Outcome{
		Status: session.RunInterrupted, Reply: reply,
		Interrupt: &session.InterruptContext{
			RunID: t.run.ID, Reason: stop.Reason, Step: t.current(), At: t.h.cfg.Now().UTC(),
		},
	}
	change.Run = t.runChange("")
}

// endStopped ends a turn that was stopped during a model call. It keeps the part of
// the reply that had arrived: the text that watchers saw, and complete calls, each
// with the result that it was stopped.
func (t *turn) endStopped(ctx context.Context, e effect, stop *session.Stop, reply modelReply) (machine.Result, error) {
	change := session.Change{}
	step, key := t.current(), e.Key()
	f := t.partial(e, stop, reply)
	if len(f.reply.Parts) == 0 {
		t.emit(stream.Chunk{Kind: stream.StepDiscarded, Scope: stream.ScopeReply, Reason: "stopped"})
	} else {
		t.emit(stream.Chunk{Kind: stream.StepDiscarded, Scope: stream.ScopeReasoning, Reason: "stopped", MessageID: f.reply.ID})
		change.Messages = []session.Message{f.reply}
		for _, c := range f.calls {
			t.emit(stream.Chunk{Kind: stream.ToolStart, CallID: c.ID, Tool: c.Tool, Arguments: c.part.Input})
			c.settled = t.failed(c, stoppedCall(stop), 0)
			t.emitEnd(c)
			change.Messages = append(change.Messages, c.settled.message)
		}
		change.StepCount = &step
	}
	if stop.Kind == session.StopInterrupt {
		change.Checkpoint = t.checkpoint(step, key)
	}
	change.Writes = t.hooks.written
	t.emitPatches(change.Writes)
	t.stopped(&change, stop, f.reply.Content())
	t.final = &finalCommit{key: key, change: change}
	return t.sendFinal(ctx)
}

// partial is the step that is kept of a reply which was cut off.
func (t *turn) partial(e effect, stop *session.Stop, reply modelReply) *flight {
	kept := modelReply{Response: &llm.Response{Parts: reply.kept()}}
	f := t.replyStep(e).newFlight(kept)
	mark, _ := session.Encode(map[string]session.StopKind{"stop": stop.Kind}) // a string always encodes
	f.reply.Metadata = map[string]json.RawMessage{session.MetaInterrupted: mark}
	return f
}

// endFailed ends a turn with an error. Calls without a result get one, so that models
// accept the history. With keepState, what finished calls and hooks wrote is
// committed as well.
func (t *turn) endFailed(ctx context.Context, key string, err *session.Error, keepState bool) (machine.Result, error) {
	if t.remote != nil {
		r, lost := t.relay(ctx, key)
		if lost == nil {
			return r.endFailed(ctx, err)
		}
		if !errors.Is(lost, session.ErrCorrupt) {
			return machine.Result{}, lost // the stop has to be recorded before the end
		}
	}
	for range gatherTries {
		t.prepareFailure(ctx, key, err, keepState)
		res, err := t.sendFinal(ctx)
		if !errors.Is(err, session.ErrAnswered) {
			return res, err
		}
		t.final = nil
		t.waits(t.flight).reconsider()
		t.discardResults(t.flight, "answered")
	}
	return machine.Result{}, session.ErrUnavailable.WithMessage("answers keep arriving")
}

func (t *turn) prepareFailure(ctx context.Context, key string, err *session.Error, keepState bool) {
	change := session.Change{}
	var written []session.Writes
	if f := t.flight; f != nil && f.committed {
		t.results(f).endChildren(ctx, err)
		if err := t.waits(f).keepAnswers(ctx); err != nil {
			t.h.log.WarnContext(ctx, "answers not kept", t.attrs("error", err)...)
		}
		t.results(f).settleRest(nil)
		change.Promote = t.results(f).promotion()
		change.Children = t.results(f).refs()
		change.Resolve, change.Waits = f.resolutions()
		written = f.writes()
	} else if f != nil {
		t.discardAttempt(0, err)
	}
	if keepState {
		change.Writes = session.Compose(append([]session.Writes{t.hooks.written}, written...)...)
		t.emitPatches(change.Writes)
	}
	t.fail(&change, err)
	t.final = &finalCommit{key: key, change: change}
}

// sendFinal applies the turn's last commit, unless that was done.
func (t *turn) sendFinal(ctx context.Context) (machine.Result, error) {
	if t.ended == nil {
		if _, err := t.commit(ctx, t.final.key, t.final.change); err != nil {
			return machine.Result{}, err
		}
		t.flight = nil
	}
	return machine.Result{Next: machine.NextClose}, nil
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

// closeTurn tells the hooks and the stream that the turn is over and releases the
// lease. All that it announces is in the store, so another process can do it after a
// crash.
func (t *turn) closeTurn(ctx context.Context) (machine.Result, error) {
	if t.ended == nil {
		return t.endFailed(ctx, t.run.ID+"/close", session.ErrInternal.WithMessage("the turn was closed before it had ended"), true)
	}
	t.hooks.runEnded(ctx, &t.run, t.ended, t.step, t.h.cfg.Now().Sub(t.run.StartedAt))
	if err := t.closeStream(ctx); err != nil {
		return machine.Result{}, err
	}
	wake, err := t.h.closer(t.sessions).wakeAfter(ctx, &t.state, t.ended)
	if err != nil {
		return machine.Result{}, err
	}
	if err := t.sessions.CloseRun(ctx, t.key.ID, t.fence, true); err != nil && !lostTurn(err) {
		return machine.Result{}, err
	}
	return machine.Result{Status: t.ended.Status, Abort: t.abort, Wake: wake || t.detached, StopUndelivered: t.stopUndelivered.Load()}, nil
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
		Tenant: state.Tenant, SessionID: state.ID, ChildID: state.ID, RunID: state.CurrentRunID, At: c.h.cfg.Now().UTC(),
	})
	if errors.Is(err, session.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// announceStart tells the hooks that the run begins, once.
func (t *turn) announceStart(ctx context.Context) {
	if t.step > 0 || t.started {
		return
	}
	t.started = true
	_, input := t.initialMessages()
	t.hooks.runStarted(ctx, &t.run, input)
	t.announceAnswers(ctx)
}

// closeStream writes the turn's last chunks and closes the stream.
func (t *turn) closeStream(ctx context.Context) error {
	if err := t.out.Flush(ctx); err != nil {
		return err
	}
	if t.remote != nil { // watchers saw the remote's own end
		return nil
	}
	return closeStream(ctx, t.streams, t.streamID, &t.state, &t.run, t.ended, t.step, t.h.cfg.Now().UTC())
}

// closeStream writes a run's last chunks and closes the stream as the outcome says.
// The chunks have a producer of their own, so that they are written once, whichever
// process closes the run.
func closeStream(ctx context.Context, streams stream.Manager, id string, state *session.State, run *session.Run,
	outcome *session.Outcome, step int, now time.Time,
) error {
	base := stream.Chunk{AgentID: state.ID, AgentType: state.Agent, At: now, Step: step, RunID: run.ID, Turn: run.Turn}
	batch := stream.Batch{
		Producer: stream.Producer{Session: state.ID + "/close/" + run.ID, Epoch: state.Lease.Epoch, RunID: run.ID},
		First:    1,
	}
	if outcome.Status == session.RunCompleted && outcome.Output != nil {
		output := base
		output.Kind, output.Data = stream.Output, outcome.Output
		streamwriter.Fit(&output, streams.Limits().MaxChunk)
		batch.Chunks = append(batch.Chunks, output)
	}
	if outcome.Status.Suspended() {
		suspended := base
		suspended.Kind, suspended.Data = stream.Suspended, encoded(Suspension{Status: outcome.Status, Pending: outcome.Pending})
		streamwriter.Fit(&suspended, streams.Limits().MaxChunk)
		batch.Chunks = append(batch.Chunks, suspended)
	}
	batch.Chunks = append(batch.Chunks, endChunk(base, outcome))
	appended, err := streams.Append(ctx, id, batch)
	if err == nil {
		_, err = appended.Wait(ctx)
	}
	if err != nil || id != state.ID { // the caller's stream stays open
		return err
	}
	by := stream.Producer{Session: state.ID, Epoch: state.Lease.Epoch, RunID: run.ID}
	if outcome.Status == session.RunFailed {
		return streams.Fail(ctx, id, by, outcome.Error)
	}
	return streams.End(ctx, id, by, streamEnd(outcome, &run.Usage))
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
