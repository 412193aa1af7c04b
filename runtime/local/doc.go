// Package local runs agents in this process, in goroutines, on any backend.
//
// A turn holds a lease on its session, renewed by heartbeat. When the process
// dies, another one on the same backend with the agent registered, or this one
// after a restart, takes the session over once the lease has expired and
// continues the run from its last commit. Closing the runtime leaves every
// session resumable.
package local
