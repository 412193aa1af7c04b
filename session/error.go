package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Code names a kind of failure. Its prefix up to the first underscore is the
// category: provider, tool, state, framework or validation.
type Code string

// The codes that the framework itself produces. Model adapters define further
// provider_ codes.
const (
	CodeNotFound      Code = "state_not_found"
	CodeExists        Code = "state_exists"
	CodeStale         Code = "state_stale"
	CodeUnavailable   Code = "state_unavailable"
	CodeCorrupt       Code = "state_corrupt"
	CodeTransition    Code = "state_invalid_transition"
	CodeRunning       Code = "state_already_running"
	CodeAwaiting      Code = "state_awaiting_input"
	CodeAnswered      Code = "state_already_answered"
	CodePaused        Code = "state_paused"
	CodeNotResumable  Code = "state_not_resumable"
	CodeInvalid       Code = "validation_error"
	CodeSubmission    Code = "validation_submission_kind"
	CodeTooLarge      Code = "validation_too_large"
	CodeNotAllowed    Code = "validation_not_allowed"
	CodeMaxSteps      Code = "framework_max_steps"
	CodeNoOutput      Code = "framework_no_output"
	CodeCancelled     Code = "framework_cancelled"
	CodeCrashLoop     Code = "framework_crash_loop"
	CodeExpired       Code = "session_expired"
	CodeInternal      Code = "framework_internal_error"
	CodeNotSupported  Code = "framework_not_supported"
	CodeClosed        Code = "framework_closed"
	CodeUnknownAgent  Code = "framework_unknown_agent"
	CodeHook          Code = "framework_hook_failed"
	CodeExtension     Code = "framework_extension_failed"
	CodeToolFailed    Code = "tool_execution_failed"
	CodeToolPanic     Code = "tool_panicked"
	CodeToolTimeout   Code = "tool_timeout"
	CodeToolInput     Code = "tool_invalid_input"
	CodeToolOutput    Code = "tool_invalid_output"
	CodeToolUnknown   Code = "tool_not_found"
	CodeToolVetoed    Code = "tool_vetoed"
	CodeToolOutcome   Code = "tool_outcome_unknown"
	CodeToolNotRun    Code = "tool_not_executed"
	CodeToolDenied    Code = "tool_not_approved"
	CodeSubAgent      Code = "tool_subagent_failed"
	CodeRemote        Code = "framework_remote_unavailable"
	CodeRunStopped    Code = "run_stopped"
	CodeAbandoned     Code = "client_tool_abandoned"
	CodeClientTimeout Code = "client_tool_timeout"
	CodeTruncated     Code = "stream_truncated"
	CodeStreamClosed  Code = "stream_closed"
	CodeProvider      Code = "provider_error"
	CodeRateLimited   Code = "provider_rate_limited"
	CodeQuota         Code = "provider_quota"
	CodeOverloaded    Code = "provider_overloaded"
	CodeAuth          Code = "provider_auth"
	CodeContextLength Code = "provider_context_length"
	CodeContentFilter Code = "provider_content_filter"
	CodeBadRequest    Code = "provider_bad_request"
	CodeProviderDown  Code = "provider_unavailable"
	CodeMalformed     Code = "provider_malformed"
	CodeBadReply      Code = "provider_invalid_reply"
	CodeModelTimeout  Code = "provider_timeout"
)

// Error is the type of every failure that Helix reports. [errors.Is] considers two
// errors equal when their codes are equal.
type Error struct {
	Code Code `json:"code"`
	// Category is the code's prefix unless set.
	Category  string `json:"category,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	// StatusCode is the HTTP status of the provider's response, if any.
	StatusCode int    `json:"statusCode,omitempty"`
	Message    string `json:"message"`
	// Field names the input that is invalid.
	Field string `json:"field,omitempty"`
	// Saw is the state of the session that made the store refuse a conflicting write.
	Saw *Saw `json:"saw,omitempty"`
	// Calls names the tool calls that the error is about.
	Calls []string `json:"calls,omitempty"`
	// Cause is the underlying error. Storage keeps its text but not its type.
	Cause error `json:"-"`
}

// Saw is the state of a session at the moment a store refused a write.
type Saw struct {
	Status  Status `json:"status,omitempty"`
	Version int64  `json:"version"`
	RunID   string `json:"runId,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`
}

// Sentinels, matched by code.
var (
	ErrNotFound       = &Error{Code: CodeNotFound, Message: "not found"}
	ErrExists         = &Error{Code: CodeExists, Message: "already exists"}
	ErrStale          = &Error{Code: CodeStale, Message: "stale: the session has changed"}
	ErrUnavailable    = &Error{Code: CodeUnavailable, Retryable: true, Message: "the store is unavailable"}
	ErrCorrupt        = &Error{Code: CodeCorrupt, Message: "stored data cannot be decoded"}
	ErrTransition     = &Error{Code: CodeTransition, Message: "no such status transition"}
	ErrAlreadyRunning = &Error{Code: CodeRunning, Message: "the session is already running"}
	ErrAwaitingInput  = &Error{Code: CodeAwaiting, Message: "the session is waiting for an answer"}
	ErrAnswered       = &Error{Code: CodeAnswered, Message: "a call was answered in the meantime"}
	ErrPaused         = &Error{Code: CodePaused, Message: "the session is paused"}
	ErrNotResumable   = &Error{Code: CodeNotResumable, Message: "the session cannot be resumed"}
	ErrInvalid        = &Error{Code: CodeInvalid, Message: "invalid input"}
	ErrSubmissionKind = &Error{Code: CodeSubmission, Message: "the answer does not fit the call"}
	ErrNotAllowed     = &Error{Code: CodeNotAllowed, Message: "the submitter may not answer the call"}
	ErrTooLarge       = &Error{Code: CodeTooLarge, Message: "too large"}
	ErrMaxSteps       = &Error{Code: CodeMaxSteps, Message: "the step limit was reached"}
	ErrNoOutput       = &Error{Code: CodeNoOutput, Message: "the model produced no output"}
	ErrCancelled      = &Error{Code: CodeCancelled, Message: "the run was aborted"}
	ErrCrashLoop      = &Error{Code: CodeCrashLoop, Message: "the run made no progress over several attempts"}
	ErrExpired        = &Error{Code: CodeExpired, Category: "framework", Message: "the session has expired"}
	ErrInternal       = &Error{Code: CodeInternal, Message: "internal error"}
	ErrNotSupported   = &Error{Code: CodeNotSupported, Message: "not supported"}
	ErrClosed         = &Error{Code: CodeClosed, Message: "closed"}
	ErrUnknownAgent   = &Error{Code: CodeUnknownAgent, Message: "no such agent"}
	ErrRemote         = &Error{Code: CodeRemote, Retryable: true, Message: "the remote agent is unreachable"}
	ErrTruncated      = &Error{Code: CodeTruncated, Message: "the stream no longer has the requested chunks"}
	ErrStreamClosed   = &Error{Code: CodeStreamClosed, Message: "the stream is closed"}
)

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Saw != nil {
		fmt.Fprintf(&b, " (the store holds version %d", e.Saw.Version)
		if e.Saw.Status != "" {
			fmt.Fprintf(&b, ", status %s", e.Saw.Status)
		}
		if e.Saw.Owner != "" {
			fmt.Fprintf(&b, ", owner %s epoch %d", e.Saw.Owner, e.Saw.Epoch)
		}
		b.WriteByte(')')
	}
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// category returns the code's prefix: "provider" for "provider_rate_limited".
func (c Code) category() string {
	switch c {
	case CodeRunStopped, CodeAbandoned, CodeClientTimeout:
		return "tool"
	}
	prefix, _, _ := strings.Cut(string(c), "_")
	return prefix
}

// errorJSON is Error without its methods, so that encoding it does not recurse.
type errorJSON Error

// MarshalJSON encodes the error with its category and the text of its cause.
func (e *Error) MarshalJSON() ([]byte, error) {
	out := errorJSON(*e)
	if out.Category == "" {
		out.Category = e.Code.category()
	}
	if e.Cause != nil {
		out.Message = e.Message + ": " + e.Cause.Error()
	}
	return json.Marshal(&out)
}

// WithMessage returns a copy of e with a more specific message.
func (e *Error) WithMessage(format string, args ...any) *Error {
	out := *e
	out.Message = fmt.Sprintf(format, args...)
	return &out
}

// WithCause returns a copy of e with a message and an underlying error.
func (e *Error) WithCause(cause error, format string, args ...any) *Error {
	out := e.WithMessage(format, args...)
	out.Cause = cause
	return out
}

// WithSaw returns a copy of e that carries the state of the session that the store
// found.
func (e *Error) WithSaw(saw Saw) *Error {
	out := *e
	out.Saw = &saw
	return &out
}

// UnknownAgent returns [ErrUnknownAgent] for an agent that is not registered in
// this process.
func UnknownAgent(name string) *Error {
	return ErrUnknownAgent.WithMessage("there is no agent named %.100q", name)
}

// Invalid returns a validation error about one field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: field + " " + fmt.Sprintf(format, args...)}
}

// AsError converts err to an *Error. If err wraps one, the result is a copy whose
// message includes the text of the wrapping; otherwise it is an internal error
// with err's text.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Code: CodeInternal, Message: err.Error()}
	}
	context, wrapped := strings.CutSuffix(err.Error(), e.Error())
	if wrapped && context == "" {
		return e
	}
	out := *e
	if wrapped {
		out.Message = context + e.Message
	} else { // the text of e, with the state it saw and its cause, is in the middle
		out.Message, out.Cause, out.Saw = err.Error(), nil, nil
	}
	return &out
}

// IsRetryable reports whether the same call may succeed when it is repeated.
func IsRetryable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retryable
}
