package helix

import (
	"context"
	"encoding/json"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Hooks are called as a run goes on. All are optional. They may read and change
// custom state and emit events through their context; what they change is part of
// the step's own commit. OnAgentComplete, OnAgentFail, OnAgentInterrupted and
// OnAgentSuspended come after the last commit: they can only read.
//
// A hook is called at least once per event: after a crash an effect is repeated,
// with the same Key in the context. A hook that fails is logged, with two
// exceptions: a failing BeforeTool or BeforeSubAgent vetoes the call, which the
// model sees as a tool error, and a failing BeforeLLMCall fails the run.
//
// For each tool call the order is BeforeTool, the call itself, OnStateChange;
// then, when all calls of the reply are done, OnMessage and AfterTool, call by
// call. BeforeTool of a client tool comes before the client sees the call. A call that
// a person did not approve has no BeforeTool and no AfterTool. For calls of sub-agents
// and companions BeforeSubAgent and AfterSubAgent take the places of BeforeTool and
// AfterTool; tools that only tell of companions, wait for them or end them have
// neither. Hooks given to a runtime come first, then the agent's, then those of one
// execution.
type Hooks struct {
	OnAgentStart       func(ctx context.Context, h *HookContext, e AgentStart) error
	OnAgentComplete    func(ctx context.Context, h *HookContext, e AgentComplete) error
	OnAgentFail        func(ctx context.Context, h *HookContext, e AgentFail) error
	OnAgentInterrupted func(ctx context.Context, h *HookContext, e AgentInterruptedEvent) error
	OnAgentSuspended   func(ctx context.Context, h *HookContext, e AgentSuspended) error
	OnAgentResumed     func(ctx context.Context, h *HookContext, e AgentResumed) error
	BeforeLLMCall      func(ctx context.Context, h *HookContext, e BeforeLLMCall) error
	AfterLLMCall       func(ctx context.Context, h *HookContext, e AfterLLMCall) error
	BeforeTool         func(ctx context.Context, h *HookContext, e BeforeTool) error
	AfterTool          func(ctx context.Context, h *HookContext, e AfterTool) error
	BeforeSubAgent     func(ctx context.Context, h *HookContext, e BeforeTool) error
	AfterSubAgent      func(ctx context.Context, h *HookContext, e AfterTool) error
	OnStateChange      func(ctx context.Context, h *HookContext, e StateChange) error
	OnMessage          func(ctx context.Context, h *HookContext, e NewMessage) error
}

// HookContext is what a hook knows of its run, and how it reaches it.
type HookContext struct{ Scope }

// AgentStart is told before the first model call of a run.
type AgentStart struct {
	Input []session.Message
}

// AgentComplete is told when a run has completed.
type AgentComplete struct {
	Output json.RawMessage
	Reply  string
	Steps  int
	Usage  session.Usage
	Took   time.Duration
}

// AgentFail is told when a run has failed.
type AgentFail struct {
	Error *Error
	Steps int
}

// AgentInterruptedEvent is told when a run was interrupted. It can be resumed.
type AgentInterruptedEvent struct {
	// Reason is what whoever interrupted the run gave as one.
	Reason string
	// Reply is the text of the last reply, as far as it came.
	Reply string
	Steps int
}

// AgentSuspended is told when a run has stopped because it waits for people or for
// other agents.
type AgentSuspended struct {
	Status   session.RunStatus
	Pending  []session.Pending
	Children []session.ChildRef
}

// AgentResumed is told when a run continues the work of an earlier one.
type AgentResumed struct {
	PreviousRunID string
	// CheckpointID is the checkpoint that the run continues from.
	CheckpointID string
}

// BeforeLLMCall is told before the model is asked. The request may be changed; its
// messages are the session's own, so put others in their place rather than change
// them.
type BeforeLLMCall struct {
	Request *llm.Request
	Attempt int
}

// AfterLLMCall is told when the model has answered.
type AfterLLMCall struct {
	Response *llm.Response
	Took     time.Duration
}

// BeforeTool is told before a call is carried out.
type BeforeTool struct {
	CallID string
	Tool   string
	Input  json.RawMessage
}

// AfterTool is told when a call is over and its result about to be committed.
type AfterTool struct {
	CallID string
	Tool   string
	Input  json.RawMessage
	// Result is the call's message; Error is set when the call failed.
	Result session.Message
	Error  *Error
	Took   time.Duration
}

// StateChange is told when a call has changed custom state.
type StateChange struct {
	CallID string
	Tool   string
	Writes session.Writes
}

// NewMessage is told when a message is about to be committed.
type NewMessage struct {
	Message session.Message
}

// IsZero reports whether no hook is set.
func (h *Hooks) IsZero() bool {
	return h == nil || (h.OnAgentStart == nil && h.OnAgentComplete == nil && h.OnAgentFail == nil &&
		h.OnAgentInterrupted == nil && h.OnAgentSuspended == nil && h.OnAgentResumed == nil && h.BeforeLLMCall == nil && h.AfterLLMCall == nil &&
		h.BeforeTool == nil && h.AfterTool == nil && h.BeforeSubAgent == nil && h.AfterSubAgent == nil &&
		h.OnStateChange == nil && h.OnMessage == nil)
}
