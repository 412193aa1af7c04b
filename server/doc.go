// Package server serves agents over HTTP: it is an [http.Handler] over any executor and
// its backend. Package [github.com/helixagents/helix/server/wire] defines the bodies.
//
// # Access
//
// A server needs an authentication function, or an explicit setting that it has none;
// New refuses a configuration with neither. A request acts for an [Identity]. A user may
// see only the user's own sessions, an operator all sessions of its tenant. For every
// other session all routes respond with 404, as if it did not exist. The session of a
// sub-agent belongs to the owner of the conversation's root.
//
// # Streams
//
// GET /sse sends a session's stream. A client that was cut off at any byte can
// continue after the last sequence it received. Readers pull from the store, so a slow reader
// delays no run; one that exceeds [Limits.WriteTimeout] is disconnected.
//
// # Shutdown
//
// [Server.Shutdown] ends the streams with a frame that tells clients to reconnect. Then
// [http.Server.Shutdown] completes, and closing the runtime hands its runs over to other
// processes.
package server
