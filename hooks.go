package helix

import (
	"context"
	"encoding/json"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Hooks are functions that the runtime calls during a run. All are optional. They may
// read and change custom state and emit events through their context; their changes are
// part of the step's own commit. OnAgentComplete, OnAgentFail, OnAgentInterrupted and
// OnAgentSuspended are called after the last commit and can only read.
//
// A hook is called at least once per event: after a crash an effect is repeated with the
// same Key in the context. An error from a hook is logged, with two exceptions: an error
// from BeforeTool or BeforeSubAgent vetoes the call, which the model sees as a tool
// error, and an error from BeforeLLMCall fails the run, or the compaction that the call is
// for. A hook that takes longer than [RuntimeOptions].HookTimeout has failed.
//
// For each tool call the order is BeforeTool, the call itself, OnStateChange. When all
// calls of the reply are done, OnMessage and AfterTool follow, call by call. BeforeTool of
// a client tool is called before the client sees the call. A call that a person denied has
// no BeforeTool and no AfterTool. Calls of sub-agents and companions have BeforeSubAgent
// and AfterSubAgent instead of BeforeTool and AfterTool; the tools that list companions,
// wait for them or end them have neither. The runtime's hooks are called first, then the
// agent's, then those of one execution.
type Hooks struct {
	OnAgentStart       func(ctx context.Context, h *HookContext, e AgentStartEvent) error
	OnAgentComplete    func(ctx context.Context, h *HookContext, e AgentCompleteEvent) error
	OnAgentFail        func(ctx context.Context, h *HookContext, e AgentFailEvent) error
	OnAgentInterrupted func(ctx context.Context, h *HookContext, e AgentInterruptedEvent) error
	OnAgentSuspended   func(ctx context.Context, h *HookContext, e AgentSuspendedEvent) error
	OnAgentResumed     func(ctx context.Context, h *HookContext, e AgentResumedEvent) error
	BeforeLLMCall      func(ctx context.Context, h *HookContext, e BeforeLLMCallEvent) error
	AfterLLMCall       func(ctx context.Context, h *HookContext, e AfterLLMCallEvent) error
	BeforeTool         func(ctx context.Context, h *HookContext, e BeforeToolEvent) error
	AfterTool          func(ctx context.Context, h *HookContext, e AfterToolEvent) error
	BeforeSubAgent     func(ctx context.Context, h *HookContext, e BeforeToolEvent) error
	AfterSubAgent      func(ctx context.Context, h *HookContext, e AfterToolEvent) error
	OnStateChange      func(ctx context.Context, h *HookContext, e StateChangeEvent) error
	OnMessage          func(ctx context.Context, h *HookContext, e MessageEvent) error
}

// HookContext identifies the run that a hook is called for and gives access to its state
// and its stream.
type HookContext struct{ Scope }

// AgentStartEvent is passed to OnAgentStart before the first model call of a run.
type AgentStartEvent struct {
	Input []session.Message
}

// AgentCompleteEvent is passed to OnAgentComplete when a run has completed.
type AgentCompleteEvent struct {
	Output json.RawMessage
	Reply  string
	Steps  int
	Usage  session.Usage
	Took   time.Duration
}

// AgentFailEvent is passed to OnAgentFail when a run has failed.
type AgentFailEvent struct {
	Error *Error
	Steps int
}

// AgentInterruptedEvent is passed to OnAgentInterrupted when a run was interrupted. The
// session can be resumed.
type AgentInterruptedEvent struct {
	// Reason is the reason that was given to Interrupt.
	Reason string
	// Reply is the text of the last reply, as far as it was received.
	Reply string
	Steps int
}

// AgentSuspendedEvent is passed to OnAgentSuspended when a run has stopped because it
// waits for people or for other agents.
type AgentSuspendedEvent struct {
	Status   session.RunStatus
	Pending  []session.Pending
	Children []session.ChildRef
}

// AgentResumedEvent is passed to OnAgentResumed when a run continues an earlier one.
type AgentResumedEvent struct {
	PreviousRunID string
	// CheckpointID is the checkpoint that the run continues from.
	CheckpointID string
}

// BeforeLLMCallEvent is passed to BeforeLLMCall before each model call. The hook may change
// the request. Its messages are shared with the session: replace a message instead of
// changing it in place.
type BeforeLLMCallEvent struct {
	Request *llm.Request
	Attempt int
	// Summary says that the call is to write a summary of the conversation; see
	// [ContextPolicy]. An error then fails the compaction, not the run.
	Summary bool
}

// AfterLLMCallEvent is passed to AfterLLMCall when the model has replied.
type AfterLLMCallEvent struct {
	Response *llm.Response
	Took     time.Duration
	// Summary says that the reply is a summary of the conversation.
	Summary bool
}

// BeforeToolEvent is passed to BeforeTool and BeforeSubAgent before a call is carried out.
type BeforeToolEvent struct {
	CallID string
	Tool   string
	Input  json.RawMessage
}

// AfterToolEvent is passed to AfterTool and AfterSubAgent when a call is over, before its
// result is committed.
type AfterToolEvent struct {
	CallID string
	Tool   string
	Input  json.RawMessage
	// Result is the message with the call's result, or with a preview of it; see
	// [session.Message.Evicted]. Error is set if the call failed.
	Result session.Message
	Error  *Error
	Took   time.Duration
}

// StateChangeEvent is passed to OnStateChange when a call has changed custom state.
type StateChangeEvent struct {
	CallID string
	Tool   string
	Writes session.Writes
}

// MessageEvent is passed to OnMessage when a message is about to be committed.
type MessageEvent struct {
	Message session.Message
}
