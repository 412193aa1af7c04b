// Package store says what a backend is: one place to keep everything.
//
// The backends are its sub-packages; [github.com/helixagents/helix/store/storetest]
// is the suite that each of them, and any of a user's own, passes.
package store

import (
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Backend keeps sessions, streams and locks. What it returns is scoped to the
// default tenant.
type Backend interface {
	Sessions() session.Store
	Streams() stream.Manager
	Locks() lock.Manager
	// Close stops what the backend runs and releases what it holds. Calls in
	// flight finish or fail with [session.ErrClosed].
	Close() error
}
