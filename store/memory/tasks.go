package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// taskKey names a task of any tenant.
type taskKey struct {
	tenant string
	session.TaskRef
}

// taskQueue names the tasks of a tenant that one handler carries out.
type taskQueue struct {
	session.TaskKind
	tenant string
}

// tasks are all tasks. Those that were not given up are also in queues, the longest
// due first. A task is never changed in place, only replaced.
type tasks struct {
	byKey  map[taskKey]*session.Task
	queues map[taskQueue][]*session.Task
}

func newTasks() tasks {
	return tasks{byKey: map[taskKey]*session.Task{}, queues: map[taskQueue][]*session.Task{}}
}

// put adds a task, or replaces it.
func (t *tasks) put(task *session.Task) {
	key := taskKeyOf(task)
	t.remove(key)
	t.byKey[key] = task
	if task.GivenUpAt.IsZero() {
		queue := queueOf(task)
		i, _ := slices.BinarySearchFunc(t.queues[queue], task, (*session.Task).CompareOld)
		t.queues[queue] = slices.Insert(t.queues[queue], i, task)
	}
}

// remove removes a task, if it exists.
func (t *tasks) remove(key taskKey) {
	task := t.byKey[key]
	if task == nil {
		return
	}
	delete(t.byKey, key)
	queue := queueOf(task)
	list := t.queues[queue]
	if i, found := slices.BinarySearchFunc(list, task, (*session.Task).CompareOld); found && list[i] == task {
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(t.queues, queue)
		} else {
			t.queues[queue] = list
		}
	}
}

// add adds new tasks; those that exist stay as they are.
func (t *tasks) add(added []session.Task, tenant, of string, now time.Time) {
	for i := range added {
		task := added[i].AsNew(tenant, of, now)
		if t.byKey[taskKeyOf(&task)] == nil {
			t.put(cloneTask(&task))
		}
	}
}

func taskKeyOf(t *session.Task) taskKey { return taskKey{t.Tenant, t.Ref()} }
func queueOf(t *session.Task) taskQueue { return taskQueue{t.OfKind(), t.Tenant} }

func cloneTask(t *session.Task) *session.Task {
	out := *t
	out.Body = bytes.Clone(t.Body)
	out.DueAt, out.CreatedAt, out.GivenUpAt = utc(t.DueAt), utc(t.CreatedAt), utc(t.GivenUpAt)
	return &out
}

// PutTasks implements [session.Tasks].
func (s *sessions) PutTasks(ctx context.Context, added []session.Task) error {
	if err := session.CheckPutTasks(added); err != nil || len(added) == 0 {
		return err
	}
	if err := s.b.lock(ctx); err != nil {
		return err
	}
	defer s.b.mu.Unlock()
	if id := added[0].SessionID; id != "" && s.b.find(s.tenant, id) == nil {
		return session.NotFound(id)
	}
	s.b.tasks.add(added, s.tenant, "", s.b.now())
	return nil
}

// changeTask changes one task. If keep is false afterwards, the task is removed.
func (s *sessions) changeTask(ctx context.Context, ref session.TaskRef, change func(t *session.Task, now time.Time) (keep bool, err error)) (*session.Task, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	key := taskKey{s.tenant, ref}
	is := s.b.tasks.byKey[key]
	if is == nil {
		return nil, session.NoTask(ref)
	}
	task := cloneTask(is)
	keep, err := change(task, s.b.now())
	switch {
	case err != nil:
		return nil, err
	case keep:
		s.b.tasks.put(task)
	default:
		s.b.tasks.remove(key)
	}
	return cloneTask(task), nil
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
	return query.Page(atMost(query.Size()+1, found)), nil
}

// OldTasks implements [session.Sweeps].
func (s *sessions) OldTasks(ctx context.Context, request session.OldTaskRequest) ([]session.Task, error) {
	found, err := s.findTasks(ctx, func(t *session.Task, _ time.Time) bool {
		if request.GivenUp {
			return !t.GivenUpAt.IsZero() && t.GivenUpAt.Before(request.Before)
		}
		return t.GivenUpAt.IsZero() && t.DueAt.Before(request.Before)
	})
	return pageOf(found, (*session.Task).CompareOld, request.After, request.Size()), err
}

func (s *sessions) findTasks(ctx context.Context, listed func(t *session.Task, now time.Time) bool) ([]session.Task, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	now := s.b.now()
	out := []session.Task{}
	for _, t := range s.b.tasks.byKey {
		if listed(t, now) {
			out = append(out, *cloneTask(t))
		}
	}
	return out, nil
}

// DueTasks implements [session.Sweeps].
func (s *sessions) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	now := s.b.now()
	var due []session.Task
	for queue, list := range s.b.tasks.queues {
		if slices.Contains(request.Kinds, queue.TaskKind) && list[0].IsDue(now) {
			due = append(due, *cloneTask(list[0]))
		}
	}
	return request.FirstOfTenants(due), nil
}
