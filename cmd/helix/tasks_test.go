package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// leaveTasks stores tasks of a session that no process carries out, of which one was given
// up, and one without a session.
func leaveTasks(t *testing.T, dir, sessionID string) {
	t.Helper()
	db, err := backend.Open("sqlite:"+dataFile(filepath.Join(dir, "data")), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sessions, ctx := db.Sessions(), t.Context()
	task := func(sessionID, id string) session.Task {
		return session.Task{ID: id, Kind: "index", Agent: "librarian", SessionID: sessionID}
	}
	if err := sessions.PutTasks(ctx, []session.Task{task(sessionID, "run-1/index"), task(sessionID, "run-2/index")}); err != nil {
		t.Fatal(err)
	}
	if err := sessions.PutTasks(ctx, []session.Task{task("", "clean-up")}); err != nil {
		t.Fatal(err)
	}
	held, err := sessions.ClaimTask(ctx, session.TaskClaim{TaskRef: session.TaskRef{SessionID: sessionID, ID: "run-1/index"}, Owner: "me", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := sessions.FinishTask(ctx, held.Ref(), held.Fence(), session.TaskResult{Outcome: session.TaskGivenUp, Error: "the index is\nfull"}); err != nil {
		t.Fatal(err)
	}
}

func testTasks(o *operator) {
	o.t.Helper()
	o.does("run-1/index  sum      index  librarian  1         given up ", "tasks", "ls")
	o.does("the index is full\n", "tasks", "ls", "--given-up")
	var page wire.Tasks
	o.answers(&page, "tasks", "ls", "--limit", "1")
	if len(page.Items) != 1 || page.Items[0].ID != "clean-up" || !page.HasMore {
		o.t.Errorf("the first page is %+v", page)
	}
	o.does("run-1/index", "tasks", "ls", "--limit", "1", "--after", page.Next)
	o.does("task run-1/index of session sum will be tried again\n", "tasks", "retry", "run-1/index", "--session", "sum")
	o.does("There are no tasks.\n", "tasks", "ls", "--given-up")
	o.does("task run-1/index of session sum is dropped\n", "tasks", "drop", "run-1/index", "--session", "sum")
	var dropped wire.TaskName
	o.answers(&dropped, "tasks", "drop", "clean-up")
	if dropped.ID != "clean-up" {
		o.t.Errorf("the answer is %+v", dropped)
	}
	o.answers(&page, "tasks", "ls")
	if len(page.Items) != 1 || page.Items[0].ID != "run-2/index" || page.Items[0].Attempts != 0 {
		o.t.Errorf("the tasks that are left are %+v", page.Items)
	}
	o.fails(exitFailure, "task clean-up: not found", "tasks", "drop", "clean-up")
	o.fails(exitFailure, "not found", "tasks", "retry", "run-2/index")
	o.fails(exitUsage, "name one task (see helix tasks retry --help)", "tasks", "retry")
	o.fails(exitUsage, "--limit 0", "tasks", "ls", "--limit", "0")
	o.fails(exitFailure, "cursor", "tasks", "ls", "--after", "x")
}
