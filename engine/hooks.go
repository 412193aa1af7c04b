package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/session"
)

// hookRunner calls the hooks of a turn: those of the runtime, then those of the
// agent, then those of the run. It gives each a draft of the custom state, collects
// what they write, and logs what fails.
type hookRunner struct {
	userEnv
	sets []*helix.Hooks // never changes

	// written is what hooks wrote since the last commit. Only effects that run alone
	// change it; calls of a wave read it.
	written session.Writes
}

// newHookRunner makes the hook runner of a turn. Sets without any hook are left out.
func newHookRunner(env userEnv, sets ...*helix.Hooks) *hookRunner {
	r := &hookRunner{userEnv: env}
	for _, hooks := range sets {
		if !noHooks(hooks) {
			r.sets = append(r.sets, hooks)
		}
	}
	return r
}

// hookCall calls one kind of hook of a set, if the set has it.
type hookCall func(hooks *helix.Hooks, h *helix.HookContext) error

// none reports whether there are no hooks at all.
func (r *hookRunner) none() bool { return len(r.sets) == 0 }

// call calls a hook of every set, in order, on one draft. A hook that fails or
// panics is logged, and the next is called. The first error is returned, for
// callers that a hook may veto.
func (r *hookRunner) call(ctx context.Context, name, key string, draft *userstate.Draft, call hookCall) error {
	var first error
	for _, hooks := range r.sets {
		if err := r.callSet(ctx, name, key, draft, hooks, call); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// callSet calls the hook of one set and logs its failure.
func (r *hookRunner) callSet(ctx context.Context, name, key string, draft *userstate.Draft, hooks *helix.Hooks, call hookCall) error {
	h := &helix.HookContext{}
	r.scope(&h.Scope, key, draft)
	_, err := usercode.Call(ctx, r.pool, func() (struct{}, error) { return struct{}{}, call(hooks, h) })
	if err == nil {
		return nil
	}
	attrs := r.attrs("hook", name, "error", err)
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	r.log.ErrorContext(ctx, "hook.failed", attrs...)
	return err
}

// observe calls a hook whose failure changes nothing, and returns what it wrote on
// top of the step's earlier writes. Each set has a draft of its own, so that only
// the writes of a hook that failed are dropped.
func (r *hookRunner) observe(ctx context.Context, name, key string, earlier []session.Writes, call hookCall) session.Writes {
	var written session.Writes
	for _, hooks := range r.sets {
		draft := r.draft(append(slices.Clip(earlier), written)...)
		err := r.callSet(ctx, name, key, draft, hooks, call)
		writes, draftErr := draft.Close()
		if draftErr != nil {
			r.log.ErrorContext(ctx, "hook.state_refused", r.attrs("hook", name, "error", draftErr)...)
		}
		if err == nil && draftErr == nil {
			written = session.Compose(written, writes)
		}
	}
	return written
}

// notify calls a hook outside of tool calls and keeps what it wrote for the next
// commit.
func (r *hookRunner) notify(ctx context.Context, name, key string, call hookCall) {
	r.keep(r.observe(ctx, name, key, []session.Writes{r.written}, call))
}

// keep adds writes to those of the next commit.
func (r *hookRunner) keep(writes session.Writes) { r.written = session.Compose(r.written, writes) }

// onMessage announces a message that is about to be committed.
func (r *hookRunner) onMessage(ctx context.Context, key string, m session.Message) {
	if r.none() {
		return
	}
	r.notify(ctx, "OnMessage", key, messageHook(ctx, m))
}

func messageHook(ctx context.Context, m session.Message) hookCall {
	return func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.OnMessage == nil {
			return nil
		}
		return hooks.OnMessage(ctx, h, helix.MessageEvent{Message: m})
	}
}

// changeRequests reports whether there is a hook that may change or refuse a model call.
func (r *hookRunner) changeRequests() bool {
	return slices.ContainsFunc(r.sets, func(hooks *helix.Hooks) bool { return hooks.BeforeLLMCall != nil })
}

// beforeModel announces a model call. Hooks may change the request, or refuse it
// with an error.
func (r *hookRunner) beforeModel(ctx context.Context, key string, event helix.BeforeLLMCallEvent) error {
	if r.none() {
		return nil
	}
	draft := r.draft(r.written)
	err := r.call(ctx, "BeforeLLMCall", key, draft, func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.BeforeLLMCall == nil {
			return nil
		}
		return hooks.BeforeLLMCall(ctx, h, event)
	})
	writes, draftErr := draft.Close()
	if err = errors.Join(err, draftErr); err != nil {
		return (&session.Error{Code: session.CodeHook}).WithCause(err, "BeforeLLMCall refused the model call")
	}
	r.keep(writes)
	return nil
}

// afterModel announces a reply.
func (r *hookRunner) afterModel(ctx context.Context, key string, event helix.AfterLLMCallEvent) {
	if r.none() {
		return
	}
	r.notify(ctx, "AfterLLMCall", key, func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.AfterLLMCall == nil {
			return nil
		}
		return hooks.AfterLLMCall(ctx, h, event)
	})
}

// beforeTool announces a call that is about to be carried out. The error is that of
// a hook that vetoes the call.
func (r *hookRunner) beforeTool(ctx context.Context, key string, c *call, draft *userstate.Draft) error {
	if r.none() {
		return nil
	}
	err := r.call(ctx, "BeforeTool", key, draft, func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.BeforeTool == nil {
			return nil
		}
		return hooks.BeforeTool(ctx, h, helix.BeforeToolEvent{CallID: c.ID, Tool: c.Tool, Input: c.part.Input})
	})
	return vetoed(err)
}

func vetoed(err error) error {
	if err == nil {
		return nil
	}
	return (&session.Error{Code: session.CodeToolVetoed}).WithCause(err, "the call was vetoed")
}

// beforeClientTools announces the calls that the client is to carry out, before
// anybody can see them, and rejects those that a hook vetoes. Other calls are
// announced when they are carried out.
func (r *hookRunner) beforeClientTools(ctx context.Context, runID string, f *flight) {
	if r.none() {
		return
	}
	for _, c := range f.calls {
		if c.Kind != session.CallClient {
			continue
		}
		key := callKey(runID, f.step, c)
		draft := r.draft(r.written)
		err := r.beforeTool(ctx, key, c, draft)
		writes, draftErr := draft.Close()
		if err == nil {
			err = draftErr
		}
		if err != nil {
			c.Kind, c.Rejected = session.CallServer, session.AsError(err)
			continue
		}
		r.keep(writes)
	}
}

// beforeAgent announces a call of another agent and returns what hooks wrote. The
// error is that of a hook that vetoes the call.
func (r *hookRunner) beforeAgent(ctx context.Context, key string, c *call) (session.Writes, error) {
	draft := r.draft(r.written)
	err := r.call(ctx, "BeforeSubAgent", key, draft, func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.BeforeSubAgent == nil {
			return nil
		}
		return hooks.BeforeSubAgent(ctx, h, helix.BeforeToolEvent{CallID: c.ID, Tool: c.Tool, Input: c.part.Input})
	})
	writes, draftErr := draft.Close()
	if err == nil {
		err = draftErr
	}
	return writes, vetoed(err)
}

// stateChanged announces what a call wrote and returns the writes of the call and of
// the hooks together. earlier is what the call saw.
func (r *hookRunner) stateChanged(ctx context.Context, key string, c *call, earlier []session.Writes, writes session.Writes) session.Writes {
	public := writes.Public()
	if public.Empty() || r.none() {
		return writes
	}
	more := r.observe(ctx, "OnStateChange", key, append(earlier, writes), func(hooks *helix.Hooks, h *helix.HookContext) error {
		if hooks.OnStateChange == nil {
			return nil
		}
		return hooks.OnStateChange(ctx, h, helix.StateChangeEvent{CallID: c.ID, Tool: c.Tool, Writes: public})
	})
	return session.Compose(writes, more)
}

// afterCall announces a call's result and returns what hooks wrote: first OnMessage,
// then AfterTool or AfterSubAgent, unless no tool was carried out.
func (r *hookRunner) afterCall(ctx context.Context, key string, c *call, earlier []session.Writes) session.Writes {
	if r.none() {
		return session.Writes{}
	}
	key += "/" + c.ID
	result := c.settled.message
	message := r.observe(ctx, "OnMessage", key, earlier, messageHook(ctx, result))
	forAgent := machine.WaitsForAgent(c.Kind)
	if c.Kind == session.CallFinish || c.declined() || (forAgent && !c.consults()) {
		return message
	}
	name := "AfterTool"
	if forAgent {
		name = "AfterSubAgent"
	}
	after := r.observe(ctx, name, key, append(slices.Clip(earlier), message), func(hooks *helix.Hooks, h *helix.HookContext) error {
		after := hooks.AfterTool
		if forAgent {
			after = hooks.AfterSubAgent
		}
		if after == nil {
			return nil
		}
		return after(ctx, h, helix.AfterToolEvent{
			CallID: c.ID, Tool: c.Tool, Input: c.part.Input, Result: result, Error: c.settled.err, Took: c.settled.took,
		})
	})
	return session.Compose(message, after)
}

// runStarted announces that a run begins with an input, or that it resumes.
func (r *hookRunner) runStarted(ctx context.Context, run *session.Run, input []session.Message) {
	r.notify(ctx, "OnAgentStart", run.ID+"/open", func(hooks *helix.Hooks, h *helix.HookContext) error {
		switch {
		case run.Kind == session.RunExecute && hooks.OnAgentStart != nil:
			return hooks.OnAgentStart(ctx, h, helix.AgentStartEvent{Input: input})
		case run.Kind != session.RunExecute && hooks.OnAgentResumed != nil:
			return hooks.OnAgentResumed(ctx, h, helix.AgentResumedEvent{
				PreviousRunID: run.PreviousRunID, CheckpointID: run.ResumedFrom,
			})
		}
		return nil
	})
}

// runEnded announces how a run ended, after so many steps and so long.
func (r *hookRunner) runEnded(ctx context.Context, run *session.Run, ended *session.Outcome, steps int, took time.Duration) {
	r.notify(ctx, "OnAgentEnd", run.ID+"/close", func(hooks *helix.Hooks, h *helix.HookContext) error {
		switch ended.Status {
		case session.RunCompleted:
			if hooks.OnAgentComplete != nil {
				return hooks.OnAgentComplete(ctx, h, helix.AgentCompleteEvent{
					Output: ended.Output, Reply: ended.Reply, Steps: steps, Usage: run.Usage, Took: took,
				})
			}
		case session.RunFailed:
			if hooks.OnAgentFail != nil {
				return hooks.OnAgentFail(ctx, h, helix.AgentFailEvent{Error: ended.Error, Steps: steps})
			}
		case session.RunInterrupted:
			if hooks.OnAgentInterrupted != nil {
				e := helix.AgentInterruptedEvent{Reply: ended.Reply, Steps: steps}
				if ended.Interrupt != nil {
					e.Reason = ended.Interrupt.Reason
				}
				return hooks.OnAgentInterrupted(ctx, h, e)
			}
		default:
			if hooks.OnAgentSuspended != nil {
				return hooks.OnAgentSuspended(ctx, h, helix.AgentSuspendedEvent{
					Status: ended.Status, Pending: ended.Pending, Children: ended.Children,
				})
			}
		}
		return nil
	})
}
