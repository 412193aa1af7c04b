package host

import (
	"context"
	"errors"
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
	state, err := s.store.Load(ctx, id)
	if err == nil {
		state.Custom = state.Custom.Public()
	}
	return state, err
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

// Compact implements [helix.Sessions].
func (s *sessions) Compact(ctx context.Context, id string, force bool) (*helix.Compacted, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	return s.host.handler.Compact(ctx, session.Key{Tenant: s.tenant, ID: id}, force)
}

// Clear implements [helix.Sessions].
func (s *sessions) Clear(ctx context.Context, id string) (*helix.Compacted, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	return s.host.handler.Clear(ctx, session.Key{Tenant: s.tenant, ID: id})
}

// Delete implements [helix.Sessions].
func (s *sessions) Delete(ctx context.Context, id string) ([]string, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	if err := s.checkDeletable(ctx, id); err != nil {
		return nil, err
	}
	held := s.host.turnsOf(s.tenant)
	added, err := s.cleanUp(ctx, id)
	if err != nil {
		return nil, err
	}
	deleted, err := s.store.Delete(ctx, id)
	if added {
		s.host.tasks.notify() // not before, because the tasks find the session deleted then
	}
	if err == nil {
		stopDeleted(held, deleted)
	}
	return deleted, err
}

// checkDeletable refuses to delete the session of an agent whose work is part of another
// session's run, while that run has not ended. What cannot be read can be deleted.
func (s *sessions) checkDeletable(ctx context.Context, id string) error {
	state, err := s.store.Load(ctx, id)
	if err != nil || state.RootID == "" {
		return ifTransient(ctx, err)
	}
	root, err := s.store.Load(ctx, state.RootID)
	if err != nil {
		return ifTransient(ctx, err)
	}
	run, err := s.store.CurrentRun(ctx, root.ID)
	if err != nil {
		return ifTransient(ctx, err)
	}
	if run.Status == session.RunRunning || run.Status.Suspended() && (root.Status == session.Active || root.Status == session.Paused) {
		return session.ErrAlreadyRunning.WithMessage("session %s works for session %s, whose run has not ended; end that run, or delete that session", id, root.ID)
	}
	return nil
}

// ifTransient returns err if another try may not fail, else nil.
func ifTransient(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if session.IsRetryable(err) {
		return err
	}
	return nil
}

// cleanUp stores the tasks that clean up after a session and the sessions below it, which
// are about to be deleted, and reports whether there are any. They have no session, so they
// outlive it. What an extension fails to return is logged and left out, as is a session that
// cannot be read: neither keeps a session from being deleted.
func (s *sessions) cleanUp(ctx context.Context, id string) (added bool, err error) {
	if !s.host.handler.MayCleanUp() {
		return false, nil
	}
	for ids := []string{id}; len(ids) > 0; ids = ids[1:] {
		var tasks []session.Task
		state, err := s.store.Load(ctx, ids[0])
		switch {
		case errors.Is(err, session.ErrNotFound):
			continue
		case ctx.Err() != nil || session.IsRetryable(err):
			return added, err
		case err == nil:
			tasks, err = s.host.handler.DeletionTasks(ctx, state)
		}
		if err != nil {
			s.host.log.WarnContext(ctx, "extension.clean_up_failed", "tenant", s.tenant, "session", ids[0], "error", err)
		}
		if err := s.store.PutTasks(ctx, tasks); err != nil {
			return added, err
		}
		added = added || len(tasks) > 0
		for query := (session.Query{ParentID: ids[0], PageRequest: session.PageRequest{Limit: session.MaxPageSize}}); ; {
			page, err := s.store.List(ctx, query)
			if err != nil {
				return added, err
			}
			for i := range page.Items {
				ids = append(ids, page.Items[i].ID)
			}
			if query.Cursor = page.Next; !page.HasMore || len(ids) > maxCleanUps {
				break
			}
		}
	}
	return added, nil
}

// maxCleanUps bounds how many sessions below one are cleaned up after.
const maxCleanUps = 10_000

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
