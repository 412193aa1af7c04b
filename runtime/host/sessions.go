package host

import (
	"context"
	"slices"

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
	held := s.host.turnsOf(s.tenant)
	deleted, err := s.store.Delete(ctx, id)
	if err == nil {
		stopDeleted(held, deleted)
	}
	return deleted, err
}

var errDeleted = session.ErrNotFound.WithMessage("the session was deleted")

// turnsOf returns the turns of a tenant's sessions that this process holds.
func (h *Host) turnsOf(tenant string) []*Turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	var held []*Turn
	for _, t := range h.turns {
		if t.Opened.Key.Tenant == tenant {
			held = append(held, t)
		}
	}
	return held
}

// stopDeleted cancels turns of deleted sessions. They were held before the deletion: a
// session that was created since under the same id keeps its turn. In other processes
// the next write of the turn fails.
func stopDeleted(held []*Turn, deleted []string) {
	for _, t := range held {
		if slices.Contains(deleted, t.Opened.Key.ID) {
			t.cancel(errDeleted)
		}
	}
}
