// Package llm defines the interface of language models: one method that streams a reply,
// and errors that report whether a retry may help.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/helixagents/helix/session"
)

// Model generates replies. Implementations must be safe for concurrent use.
type Model interface {
	// Generate requests one reply. While it arrives, Generate calls emit with each piece in
	// order, from one goroutine at a time; the response holds the whole reply. When ctx
	// ends, Generate returns at once with ctx's error and what has arrived so far, if
	// anything. Every other error is a *[session.Error] with a provider_ code. It is
	// Retryable if another attempt may succeed.
	Generate(ctx context.Context, request *Request, emit func(Delta)) (*Response, error)
}

// Windowed is implemented by a model that knows the size of its context window.
type Windowed interface {
	// Window returns how many tokens a prompt and its reply may have together, or 0 if that is
	// not known.
	Window() int
}

// Counter is implemented by a model whose provider counts the tokens of a prompt.
type Counter interface {
	// Count returns how many tokens the prompt of a request has, as the provider counts them.
	// A model that passes requests on to one that cannot count returns
	// [errors.ErrUnsupported].
	Count(ctx context.Context, request *Request) (int, error)
}

// Unwrapper is implemented by a model that passes requests on to another one, so that what
// the other one knows of itself is still found.
type Unwrapper interface {
	Unwrap() Model
}

// WindowOf returns the context window of a model, or of the one that it wraps, or 0 if that
// is not known.
func WindowOf(m Model) int {
	if w, ok := find[Windowed](m); ok {
		return max(0, w.Window())
	}
	return 0
}

// CountTokens has a model, or the one that it wraps, count the tokens of a prompt. The error
// is [errors.ErrUnsupported] if it cannot.
func CountTokens(ctx context.Context, m Model, request *Request) (int, error) {
	if c, ok := find[Counter](m); ok {
		return c.Count(ctx, request)
	}
	return 0, errors.ErrUnsupported
}

// maxWrapped bounds how often a model may be wrapped.
const maxWrapped = 32

// find returns the first of a model and those that it wraps that has an interface.
func find[X any](m Model) (X, bool) {
	for range maxWrapped {
		if x, ok := m.(X); ok {
			return x, true
		}
		u, ok := m.(Unwrapper)
		if !ok {
			break
		}
		m = u.Unwrap()
	}
	var none X
	return none, false
}

// Request is one model call.
type Request struct {
	// Agent and SessionID identify the caller, for routing, logs and prompt caches.
	Agent     string
	SessionID string
	RunID     string
	Step      int
	// Instructions is the system prompt.
	Instructions string
	// Messages is the transcript. It is shared: models must not change it.
	Messages []session.Message
	Tools    []Tool
	// ToolChoice restricts which tools may or must be called.
	ToolChoice ToolChoice
	Settings   Settings
	// Retries is how often the caller will retry if this attempt fails with a retryable
	// error.
	Retries int
}

// Tool describes a tool to the model.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema of its input.
	Schema json.RawMessage
	// Strict asks the provider to constrain arguments to the schema.
	Strict bool
}

// ToolChoice restricts what the model may call.
type ToolChoice struct {
	Mode ToolMode
	// Name is the tool that must be called when Mode is [ToolNamed].
	Name string
}

// ToolMode is how a model may use tools.
type ToolMode string

// The tool modes.
const (
	ToolAuto     ToolMode = ""
	ToolRequired ToolMode = "required"
	ToolNamed    ToolMode = "named"
	ToolNone     ToolMode = "none"
)

// Settings are the model's parameters. Nil and zero mean the provider's default.
type Settings struct {
	MaxOutputTokens  int
	Temperature      *float64
	TopP             *float64
	TopK             *int
	PresencePenalty  *float64
	FrequencyPenalty *float64
	StopSequences    []string
	Seed             *int64
	// Headers are sent with the request, if the provider's protocol has headers.
	Headers map[string]string
	// ProviderOptions is passed to the adapter unchanged. The adapters of this module merge
	// it into the request as a JSON merge patch; its tools are added to the agent's.
	ProviderOptions json.RawMessage
	Cache           Cache
	// StrictOutput asks for constrained decoding of the final output.
	StrictOutput bool
}

// Cache describes which parts of the prompt stay the same from call to call.
type Cache struct {
	// Prefix asks to cache instructions and tools, LatestTurn also the transcript
	// up to the latest batch of tool results.
	Prefix     bool
	LatestTurn bool
	// TTL is how long to cache them; 0 means the provider's default.
	TTL time.Duration
}

// DeltaKind is the kind of a piece of a reply.
type DeltaKind string

// The kinds of deltas.
const (
	DeltaText      DeltaKind = "text"
	DeltaReasoning DeltaKind = "reasoning"
	// DeltaCallStart begins the arguments of the call at Index. DeltaCallArgs is a piece of
	// them, DeltaCallEnd their end.
	DeltaCallStart DeltaKind = "call_start"
	DeltaCallArgs  DeltaKind = "call_args"
	DeltaCallEnd   DeltaKind = "call_end"
)

// Delta is a piece of a reply as it arrives.
type Delta struct {
	Kind DeltaKind
	Text string
	// Index numbers the reply's calls from 0. Tool is the tool's name, set on call start.
	Index int
	Tool  string
}

// Response is a whole reply.
type Response struct {
	// Parts is the reply's content in order: text, reasoning, files and tool calls.
	// A call carries the provider's id in ProviderCallID; its CallID is not set.
	Parts  []session.Part
	Finish FinishReason
	// Usage is counted the same way for every provider: input tokens include those read from
	// and written to a cache, output tokens include reasoning.
	Usage session.Usage
	// Model is the name of the model that answered.
	Model string
}

// FinishReason is why the model stopped.
type FinishReason string

// The finish reasons.
const (
	FinishStop          FinishReason = "stop"
	FinishToolCalls     FinishReason = "tool-calls"
	FinishLength        FinishReason = "length"
	FinishContentFilter FinishReason = "content-filter"
	FinishOther         FinishReason = "other"
)

// Error returns a provider error.
func Error(code session.Code, retryable bool, format string, args ...any) *session.Error {
	e := (&session.Error{Code: code, Retryable: retryable}).WithMessage(format, args...)
	return e
}

// RetryAfterError is the cause of an error for which the provider requested a wait. Use
// errors.As to find it.
type RetryAfterError struct {
	After time.Duration
	Cause error
}

// Error implements error.
func (r *RetryAfterError) Error() string {
	text := "retry after " + r.After.String()
	if r.Cause != nil {
		text += ": " + r.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (r *RetryAfterError) Unwrap() error { return r.Cause }
