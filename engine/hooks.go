package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// hookRunner calls the hooks of a turn: those of the runtime, then those of the
// agent, then those of the run. It gives each a draft of the custom state, collects
// what they write, and logs what fails.
type hookRunner struct {
	userEnv
	sets []*helix.Hooks // never changes
	hung sync.Map       // the hooks, as hookOfSet, that have not returned in time in this turn

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

// hookOfSet is a hook of a set.
type hookOfSet struct {
	set  *helix.Hooks
	name string
}

// hookCall is the call of one hook.
type hookCall func(ctx context.Context, h *helix.HookContext) error

// hookOf returns the call of a set's hook of one kind, or nil if the set has none.
type hookOf func(hooks *helix.Hooks) hookCall

// callOf returns the call of a hook with an event, or nil if there is no hook.
func callOf[E any](hook func(context.Context, *helix.HookContext, E) error, event E) hookCall {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, h *helix.HookContext) error { return hook(ctx, h, event) }
}

// none reports whether there are no hooks at all.
func (r *hookRunner) none() bool { return len(r.sets) == 0 }

// call calls a hook of every set, in order, on one draft. A hook that fails or panics is
// logged, and the next is called; one that still runs is the last. The first error is
// returned, for callers that a hook may veto.
func (r *hookRunner) call(ctx context.Context, name, key string, draft *userstate.Draft, of hookOf) error {
	var first error
	for _, hooks := range r.sets {
		hook := of(hooks)
		if hook == nil {
			continue
		}
		err := r.callHook(ctx, hookOfSet{hooks, name}, key, draft, hook)
		if first == nil {
			first = err
		}
		if errors.Is(err, errLeft) { // it may still use the draft and the event
			return first
		}
	}
	return first
}

// callHook calls a hook, at most for the hooks' limit, and logs its failure. One that has not
// returned in time is not called again in the turn: the calls of a reply may be many.
func (r *hookRunner) callHook(ctx context.Context, of hookOfSet, key string, draft *userstate.Draft, hook hookCall) error {
	if before, hung := r.hung.Load(of); hung {
		return before.(error)
	}
	h := &helix.HookContext{}
	r.scope(&h.Scope, key, draft)
	_, err := callLimited(ctx, r.limit, r.agent, r.pool, func(ctx context.Context) (struct{}, error) { return struct{}{}, hook(ctx, h) })
	if err == nil {
		return nil
	}
	if errors.Is(err, usercode.ErrTimeout) {
		r.hung.Store(of, fmt.Errorf("it was not called: before, %w", err))
	}
	attrs := r.attrs("hook", of.name, "error", err)
	if p, ok := errors.AsType[*usercode.PanicError](err); ok {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	r.log.ErrorContext(ctx, "hook.failed", attrs...)
	return err
}

// observe calls a hook whose failure changes nothing, and returns what it wrote on
// top of the step's earlier writes. Each set has a draft of its own, so that only
// the writes of a hook that failed are dropped.
func (r *hookRunner) observe(ctx context.Context, name, key string, earlier []session.Writes, of hookOf) session.Writes {
	var written session.Writes
	for _, hooks := range r.sets {
		hook := of(hooks)
		if hook == nil {
			continue
		}
		draft := r.draft(append(slices.Clip(earlier), written)...)
		err := r.callHook(ctx, hookOfSet{hooks, name}, key, draft, hook)
		written = session.Compose(written, r.closeDraft(ctx, name, draft, err))
	}
	return written
}

// closeDraft returns what a hook wrote, unless it failed.
func (r *hookRunner) closeDraft(ctx context.Context, name string, draft *userstate.Draft, err error) session.Writes {
	writes, draftErr := draft.Close()
	if draftErr != nil {
		r.log.ErrorContext(ctx, "hook.state_refused", r.attrs("hook", name, "error", draftErr)...)
	}
	if err != nil || draftErr != nil {
		return session.Writes{}
	}
	return writes
}

// notify calls a hook outside of tool calls and keeps what it wrote for the next
// commit.
func (r *hookRunner) notify(ctx context.Context, name, key string, of hookOf) {
	r.keep(r.observe(ctx, name, key, []session.Writes{r.written}, of))
}

// keep adds writes to those of the next commit.
func (r *hookRunner) keep(writes session.Writes) { r.written = session.Compose(r.written, writes) }

// onMessage announces a message that is about to be committed.
func (r *hookRunner) onMessage(ctx context.Context, key string, m session.Message) {
	if r.none() {
		return
	}
	r.notify(ctx, "OnMessage", key, messageHook(m))
}

func messageHook(m session.Message) hookOf {
	return func(hooks *helix.Hooks) hookCall { return callOf(hooks.OnMessage, helix.MessageEvent{Message: m}) }
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
	err := r.call(ctx, "BeforeLLMCall", key, draft, func(hooks *helix.Hooks) hookCall {
		return callOf(hooks.BeforeLLMCall, event)
	})
	writes, draftErr := draft.Close()
	if err = errors.Join(err, draftErr); err != nil {
		return (&session.Error{Code: session.CodeHook}).WithCause(err, "BeforeLLMCall refused the model call")
	}
	r.keep(writes)
	return nil
}

// afterModel announces a reply, and returns it. Each hook has a copy, which counts if it
// returns in time: one that still runs may change its own.
func (r *hookRunner) afterModel(ctx context.Context, key string, event helix.AfterLLMCallEvent) *llm.Response {
	reply := event.Response
	for _, hooks := range r.sets {
		if hooks.AfterLLMCall == nil {
			continue
		}
		shown := *reply
		shown.Parts = slices.Clone(reply.Parts)
		event.Response = &shown
		draft := r.draft(r.written)
		err := r.callHook(ctx, hookOfSet{hooks, "AfterLLMCall"}, key, draft, callOf(hooks.AfterLLMCall, event))
		r.keep(r.closeDraft(ctx, "AfterLLMCall", draft, err))
		if !errors.Is(err, errLeft) {
			reply = &shown
		}
	}
	return reply
}

// beforeTool announces a call that is about to be carried out. The error is that of
// a hook that vetoes the call.
func (r *hookRunner) beforeTool(ctx context.Context, key string, c *call, draft *userstate.Draft) error {
	if r.none() {
		return nil
	}
	err := r.call(ctx, "BeforeTool", key, draft, func(hooks *helix.Hooks) hookCall {
		return callOf(hooks.BeforeTool, helix.BeforeToolEvent{CallID: c.ID, Tool: c.Tool, Input: c.part.Input})
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
	err := r.call(ctx, "BeforeSubAgent", key, draft, func(hooks *helix.Hooks) hookCall {
		return callOf(hooks.BeforeSubAgent, helix.BeforeToolEvent{CallID: c.ID, Tool: c.Tool, Input: c.part.Input})
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
	more := r.observe(ctx, "OnStateChange", key, append(earlier, writes), func(hooks *helix.Hooks) hookCall {
		return callOf(hooks.OnStateChange, helix.StateChangeEvent{CallID: c.ID, Tool: c.Tool, Writes: public})
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
	message := r.observe(ctx, "OnMessage", key, earlier, messageHook(result))
	forAgent := machine.WaitsForAgent(c.Kind)
	if c.Kind == session.CallFinish || c.declined() || (forAgent && !c.consults()) {
		return message
	}
	name := "AfterTool"
	if forAgent {
		name = "AfterSubAgent"
	}
	event := helix.AfterToolEvent{
		CallID: c.ID, Tool: c.Tool, Input: c.part.Input, Result: result, Error: c.settled.err, Took: c.settled.took,
	}
	after := r.observe(ctx, name, key, append(slices.Clip(earlier), message), func(hooks *helix.Hooks) hookCall {
		if forAgent {
			return callOf(hooks.AfterSubAgent, event)
		}
		return callOf(hooks.AfterTool, event)
	})
	return session.Compose(message, after)
}

// runStarted announces that a run begins with an input, or that it resumes.
func (r *hookRunner) runStarted(ctx context.Context, run *session.Run, input []session.Message) {
	if run.Kind == session.RunExecute {
		r.notify(ctx, "OnAgentStart", run.ID+"/open", func(hooks *helix.Hooks) hookCall {
			return callOf(hooks.OnAgentStart, helix.AgentStartEvent{Input: input})
		})
		return
	}
	r.notify(ctx, "OnAgentResumed", run.ID+"/open", func(hooks *helix.Hooks) hookCall {
		return callOf(hooks.OnAgentResumed, helix.AgentResumedEvent{PreviousRunID: run.PreviousRunID, CheckpointID: run.ResumedFrom})
	})
}

// runEnded announces how a run ended, after so many steps and so long.
func (r *hookRunner) runEnded(ctx context.Context, run *session.Run, ended *session.Outcome, steps int, took time.Duration) {
	name, of := endHook(run, ended, steps, took)
	r.notify(ctx, name, run.ID+"/close", of)
}

// endHook returns the hook, and its name, that is told how a run ended.
func endHook(run *session.Run, ended *session.Outcome, steps int, took time.Duration) (name string, of hookOf) {
	switch ended.Status {
	case session.RunCompleted:
		return "OnAgentComplete", func(hooks *helix.Hooks) hookCall {
			return callOf(hooks.OnAgentComplete, helix.AgentCompleteEvent{
				Output: ended.Output, Reply: ended.Reply, Steps: steps, Usage: run.Usage, Took: took,
			})
		}
	case session.RunFailed:
		return "OnAgentFail", func(hooks *helix.Hooks) hookCall {
			return callOf(hooks.OnAgentFail, helix.AgentFailEvent{Error: ended.Error, Steps: steps})
		}
	case session.RunInterrupted:
		e := helix.AgentInterruptedEvent{Reply: ended.Reply, Steps: steps}
		if ended.Interrupt != nil {
			e.Reason = ended.Interrupt.Reason
		}
		return "OnAgentInterrupted", func(hooks *helix.Hooks) hookCall { return callOf(hooks.OnAgentInterrupted, e) }
	default:
		return "OnAgentSuspended", func(hooks *helix.Hooks) hookCall {
			return callOf(hooks.OnAgentSuspended, helix.AgentSuspendedEvent{
				Status: ended.Status, Pending: ended.Pending, Children: ended.Children,
			})
		}
	}
}
