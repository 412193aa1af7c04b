package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// commitStep adds the results of all calls to the transcript, together with what
// calls and hooks wrote, and decides what follows.
func (t *turn) commitStep(ctx context.Context, e effect) (machine.Result, error) {
	if t.ended != nil || t.final != nil {
		return t.sendFinal(ctx)
	}
	if e.Step < t.current() || t.flight == nil {
		return t.past(e), nil
	}
	f := t.flight
	if f.resultsCommit == nil {
		if err := t.evictRest(ctx, f); err != nil {
			return machine.Result{}, err
		}
		if t.stops.requested() != nil {
			if err := t.waits(f).keepAnswers(ctx); err != nil {
				return machine.Result{}, err
			}
		}
		if err := t.wholeOutputs(ctx, f); err != nil {
			return machine.Result{}, err
		}
		t.results(f).prepare(ctx, e)
	}
	if ctx.Err() != nil { // user code was cut off: the next attempt prepares the commit again
		f.resultsCommit = nil
		return machine.Result{}, context.Cause(ctx)
	}
	done, err := t.commit(ctx, f.resultsCommit)
	if errors.Is(err, session.ErrAnswered) {
		f.resultsCommit = nil
		t.used.ToolCalls -= int64(len(f.calls)) // they are counted again
		t.waits(f).reconsider()
		t.discardResults(f, "answered")
		return machine.Result{Next: machine.NextGather}, nil
	}
	if err != nil {
		return machine.Result{}, err
	}
	t.setFlight(nil)
	t.out.Emit(stream.Chunk{Kind: stream.StepCommitted, Step: f.step, MessageID: f.reply.ID, CheckpointID: done.CheckpointID})
	return machine.Result{Next: f.next}, nil
}

// stepResults makes the commit that adds the results of a step's calls to the
// transcript. It is used by effects that run alone.
type stepResults struct {
	t *turn
	f *flight
}

func (t *turn) results(f *flight) *stepResults { return &stepResults{t: t, f: f} }

// prepare makes the commit. It settles what was not carried out, calls the hooks, and
// decides what follows.
func (r *stepResults) prepare(ctx context.Context, e effect) {
	stop := r.t.stops.requested()
	if stop != nil {
		r.endChildren(ctx, stoppedCall(stop))
	}
	r.settleRest(ctx, stop)
	if !r.f.committed {
		r.t.hooks.onMessage(ctx, e.Key(), r.f.reply)
	}
	written := make([]session.Writes, 0, 1+2*len(r.f.calls))
	written = r.f.appendWrites(append(written, r.t.hooks.written))
	for _, c := range r.f.calls {
		written = append(written, r.t.hooks.afterCall(ctx, e.Key(), c, written))
	}
	commit := r.t.newCommit(e.Key(), session.Change{
		Writes: session.Compose(written...), StepCount: &r.f.step, Checkpoint: r.t.checkpoint(r.f.step, e.Key()),
	})
	change := &commit.Change
	if r.f.committed {
		change.Promote = r.promotion()
		change.Children = r.refs()
		change.Resolve, change.Waits = r.f.resolutions()
	} else {
		change.Messages = append(r.t.withPrepared(r.f.reply), r.f.results()...)
	}
	r.t.emitPatches(change.Writes)
	r.t.used.ToolCalls += int64(len(r.f.calls))
	r.conclude(ctx, e, change, written, stop)
	if change.Run == nil {
		change.Run = r.t.runChange("")
	}
	change.Tasks = r.t.stepTasks(ctx, e.Key(), r.f)
	r.t.finishTasks(ctx, e.Key(), change)
	r.f.resultsCommit = commit
}

// emitPatches shows watchers what a commit is about to change in the state.
func (t *turn) emitPatches(writes session.Writes) {
	if patches := session.Patches(&t.doc, writes); len(patches) > 0 {
		t.emit(stream.Chunk{Kind: stream.StatePatch, Patches: patches})
	}
}

// settleRest settles the calls that were not carried out: the finish call and, when
// the run was stopped, every call that did not begin.
func (r *stepResults) settleRest(ctx context.Context, stop *session.Stop) {
	cut := r.f.cutShort(stop)
	for _, c := range r.f.calls {
		if c.settled != nil {
			r.t.showAgain(c)
			continue
		}
		c.abandoned = c.pending != nil && c.pending.State == session.PendingWaiting
		var result *settled
		switch {
		case c.result != nil: // the tool ran, and its result could not be settled
			if result = c.result; r.t.evict(ctx, c, result) != nil {
				failed := r.t.failed(c, toolError(session.CodeToolOutput, "%s was carried out, but its result could not be stored", c.Tool), result.took)
				failed.writes = result.writes
				result = failed
			}
		case c.Rejected != nil:
			result = r.t.failed(c, c.Rejected, 0)
		case c.Kind == session.CallFinish && !cut:
			result = &settled{message: r.t.stamp(session.ToolResult(c.part, session.FinishAcknowledged))}
		case stop != nil && c.Status == session.CallBegun:
			result = r.t.failed(c, cutOff(c, stop), 0)
		case stop != nil:
			result = r.t.failed(c, stoppedCall(stop), 0)
		case c.Status == session.CallBegun && !c.claimed:
			result = r.t.failed(c, lostCall(c), 0)
		default:
			result = r.t.failed(c, toolError(session.CodeToolNotRun, "%s was not carried out", c.Tool), 0)
		}
		r.t.show(c, result)
	}
}

// show gives a call its result and shows it to watchers.
func (t *turn) show(c *call, result *settled) {
	t.mu.Lock()
	c.settled = result
	t.mu.Unlock()
	t.emitEnd(c)
}

// showAgain shows watchers the result of a settled call, if what they saw of it was
// discarded.
func (t *turn) showAgain(c *call) {
	t.mu.Lock()
	unseen := c.unseen
	c.unseen = false
	t.mu.Unlock()
	if unseen {
		t.emitEnd(c)
	}
}

// promotion adds results to the transcript from the calls' rows, where the store has
// them.
func (r *stepResults) promotion() *session.Promotion {
	p := &session.Promotion{MessageID: r.f.reply.ID}
	for _, c := range r.f.calls {
		promoted := session.Promoted{CallID: c.ID}
		if !c.settled.stored {
			promoted.Message = &c.settled.message
		}
		p.Results = append(p.Results, promoted)
	}
	return p
}

// conclude decides whether the step ends the turn, and how.
func (r *stepResults) conclude(ctx context.Context, e effect, change *session.Change, written []session.Writes, stop *session.Stop) {
	r.f.next = machine.NextClose
	output, finished := r.f.output()
	switch {
	case stop != nil && stop.Kind == session.StopAbort:
		r.t.stopped(change, stop, r.f.reply.Content())
		return
	case finished:
		reason := session.ReasonFinish
		if limit := stepLimit(r.t.agent); limit != helix.Unlimited && r.f.step > limit {
			reason = session.ReasonMaxSteps
		}
		r.t.completeWith(r.f, change, reason, output)
		return
	case stop != nil:
		r.t.stopped(change, stop, r.f.reply.Content())
		return
	}
	if enough, err := r.t.stopWhen(ctx, e.Key(), r.f, written); err != nil {
		r.t.fail(change, err)
		return
	} else if enough {
		r.t.completeWith(r.f, change, session.ReasonStopWhen, nil)
		return
	}
	if r.f.next = afterStep(r.t.agent, r.f.step, e.Finish); r.f.next == machine.NextClose {
		r.t.fail(change, session.ErrMaxSteps.WithMessage("agent %s reached its limit of %d steps", r.t.agent.Name, stepLimit(r.t.agent)))
		change.Run = r.t.runChange(session.ReasonMaxSteps)
	}
}

// stopWhen asks the agent whether the turn is complete.
func (t *turn) stopWhen(ctx context.Context, key string, f *flight, written []session.Writes) (bool, *session.Error) {
	if t.agent.StopWhen == nil {
		return false, nil
	}
	draft := t.draft(written...)
	step := &helix.Step{Reply: f.reply, Results: f.results()}
	t.scope(&step.Scope, key, draft)
	stop, err := callLimited(ctx, t.h.hookLimit, t.agent.Name, t.pool, func(ctx context.Context) (bool, error) { return t.agent.StopWhen(ctx, step) })
	if _, draftErr := draft.Close(); err == nil {
		err = draftErr
	}
	if err != nil {
		return false, session.ErrInternal.WithCause(err, "agent %s: StopWhen failed", t.agent.Name)
	}
	return stop, nil
}

// refs are the references to the agents whose calls have ended.
func (r *stepResults) refs() []session.ChildRef {
	var refs []session.ChildRef
	for _, c := range r.f.calls {
		if c.settled == nil || c.Child == "" || c.Rejected != nil || !machine.WaitsForAgent(c.Kind) || !(c.owns() || r.t.awaits(c)) {
			continue
		}
		ref := c.ref(r.t.run.ID)
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

// endChildren ends the agents that calls of the step still wait for.
func (r *stepResults) endChildren(ctx context.Context, why *session.Error) {
	for _, c := range r.f.calls {
		if c.settled != nil || c.Child == "" || !c.owns() {
			continue
		}
		if c.child == nil { // an earlier run has shown it to watchers
			c.child = &calledAgent{began: time.Now(), shown: true}
		}
		a := r.t.agentCall(effect{}, c)
		if err := a.end(ctx, why); err != nil {
			r.t.h.log.WarnContext(ctx, "subagent.not_ended", r.t.attrs("child", c.Child, "error", err)...)
		}
		if err := a.readStop(ctx); err != nil {
			r.t.h.log.WarnContext(ctx, "subagent.not_loaded", r.t.attrs("child", c.Child, "error", err)...)
		}
	}
}

// awaits reports whether the previous run suspended until the call's agent ends.
func (t *turn) awaits(c *call) bool {
	return slices.ContainsFunc(t.state.AwaitingChildren, func(ref session.ChildRef) bool { return ref.SessionID == c.Child })
}

// cutOff is the error of a call that was running when the run was stopped. If the
// call must not run again, nobody knows whether it took effect.
func cutOff(c *call, stop *session.Stop) *session.Error {
	if c.MayRepeat() || machine.WaitsForAgent(c.Kind) {
		return stoppedCall(stop)
	}
	text := "the run was stopped while " + c.Tool + " ran; whether it took effect is unknown"
	if stop.Reason != "" {
		text += ": " + stop.Reason
	}
	return toolError(session.CodeRunStopped, "%s", text)
}

func stoppedCall(stop *session.Stop) *session.Error {
	text := "the run was stopped before the call was done"
	if stop.Reason != "" {
		text += ": " + stop.Reason
	}
	return toolError(session.CodeRunStopped, "%s", text)
}
