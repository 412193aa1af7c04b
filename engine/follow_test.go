package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// deleting is an extension that cleans up after sessions.
type deleting struct {
	name  string
	tasks []session.Task
	err   error
}

func (d *deleting) Name() string { return d.name }

func (d *deleting) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (d *deleting) Delete(context.Context, session.Key) ([]session.Task, error) {
	if d.err == nil && d.tasks == nil {
		panic("boom")
	}
	return d.tasks, d.err
}

// Tasks that clean up after a session belong to no session, and an extension that fails
// keeps no other from cleaning up.
func TestDeletionTasks(t *testing.T) {
	t.Parallel()
	h := NewHandler(Config{Backend: memory.New(memory.Config{})})
	state := &session.State{Tenant: "acme", ID: "s-1", Agent: "agent", CurrentRunID: "run-7"}
	if tasks, err := h.DeletionTasks(t.Context(), state); err != nil || tasks != nil {
		t.Errorf("an agent that is not registered has the tasks %v, %v", tasks, err)
	}
	_, err := h.Register(&helix.Agent{Name: "agent", Model: scripted.New(), Extensions: []helix.Extension{
		&deleting{name: "failing", err: errors.New("no")},
		&deleting{name: "panicking"},
		&deleting{name: "files", tasks: []session.Task{{Kind: "remove", SessionID: "s-1", RunID: "run-7", Tenant: "another"}}},
		&deleting{name: "index", tasks: []session.Task{{Kind: "remove"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := h.DeletionTasks(t.Context(), state)
	for _, words := range []string{"failing", "panicking", "s-1"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the error %v does not say %q", err, words)
		}
	}
	var ids []string
	for _, task := range tasks {
		parts := strings.Split(task.ID, "/")
		if task.Tenant != "acme" || task.Agent != "agent" || task.SessionID != "" || task.RunID != "" {
			t.Errorf("task %s is %+v", task.ID, task)
		}
		ids = append(ids, parts[0]+"/"+strings.Join(parts[2:], "/"))
	}
	if got := strings.Join(ids, " "); got != "s-1/files/remove s-1/index/remove" {
		t.Errorf("the tasks are %s", got)
	}
	again, _ := h.DeletionTasks(t.Context(), state)
	if len(again) != len(tasks) || again[0].ID == tasks[0].ID {
		t.Errorf("a second deletion has the tasks %v; those of the first, %v, may have been given up", again, tasks)
	}
}
