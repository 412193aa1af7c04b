// Package wire defines the HTTP API of the agent server: requests, responses and headers.
// Server and client share it.
//
// Bodies are JSON with names in camel case. A server refuses a request with a field that is
// not defined here. Responses may gain fields: a client ignores those it does not know.
package wire

// ProtocolVersion is the version of the API. A server sends it in the header
// [HeaderVersion] of every response, and refuses requests with another version.
const ProtocolVersion = "1"

// Headers of the API.
const (
	// HeaderVersion carries [ProtocolVersion].
	HeaderVersion = "Helix-Version"
	// HeaderRequestID identifies the request in the server's log. The server repeats the
	// request's id or chooses one.
	HeaderRequestID = "X-Request-Id"
	// HeaderAISDK is the version of Vercel's AI SDK that reads a chat.
	HeaderAISDK = "X-Helix-Ai-Sdk"
	// HeaderErrorCode and HeaderErrorField are the code and the field of an error whose body
	// is plain text.
	HeaderErrorCode  = "Helix-Error-Code"
	HeaderErrorField = "Helix-Error-Field"
	// HeaderLastEventID is sent by a browser that reconnects to a stream: the sequence of
	// the last chunk it received.
	HeaderLastEventID = "Last-Event-ID"
)

// Media types.
const (
	ContentJSON   = "application/json"
	ContentEvents = "text/event-stream"
	ContentText   = "text/plain; charset=utf-8"
)
