// Package store says what a backend is: one place to keep everything.
//
// The backends are its sub-packages; [github.com/helixagents/helix/store/storetest]
// is the suite that each of them, and any of a user's own, passes.
package store

import (
	"context"

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
	// Commit appends a batch to a stream and makes a commit, in one round trip where
	// the backend can. The commit never stands without the batch; of one that is
	// refused or fails, the batch may. Making both again is safe: each is recognised
	// by its key. It returns the sequence of the batch's last chunk, too.
	Commit(ctx context.Context, commit *Commit) (*session.Committed, int64, error)
	// Ready tells why the backend cannot do its work, or nil if it can: it answers, it
	// holds what it was opened on, and it takes writes, which it tries every few seconds
	// at most, with one that nobody notices.
	Ready(ctx context.Context) error
	// Close stops what the backend runs and releases what it holds. Calls in
	// flight finish or fail with [session.ErrClosed].
	Close() error
}

// Commit is a commit of a session and the chunks that readers see before it.
type Commit struct {
	Tenant string
	*session.Commit
	Stream string
	Batch  stream.Batch
}

// CommitInTurn appends the batch and, once it is durable, makes the commit: what a
// backend does that has no shorter way.
func CommitInTurn(ctx context.Context, b Backend, c *Commit) (*session.Committed, int64, error) {
	ordered, err := b.Streams().Tenant(c.Tenant).Append(ctx, c.Stream, c.Batch)
	if err != nil {
		return nil, 0, err
	}
	last, err := ordered.Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	done, err := b.Sessions().Tenant(c.Tenant).Commit(ctx, c.Commit)
	return done, last, err
}
