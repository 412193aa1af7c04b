package wire

import "github.com/helixagents/helix/session"

// Error is the body of every answer that is not a success.
type Error struct {
	// Message is a sentence that may be shown to a user.
	Message string       `json:"error"`
	Code    session.Code `json:"code"`
	// Field names what was wrong with the request.
	Field string `json:"field,omitempty"`
	// Detail is what led to the error. Operators are told it, and everybody by a verbose
	// server.
	Detail string `json:"detail,omitempty"`
	// Retryable says that the same request may succeed later.
	Retryable bool `json:"retryable,omitempty"`
	// Limit names the setting whose limit was reached.
	Limit string `json:"limit,omitempty"`
	// Calls names the tool calls that the error is about.
	Calls []string `json:"calls,omitempty"`
}

// Codes that the server adds to those of [session.Code].
const (
	CodeVersion      session.Code = "validation_version"
	CodeUnauthorized session.Code = "validation_unauthenticated"
	CodeForbidden    session.Code = "validation_forbidden"
	CodeMethod       session.Code = "validation_method"
	CodeMediaType    session.Code = "validation_media_type"
	CodeNoRoute      session.Code = "validation_no_such_route"
	CodeRateLimited  session.Code = "framework_rate_limited"
	CodeUnknownCall  session.Code = "state_unknown_tool_call"
	CodeNoWorkspace  session.Code = "workspace_not_configured"
	// CodeSlowReader and CodeShuttingDown end streams that can be read on: their
	// frames are recoverable.
	CodeSlowReader   session.Code = "framework_slow_reader"
	CodeShuttingDown session.Code = "framework_shutting_down"
	CodeInterrupted  session.Code = "framework_stream_interrupted"
)
