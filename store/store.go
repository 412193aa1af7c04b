// Package store defines a backend: the storage of sessions, streams and locks.
//
// The backends are its sub-packages;
// [github.com/helixagents/helix/store/storetest] is the suite that each of them,
// and any backend of a user, must pass.
package store

import (
	"context"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Backend stores sessions, streams and locks. The stores that it returns are
// scoped to the default tenant.
type Backend interface {
	Sessions() session.Store
	Streams() stream.Manager
	Locks() lock.Manager
	// Commit appends a batch to a stream and applies a commit, in one round trip where
	// the backend can. The commit is never applied without the batch; if the commit is
	// refused or fails, the batch may be applied nevertheless. Repeating both is safe:
	// each is recognised by its key. Commit also returns the sequence of the batch's
	// last chunk.
	Commit(ctx context.Context, commit *Commit) (*session.Committed, int64, error)
	// CloseRun closes a run that has ended together with its stream, in one round trip
	// where the backend can. Its results are those of [EndThenCloseRun]: the run is
	// closed only if its last chunks are in the stream and the stream was closed. If the lease
	// was lost, which is [session.ErrStale], chunks and end may be written nevertheless;
	// so it is for a close that was already made, because a close releases the lease.
	CloseRun(ctx context.Context, end *CloseRun) error
	// RenewLeases extends the leases of sessions, of any tenant, and of every session of
	// their trees with the same owner, in one round trip where the backend can. The
	// results are in the order of the leases.
	RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed
	// Signals calls notify for each stop that is requested and each wake that is put, by
	// any process, until ctx ends or the backend is closed: at once where the store can
	// notify processes, otherwise within a few poll intervals. A backend that can do
	// neither announces only what it writes itself. A signal may be lost or repeated:
	// what it announces is in the store.
	// notify must neither wait nor call the backend.
	Signals(ctx context.Context, notify func(session.Signal))
	// Ready returns nil if the backend can do its work, and otherwise the reason. It
	// checks that the server answers, that the data is still the data that was opened,
	// and that writes succeed; it tries a write without visible effect, at most every
	// few seconds.
	Ready(ctx context.Context) error
	// Close stops the backend's goroutines and releases its resources. Calls in flight
	// finish or fail with [session.ErrClosed].
	Close() error
}

// Commit is a commit of a session together with the chunks that readers see before
// it.
type Commit struct {
	Tenant string
	*session.Commit
	Stream string
	Batch  stream.Batch
}

// AppendThenCommit appends the batch and, once it is durable, applies the commit. It
// serves backends that cannot do both in one round trip.
func AppendThenCommit(ctx context.Context, b Backend, c *Commit) (*session.Committed, int64, error) {
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

// CloseRun is the close of a run: its last chunks, the end of its stream, and the
// release of its lease.
type CloseRun struct {
	Tenant    string
	SessionID string
	Fence     session.Fence
	Stream    string
	Batch     stream.Batch
	// End or Failure closes the stream on behalf of By. Without either, as for a
	// sub-agent, which writes to the stream of its root, the stream stays open.
	By      stream.Producer
	End     *stream.End
	Failure *session.Error
}

// EndThenCloseRun appends the batch, closes the stream, and then closes the run, each
// once the one before is durable. It serves backends that cannot do all in one round
// trip.
func EndThenCloseRun(ctx context.Context, b Backend, c *CloseRun) error {
	if err := c.CloseStream(ctx, b.Streams().Tenant(c.Tenant)); err != nil {
		return err
	}
	return b.Sessions().Tenant(c.Tenant).CloseRun(ctx, c.SessionID, c.Fence, true)
}

// CloseStream appends the batch and closes the stream, once the batch is durable. It
// does not close the run.
func (c *CloseRun) CloseStream(ctx context.Context, streams stream.Manager) error {
	ordered, err := streams.Append(ctx, c.Stream, c.Batch)
	if err != nil {
		return err
	}
	if _, err := ordered.Wait(ctx); err != nil {
		return err
	}
	switch {
	case c.Failure != nil:
		return streams.Fail(ctx, c.Stream, c.By, c.Failure)
	case c.End != nil:
		return streams.End(ctx, c.Stream, c.By, *c.End)
	}
	return nil
}
