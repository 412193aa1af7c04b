package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A task whose agent the factories make for other sessions only has failed: it neither
// returns for ever, nor keeps this process from the tasks of the other sessions. Once the
// factory is gone, the tasks are for other processes.
func TestTaskOfOneSession(t *testing.T) {
	t.Parallel()
	h := NewHandler(Config{Backend: memory.New(memory.Config{})})
	err := h.RegisterFactory("parent", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return &helix.Agent{Name: "parent", Model: scripted.New()}, nil // without the child
	})
	if err != nil {
		t.Fatal(err)
	}
	task := &session.Task{ID: "one", Kind: "work", Agent: "child", Attempts: 1}
	h.learn(task.OfKind()) // from the task of another session
	if err := h.HandleTask(t.Context(), task, time.Minute); err == nil || errors.Is(err, session.ErrUnknownAgent) {
		t.Errorf("the attempt ends with %v and is not counted", err)
	}
	if !slices.Contains(h.TaskKinds(), task.OfKind()) {
		t.Error("the kind is forgotten")
	}
	h.Unregister("parent")
	if slices.Contains(h.TaskKinds(), task.OfKind()) {
		t.Error("the kind is still known without the factory")
	}
	if err := h.HandleTask(t.Context(), task, time.Minute); !errors.Is(err, session.ErrUnknownAgent) {
		t.Errorf("without the factory the attempt ends with %v and is counted", err)
	}
}

// watching is an observer that keeps what it is told.
type watching struct {
	began []*helix.Activity
	ended []*helix.Ending
}

func (n *watching) Begin(ctx context.Context, a *helix.Activity) (context.Context, func(*helix.Ending)) {
	n.began = append(n.began, a)
	return ctx, func(e *helix.Ending) { n.ended = append(n.ended, e) }
}

// Each attempt is observed, also that of a task of the framework, and one whose agent
// cannot be made.
func TestTasksObserved(t *testing.T) {
	t.Parallel()
	seen := &watching{}
	h := NewHandler(Config{Backend: memory.New(memory.Config{}), CleanCalls: time.Hour, Observers: []helix.Observer{seen}})
	err := h.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return nil, errors.New("no") })
	if err != nil {
		t.Fatal(err)
	}
	own := h.CleanCallsTask("acme", time.Now())
	if err := h.HandleTask(t.Context(), &own, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := h.HandleTask(t.Context(), &session.Task{ID: "one", Kind: "work", Agent: "made", Attempts: 2}, time.Minute); err == nil {
		t.Fatal("a task without a handler was carried out")
	}
	if len(seen.began) != 2 || len(seen.ended) != 2 {
		t.Fatalf("%d activities began and %d ended, want 2", len(seen.began), len(seen.ended))
	}
	if a := seen.began[0]; a.Kind != helix.ActivityTask || a.Name != own.Kind || a.Agent != "" || seen.ended[0].Error != nil {
		t.Errorf("the framework's task is observed as %+v, %+v", a, seen.ended[0])
	}
	if a := seen.began[1]; a.Name != "work" || a.Agent != "made" || a.Attempt != 2 || seen.ended[1].Error == nil {
		t.Errorf("the task that failed is observed as %+v, %+v", a, seen.ended[1])
	}
}
