// Package server offers agents over HTTP: an [http.Handler] over any executor and
// its backend. The bodies are those of [github.com/helixagents/helix/server/wire].
//
// # Who may see what
//
// A server is made with a way to authenticate, or is told that it needs none; it
// refuses to be made with neither. A request acts for an [Identity]. A user sees
// the sessions that are the user's own, an operator all of its tenant. Anything
// else does not exist: by every route the answer is 404, the same as for a session
// that was never there. A sub-agent's session belongs to whom the conversation's
// root belongs.
//
// # Streams
//
// GET /sse reads a session's stream. It can be cut at any byte and read on from the
// last sequence seen. A reader pulls from the store, so one that is slow holds up
// no run; one that takes longer than [Limits.WriteTimeout] is cut.
//
// # Shutting down
//
// [Server.Shutdown] ends the streams, with a frame that says they can be read on
// elsewhere; then [http.Server.Shutdown] finishes, and the runtime is closed, which
// leaves its runs to be taken over.
package server
