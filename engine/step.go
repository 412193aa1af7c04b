package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// commitStep takes the results of all calls into the transcript, with what calls
// and hooks did to the state, and decides what follows.
func (t *turn) commitStep(ctx context.Context, e effect) (machine.Result, error) {
	if t.ended != nil || t.final != nil {
		return t.sendFinal(ctx)
	}
	if e.Step < t.current() || t.flight == nil {
		return t.past(e), nil
	}
	f := t.flight
	if f.resultsCommit == nil {
		if t.stopRequest() != nil {
			if err := t.keepAnswers(ctx, f); err != nil {
				return machine.Result{}, err
			}
		}
		t.prepareResults(ctx, e, f)
	}
	if ctx.Err() != nil { // user code was cut off: whoever comes next prepares anew
		f.resultsCommit = nil
		return machine.Result{}, context.Cause(ctx)
	}
	done, err := t.commit(ctx, e.Key(), *f.resultsCommit)
	if errors.Is(err, session.ErrAnswered) {
		f.resultsCommit = nil
		t.usage.ToolCalls -= int64(len(f.calls)) // they are counted again
		t.reconsider(f)
		t.retract(f, "answered")
		return machine.Result{Next: machine.NextGather}, nil
	}
	if err != nil {
		return machine.Result{}, err
	}
	t.mu.Lock()
	t.flight = nil
	t.mu.Unlock()
	t.out.Emit(stream.Chunk{Kind: stream.StepCommitted, Step: f.step, MessageID: f.reply.ID, CheckpointID: done.CheckpointID})
	return machine.Result{Next: f.next}, nil
}

func (t *turn) prepareResults(ctx context.Context, e effect, f *flight) {
	stop := t.stopRequest()
	if stop != nil {
		t.endChildren(ctx, f, stoppedCall(stop))
	}
	t.settleRest(f, stop)
	if !f.committed {
		t.hooks.onMessage(ctx, e.Key(), f.reply)
	}
	results := make([]session.Message, len(f.calls))
	written := make([]session.Writes, 0, len(f.calls)+1)
	written = append(written, t.hooks.written)
	for i, c := range f.calls {
		results[i] = c.settled.message
	}
	written = append(written, f.writes()...)
	for _, c := range f.calls {
		written = append(written, t.hooks.afterCall(ctx, e.Key(), c, written))
	}
	change := &session.Change{
		Writes: session.Compose(written...), StepCount: &f.step, Checkpoint: t.checkpoint(f.step, e.Key()),
	}
	if f.committed {
		change.Promote = t.promotion(f)
		change.Children = t.settledRefs(f)
		change.Resolve, change.Waits = f.resolutions()
	} else {
		change.Messages = append([]session.Message{f.reply}, results...)
	}
	t.emitPatches(change.Writes)
	t.usage.ToolCalls += int64(len(f.calls))
	t.conclude(ctx, e, f, change, results, written, stop)
	if change.Run == nil {
		change.Run = t.runChange("")
	}
	f.resultsCommit = change
}

// writes lists what the step's calls did to the state, in the order in which it
// applies: phase 2 saw what phase 1 wrote.
func (f *flight) writes() []session.Writes {
	var written []session.Writes
	for _, last := range []bool{false, true} {
		for _, c := range f.calls {
			if c.FinishWith == last && c.settled != nil {
				written = append(written, c.settled.writes)
			}
		}
	}
	return written
}

// emitPatches shows watchers what a commit is about to do to the state.
func (t *turn) emitPatches(writes session.Writes) {
	if patches := session.Patches(&t.doc, writes); len(patches) > 0 {
		t.emit(stream.Chunk{Kind: stream.StatePatch, Patches: patches})
	}
}

// settleRest answers the calls that were not carried out: a finish call, and,
// when the run was stopped, whatever was not begun.
func (t *turn) settleRest(f *flight, stop *session.Stop) {
	cut := f.cutShort(stop)
	for _, c := range f.calls {
		if c.settled != nil {
			if c.found { // what watchers saw of it was taken back
				c.found = false
				t.emitEnd(c)
			}
			continue
		}
		c.left = c.pending != nil && c.pending.State == session.PendingWaiting
		switch {
		case c.result != nil: // it was carried out, and could not be settled
			c.settled = c.result
		case c.Rejected != nil:
			c.settled = t.failed(c, c.Rejected, 0)
		case c.Kind == session.CallFinish && !cut:
			c.settled = &settled{message: t.stamp(session.ToolResult(c.part, session.FinishAcknowledged))}
		case stop != nil && c.Status == session.CallBegun:
			c.settled = t.failed(c, cutOff(c, stop), 0)
		case stop != nil:
			c.settled = t.failed(c, stoppedCall(stop), 0)
		case c.Status == session.CallBegun && !c.claimed:
			c.settled = t.failed(c, lostCall(c), 0)
		default:
			c.settled = t.failed(c, toolError(session.CodeToolNotRun, "%s was not carried out", c.Tool), 0)
		}
		t.emitEnd(c)
	}
}

// cutShort reports whether a stop keeps a call of the step from its result. Then the step
// does not finish the turn either: what is resumed is to finish with all results.
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

// cutOff answers a call that was being carried out when the run was stopped: of one that
// may not run again nobody knows whether it took effect.
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

// promotion takes results from their rows where the store has them already.
func (t *turn) promotion(f *flight) *session.Promotion {
	p := &session.Promotion{MessageID: f.reply.ID}
	for _, c := range f.calls {
		promoted := session.Promoted{CallID: c.ID}
		if !c.settled.stored {
			promoted.Message = &c.settled.message
		}
		p.Results = append(p.Results, promoted)
	}
	return p
}

// conclude decides whether the step ends the turn, and how.
func (t *turn) conclude(ctx context.Context, e effect, f *flight, change *session.Change,
	results []session.Message, written []session.Writes, stop *session.Stop,
) {
	f.next = machine.NextClose
	output, finished := f.output()
	switch {
	case stop != nil && stop.Kind == session.StopAbort:
		t.stopped(change, stop, f.reply.Content())
		return
	case finished:
		reason := session.ReasonFinish
		if limit := t.agent.StepLimit(); limit != helix.Unlimited && f.step > limit {
			reason = session.ReasonMaxSteps
		}
		t.completeWith(f, change, reason, output)
		return
	case stop != nil:
		t.stopped(change, stop, f.reply.Content())
		return
	}
	if enough, err := t.stopWhen(ctx, e.Key(), f, results, written); err != nil {
		t.fail(change, err)
		return
	} else if enough {
		t.completeWith(f, change, session.ReasonStopWhen, nil)
		return
	}
	if f.next = t.afterStep(f.step, e.Finish); f.next == machine.NextClose {
		t.fail(change, session.ErrMaxSteps.WithMessage("agent %s reached its limit of %d steps", t.agent.Name, t.agent.StepLimit()))
		change.Run = t.runChange(session.ReasonMaxSteps)
	}
}

// output is what the step completes the turn with: the arguments of the finish
// call, or the output of the first FinishWith call that succeeded.
func (f *flight) output() (json.RawMessage, bool) {
	for _, c := range f.calls {
		if c.Kind == session.CallFinish && c.settled.err == nil {
			return c.part.Input, true
		}
	}
	for _, c := range f.calls {
		if c.FinishWith && c.settled.err == nil {
			return c.settled.message.Parts[0].ResultJSON(), true
		}
	}
	return nil, false
}

// stopWhen asks the agent whether the turn is complete.
func (t *turn) stopWhen(ctx context.Context, key string, f *flight, results []session.Message, written []session.Writes) (bool, *session.Error) {
	if t.agent.StopWhen == nil {
		return false, nil
	}
	draft := t.draft(written...)
	step := &helix.Step{Scope: t.scope(key, draft), Reply: f.reply, Results: results}
	stop, err := usercode.Call(ctx, t.pool, func() (bool, error) { return t.agent.StopWhen(ctx, step) })
	if _, draftErr := draft.Close(); err == nil {
		err = draftErr
	}
	if err != nil {
		return false, session.ErrInternal.WithCause(err, "agent %s: StopWhen failed", t.agent.Name)
	}
	return stop, nil
}
