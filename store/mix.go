package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Mix is a backend that combines parts of others, such as sessions in one database
// and streams in another. Close closes each part once.
//
// What is one write on one backend is two consecutive writes on two. A batch is
// durable before its append returns, so it still precedes its caller's next write,
// and deleting a session deletes its streams afterwards. If that fails, the
// session is already deleted; deleting it again completes the deletion.
type Mix struct {
	SessionsOf Backend
	StreamsOf  Backend
	LocksOf    Backend
	// BlobBytes keeps the bytes of blobs, such as blob/dir in a directory. The references
	// to them stay with the sessions. Defaults to the backend of the sessions.
	BlobBytes blob.Bytes
}

var _ Backend = Mix{}

// Sessions implements [Backend].
func (m Mix) Sessions() session.Store {
	if m.SessionsOf == m.StreamsOf {
		return m.SessionsOf.Sessions()
	}
	return mixedSessions{m.SessionsOf.Sessions(), m.StreamsOf.Streams()}
}

// Streams implements [Backend].
func (m Mix) Streams() stream.Manager {
	if m.SessionsOf == m.StreamsOf {
		return m.StreamsOf.Streams()
	}
	return mixedStreams{m.StreamsOf.Streams()}
}

// Blobs implements [Backend].
func (m Mix) Blobs() blob.Store {
	if m.BlobBytes == nil {
		return m.SessionsOf.Blobs()
	}
	return blob.Apart(m.SessionsOf.Blobs(), m.BlobBytes)
}

// Locks implements [Backend].
func (m Mix) Locks() lock.Manager { return m.LocksOf.Locks() }

// StartRun implements [Backend].
func (m Mix) StartRun(ctx context.Context, start *StartRun) (*session.Started, *stream.Info, error) {
	if m.SessionsOf == m.StreamsOf {
		return m.SessionsOf.StartRun(ctx, start)
	}
	return StartThenOpen(ctx, m, start)
}

// Commit implements [Backend].
func (m Mix) Commit(ctx context.Context, commit *Commit) (*session.Committed, int64, error) {
	if m.SessionsOf == m.StreamsOf {
		return m.SessionsOf.Commit(ctx, commit)
	}
	return AppendThenCommit(ctx, m, commit)
}

// CloseRun implements [Backend].
func (m Mix) CloseRun(ctx context.Context, end *CloseRun) error {
	if m.SessionsOf == m.StreamsOf {
		return m.SessionsOf.CloseRun(ctx, end)
	}
	return EndThenCloseRun(ctx, m, end)
}

// RenewLeases implements [Backend].
func (m Mix) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	return m.SessionsOf.RenewLeases(ctx, leases, ttl)
}

// ProbeLeases implements [Backend].
func (m Mix) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	return m.SessionsOf.ProbeLeases(ctx, leases)
}

// Signals implements [Backend].
func (m Mix) Signals(notify func(session.Signal)) (stop func()) {
	return m.SessionsOf.Signals(notify)
}

// Ready implements [Backend].
func (m Mix) Ready(ctx context.Context) error {
	for _, part := range m.parts() {
		if err := part.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close implements [Backend].
func (m Mix) Close() error {
	var first error
	for _, part := range m.parts() {
		if err := part.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// parts returns the backends, each once.
func (m Mix) parts() (out []Backend) {
	for _, part := range []Backend{m.SessionsOf, m.StreamsOf, m.LocksOf} {
		if part != nil && !slices.Contains(out, part) {
			out = append(out, part)
		}
	}
	return out
}

// mixedSessions stores sessions whose streams another backend stores.
type mixedSessions struct {
	session.Store
	streams stream.Manager
}

// Tenant implements [session.Store].
func (s mixedSessions) Tenant(tenant string) session.Store {
	return mixedSessions{s.Store.Tenant(tenant), s.streams.Tenant(tenant)}
}

// Delete implements [session.Lifecycle].
func (s mixedSessions) Delete(ctx context.Context, id string) ([]string, error) {
	deleted, err := s.Store.Delete(ctx, id)
	ids := deleted
	switch {
	case errors.Is(err, session.ErrNotFound):
		ids = []string{id} // an interrupted deletion may have left the stream
	case err != nil:
		return nil, err
	}
	for _, member := range ids {
		if gone := s.streams.Delete(ctx, member); gone != nil && !errors.Is(gone, session.ErrNotFound) {
			return deleted, gone
		}
	}
	return deleted, err
}

// mixedStreams stores the streams of sessions that another backend stores.
type mixedStreams struct{ stream.Manager }

// Tenant implements [stream.Manager].
func (s mixedStreams) Tenant(tenant string) stream.Manager {
	return mixedStreams{s.Manager.Tenant(tenant)}
}

// Append implements [stream.Manager].
func (s mixedStreams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	ordered, err := s.Manager.Append(ctx, id, batch)
	if err != nil {
		return nil, err
	}
	last, err := ordered.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return durable(last), nil
}

// durable is an append that has been waited for.
type durable int64

// Wait implements [stream.Append].
func (d durable) Wait(context.Context) (int64, error) { return int64(d), nil }
