package host

import (
	"context"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// sessions implements [helix.Sessions] for one tenant.
type sessions struct {
	host   *Host
	tenant string
	store  session.Store
}

// Sessions implements [helix.Executor].
func (x *executor) Sessions() helix.Sessions {
	return &sessions{host: x.h, tenant: x.tenant, store: x.h.cfg.Backend.Sessions().Tenant(x.tenant)}
}

// Get implements [helix.Sessions].
func (s *sessions) Get(ctx context.Context, id string) (*session.State, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	return s.store.Load(ctx, id)
}

// List implements [helix.Sessions].
func (s *sessions) List(ctx context.Context, query session.Query) (session.Page[session.Summary], error) {
	return s.store.List(ctx, query)
}

// Messages implements [helix.Sessions].
func (s *sessions) Messages(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Message], error) {
	if err := session.CheckID(id); err != nil {
		return session.Page[session.Message]{}, err
	}
	return s.store.Messages(ctx, id, page)
}

// Checkpoints implements [helix.Sessions].
func (s *sessions) Checkpoints(ctx context.Context, id string, page session.PageRequest) (session.Page[session.Checkpoint], error) {
	if err := session.CheckID(id); err != nil {
		return session.Page[session.Checkpoint]{}, err
	}
	return s.store.Checkpoints(ctx, id, page)
}

// Waiting implements [helix.Sessions].
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (session.Page[session.Waiting], error) {
	return s.store.Waiting(ctx, query)
}

// Delete implements [helix.Sessions].
func (s *sessions) Delete(ctx context.Context, id string) ([]string, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	deleted, err := s.store.Delete(ctx, id)
	if err == nil {
		s.host.stopDeleted(s.tenant, deleted)
	}
	return deleted, err
}

var errDeleted = session.ErrNotFound.WithMessage("the session was deleted")

// stopDeleted cancels the turns of deleted sessions that this process holds. In other
// processes the next write of the turn fails.
func (h *Host) stopDeleted(tenant string, ids []string) {
	deleted := make(map[session.Key]bool, len(ids))
	for _, id := range ids {
		deleted[session.Key{Tenant: tenant, ID: id}] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.turns {
		if deleted[t.Opened.Key] {
			t.cancel(errDeleted)
		}
	}
}
