package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// callTool carries out one call, once. A settled call keeps its result; a call that
// another process began runs again only if its tool allows that.
//
// A call that asks a question is carried out again when it is answered.
func (t *turn) callTool(ctx context.Context, e effect) (machine.Result, error) {
	t.mu.Lock()
	f := t.flight
	if f == nil || f.step != e.Step || t.ended != nil {
		t.mu.Unlock()
		return machine.Result{}, nil // an earlier effect, delivered again
	}
	c := f.call(e.CallID)
	if c == nil || c.settled != nil {
		t.mu.Unlock()
		if c != nil {
			t.showAgain(c)
		}
		return machine.Result{}, nil
	}
	if c.Kind == session.CallQuestion && (e.Round == 0 || e.Round < f.round) {
		t.mu.Unlock()
		return machine.Result{Waits: true}, nil // an earlier effect, which has asked
	}
	if c.running != nil {
		running := c.running
		t.mu.Unlock()
		select {
		case <-running:
			return t.callTool(ctx, e) // it may have failed without a result
		case <-ctx.Done():
			return machine.Result{}, context.Cause(ctx)
		}
	}
	c.running = make(chan struct{})
	t.mu.Unlock()

	result, err := c.result, error(nil)
	switch {
	case c.asked != nil: // it could not be recorded yet, or the effect is delivered again
		err = t.toolCall(e, f, c).ask(ctx)
	case result != nil:
	case machine.WaitsForAgent(c.Kind):
		result, err = t.agentCall(e, c).makeResult(ctx)
		result = t.filter(ctx, c, result)
	default:
		result, err = t.toolCall(e, f, c).carryOut(ctx)
		result = t.filter(ctx, c, result)
	}
	if c.child != nil && err == nil {
		c.child.report(t, result)
	}
	if err == nil && result == nil { // the call still waits
		t.mu.Lock()
		close(c.running)
		c.running = nil
		t.mu.Unlock()
		return machine.Result{Waits: c.asked != nil}, nil
	}
	if err == nil && !result.stored {
		c.result = result
		if err = t.evict(ctx, c, result); err == nil {
			err = t.toolCall(e, f, c).settle(ctx, result)
		}
	}
	t.mu.Lock()
	close(c.running)
	c.running = nil
	if err == nil {
		c.settled = result
	}
	t.mu.Unlock()
	if err != nil {
		return machine.Result{}, err
	}
	t.emitEnd(c)
	return machine.Result{}, nil
}

// toolCall is a call that is being carried out. It belongs to the goroutine that
// handles the call's effect.
type toolCall struct {
	t *turn
	e effect
	f *flight
	*call
}

func (t *turn) toolCall(e effect, f *flight, c *call) *toolCall {
	return &toolCall{t: t, e: e, f: f, call: c}
}

// failCall makes an error the result of a call whose own result could not be stored,
// and settles that: later calls rely on the results of earlier ones being stored.
func (t *turn) failCall(ctx context.Context, e effect, fault error) error {
	t.mu.Lock()
	f := t.flight
	var c *call
	if f != nil && f.step == e.Step {
		c = f.call(e.CallID)
	}
	if c == nil || c.settled != nil {
		t.mu.Unlock()
		return nil
	}
	if c.running != nil { // the error is a panic
		close(c.running)
		c.running = nil
	}
	c.asked = nil
	t.mu.Unlock()
	result := t.failed(c, bounded(session.AsError(fault)), 0)
	if err := t.toolCall(e, f, c).settle(ctx, result); err != nil {
		return errors.Join(fault, err)
	}
	t.show(c, result)
	return nil
}

// bounded truncates the text of an error to what stores and streams are made for.
func bounded(err *session.Error) *session.Error {
	const limit = session.MaxSubmissionError
	if text := err.Error(); len(text) > limit {
		out := *err
		out.Cause, out.Saw = nil, nil
		out.Message = strings.ToValidUTF8(text[:limit], "") + fmt.Sprintf("… (%d bytes more)", len(text)-limit)
		return &out
	}
	return err
}

// carryOut returns the call's result: one that exists, or that of running the tool.
// It is nil if the call still waits.
func (x *toolCall) carryOut(ctx context.Context) (*settled, error) {
	if rejected := x.Rejected; rejected != nil {
		return x.t.failed(x.call, rejected, 0), nil
	}
	if machine.WaitsForPerson(x.Kind) {
		waits := x.t.waits(x.f)
		if !x.releasedBy(x.t.pendingOf(x.call)) {
			if err := waits.readAnswers(ctx); err != nil {
				return nil, err
			}
		}
		if answer := waits.answer(ctx, x.call); answer != nil || !x.releasedBy(x.t.pendingOf(x.call)) {
			return answer, nil
		}
	}
	if x.f.committed && !x.claimed && !x.ReadOnly {
		found, err := x.claim(ctx)
		if found != nil || err != nil {
			return found, err
		}
	}
	if stop := x.t.stops.requested(); stop != nil {
		return x.t.failed(x.call, stoppedCall(stop), 0), nil
	}
	return x.execute(ctx)
}

// claim marks the call as begun. If another process began it, claim returns its
// result, or an error result if the call must not run again.
func (x *toolCall) claim(ctx context.Context) (*settled, error) {
	row, fresh, err := x.t.sessions.Claim(ctx, x.t.key.ID, x.t.state.Version, x.t.fence, x.MessageID, x.ID)
	switch {
	case err != nil:
		return nil, err
	case fresh:
	case row.Status == session.CallSettled && row.Result != nil:
		return settledRow(&row), nil
	case x.Status == session.CallOpen:
		// It was open when this turn took the lease, or since: an earlier attempt of
		// this very claim began it, and its answer was lost.
	case !x.MayRepeat():
		return x.t.failed(x.call, lostCall(x.call), 0), nil
	}
	x.Status, x.claimed = session.CallBegun, true
	return nil, nil
}

// execute runs the tool. The result is nil if the tool asks a question.
func (x *toolCall) execute(ctx context.Context) (*settled, error) {
	tool, err := x.find(ctx)
	switch {
	case errors.Is(err, errStopped):
		return x.t.failed(x.call, stoppedCall(x.t.stops.requested()), 0), nil
	case err != nil:
		return nil, err
	case tool == nil:
		return x.t.failed(x.call, x.t.tools.unknown("there is no longer a tool named %q", x.Tool), 0), nil
	}
	answers, err := x.answers(ctx)
	if err != nil {
		return nil, err
	}
	earlier := x.visibleWrites()
	draft := x.t.draft(earlier...)
	began := time.Now()
	inner, seen := x.t.observe(ctx, helix.ActivityTool, x.e.Key(), x.Tool, x.ID, 0)
	output, asked, err := x.invoke(inner, tool, answers, draft)
	output = cleanJSON(output)
	took := time.Since(began)
	writes, draftErr := draft.Close()
	if asked != nil && x.t.stops.requested() != nil { // a stop wins
		err = errStopped
	} else if asked != nil {
		if x.asked, err = x.newQuestion(tool, asked); err == nil {
			seen.end(helix.Ending{Waits: true})
			x.recordUsage(ctx, took, true)
			return nil, x.ask(ctx)
		}
	}
	if err == nil {
		err = draftErr
	}
	if limit := x.t.maxResult(x.call); err == nil && len(output) > limit {
		err = toolError(session.CodeToolOutput, "the result of %s has %d bytes, at most %d are allowed", x.Tool, len(output), limit)
	}
	if err == nil && !utf8.Valid(output) {
		err = toolError(session.CodeToolOutput, "the result of %s is not valid UTF-8", x.Tool)
	}
	var result *settled
	switch {
	case err == nil:
		result = &settled{message: x.t.stamp(session.ToolResult(x.part, output)), writes: writes, took: took, output: output}
		result.writes = x.t.hooks.stateChanged(ctx, x.e.Key(), x.call, earlier, writes)
	case errors.Is(err, errStopped):
		result = x.t.failed(x.call, cutOff(x.call, x.t.stops.requested()), took)
	case ctx.Err() != nil:
		seen.end(helix.Ending{Lost: true})
		return nil, context.Cause(ctx) // the process shuts down; the call stays claimed
	default:
		result = x.t.failed(x.call, x.failure(ctx, tool, err), took)
	}
	seen.end(helix.Ending{Error: result.err})
	x.recordUsage(ctx, took, result.err == nil)
	return result, nil
}

func (x *toolCall) recordUsage(ctx context.Context, took time.Duration, success bool) {
	x.t.usage.record(ctx, x.e.Step, usage.Entry{
		ID: x.t.underLease(x.e.Key()), Kind: usage.Tool, Source: x.Tool, Duration: took, Success: success,
	})
}

// find returns the call's tool, or nil. A stop ends the attachment of extensions.
func (x *toolCall) find(ctx context.Context) (*helix.Tool, error) {
	if tool := x.t.tools.tool(x.Tool); tool != nil || x.t.tools.extensions == nil {
		return tool, nil
	}
	ctx, cancel := x.t.stops.watch(ctx)
	defer cancel()
	attached, err := x.t.tools.attach(ctx, x.e.Key())
	if err != nil {
		return nil, err
	}
	return attached.tool(x.Tool), nil
}

// visibleWrites lists the writes of the same step that the call sees: those of hooks,
// those of every call before it in phase 2, and those of every serial call before a serial
// one.
func (x *toolCall) visibleWrites() []session.Writes {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	earlier := []session.Writes{x.t.hooks.written}
	if !x.FinishWith && !x.Serial {
		return earlier
	}
	for _, other := range x.f.calls {
		if other.settled != nil && (x.FinishWith || (other.Serial && other.Index < x.Index)) {
			earlier = append(earlier, other.settled.writes)
		}
	}
	return earlier
}

// invoke calls hooks and the tool, with the answers to the call's questions so far. It
// returns early when the tool's time is up, the run is stopped or the process shuts
// down. Only the tool itself can ask a question, not a hook.
func (x *toolCall) invoke(ctx context.Context, tool *helix.Tool, answers []helix.Answered, draft *userstate.Draft) (json.RawMessage, *helix.Question, error) {
	ctx, cancel := x.t.stops.watch(ctx)
	defer cancel()
	if err := x.t.hooks.beforeTool(ctx, x.e.Key(), x.call, draft); err != nil {
		return nil, nil, err
	}
	if limit := callTimeout(tool); limit > 0 {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeoutCause(ctx, limit, usercode.ErrTimeout)
		defer cancelTimeout()
	}
	handle := &helix.Call{ID: x.ID, Tool: x.Tool, Input: x.part.Input}
	x.t.scope(&handle.Scope, x.e.Key(), draft)
	if answers != nil {
		access.BindAnswers(handle, answers, x.Memo)
	}
	output, err := usercode.Call(ctx, x.t.pool, func() (json.RawMessage, error) { return tool.Execute.Call(ctx, handle, x.part.Input) })
	if errors.Is(err, usercode.ErrTimeout) {
		err = toolError(session.CodeToolTimeout, "%s did not answer within %s", x.Tool, callTimeout(tool))
	}
	return output, asks(err), err
}

// failure is what the model sees of a tool's error.
func (x *toolCall) failure(ctx context.Context, tool *helix.Tool, err error) *session.Error {
	if _, ok := errors.AsType[*session.Error](err); ok {
		return bounded(session.AsError(err))
	}
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		x.t.h.log.ErrorContext(ctx, "tool.panicked", x.t.attrs("tool", tool.Name, "panic", p.Value, "stack", string(p.Stack))...)
		return toolError(session.CodeToolPanic, "%s failed unexpectedly", tool.Name)
	}
	return bounded(toolError(session.CodeToolFailed, "%s", err.Error()))
}

// settle writes the result to the store, so that a crash does not lose it. Two
// results are written by the results commit instead, which follows in this
// process: that of a read-only call, which may run again, and the last one.
func (x *toolCall) settle(ctx context.Context, result *settled) error {
	if !x.f.committed || x.refused() { // the row of a rejected call has its result
		return nil
	}
	if !x.f.waits() && (x.ReadOnly || x.isLast()) {
		return nil
	}
	return x.persist(ctx, result)
}

// persist writes a result to the call's row, also while the process shuts down,
// because the tool has run.
func (x *toolCall) persist(ctx context.Context, result *settled) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	row := x.Call
	row.Status, row.Result, row.Writes, row.SettledAt = session.CallSettled, &result.message, result.writes, time.Now().UTC()
	stored, err := retry.Do(ctx, func() (session.Call, error) { return x.t.sessions.Settle(ctx, x.t.key.ID, x.t.fence, row) })
	if err != nil {
		return err
	}
	if stored.Result != nil {
		result.message, result.writes, result.err = *stored.Result, stored.Writes, stored.Result.Parts[0].Error
		result.output, result.whole = nil, nil // the store may have the result of another process
	}
	result.stored = true
	return nil
}

// persistResults writes the results that a commit was to write, because this process
// will not make that commit.
func (t *turn) persistResults(ctx context.Context) {
	if t.flight == nil || !t.flight.committed || t.ended != nil {
		return
	}
	for _, c := range t.flight.calls {
		if c.asked != nil && c.settled == nil {
			if err := t.toolCall(effect{}, t.flight, c).ask(ctx); err != nil && !lostTurn(err) {
				t.h.log.WarnContext(ctx, "question.not_stored", t.attrs("tool", c.Tool, "error", err)...)
			}
			continue
		}
		result := c.settled
		if result == nil {
			result = c.result
		}
		if result == nil || result.stored || c.refused() || (c.ReadOnly && !t.flight.waits()) || c.Kind == session.CallFinish {
			continue
		}
		err := t.evict(ctx, c, result)
		if err == nil {
			err = t.toolCall(effect{}, t.flight, c).persist(ctx, result)
		}
		if err != nil && !lostTurn(err) {
			t.h.log.WarnContext(ctx, "result.not_stored", t.attrs("tool", c.Tool, "error", err)...)
		}
	}
}

// isLast reports whether every other call of the step has its result or has asked
// this before. Of calls that end together, exactly one is the last.
func (x *toolCall) isLast() bool {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	if x.settling { // it asked before, its result could not be settled, and another call was the last
		return false
	}
	x.settling = true
	for _, other := range x.f.calls {
		if other != x.call && !other.settling && other.settled == nil && other.Kind != session.CallFinish && other.Rejected == nil {
			return false
		}
	}
	return true
}

// failed makes an error the result of a call.
func (t *turn) failed(c *call, err *session.Error, took time.Duration) *settled {
	return &settled{message: t.stamp(session.ToolFailure(c.part, err)), err: err, took: took}
}

// stamp adds run, step and time to a tool message.
func (t *turn) stamp(m session.Message) session.Message {
	m.RunID, m.Step, m.At = t.run.ID, t.current(), time.Now().UTC()
	return m
}

// emitEnd shows watchers a call's result.
func (t *turn) emitEnd(c *call) {
	chunk := stream.Chunk{Step: t.current()}
	c.ends(&chunk)
	if c.child == nil || !c.child.shown {
		t.out.Emit(chunk)
		return
	}
	t.out.Emit(stream.Chunk{
		Kind: stream.SubAgentEnd, Step: chunk.Step, CallID: c.ID, Tool: c.Tool, Child: c.Child, Success: chunk.Success,
	}, chunk)
}
