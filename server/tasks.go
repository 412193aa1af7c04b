package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func taskRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/tasks", summary: "List the tasks that follow runs, by session and id. For operators.",
			query: []parameter{
				{name: "givenUp", kind: "boolean", about: "Only tasks that were given up."},
				paging[0], paging[1],
			},
			answers: ok(wire.Tasks{}), handle: (*exchange).listTasks,
		},
		{
			method: http.MethodPost, path: "/tasks/retry", summary: "Have a task carried out at once, also one that was given up. For operators.",
			body: wire.TaskName{}, answers: ok(wire.TaskName{}), handle: (*exchange).retryTask,
		},
		{
			method: http.MethodPost, path: "/tasks/drop", summary: "Remove a task. For operators.",
			body: wire.TaskName{}, answers: ok(wire.TaskName{}), handle: (*exchange).dropTask,
		},
	}
}

// operates refuses a request about tasks by anybody but an operator.
func (x *exchange) operates() error {
	if !x.who.Operator {
		return session.ErrNotAllowed.WithMessage("only an operator may see and change tasks")
	}
	return nil
}

func (x *exchange) listTasks() error {
	if err := x.operates(); err != nil {
		return err
	}
	q := x.query()
	request := session.TaskQuery{GivenUp: q.flag("givenUp"), Limit: q.number("limit", 1, session.MaxPageSize), Cursor: q.Get("cursor")}
	if q.err != nil {
		return q.err
	}
	page, err := x.sessions.ListTasks(x.r.Context(), request)
	if err != nil {
		return err
	}
	x.json(http.StatusOK, page)
	return nil
}

func (x *exchange) retryTask() error {
	return x.changeTask(x.sessions.RetryTask)
}

func (x *exchange) dropTask() error {
	return x.changeTask(func(ctx context.Context, ref session.TaskRef) error {
		return x.sessions.DropTask(ctx, ref, time.Time{})
	})
}

// changeTask changes the task that the body names.
func (x *exchange) changeTask(change func(context.Context, session.TaskRef) error) error {
	if err := x.operates(); err != nil {
		return err
	}
	in, err := decode(x, readTaskName)
	if err != nil {
		return err
	}
	if err := in.Check(); err != nil {
		return err
	}
	ctx, cancel := x.change()
	defer cancel()
	if err := change(ctx, *in); err != nil {
		return err
	}
	x.json(http.StatusOK, in)
	return nil
}

func readTaskName(s *request.Scanner, _ *Limits, in *wire.TaskName) error {
	return s.Fields([]string{"sessionId", "id"}, false, func(name string) (err error) {
		if name == "id" {
			in.ID, err = s.ID()
			return err
		}
		in.SessionID, err = s.ID()
		return err
	})
}

// mostTasks is how many tasks the metrics count.
const mostTasks = 100

// taskMetrics describes the tasks of all tenants that are due or were given up, as far as they
// are counted, and what this process has done. A store that cannot be read is left out:
// the other metrics are then needed most.
func (x *exchange) taskMetrics() []byte {
	b := &bytes.Buffer{}
	ctx, cancel := context.WithTimeout(x.r.Context(), readyTimeout)
	defer cancel()
	sessions := x.server.cfg.Backend.Sessions()
	if now, err := sessions.Now(ctx); err == nil {
		due, dueErr := sessions.OldTasks(ctx, session.OldTaskRequest{Before: now, Limit: mostTasks})
		given, givenErr := sessions.OldTasks(ctx, session.OldTaskRequest{Before: now, GivenUp: true, Limit: mostTasks})
		if dueErr == nil && givenErr == nil {
			oldest := 0.0
			if len(due) > 0 {
				oldest = now.Sub(due[0].DueAt).Seconds()
			}
			describeMetric(b, "helix_tasks_due", "gauge", fmt.Sprintf("Tasks of all tenants that are due, counted up to %d.", mostTasks))
			fmt.Fprintf(b, "helix_tasks_due %d\n", len(due))
			describeMetric(b, "helix_tasks_due_seconds", "gauge", "How long the oldest of them has been due.")
			fmt.Fprintf(b, "helix_tasks_due_seconds %.3f\n", oldest)
			describeMetric(b, "helix_tasks_given_up", "gauge", fmt.Sprintf("Tasks of all tenants that were given up and are kept, counted up to %d.", mostTasks))
			fmt.Fprintf(b, "helix_tasks_given_up %d\n", len(given))
		}
	}
	if x.server.cfg.TaskStats == nil {
		return b.Bytes()
	}
	stats := x.server.cfg.TaskStats()
	describeMetric(b, "helix_tasks_running", "gauge", "Tasks that this process carries out.")
	fmt.Fprintf(b, "helix_tasks_running %d\n", stats.Running)
	describeMetric(b, "helix_task_attempts_total", "counter", "Attempts of this process to carry out tasks, by outcome.")
	for _, outcome := range []struct {
		name string
		n    int64
	}{{"done", stats.Done}, {"failed", stats.Failed}, {"given_up", stats.GivenUp}, {"returned", stats.Returned}} {
		fmt.Fprintf(b, "helix_task_attempts_total{outcome=%q} %d\n", outcome.name, outcome.n)
	}
	return b.Bytes()
}
