package wire

import "github.com/helixagents/helix/session"

// Error is the body of every response that is not a success.
type Error struct {
	// Message is a sentence that may be shown to a user.
	Message string       `json:"error"`
	Code    session.Code `json:"code"`
	// Field is the invalid field of the request.
	Field string `json:"field,omitempty"`
	// Detail is the cause of the error. Only operators see it, unless the server is verbose.
	Detail string `json:"detail,omitempty"`
	// Retryable reports that the same request may succeed later.
	Retryable bool `json:"retryable,omitempty"`
	// Limit is the setting whose limit was reached.
	Limit string `json:"limit,omitempty"`
	// Calls are the ids of the tool calls that the error is about.
	Calls []string `json:"calls,omitempty"`
}

// Codes of the server, in addition to those of [session.Code].
const (
	CodeVersion      session.Code = "validation_version"
	CodeUnauthorized session.Code = "validation_unauthenticated"
	CodeForbidden    session.Code = "validation_forbidden"
	CodeMethod       session.Code = "validation_method"
	CodeMediaType    session.Code = "validation_media_type"
	CodeNoRoute      session.Code = "validation_no_such_route"
	CodeRateLimited  session.Code = "framework_rate_limited"
	CodeBodyTimeout  session.Code = "framework_body_timeout"
	CodeUnknownCall  session.Code = "state_unknown_tool_call"
	CodeNoWorkspace  session.Code = "workspace_not_configured"
	// CodeSlowReader and CodeShuttingDown end streams that the client can continue to read:
	// their frames are recoverable.
	CodeSlowReader   session.Code = "framework_slow_reader"
	CodeShuttingDown session.Code = "framework_shutting_down"
	CodeInterrupted  session.Code = "framework_stream_interrupted"
)
