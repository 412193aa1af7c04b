// Package wire is the HTTP API of the agent server as data: what is sent, what is
// answered, and the names of headers. Server and client share it.
//
// All of it is JSON with names in camel case. Requests hold no field that is not
// named here; a server refuses others. Answers may gain fields: a client ignores
// those it does not know.
package wire

// ProtocolVersion is the version of the API. A server names it in the header
// [HeaderVersion] of every answer, and refuses requests that name another.
const ProtocolVersion = "1"

// Headers of the API.
const (
	// HeaderVersion carries [ProtocolVersion].
	HeaderVersion = "Helix-Version"
	// HeaderRequestID names the request in the server's log. It is repeated from the
	// request, or minted.
	HeaderRequestID = "X-Request-Id"
	// HeaderAISDK says which version of Vercel's AI SDK reads a chat.
	HeaderAISDK = "X-Helix-Ai-Sdk"
	// HeaderErrorCode and HeaderErrorField are the code and the field of an error whose
	// body is a mere sentence.
	HeaderErrorCode  = "Helix-Error-Code"
	HeaderErrorField = "Helix-Error-Field"
	// HeaderLastEventID is what a browser sends when it reads a stream again: the
	// sequence of the last chunk it saw.
	HeaderLastEventID = "Last-Event-ID"
)

// Media types.
const (
	ContentJSON   = "application/json"
	ContentEvents = "text/event-stream"
	ContentText   = "text/plain; charset=utf-8"
)
