package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

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
			RunID: t.run.ID, Reason: stop.Reason, Step: t.current(), At: time.Now().UTC(),
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
		t.withdrawPrepared("stopped")
	} else {
		t.emit(stream.Chunk{Kind: stream.StepDiscarded, Scope: stream.ScopeReasoning, Reason: "stopped", MessageID: f.reply.ID})
		change.Messages = t.withPrepared(f.reply)
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
	t.finishTasks(ctx, key, &change)
	t.final = &finalCommit{key: key, change: change}
	if err := t.finishCutOff(ctx); err != nil {
		return machine.Result{}, err
	}
	return t.sendFinal(ctx)
}

// partial is the step that is kept of a reply which was cut off.
func (t *turn) partial(e effect, stop *session.Stop, reply modelReply) *flight {
	kept := modelReply{Response: &llm.Response{Parts: reply.kept()}, prompt: reply.prompt}
	if r := reply.Response; r != nil {
		kept.Usage, kept.Model = r.Usage, r.Model
	}
	f := t.replyStep(e).newFlight(kept)
	if reply.Response == nil { // the model did not come to say what it cost
		delete(f.reply.Metadata, session.MetaUsage)
	}
	mark, _ := session.Encode(map[string]session.StopKind{"stop": stop.Kind}) // a string always encodes
	f.reply.Metadata[session.MetaInterrupted] = mark
	return f
}

// endFailed ends a turn with an error. Calls without a result get one, so that models
// accept the history. With keepState, what finished calls and hooks wrote is
// committed as well.
func (t *turn) endFailed(ctx context.Context, key string, err *session.Error, keepState bool) (machine.Result, error) {
	if t.remote != nil {
		r, refErr := t.relay(ctx, key)
		if refErr == nil {
			return r.endFailed(ctx, err)
		}
		if !errors.Is(refErr, session.ErrCorrupt) {
			return machine.Result{}, refErr // the stop has to be recorded before the end
		}
	}
	for range gatherTries {
		t.prepareFailure(ctx, key, err, keepState)
		if err := t.finishCutOff(ctx); err != nil {
			return machine.Result{}, err
		}
		res, err := t.sendFinal(ctx)
		if !errors.Is(err, session.ErrAnswered) {
			return res, err
		}
		t.final = nil
		t.waits(t.flight).reconsider()
		t.discardResults(t.flight, "answered")
	}
	return machine.Result{}, session.ErrUnavailable.WithMessage("could not commit: answers arrived during every attempt")
}

func (t *turn) prepareFailure(ctx context.Context, key string, err *session.Error, keepState bool) {
	change := session.Change{}
	var written []session.Writes
	if f := t.flight; f != nil && f.committed {
		_ = t.waits(f).takeQuestions(ctx, effect{}) // never fails where the reply is committed
		t.results(f).endChildren(ctx, err)
		if err := t.waits(f).keepAnswers(ctx); err != nil {
			t.h.log.WarnContext(ctx, "answers.not_kept", t.attrs("error", err)...)
		}
		t.results(f).settleRest(ctx, nil)
		change.Promote = t.results(f).promotion()
		change.Children = t.results(f).refs()
		change.Resolve, change.Waits = f.resolutions()
		written = f.appendWrites(nil)
	} else {
		if f != nil {
			t.discardAttempt(0, err)
		}
		t.withdrawPrepared(err.Error())
	}
	if keepState {
		change.Writes = session.Compose(append([]session.Writes{t.hooks.written}, written...)...)
		t.emitPatches(change.Writes)
	}
	t.fail(&change, err)
	t.finishTasks(ctx, key, &change)
	t.final = &finalCommit{key: key, change: change}
}

// finishCutOff forgets the last commit if extensions that may add tasks to it were cut off: the
// next attempt prepares it again.
func (t *turn) finishCutOff(ctx context.Context) error {
	if t.tools.extensions == nil || ctx.Err() == nil {
		return nil
	}
	t.final = nil
	return context.Cause(ctx)
}

// sendFinal applies the turn's last commit, unless that was done.
func (t *turn) sendFinal(ctx context.Context) (machine.Result, error) {
	if t.ended == nil {
		if _, err := t.commit(ctx, t.newCommit(t.final.key, t.final.change)); err != nil {
			return machine.Result{}, err
		}
		t.setFlight(nil)
	}
	return machine.Result{Next: machine.NextClose}, nil
}

// announceStart tells the hooks that the run begins, once.
func (t *turn) announceStart(ctx context.Context) {
	if t.step > 0 || t.started {
		return
	}
	t.started = true
	_, input, held := t.initialMessages()
	if !held {
		return // they were told before a marker took the place of the input
	}
	t.hooks.runStarted(ctx, &t.run, input)
	t.announceAnswers(ctx)
}
