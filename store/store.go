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

// Mix is a backend made of parts of others, such as sessions in one database and
// streams in another. Close closes each part once.
type Mix struct {
	SessionsOf Backend
	StreamsOf  Backend
	LocksOf    Backend
}

// Sessions implements [Backend].
func (m Mix) Sessions() session.Store { return m.SessionsOf.Sessions() }

// Streams implements [Backend].
func (m Mix) Streams() stream.Manager { return m.StreamsOf.Streams() }

// Locks implements [Backend].
func (m Mix) Locks() lock.Manager { return m.LocksOf.Locks() }

// Close implements [Backend].
func (m Mix) Close() error {
	var first error
	closed := map[Backend]bool{}
	for _, part := range []Backend{m.SessionsOf, m.StreamsOf, m.LocksOf} {
		if part == nil || closed[part] {
			continue
		}
		closed[part] = true
		if err := part.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
