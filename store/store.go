// Package store defines a backend: the storage of sessions, streams, blobs and locks.
//
// The backends are its sub-packages;
// [github.com/helixagents/helix/store/storetest] is the suite that each of them,
// and any backend of a user, must pass.
package store

import (
	"context"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Backend stores sessions, streams, blobs and locks. The stores that it returns are
// scoped to the default tenant.
type Backend interface {
	Sessions() session.Store
	Streams() stream.Manager
	Blobs() blob.Store
	Locks() lock.Manager
	// StartRun starts a run and opens the session's own stream for it, together where
	// the backend can. Its results are those of [StartThenOpen]: the run, and the stream
	// as it is then, whose Bytes need not count the batch. If the request has started a
	// run before, that run is returned, and no stream.
	StartRun(ctx context.Context, start *StartRun) (*session.Started, *stream.Info, error)
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
	// ProbeLeases reports of leases whether they could be renewed now, whoever asks: it
	// writes what RenewLeases writes, to the same places and on the same conditions, and
	// changes nothing. A process learns by it whether the holder of a lease could have
	// renewed it. The results are in the order of the leases; an error that can be retried
	// says that the store could not be written, and not only the lease.
	ProbeLeases(ctx context.Context, leases []session.Held) []error
	// Signals has notify called for each stop that is requested and each wake that is
	// put, by any process, until stop is called or the backend is closed: at once where
	// the store can notify processes, otherwise within a few poll intervals. A backend
	// that can do neither announces only what it writes itself. A signal may be lost or
	// repeated: what it announces is in the store. notify must neither wait nor call the
	// backend.
	Signals(notify func(session.Signal)) (stop func())
	// Ready returns nil if the backend can do its work, and otherwise the reason. It
	// checks that the server answers, that the data is still the data that was opened,
	// and that writes succeed; it tries a write without visible effect, at most every
	// few seconds.
	Ready(ctx context.Context) error
	// Close stops the backend's goroutines and releases its resources. Calls in flight
	// finish or fail with [session.ErrClosed].
	Close() error
}

// StartRun is the start of a run together with the chunks that show that it begins.
type StartRun struct {
	Tenant string
	*session.StartRun
	Batch stream.Batch
}

// StartThenOpen starts the run and then opens its stream. If that fails, it releases
// the lease, so that another process can continue the run at once. It serves backends
// that cannot do both together.
func StartThenOpen(ctx context.Context, b Backend, s *StartRun) (*session.Started, *stream.Info, error) {
	limit := b.Streams().Limits().MaxChunk
	for i := range s.Batch.Chunks { // a run must not begin with chunks that the stream refuses
		if _, err := stream.Split(s.Batch.Chunks[i], limit); err != nil {
			return nil, nil, err
		}
	}
	started, err := b.Sessions().Tenant(s.Tenant).StartRun(ctx, s.StartRun)
	if err != nil || started.Existing {
		return started, nil, err
	}
	info, err := s.OpenOrRelease(ctx, b, started)
	if err != nil {
		return nil, nil, err
	}
	return started, info, nil
}

// openTimeout bounds how long a run that was started takes to open its stream.
const openTimeout = 30 * time.Second

// OpenOrRelease opens the stream for a run that was started, and appends the batch. If
// that fails, it releases the lease. It continues if the caller leaves, because the
// run has begun.
func (s *StartRun) OpenOrRelease(ctx context.Context, b Backend, started *session.Started) (*stream.Info, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	info, err := s.open(ctx, b.Streams().Tenant(s.Tenant), started)
	if err != nil {
		_ = b.Sessions().Tenant(s.Tenant).CloseRun(ctx, s.SessionID, started.Lease.Fence(), false) // else the lease expires
		return nil, err
	}
	return info, nil
}

func (s *StartRun) open(ctx context.Context, streams stream.Manager, started *session.Started) (*stream.Info, error) {
	info, err := streams.Reactivate(ctx, s.SessionID, s.Producer(started))
	if err != nil {
		return nil, err
	}
	ordered, err := streams.Append(ctx, s.SessionID, s.Batch)
	if err != nil {
		return nil, err
	}
	info.Last, err = ordered.Wait(ctx)
	return info, err
}

// Producer returns the producer of a run that was started.
func (s *StartRun) Producer(started *session.Started) stream.Producer {
	return stream.Producer{Session: s.SessionID, Epoch: started.Lease.Epoch, RunID: started.Run.ID}
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
