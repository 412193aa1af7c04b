package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// gatesLimit is how long all gates together may take over the calls of one reply. The
// calls that are left then are refused.
const gatesLimit = 30 * time.Second

// askGates asks the gates of extensions which calls of a reply are refused, before anybody
// sees them. The decisions are part of the reply's commit, so that gates are asked once.
// written is what hooks wrote in the step so far.
func (r *toolResolver) askGates(ctx context.Context, runID string, f *flight, written session.Writes) {
	if !haveMethod[helix.Gate](r.extensions) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, gatesLimit, usercode.ErrTimeout)
	defer cancel()
	for _, extension := range r.extensions.list {
		gate, ok := extension.(helix.Gate)
		if !ok {
			continue
		}
		for _, c := range f.calls {
			if c.Rejected != nil || c.Kind == session.CallFinish {
				continue
			}
			if err := r.askGate(ctx, runID, gate, f.step, c, written); err != nil {
				c.Kind, c.Child, c.Rejected = session.CallServer, "", r.refusal(ctx, extension.Name(), err)
			}
		}
	}
}

func (r *toolResolver) askGate(ctx context.Context, runID string, gate helix.Gate, step int, c *call, written session.Writes) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	draft := r.draft(written)
	handle := &helix.Call{ID: c.ID, Tool: c.Tool, Input: c.part.Input}
	r.scope(&handle.Scope, callKey(runID, step, c), draft)
	_, err := within(ctx, r.pool, gateLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, gate.Check(ctx, handle)
	})
	_, _ = draft.Close() // a gate decides and changes nothing
	return err
}

// refusal is what the model sees of a gate's error.
func (r *toolResolver) refusal(ctx context.Context, name string, err error) *session.Error {
	_, panicked := errors.AsType[*usercode.PanicError](err)
	if panicked || errors.Is(err, usercode.ErrTimeout) {
		r.log.WarnContext(ctx, "extension.gate_failed", r.extensions.failure(name, err, "the call is refused")...)
		return toolError(session.CodeToolVetoed, "the call was refused, because the extension %s could not check it", name)
	}
	return bounded((&session.Error{Code: session.CodeToolVetoed}).WithCause(err, "the call was refused"))
}

// callKey is the key of the effect that carries a call out.
func callKey(runID string, step int, c *call) string {
	return machine.Effect{Kind: machine.CallTool, RunID: runID, Step: step, CallID: c.ID}.Key()
}

// filter passes the result of a call through the filters of extensions. It also does so
// while the process shuts down, because the tool has run. A filter that fails withholds the
// result. result may be nil.
func (t *turn) filter(ctx context.Context, c *call, result *settled) *settled {
	if t.tools.extensions == nil || result == nil || result.stored || c.refused() || byFramework(result.err) {
		return result
	}
	ctx = context.WithoutCancel(ctx)
	for _, extension := range t.agent.Extensions {
		filter, ok := extension.(helix.ResultFilter)
		if !ok {
			continue
		}
		given := helix.CallResult{Error: result.err}
		if given.Error == nil {
			given.Output = result.json()
		}
		got, err := t.askFilter(ctx, filter, c, given)
		if err != nil {
			t.h.log.WarnContext(ctx, "extension.filter_failed", t.tools.extensions.failure(extension.Name(), err, "the result is withheld")...)
			got = helix.CallResult{Error: toolError(session.CodeToolOutput, "the result of %s was withheld, because the extension %s could not check it", c.Tool, extension.Name())}
		}
		result = t.replaced(c, result, given, got)
	}
	return result
}

// byFramework reports whether an error is the framework's own answer to a call.
func byFramework(err *session.Error) bool {
	if err == nil {
		return false
	}
	switch err.Code {
	case session.CodeRunStopped, session.CodeToolOutcome, session.CodeToolUnknown, session.CodeToolVetoed, session.CodeToolDenied,
		session.CodeToolNotRun, session.CodeClientTimeout, session.CodeAbandoned:
		return true
	}
	return false
}

func (t *turn) askFilter(ctx context.Context, filter helix.ResultFilter, c *call, given helix.CallResult) (helix.CallResult, error) {
	draft := t.draft(t.hooks.written)
	handle := &helix.Call{ID: c.ID, Tool: c.Tool, Input: c.part.Input}
	t.scope(&handle.Scope, callKey(t.run.ID, t.current(), c), draft)
	got, err := within(ctx, t.pool, filterLimit, func(ctx context.Context) (helix.CallResult, error) {
		return filter.Filter(ctx, handle, given)
	})
	_, _ = draft.Close() // a filter sees the state and does not change it
	if err != nil || got.Error != nil {
		return got, err
	}
	got.Output = cleanJSON(got.Output)
	switch err := session.CheckJSON("result", got.Output); {
	case err != nil:
		return got, err
	case len(got.Output) == 0:
		return got, errors.New("the filter returned neither an output nor an error")
	case len(got.Output) > t.maxResult(c):
		return got, fmt.Errorf("the filter returned %d bytes, at most %d are allowed", len(got.Output), t.maxResult(c))
	}
	return got, nil
}

// replaced is a call's result after a filter. What the call did to the state stands.
func (t *turn) replaced(c *call, result *settled, given, got helix.CallResult) *settled {
	if got.Error != nil {
		if got.Error == given.Error {
			return result
		}
		out := t.failed(c, bounded(got.Error), result.took)
		out.writes = result.writes
		return out
	}
	if given.Error == nil && string(got.Output) == string(given.Output) {
		return result
	}
	return &settled{message: t.stamp(session.ToolResult(c.part, got.Output)), writes: result.writes, took: result.took, output: got.Output}
}
