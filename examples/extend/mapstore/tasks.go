package mapstore

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// taskKey is what a task is kept under.
type taskKey struct {
	tenant string
	session.TaskRef
}

// addTasks adds tasks; those that exist stay as they are. The caller holds the lock.
func (b *Backend) addTasks(tasks []session.Task, tenant, of string, now time.Time) {
	for i := range tasks {
		t := tasks[i].AsNew(tenant, of, now)
		if key := (taskKey{tenant, t.Ref()}); b.tasks[key] == nil {
			t = copied(t)
			b.tasks[key] = &t
		}
	}
}

// PutTasks implements [session.Tasks].
func (s *sessions) PutTasks(ctx context.Context, tasks []session.Task) error {
	if err := session.CheckPutTasks(tasks); err != nil || len(tasks) == 0 {
		return err
	}
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	if id := tasks[0].SessionID; id != "" && s.b.sessions[s.key(id)] == nil {
		return session.NotFound(id)
	}
	s.b.addTasks(tasks, s.tenant, "", s.b.now())
	return nil
}

// changeTask changes one task. What the change decides, the domain's functions do, so
// that all stores decide alike. If keep is false, the task is removed.
func (s *sessions) changeTask(ctx context.Context, ref session.TaskRef, change func(t *session.Task, now time.Time) (keep bool, err error)) (*session.Task, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	key := taskKey{s.tenant, ref}
	is := s.b.tasks[key]
	if is == nil {
		return nil, session.NoTask(ref)
	}
	t := copied(*is)
	keep, err := change(&t, s.b.now())
	if err != nil {
		return nil, err
	}
	delete(s.b.tasks, key)
	if keep {
		s.b.tasks[key] = &t
	}
	out := copied(t)
	return &out, nil
}

// ClaimTask implements [session.Tasks].
func (s *sessions) ClaimTask(ctx context.Context, claim session.TaskClaim) (*session.Task, error) {
	if err := claim.Check(); err != nil {
		return nil, err
	}
	return s.changeTask(ctx, claim.TaskRef, func(t *session.Task, now time.Time) (bool, error) { return true, claim.Apply(t, now) })
}

// RenewTask implements [session.Tasks].
func (s *sessions) RenewTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, ttl time.Duration) error {
	_, err := s.changeTask(ctx, ref, func(t *session.Task, now time.Time) (bool, error) { return true, t.Renew(fence, ttl, now) })
	return err
}

// FinishTask implements [session.Tasks].
func (s *sessions) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	if err := result.Check(); err != nil {
		return err
	}
	_, err := s.changeTask(ctx, ref, func(t *session.Task, now time.Time) (bool, error) { return result.Apply(t, fence, now) })
	return err
}

// RetryTask implements [session.Tasks].
func (s *sessions) RetryTask(ctx context.Context, ref session.TaskRef) error {
	_, err := s.changeTask(ctx, ref, func(t *session.Task, now time.Time) (bool, error) { return true, t.Retry(now) })
	return err
}

// DropTask implements [session.Tasks].
func (s *sessions) DropTask(ctx context.Context, ref session.TaskRef, before time.Time) error {
	_, err := s.changeTask(ctx, ref, func(t *session.Task, _ time.Time) (bool, error) { return false, t.CheckDrop(before) })
	return err
}

// ListTasks implements [session.Tasks].
func (s *sessions) ListTasks(ctx context.Context, query session.TaskQuery) (session.Page[session.Task], error) {
	after, err := query.After()
	if err != nil {
		return session.Page[session.Task]{}, err
	}
	found, err := s.findTasks(ctx, func(t *session.Task, _ time.Time) bool {
		return t.Tenant == s.tenant && t.Ref().Compare(after) > 0 && (!query.GivenUp || !t.GivenUpAt.IsZero())
	})
	if err != nil {
		return session.Page[session.Task]{}, err
	}
	slices.SortFunc(found, func(a, b session.Task) int { return a.Ref().Compare(b.Ref()) })
	return query.Page(found[:min(len(found), query.Size()+1)]), nil
}

// DueTasks implements [session.Sweeps].
func (s *sessions) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	due, err := s.findTasks(ctx, func(t *session.Task, now time.Time) bool {
		return slices.Contains(request.Kinds, t.OfKind()) && t.IsDue(now)
	})
	return request.FirstOfTenants(due), err
}

// OldTasks implements [session.Sweeps].
func (s *sessions) OldTasks(ctx context.Context, request session.OldTaskRequest) ([]session.Task, error) {
	found, err := s.findTasks(ctx, func(t *session.Task, _ time.Time) bool {
		if request.GivenUp {
			return !t.GivenUpAt.IsZero() && t.GivenUpAt.Before(request.Before)
		}
		return t.GivenUpAt.IsZero() && t.DueAt.Before(request.Before)
	})
	return pageAfter(found, (*session.Task).CompareOld, request.After, request.Size()), err
}

// findTasks returns the tasks of all tenants that are listed.
func (s *sessions) findTasks(ctx context.Context, listed func(t *session.Task, now time.Time) bool) (found []session.Task, err error) {
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now := s.b.now()
	for _, t := range s.b.tasks {
		if listed(t, now) {
			found = append(found, copied(*t))
		}
	}
	return found, nil
}
