package runtimetest

import (
	"context"
	"sync"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// witness is a backend that takes a snapshot of a session after every write, like a client
// that opens a page at that moment.
type witness struct {
	store.Backend
	album *album
}

// album keeps the snapshots of a scenario.
type album struct {
	mu    sync.Mutex
	taken map[session.Key][]*store.Snapshot
	err   error
}

func newAlbum() *album { return &album{taken: map[session.Key][]*store.Snapshot{}} }

func (a *album) take(ctx context.Context, backend store.Backend, tenant, id string) {
	if tenant == "" {
		tenant = session.DefaultTenant
	}
	ctx = context.WithoutCancel(ctx)
	sessions, streams := backend.Sessions().Tenant(tenant), backend.Streams().Tenant(tenant)
	snapshot, err := store.TakeSnapshot(ctx, sessions, streams, id)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := session.Key{Tenant: tenant, ID: id}
	switch {
	case err == nil:
		a.taken[key] = append(a.taken[key], snapshot)
	case !session.IsRetryable(err) && session.AsError(err).Code != session.CodeNotFound && a.err == nil:
		a.err = err
	}
}

func (w *witness) Sessions() session.Store {
	return &witnessSessions{w.Backend.Sessions(), w, session.DefaultTenant}
}

func (w *witness) Streams() stream.Manager {
	return &witnessStreams{w.Backend.Streams(), w, session.DefaultTenant}
}

// StartRun implements [store.Backend].
func (w *witness) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	started, info, err := w.Backend.StartRun(ctx, start)
	w.album.take(ctx, w.Backend, start.Tenant, start.SessionID)
	return started, info, err
}

// Commit implements [store.Backend].
func (w *witness) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	done, last, err := w.Backend.Commit(ctx, commit)
	w.album.take(ctx, w.Backend, commit.Tenant, commit.SessionID)
	return done, last, err
}

// CloseRun implements [store.Backend].
func (w *witness) CloseRun(ctx context.Context, end *store.CloseRun) error {
	err := w.Backend.CloseRun(ctx, end)
	w.album.take(ctx, w.Backend, end.Tenant, end.SessionID)
	return err
}

type witnessSessions struct {
	session.Store
	witness *witness
	tenant  string
}

func (s *witnessSessions) Tenant(tenant string) session.Store {
	return &witnessSessions{s.Store.Tenant(tenant), s.witness, tenant}
}

func (s *witnessSessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	started, err := s.Store.StartRun(ctx, start)
	s.witness.album.take(ctx, s.witness.Backend, s.tenant, start.SessionID)
	return started, err
}

func (s *witnessSessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	done, err := s.Store.Commit(ctx, commit)
	s.witness.album.take(ctx, s.witness.Backend, s.tenant, commit.SessionID)
	return done, err
}

func (s *witnessSessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	err := s.Store.CloseRun(ctx, id, fence, settled)
	s.witness.album.take(ctx, s.witness.Backend, s.tenant, id)
	return err
}

type witnessStreams struct {
	stream.Manager
	witness *witness
	tenant  string
}

func (s *witnessStreams) Tenant(tenant string) stream.Manager {
	return &witnessStreams{s.Manager.Tenant(tenant), s.witness, tenant}
}

func (s *witnessStreams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	ordered, err := s.Manager.Append(ctx, id, batch)
	if err == nil {
		_, _ = ordered.Wait(ctx) // the caller that appended gets the error
		s.witness.album.take(ctx, s.witness.Backend, s.tenant, id)
	}
	return ordered, err
}

func (s *witnessStreams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	err := s.Manager.End(ctx, id, by, end)
	s.witness.album.take(ctx, s.witness.Backend, s.tenant, id)
	return err
}

// checkSnapshots checks that every snapshot, with the chunks after it, gives the
// transcript.
func (s *Stage) checkSnapshots(tenant string, state *session.State, messages []session.Message) {
	s.Helper()
	s.album.mu.Lock()
	defer s.album.mu.Unlock()
	s.ok(s.album.err, "take a snapshot")
	chunks, want := s.tenantChunks(tenant, state.StreamID), rendered(messages)
	for i, shot := range s.album.taken[session.Key{Tenant: tenant, ID: state.ID}] {
		if !shot.State.CreatedAt.Equal(state.CreatedAt) || incarnation(shot.State) != incarnation(state) {
			continue // of a session that was deleted, and made again
		}
		if shot.Sequence > int64(len(chunks)) {
			s.Fatalf("snapshot %d of session %s is at sequence %d of %d", i+1, state.ID, shot.Sequence, len(chunks))
		}
		folded := stream.FoldOnto(state.ID, shot.Messages, chunks[shot.Sequence:])
		if state.SuspendedStep != "" {
			for len(folded) > len(messages) && folded[len(folded)-1].Role == session.RoleTool {
				folded = folded[:len(folded)-1]
			}
		}
		if got := rendered(folded); got != want {
			s.Fatalf("snapshot %d of session %s, at sequence %d with %d messages, and what came after it:\n%s\nthe transcript:\n%s",
				i+1, state.ID, shot.Sequence, len(shot.Messages), got, want)
		}
		s.checkOnce(state.ID, shot, chunks)
		s.checkState(state, shot, chunks)
	}
}

// incarnation tells a session from one that was deleted before under the same id, which may be
// as old where time stands still.
func incarnation(state *session.State) int64 { return state.Lease.Epoch / session.FirstEpoch(1) }

// checkState checks that the snapshot's custom state, with the patches after it, gives the
// session's. Direct writes to a session, rewinds and keys of the framework are not in the
// stream.
func (s *Stage) checkState(state *session.State, shot *store.Snapshot, chunks []stream.Chunk) {
	s.Helper()
	var own []stream.Chunk
	for i := range chunks[shot.Sequence:] {
		c := &chunks[shot.Sequence:][i]
		if c.AgentID != state.ID {
			continue
		}
		if c.Kind == stream.Rewound {
			return
		}
		own = append(own, *c)
	}
	then, err := shot.State.Custom.Public().MarshalJSON()
	s.ok(err, "encode the state of a snapshot")
	now, err := state.Custom.Public().MarshalJSON()
	s.ok(err, "encode the state")
	got, want := string(then), string(now)
	if len(own) > 0 {
		got = s.foldState(got, own)
	}
	if got != want && canonical(got) != canonical(want) {
		s.Fatalf("session %s: the state of the snapshot at sequence %d gives %s, want %s", state.ID, shot.Sequence, got, want)
	}
}

// checkOnce checks that the stream does not repeat what the snapshot has: a page would show
// it twice.
func (s *Stage) checkOnce(id string, shot *store.Snapshot, chunks []stream.Chunk) {
	s.Helper()
	held := map[string]bool{}
	for i := range shot.Messages {
		held[shot.Messages[i].ID] = true
	}
	for i := range chunks[shot.Sequence:] {
		c := &chunks[shot.Sequence:][i]
		if c.AgentID != id {
			continue
		}
		if c.Kind == stream.Rewound {
			return // content of the snapshot may be streamed again
		}
		if c.Kind == stream.StepStarted && held[c.MessageID] {
			s.Fatalf("session %s: the snapshot at sequence %d holds message %s, which the stream repeats after it", id, shot.Sequence, c.MessageID)
		}
		// The answers that a run begins with are told by its input, too, and known by their
		// ids.
		if held[session.ResultID(c.CallID)] && c.Kind == stream.ToolEnd && c.MessageID == "" {
			s.Fatalf("session %s: the snapshot at sequence %d holds the result of %s, which the stream repeats after it", id, shot.Sequence, c.CallID)
		}
	}
}
