package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// TaskBook is a backend that notes the tasks of the commits and starts that were made through it.
type TaskBook struct {
	store.Backend
	mu    sync.Mutex
	tasks []session.Task
}

// Tasks returns the tasks that were written, each once, in the order of their first writes.
func (b *TaskBook) Tasks() []session.Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tasks)
}

func (b *TaskBook) note(tasks []session.Task, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, task := range tasks {
		if err == nil && !slices.ContainsFunc(b.tasks, func(t session.Task) bool { return t.ID == task.ID }) {
			b.tasks = append(b.tasks, task)
		}
	}
}

// Sessions implements [store.Backend].
func (b *TaskBook) Sessions() session.Store { return &taskBookSessions{b.Backend.Sessions(), b} }

// Commit implements [store.Backend].
func (b *TaskBook) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	done, last, err := b.Backend.Commit(ctx, commit)
	b.note(commit.Commit.Tasks, err)
	return done, last, err
}

// StartRun implements [store.Backend].
func (b *TaskBook) StartRun(ctx context.Context, start *store.StartRun) (*session.Started, *stream.Info, error) {
	started, info, err := b.Backend.StartRun(ctx, start)
	b.note(start.StartRun.Tasks, err)
	return started, info, err
}

type taskBookSessions struct {
	session.Store
	book *TaskBook
}

// Tenant implements [session.Store].
func (s *taskBookSessions) Tenant(tenant string) session.Store {
	return &taskBookSessions{s.Store.Tenant(tenant), s.book}
}

// Commit implements [session.Turns].
func (s *taskBookSessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	done, err := s.Store.Commit(ctx, commit)
	s.book.note(commit.Tasks, err)
	return done, err
}

// StartRun implements [session.Turns].
func (s *taskBookSessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	started, err := s.Store.StartRun(ctx, start)
	s.book.note(start.Tasks, err)
	return started, err
}
