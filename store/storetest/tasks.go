package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

func taskCases() []testCase {
	return []testCase{
		{"put", "a task is added once per id, as it was given", dated, taskPut},
		{"put-missing", "tasks of a session that does not exist are not added", 0, taskPutMissing},
		{"bounds", "a task that is too large or invalid is refused with all that come with it", 0, taskBounds},
		{"commit", "a commit adds its tasks, atomically and once", 0, taskCommit},
		{"commit-step", "every kind of change adds its tasks: a step, an end, a start, an edit, a rewind", 0, taskChanges},
		{"commit-bounds", "a commit with an invalid task, or one of another session, changes nothing", 0, taskCommitBounds},
		{"claim", "a claim takes hold of a due task and counts the attempt; another is refused and changes nothing", 0, taskClaim},
		{"claim-race", "of concurrent claims exactly one succeeds", second, taskClaimRace},
		{"not-due", "a task is listed and claimed from the time on at which it is due", clock, taskNotDue},
		{"expired", "a task whose hold has expired is due again, and the old hold is refused", clock, taskExpired},
		{"renew", "a renewed hold lasts longer", clock, taskRenew},
		{"fence", "a hold of another owner or attempt neither renews nor finishes", 0, taskFence},
		{"done", "a task that is done is removed", 0, taskDone},
		{"failed", "a task that failed is due again after its delay, with the error", clock, taskFailed},
		{"returned", "a task that is handed back is due at once, and the attempt does not count", 0, taskReturned},
		{"given-up", "a task that is given up is kept and listed, and neither due nor claimed", 0, taskGivenUp},
		{"retry", "a retried task is due at once; one that was given up begins anew", clock, taskRetry},
		{"drop", "a dropped task is removed, also while somebody holds it", dated, taskDrop},
		{"missing", "whoever names a task that does not exist is told so", 0, taskMissing},
		{"list", "tasks are listed in the order of sessions and ids, page by page, of one tenant", 0, taskList},
		{"framework", "a task without an agent is listed, claimed and finished as any other, of a session or not", alone, taskFramework},
		{"due-kinds", "tasks of other agents and kinds are not listed, however many there are", alone, taskDueKinds},
		{"due-fair", "each tenant's longest due task is listed, however many another tenant has", alone | dated, taskDueFair},
		{"due-pages", "due tasks are listed page by page, by tenant", alone, taskDuePages},
		{"due-again", "a task that is due again is listed after all others were handled", alone | second, taskDueAgain},
		{"old", "tasks that were due or given up before a time are listed, the oldest first", alone, taskOld},
		{"delete", "deleting a session deletes the tasks of its tree; a task without a session stays", 0, taskDelete},
		{"delete-race", "a deletion against everything that adds or changes tasks leaves none", second, taskDeleteRace},
		{"copy", "neither a copy of a session nor a rewind copies or removes tasks", 0, taskCopy},
		{"put-race", "concurrent additions of the same tasks add each once", second, taskPutRace},
		{"finish-race", "of concurrent results of one hold exactly one is recorded", second, taskFinishRace},
	}
}

// task returns a task of the case's own agent.
func (t *bed) task(sessionID, id string) session.Task {
	return session.Task{ID: id, Kind: "work", Agent: t.tenant, SessionID: sessionID, RunID: "run-1", Body: raw(`{ "id": "ü" }`)}
}

func (t *bed) kinds() []session.TaskKind { return []session.TaskKind{{Agent: t.tenant, Kind: "work"}} }

// putTasks adds tasks, which must succeed.
func (t *bed) putTasks(tasks ...session.Task) {
	t.Helper()
	t.ok(t.store().PutTasks(t.Context(), tasks), "PutTasks")
}

// tasks lists all tasks of the case's tenant.
func (t *bed) tasks(s session.Store) []session.Task {
	t.Helper()
	var out []session.Task
	for query := (session.TaskQuery{Limit: session.MaxPageSize}); ; {
		page, err := s.ListTasks(t.Context(), query)
		t.ok(err, "ListTasks")
		out = append(out, page.Items...)
		if !page.HasMore {
			return out
		}
		query.Cursor = page.Next
	}
}

// tasksAre checks which tasks the tenant has.
func (t *bed) tasksAre(want ...string) {
	t.Helper()
	sameJSON(t, "tasks", refs(t.tasks(t.store())), append([]string{}, want...))
}

func refs(tasks []session.Task) []string {
	out := []string{}
	for i := range tasks {
		out = append(out, tasks[i].SessionID+"/"+tasks[i].ID)
	}
	return out
}

// getTask returns a task that must exist.
func (t *bed) getTask(ref session.TaskRef) session.Task {
	t.Helper()
	for _, task := range t.tasks(t.store()) {
		if task.Ref() == ref {
			return task
		}
	}
	t.Fatalf("there is no task %s", ref)
	return session.Task{}
}

// dueTasks lists the tasks that are due of the case's own agent, of its tenant.
func (t *bed) dueTasks() []string {
	t.Helper()
	list, err := t.store().DueTasks(t.Context(), session.TaskRequest{Kinds: t.kinds(), Limit: everythingDue})
	t.ok(err, "DueTasks")
	return refs(list)
}

func (t *bed) dueIs(want ...string) {
	t.Helper()
	sameJSON(t, "due tasks", t.dueTasks(), append([]string{}, want...))
}

func (t *bed) claimTask(ref session.TaskRef, owner string) (*session.Task, error) {
	return t.store().ClaimTask(t.Context(), session.TaskClaim{TaskRef: ref, Owner: owner, TTL: time.Hour})
}

// hold claims a task, which must succeed.
func (t *bed) hold(ref session.TaskRef, owner string) *session.Task {
	t.Helper()
	task, err := t.claimTask(ref, owner)
	t.ok(err, "ClaimTask "+ref.String())
	return task
}

// holdBriefly is hold until the case can wait for the hold's end.
func (t *bed) holdBriefly(ref session.TaskRef, owner string) *session.Task {
	t.Helper()
	task, err := t.store().ClaimTask(t.Context(), session.TaskClaim{TaskRef: ref, Owner: owner, TTL: t.ttl()})
	t.ok(err, "ClaimTask "+ref.String())
	return task
}

func (t *bed) finishTask(task *session.Task, result session.TaskResult) error {
	return t.store().FinishTask(t.Context(), task.Ref(), task.Fence(), result)
}

// sameTasks checks that a refused operation changes no task.
func (t *bed) sameTasks(what string, do func()) {
	t.Helper()
	before := show(t.tasks(t.store()))
	do()
	if after := show(t.tasks(t.store())); after != before {
		t.Fatalf("%s changed tasks:\nbefore: %s\nafter: %s", what, before, after)
	}
}

func taskPut(t *bed) {
	t.create("a")
	version := t.load("a").Version
	before := t.now()
	free, later := t.task("", "free"), t.task("a", "later")
	later.DueAt, later.Body = noon.AddDate(100, 0, 0), nil
	t.putTasks(free)
	t.putTasks(t.task("a", "one"), later)
	t.ok(t.store().PutTasks(t.Context(), nil), "PutTasks of none")
	t.tasksAre("/free", "a/later", "a/one")
	got := t.getTask(session.TaskRef{SessionID: "a", ID: "one"})
	if got.CreatedAt.Before(before.Truncate(time.Microsecond)) || !got.DueAt.Equal(got.CreatedAt) {
		t.Fatalf("the task was created at %v and is due at %v; it was put after %v", got.CreatedAt, got.DueAt, before)
	}
	want := t.task("a", "one")
	want.Tenant, want.DueAt, want.CreatedAt = t.tenant, got.DueAt, got.CreatedAt
	equal(t, "task", got, want)
	sameTime(t, "due", t.getTask(session.TaskRef{SessionID: "a", ID: "later"}).DueAt, later.DueAt)
	t.dueIs("/free")

	other := t.task("a", "one")
	other.Kind, other.Body, other.Attempts, other.Owner, other.GivenUpAt = "other", raw(`1`), 7, "me", noon
	t.putTasks(other, t.task("a", "two"))
	equal(t, "task that was put again", t.getTask(got.Ref()), got)
	fresh := t.task("a", "three")
	fresh.Attempts, fresh.Owner, fresh.GivenUpAt, fresh.LastError, fresh.CreatedAt = 7, "me", noon, "x", noon
	t.putTasks(fresh)
	got = t.getTask(fresh.Ref())
	if got.Attempts != 0 || got.Owner != "" || !got.GivenUpAt.IsZero() || got.LastError != "" || got.CreatedAt.Equal(noon) {
		t.Fatalf("a new task has what only the store writes: %+v", got)
	}
	equal(t, "version of the session", t.load("a").Version, version)
	elsewhere := t.of("elsewhere")
	elsewhere.tasksAre()
}

func taskPutMissing(t *bed) {
	err := t.store().PutTasks(t.Context(), []session.Task{t.task("nobody", "one"), t.task("nobody", "two")})
	t.refused(err, session.ErrNotFound, "PutTasks")
	t.tasksAre()
	t.create("nobody")
	t.tasksAre()
}

// badTasks are tasks that cannot be stored.
func (t *bed) badTasks() map[string]session.Task {
	out := map[string]session.Task{}
	add := func(name string, change func(*session.Task)) {
		task := t.task("", "bad")
		change(&task)
		out[name] = task
	}
	add("no id", func(task *session.Task) { task.ID = "" })
	add("long id", func(task *session.Task) { task.ID = strings.Repeat("x", session.MaxIDBytes+1) })
	add("zero byte in the id", func(task *session.Task) { task.ID = "a\x00b" })
	add("no kind", func(task *session.Task) { task.Kind = "" })
	add("long kind", func(task *session.Task) { task.Kind = strings.Repeat("x", session.MaxIDBytes+1) })
	add("agent that is not UTF-8", func(task *session.Task) { task.Agent = "a\xff" })
	add("body that is no JSON", func(task *session.Task) { task.Body = raw(`{`) })
	add("large body", func(task *session.Task) {
		task.Body = raw(`"` + strings.Repeat("x", session.MaxTaskBody) + `"`)
	})
	add("due before all times", func(task *session.Task) { task.DueAt = time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC) })
	return out
}

func taskBounds(t *bed) {
	for name, bad := range t.badTasks() {
		err := t.store().PutTasks(t.Context(), []session.Task{t.task("", "good"), bad})
		if !errors.Is(err, session.ErrInvalid) && !errors.Is(err, session.ErrTooLarge) {
			t.Fatalf("a task with %s: got %v", name, err)
		}
	}
	t.create("a")
	mixed := []session.Task{t.task("", "good"), t.task("a", "good")}
	t.refused(t.store().PutTasks(t.Context(), mixed), session.ErrInvalid, "tasks of two sessions")
	many := make([]session.Task, session.MaxTasks+1)
	for i := range many {
		many[i] = t.task("", fmt.Sprintf("many-%03d", i))
		many[i].Body = raw(`"` + strings.Repeat("x", session.MaxTaskBody-2) + `"`)
	}
	t.refused(t.store().PutTasks(t.Context(), many), session.ErrInvalid, "too many tasks")
	t.tasksAre()
	t.putTasks(many[1:]...)
	equal(t, "tasks", len(t.tasks(t.store())), session.MaxTasks)
	equal(t, "large body", string(t.getTask(many[1].Ref()).Body), string(many[1].Body))

	ref := many[1].Ref()
	for name, claim := range map[string]session.TaskClaim{
		"no owner":      {TaskRef: ref, TTL: time.Minute},
		"no time":       {TaskRef: ref, Owner: "me"},
		"negative time": {TaskRef: ref, Owner: "me", TTL: -1},
		"no id":         {Owner: "me", TTL: time.Minute},
	} {
		_, err := t.store().ClaimTask(t.Context(), claim)
		t.refused(err, session.ErrInvalid, "a claim with "+name)
	}
	held := t.hold(ref, "me")
	t.sameTasks("an invalid renewal or result", func() {
		t.refused(t.store().RenewTask(t.Context(), ref, held.Fence(), 0), session.ErrInvalid, "a renewal for no time")
		t.refused(t.finishTask(held, session.TaskResult{}), session.ErrInvalid, "no outcome")
		t.refused(t.finishTask(held, session.TaskResult{Outcome: session.TaskFailed, After: -1}), session.ErrInvalid, "a negative delay")
	})
	_, err := t.store().ListTasks(t.Context(), session.TaskQuery{Cursor: "?"})
	t.refused(err, session.ErrInvalid, "a cursor of no listing")
}

func taskCommit(t *bed) {
	r := t.running("a")
	change := session.Change{
		Messages: []session.Message{user("u1", "x")}, StepCount: new(1),
		Tasks: []session.Task{t.task("", "one"), t.task("a", "two")},
	}
	stale := r.request(change)
	stale.Version--
	r.refuse(stale, session.ErrStale)
	t.tasksAre()
	request := r.request(change)
	r.commit(change)
	t.tasksAre("a/one", "a/two")
	got := t.getTask(session.TaskRef{SessionID: "a", ID: "one"})
	want := t.task("a", "one")
	want.Tenant, want.DueAt, want.CreatedAt = t.tenant, got.DueAt, got.CreatedAt
	equal(t, "task", got, want)
	if got.CreatedAt.IsZero() || !got.DueAt.Equal(got.CreatedAt) {
		t.Fatalf("the task was created at %v and is due at %v", got.CreatedAt, got.DueAt)
	}
	t.dueIs("a/one")

	t.ok(t.finishTask(t.hold(got.Ref(), "me"), session.TaskResult{Outcome: session.TaskDone}), "FinishTask")
	out, err := t.store().Commit(t.Context(), request)
	t.ok(err, "the same commit again")
	equal(t, "repeated", out.Repeated, true)
	t.tasksAre("a/two")

	same := t.task("a", "two")
	same.Kind = "other"
	r.commit(session.Change{Tasks: []session.Task{same, t.task("", "three")}})
	t.tasksAre("a/three", "a/two")
	equal(t, "kind of a task that was added before", t.getTask(same.Ref()).Kind, "work")
}

func taskChanges(t *bed) {
	start := createAndStart(blank("a"), "run-1")
	start.Tasks = []session.Task{t.task("", "start")}
	r := t.begin(start)
	first := step(1, "cp-1", user("u1", "x"), reply("m1", "c1"))
	first.Tasks, first.Calls = []session.Task{t.task("", "reply")}, []session.Call{call("m1", "c1", 0)}
	r.commit(first)
	m := result("c1", `1`)
	second := step(2, "cp-2")
	second.Promote = &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1", Message: &m}}}
	second.Tasks = []session.Task{t.task("", "results")}
	r.commit(second)
	rewind := session.Change{KeepMessages: new(1), State: &session.CustomState{}, Tasks: []session.Task{t.task("", "rewind")}}
	r.commit(rewind)
	many := session.Change{}
	for i := range session.MaxTasks {
		many.Tasks = append(many.Tasks, t.task("", fmt.Sprintf("many-%02d", i)))
	}
	r.commit(many)
	end := outcome(session.RunCompleted)
	end.Tasks = []session.Task{t.task("", "end")}
	r.commit(end)
	t.ok(t.store().CloseRun(t.Context(), "a", r.fence, true), "close run")

	_, err := t.store().Edit(t.Context(), &session.Edit{SessionID: "b", Create: blank("b"), Change: session.Change{Tasks: []session.Task{t.task("", "create")}}})
	t.ok(err, "create with a task")
	_, err = t.store().Edit(t.Context(), &session.Edit{SessionID: "b", Change: session.Change{
		Messages: []session.Message{user("u1", "x")}, Tasks: []session.Task{t.task("b", "edit")},
	}})
	t.ok(err, "edit with a task")
	begin := t.startOf("b", "run-1")
	begin.Tasks = []session.Task{t.task("b", "start")}
	t.begin(begin)

	want := []string{"a/end"}
	for i := range session.MaxTasks {
		want = append(want, fmt.Sprintf("a/many-%02d", i))
	}
	t.tasksAre(append(want, "a/reply", "a/results", "a/rewind", "a/start", "b/create", "b/edit", "b/start")...)
	t.drain()
}

// drain carries out all tasks of the case's agent, which shows that each is found,
// and returns their names in order.
func (t *bed) drain() []string {
	t.Helper()
	var out []string
	for left := len(t.tasks(t.store())); left > 0; left-- {
		list, err := t.store().DueTasks(t.Context(), session.TaskRequest{Kinds: t.kinds()})
		t.ok(err, "DueTasks")
		if len(list) != 1 {
			t.Fatalf("%d tasks are left, and %v are due", left, refs(list))
		}
		held := t.hold(list[0].Ref(), "me")
		t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), "FinishTask")
		out = append(out, refs(list)...)
	}
	t.tasksAre()
	t.dueIs()
	return out
}

func taskCommitBounds(t *bed) {
	r := t.running("a")
	t.create("b")
	for name, bad := range t.badTasks() {
		c := r.request(session.Change{Messages: []session.Message{user("u1", "x")}, Tasks: []session.Task{t.task("", "good"), bad}})
		before := t.snapshot("a")
		if _, err := t.store().Commit(t.Context(), c); !errors.Is(err, session.ErrInvalid) && !errors.Is(err, session.ErrTooLarge) {
			t.Fatalf("a commit with a task with %s: got %v", name, err)
		}
		t.sameSnapshot("a", before)
	}
	r.refuse(r.request(session.Change{Tasks: []session.Task{t.task("b", "foreign")}}), session.ErrInvalid)
	many := make([]session.Task, session.MaxTasks+1)
	for i := range many {
		many[i] = t.task("", fmt.Sprint(i))
	}
	r.refuse(r.request(session.Change{Tasks: many}), session.ErrInvalid)
	start := t.startOf("b", "run-1")
	start.Tasks = []session.Task{t.task("a", "foreign")}
	_, err := t.store().StartRun(t.Context(), start)
	t.refused(err, session.ErrInvalid, "a start with another session's task")
	t.tasksAre()
}

func taskClaim(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "one"))
	ref := session.TaskRef{SessionID: "a", ID: "one"}
	held := t.hold(ref, "me")
	equal(t, "fence", held.Fence(), session.TaskFence{Owner: "me", Attempt: 1})
	equal(t, "body", string(held.Body), string(t.task("a", "one").Body))
	equal(t, "task in the list", t.getTask(ref), *held)
	if !held.DueAt.After(held.CreatedAt) {
		t.Fatalf("the hold expires at %v; it began after %v", held.DueAt, held.CreatedAt)
	}
	t.dueIs()
	t.sameTasks("a refused claim", func() {
		_, err := t.claimTask(ref, "other")
		t.refused(err, session.ErrStale, "a claim of a held task")
		_, err = t.claimTask(ref, "me")
		t.refused(err, session.ErrStale, "a claim of one's own task")
		_, err = t.of("other").claimTask(ref, "me")
		t.refused(err, session.ErrNotFound, "a claim of another tenant's task")
	})
}

func taskClaimRace(t *bed) {
	t.create("a")
	for _, ref := range []session.TaskRef{{SessionID: "a", ID: "one"}, {ID: "free"}} {
		t.putTasks(t.task(ref.SessionID, ref.ID))
		errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
			_, err := s.ClaimTask(ctx, session.TaskClaim{TaskRef: ref, Owner: fmt.Sprint("owner-", i), TTL: time.Hour})
			return err
		})
		winner := t.oneWinner(errs, session.ErrStale)
		got := t.getTask(ref)
		equal(t, "fence", got.Fence(), session.TaskFence{Owner: fmt.Sprint("owner-", winner), Attempt: 1})
	}
}

func taskNotDue(t *bed) {
	later, soon := t.task("", "later"), t.task("", "soon")
	later.DueAt = t.now().Add(time.Hour)
	t.putTasks(later)
	t.dueIs()
	_, err := t.claimTask(later.Ref(), "me")
	t.refused(err, session.ErrStale, "a claim before it is due")
	soon.DueAt = t.now().Add(t.ttl())
	t.putTasks(soon)
	t.pass(t.ttl() + time.Millisecond)
	t.dueIs("/soon")
	t.hold(soon.Ref(), "me")
}

func taskExpired(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "one"))
	ref := session.TaskRef{SessionID: "a", ID: "one"}
	lost := t.holdBriefly(ref, "me")
	if due := t.dueTasks(); t.now().Before(lost.DueAt) {
		sameJSON(t, "due while it is held", due, []string{})
	}
	t.pass(t.ttl() + time.Millisecond)
	t.dueIs("a/one")
	held := t.hold(ref, "other")
	equal(t, "fence", held.Fence(), session.TaskFence{Owner: "other", Attempt: 2})
	t.sameTasks("a lost hold", func() {
		t.refused(t.store().RenewTask(t.Context(), ref, lost.Fence(), time.Hour), session.ErrStale, "RenewTask")
		for _, outcome := range []session.TaskOutcome{session.TaskDone, session.TaskFailed, session.TaskGivenUp, session.TaskReturned} {
			t.refused(t.finishTask(lost, session.TaskResult{Outcome: outcome}), session.ErrStale, "FinishTask")
		}
	})
	t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), "FinishTask")
	t.tasksAre()
}

func taskRenew(t *bed) {
	t.putTasks(t.task("", "one"))
	held := t.holdBriefly(session.TaskRef{ID: "one"}, "me")
	t.pass(t.ttl() / 2)
	t.ok(t.store().RenewTask(t.Context(), held.Ref(), held.Fence(), time.Hour), "RenewTask")
	t.pass(t.ttl())
	t.dueIs()
	_, err := t.claimTask(held.Ref(), "other")
	t.refused(err, session.ErrStale, "a claim of a renewed hold")
	t.ok(t.store().RenewTask(t.Context(), held.Ref(), held.Fence(), t.ttl()), "RenewTask for a shorter time")
	t.pass(t.ttl() + time.Millisecond)
	t.dueIs("/one")
	t.ok(t.store().RenewTask(t.Context(), held.Ref(), held.Fence(), time.Hour), "RenewTask of an expired hold that nobody took")
	t.dueIs()
}

func taskFence(t *bed) {
	t.putTasks(t.task("", "one"))
	ref := session.TaskRef{ID: "one"}
	none := session.TaskFence{}
	t.refused(t.store().RenewTask(t.Context(), ref, none, time.Hour), session.ErrStale, "RenewTask without a hold")
	t.refused(t.store().FinishTask(t.Context(), ref, none, session.TaskResult{Outcome: session.TaskDone}), session.ErrStale, "FinishTask without a hold")
	t.hold(ref, "me")
	t.sameTasks("a foreign hold", func() {
		for _, fence := range []session.TaskFence{none, {Owner: "other", Attempt: 1}, {Owner: "me", Attempt: 2}, {Owner: "me"}, {Attempt: 1}} {
			t.refused(t.store().RenewTask(t.Context(), ref, fence, time.Hour), session.ErrStale, "RenewTask")
			t.refused(t.store().FinishTask(t.Context(), ref, fence, session.TaskResult{Outcome: session.TaskDone}), session.ErrStale, "FinishTask")
		}
	})
}

func taskDone(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Tasks: []session.Task{t.task("", "one"), t.task("", "two")}})
	held := t.hold(session.TaskRef{SessionID: "a", ID: "one"}, "me")
	t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), "FinishTask")
	t.tasksAre("a/two")
	t.dueIs("a/two")
	t.refused(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), session.ErrNotFound, "FinishTask again")
	_, err := t.claimTask(held.Ref(), "me")
	t.refused(err, session.ErrNotFound, "a claim of a task that is done")
	again := t.task("a", "one")
	again.DueAt = noon
	t.putTasks(again)
	sameJSON(t, "tasks in the order in which they are due", t.drain(), []string{"a/one", "a/two"})
}

func taskFailed(t *bed) {
	t.putTasks(t.task("", "one"))
	ref := session.TaskRef{ID: "one"}
	long := strings.Repeat("é", 10_000) + "\x00\xff"
	t.ok(t.finishTask(t.hold(ref, "me"), session.TaskResult{Outcome: session.TaskFailed, Error: long, After: time.Hour}), "FinishTask")
	got := t.getTask(ref)
	equal(t, "owner and attempts", got.Fence(), session.TaskFence{Attempt: 1})
	if n := len(got.LastError); n < 500 || n > 2000 || !strings.HasPrefix(got.LastError, "éé") {
		t.Fatalf("the error is stored with %d bytes", n)
	}
	t.dueIs()
	_, err := t.claimTask(ref, "me")
	t.refused(err, session.ErrStale, "a claim before the delay has passed")
	t.ok(t.store().RetryTask(t.Context(), ref), "RetryTask")
	t.ok(t.finishTask(t.hold(ref, "me"), session.TaskResult{Outcome: session.TaskFailed, After: t.ttl()}), "FinishTask")
	t.pass(t.ttl() + time.Millisecond)
	t.dueIs("/one")
	held := t.hold(ref, "me")
	equal(t, "attempts", held.Attempts, 3)
	t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskFailed, Error: "third"}), "FinishTask")
	equal(t, "error", t.getTask(ref).LastError, "third")
	t.dueIs("/one")
}

func taskReturned(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "one"))
	ref := session.TaskRef{SessionID: "a", ID: "one"}
	t.ok(t.finishTask(t.hold(ref, "first"), session.TaskResult{Outcome: session.TaskFailed, Error: "x"}), "FinishTask")
	t.ok(t.finishTask(t.hold(ref, "second"), session.TaskResult{Outcome: session.TaskReturned, Error: "not this"}), "FinishTask")
	got := t.getTask(ref)
	equal(t, "owner and attempts", got.Fence(), session.TaskFence{Attempt: 1})
	equal(t, "error", got.LastError, "x")
	t.dueIs("a/one")
	equal(t, "attempts", t.hold(ref, "third").Attempts, 2)
}

func taskGivenUp(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "one"), t.task("a", "two"))
	ref := session.TaskRef{SessionID: "a", ID: "one"}
	held := t.hold(ref, "me")
	t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskGivenUp, Error: "never"}), "FinishTask")
	got := t.getTask(ref)
	if got.GivenUpAt.IsZero() || got.Owner != "" || got.Attempts != 1 || got.LastError != "never" {
		t.Fatalf("the task was not given up: %+v", got)
	}
	t.dueIs("a/two")
	t.sameTasks("a task that was given up", func() {
		_, err := t.claimTask(ref, "me")
		t.refused(err, session.ErrStale, "ClaimTask")
		t.refused(t.store().RenewTask(t.Context(), ref, held.Fence(), time.Hour), session.ErrStale, "RenewTask")
		t.refused(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), session.ErrStale, "FinishTask")
		t.putTasks(t.task("a", "one"))
	})
	page, err := t.store().ListTasks(t.Context(), session.TaskQuery{GivenUp: true})
	t.ok(err, "ListTasks")
	sameJSON(t, "given up", refs(page.Items), []string{"a/one"})
}

func taskRetry(t *bed) {
	t.putTasks(t.task("", "failed"))
	t.ok(t.finishTask(t.hold(session.TaskRef{ID: "failed"}, "me"), session.TaskResult{Outcome: session.TaskFailed, Error: "x", After: time.Hour}), "FinishTask")
	t.dueIs()
	t.ok(t.store().RetryTask(t.Context(), session.TaskRef{ID: "failed"}), "RetryTask")
	t.dueIs("/failed")
	held := t.hold(session.TaskRef{ID: "failed"}, "me")
	equal(t, "attempts", held.Attempts, 2)
	t.sameTasks("a retry of a held task", func() {
		t.refused(t.store().RetryTask(t.Context(), held.Ref()), session.ErrStale, "RetryTask")
	})
	t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskGivenUp, Error: "last"}), "FinishTask")
	t.dueIs()
	t.ok(t.store().RetryTask(t.Context(), held.Ref()), "RetryTask")
	t.dueIs("/failed")
	got := t.getTask(held.Ref())
	if got.Attempts != 0 || !got.GivenUpAt.IsZero() || got.LastError != "last" {
		t.Fatalf("the task does not begin anew: %+v", got)
	}
	page, err := t.store().ListTasks(t.Context(), session.TaskQuery{GivenUp: true})
	t.ok(err, "ListTasks")
	equal(t, "given up", len(page.Items), 0)
	lost := t.holdBriefly(held.Ref(), "other")
	t.pass(t.ttl() + time.Millisecond)
	t.ok(t.store().RetryTask(t.Context(), lost.Ref()), "RetryTask of an expired hold")
	t.refused(t.finishTask(lost, session.TaskResult{Outcome: session.TaskDone}), session.ErrStale, "FinishTask of an expired hold")
	t.dueIs("/failed")
}

func taskDrop(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "held"), t.task("a", "waiting"))
	held := t.hold(session.TaskRef{SessionID: "a", ID: "held"}, "me")
	t.ok(t.store().DropTask(t.Context(), held.Ref(), time.Time{}), "DropTask")
	t.refused(t.finishTask(held, session.TaskResult{Outcome: session.TaskDone}), session.ErrNotFound, "FinishTask of a dropped task")
	t.refused(t.of("other").store().DropTask(t.Context(), session.TaskRef{SessionID: "a", ID: "waiting"}, time.Time{}), session.ErrNotFound, "DropTask of another tenant")
	t.tasksAre("a/waiting")
	waiting := session.TaskRef{SessionID: "a", ID: "waiting"}
	t.sameTasks("a drop of a task that was not given up, or not before", func() {
		t.refused(t.store().DropTask(t.Context(), waiting, t.now().Add(time.Hour)), session.ErrStale, "DropTask")
	})
	t.ok(t.finishTask(t.hold(session.TaskRef{SessionID: "a", ID: "waiting"}, "me"), session.TaskResult{Outcome: session.TaskGivenUp}), "FinishTask")
	t.refused(t.store().DropTask(t.Context(), waiting, t.getTask(waiting).GivenUpAt), session.ErrStale, "DropTask of one that was given up later")
	t.ok(t.store().DropTask(t.Context(), waiting, t.now().Add(time.Hour)), "DropTask of one that was given up")
	t.tasksAre()
	t.dueIs()
}

func taskMissing(t *bed) {
	t.create("a")
	ctx, s, fence := t.Context(), t.store(), session.TaskFence{Owner: "me", Attempt: 1}
	for _, ref := range []session.TaskRef{{SessionID: "a", ID: "none"}, {SessionID: "nobody", ID: "none"}, {ID: "none"}} {
		_, err := t.claimTask(ref, "me")
		t.refused(err, session.ErrNotFound, "ClaimTask")
		t.refused(s.RenewTask(ctx, ref, fence, time.Hour), session.ErrNotFound, "RenewTask")
		t.refused(s.FinishTask(ctx, ref, fence, session.TaskResult{Outcome: session.TaskDone}), session.ErrNotFound, "FinishTask")
		t.refused(s.RetryTask(ctx, ref), session.ErrNotFound, "RetryTask")
		t.refused(s.DropTask(ctx, ref, time.Time{}), session.ErrNotFound, "DropTask")
	}
}

func taskList(t *bed) {
	want := []string{}
	for _, id := range []string{"b", "a", "a.b"} {
		t.create(id)
		t.putTasks(t.task(id, "two"), t.task(id, "one"))
	}
	t.putTasks(t.task("", "z"))
	t.of("elsewhere").putTasks(t.task("", "elsewhere"))
	want = append(want, "/z", "a/one", "a/two", "a.b/one", "a.b/two", "b/one", "b/two")
	t.tasksAre(want...)
	for _, ref := range []session.TaskRef{{SessionID: "a", ID: "two"}, {SessionID: "b", ID: "one"}, {ID: "z"}} {
		t.ok(t.finishTask(t.hold(ref, "me"), session.TaskResult{Outcome: session.TaskGivenUp}), "FinishTask")
	}
	for _, query := range []session.TaskQuery{{Limit: 2}, {Limit: 2, GivenUp: true}, {Limit: 1, GivenUp: true}, {Limit: 3}} {
		all := want
		if query.GivenUp {
			all = []string{"/z", "a/two", "b/one"}
		}
		var got []string
		for range len(all) + 1 {
			page, err := t.store().ListTasks(t.Context(), query)
			t.ok(err, "ListTasks")
			equal(t, "limit", page.Limit, query.Limit)
			if len(page.Items) > query.Limit || page.HasMore != (page.Next != "") {
				t.Fatalf("a page of %d: %d tasks, more is %v, next is %q", query.Limit, len(page.Items), page.HasMore, page.Next)
			}
			got = append(got, refs(page.Items)...)
			if query.Cursor = page.Next; !page.HasMore {
				break
			}
		}
		sameJSON(t, "pages", got, all)
	}
}

// manyTasks is more than a store reads before it visits tenants one by one.
const manyTasks = 300

// putMany adds tasks of an agent and kind.
func (t *bed) putMany(n int, agent, kind string) {
	t.Helper()
	for at := 0; at < n; at += session.MaxTasks {
		var tasks []session.Task
		for i := at; i < min(n, at+session.MaxTasks); i++ {
			tasks = append(tasks, session.Task{ID: fmt.Sprintf("%s-%s-%04d", agent, kind, i), Kind: kind, Agent: agent, DueAt: noon})
		}
		t.putTasks(tasks...)
	}
}

func taskDueKinds(t *bed) {
	t.putMany(manyTasks, "unknown", "work")
	t.putMany(manyTasks, "known", "other")
	mine := session.Task{ID: "mine", Kind: "work", Agent: "known", DueAt: noon}
	t.putTasks(mine, session.Task{ID: "framework", Kind: "work"})
	list := func(kinds ...session.TaskKind) []string {
		t.Helper()
		got, err := t.store().DueTasks(t.Context(), session.TaskRequest{Kinds: kinds})
		t.ok(err, "DueTasks")
		return refs(got)
	}
	known, framework := session.TaskKind{Agent: "known", Kind: "work"}, session.TaskKind{Kind: "work"}
	sameJSON(t, "due", list(known), []string{"/mine"})
	sameJSON(t, "due", list(framework), []string{"/framework"})
	sameJSON(t, "due of both", list(framework, session.TaskKind{Agent: "nobody", Kind: "work"}, known), []string{"/mine"})
	equal(t, "due of none", len(list()), 0)
	equal(t, "due of an unknown kind", len(list(session.TaskKind{Agent: "known", Kind: "nothing"})), 0)
	t.hold(mine.Ref(), "me")
	sameJSON(t, "due of both, one is held", list(known, framework), []string{"/framework"})
	sameJSON(t, "the longest due of all", list(framework, session.TaskKind{Agent: "unknown", Kind: "work"}), []string{"/unknown-work-0000"})
}

func taskFramework(t *bed) {
	kinds := []session.TaskKind{{Kind: "upkeep"}}
	list := func(want ...string) {
		t.Helper()
		got, err := t.store().DueTasks(t.Context(), session.TaskRequest{Kinds: kinds})
		t.ok(err, "DueTasks")
		sameJSON(t, "due", refs(got), append([]string{}, want...))
	}
	r := t.running("a")
	r.commit(session.Change{Tasks: []session.Task{{ID: "committed", Kind: "upkeep", DueAt: noon}}})
	t.putTasks(session.Task{ID: "put", Kind: "upkeep", DueAt: noon.Add(time.Second)})
	for _, ref := range []session.TaskRef{{SessionID: "a", ID: "committed"}, {ID: "put"}} {
		list(ref.SessionID + "/" + ref.ID)
		held := t.hold(ref, "me")
		equal(t, "agent", held.Agent, "")
		_, err := t.claimTask(ref, "other")
		t.refused(err, session.ErrStale, "ClaimTask of a held task")
		t.ok(t.store().RenewTask(t.Context(), ref, held.Fence(), time.Hour), "RenewTask")
		t.ok(t.finishTask(held, session.TaskResult{Outcome: session.TaskFailed, Error: "x"}), "FinishTask")
		t.ok(t.finishTask(t.hold(ref, "other"), session.TaskResult{Outcome: session.TaskDone}), "FinishTask")
	}
	list()
	t.tasksAre()
}

func taskDueFair(t *bed) {
	loud, quiet := t.of("loud"), t.of("quiet")
	loud.putMany(manyTasks, "agent", "work")
	late := session.Task{ID: "one", Kind: "work", Agent: "agent"}
	quiet.putTasks(late)
	later := late
	later.ID, later.DueAt = "later", t.now().Add(time.Hour)
	t.of("patient").putTasks(later)
	request := session.TaskRequest{Kinds: []session.TaskKind{{Agent: "agent", Kind: "work"}}}
	got, err := t.store().DueTasks(t.Context(), request)
	t.ok(err, "DueTasks")
	sameJSON(t, "due", refs(got), []string{"/agent-work-0000", "/one"})
	equal(t, "tenant", got[1].Tenant, quiet.tenant)

	// Whoever claims what is listed serves both, one by one.
	loud.hold(got[0].Ref(), "me")
	got, err = t.store().DueTasks(t.Context(), request)
	t.ok(err, "DueTasks")
	sameJSON(t, "due", refs(got), []string{"/agent-work-0001", "/one"})
	quiet.hold(late.Ref(), "me")
	got, err = t.store().DueTasks(t.Context(), request)
	t.ok(err, "DueTasks")
	sameJSON(t, "due", refs(got), []string{"/agent-work-0001"})
	request.After = loud.tenant
	got, err = t.store().DueTasks(t.Context(), request)
	t.ok(err, "DueTasks")
	equal(t, "due after the last tenant", len(got), 0)
}

func taskDuePages(t *bed) {
	for _, n := range []int{1, manyTasks} {
		kind := fmt.Sprint("work-", n)
		t.of("c").putMany(n, "agent", kind)
		t.of("a").putMany(2, "agent", kind)
		t.of("d").putMany(1, "agent", kind)
		t.of("b").putMany(1, "agent", kind)
		var tenants []string
		request := session.TaskRequest{Kinds: []session.TaskKind{{Agent: "agent", Kind: kind}}, Limit: 2}
		for range 4 {
			page, err := t.store().DueTasks(t.Context(), request)
			t.ok(err, "DueTasks")
			for i := range page {
				tenants = append(tenants, page[i].Tenant)
				equal(t, "id", page[i].ID, "agent-"+kind+"-0000")
			}
			if len(page) < request.Limit {
				break
			}
			request.After = page[len(page)-1].Tenant
		}
		sameJSON(t, "tenants", tenants, []string{t.of("a").tenant, t.of("b").tenant, t.of("c").tenant, t.of("d").tenant})
	}
}

// taskDueAgain carries out tasks over two handles, each of which fails once: first while
// so many others are due that tenants are visited one by one, then without them.
func taskDueAgain(t *bed) {
	const tasks = 40
	others := t.of("others")
	others.create("s")
	for at := 0; at < manyTasks; at += session.MaxTasks {
		var list []session.Task
		for i := range session.MaxTasks {
			list = append(list, session.Task{ID: fmt.Sprintf("other-%04d", at+i), Kind: "other", Agent: "agent", SessionID: "s", DueAt: noon})
		}
		others.putTasks(list...)
	}
	t.of("a").putMany(tasks, "agent", "work")
	t.of("b").putMany(3, "agent", "work")
	request := session.TaskRequest{Kinds: []session.TaskKind{{Agent: "agent", Kind: "work"}}}
	done := map[string]int{}
	for round := range 4 * tasks {
		if round == tasks*3/2 {
			t.ok(others.delete("s"), "delete the others")
		}
		b := t.Backend
		if round%2 == 1 {
			b = t.second()
		}
		list, err := b.Sessions().DueTasks(t.Context(), request)
		t.ok(err, "DueTasks")
		if len(list) == 0 {
			break
		}
		for i := range list {
			s := b.Sessions().Tenant(list[i].Tenant)
			held, err := s.ClaimTask(t.Context(), session.TaskClaim{TaskRef: list[i].Ref(), Owner: fmt.Sprint(round), TTL: time.Hour})
			t.ok(err, "ClaimTask")
			result := session.TaskResult{Outcome: session.TaskDone}
			if held.Attempts == 1 {
				result = session.TaskResult{Outcome: session.TaskFailed, Error: "once"}
			}
			t.ok(s.FinishTask(t.Context(), held.Ref(), held.Fence(), result), "FinishTask")
			done[held.Tenant+held.ID]++
		}
	}
	equal(t, "tasks", len(done), tasks+3)
	for name, n := range done {
		equal(t, "attempts of "+name, n, 2)
	}
	t.of("a").tasksAre()
	t.of("b").tasksAre()
}

func taskOld(t *bed) {
	at := func(id string, due time.Time) session.Task {
		return session.Task{ID: id, Kind: "work", Agent: "gone", DueAt: due}
	}
	a, b := t.of("a"), t.of("b")
	b.putTasks(at("1", noon), at("3", noon.Add(2*time.Second)))
	a.putTasks(at("2", noon), at("4", noon.Add(3*time.Second)), at("late", noon.Add(time.Hour)), at("up", noon))
	held := a.hold(session.TaskRef{ID: "up"}, "me")
	t.ok(a.finishTask(held, session.TaskResult{Outcome: session.TaskGivenUp}), "FinishTask")
	request := session.OldTaskRequest{Before: noon.Add(time.Hour), Limit: 2}
	var got []string
	for range 5 {
		page, err := t.store().OldTasks(t.Context(), request)
		t.ok(err, "OldTasks")
		got = append(got, refs(page)...)
		if len(page) < request.Limit {
			break
		}
		request.After = &page[len(page)-1]
	}
	sameJSON(t, "old tasks", got, []string{"/2", "/1", "/3", "/4"})
	page, err := t.store().OldTasks(t.Context(), session.OldTaskRequest{Before: noon})
	t.ok(err, "OldTasks")
	equal(t, "tasks due before noon", len(page), 0)

	upAt := a.getTask(held.Ref()).GivenUpAt
	page, err = t.store().OldTasks(t.Context(), session.OldTaskRequest{Before: upAt, GivenUp: true})
	t.ok(err, "OldTasks")
	equal(t, "tasks given up before", len(page), 0)
	t.ok(b.finishTask(b.hold(session.TaskRef{ID: "3"}, "me"), session.TaskResult{Outcome: session.TaskGivenUp}), "FinishTask")
	request = session.OldTaskRequest{Before: upAt.Add(time.Hour), GivenUp: true, Limit: 1}
	page, err = t.store().OldTasks(t.Context(), request)
	t.ok(err, "OldTasks")
	sameJSON(t, "given up", refs(page), []string{"/up"})
	request.After = &page[0]
	page, err = t.store().OldTasks(t.Context(), request)
	t.ok(err, "OldTasks")
	sameJSON(t, "given up, second page", refs(page), []string{"/3"})
}

func taskDelete(t *bed) {
	t.create("root")
	t.create("kid", func(s *session.State) { s.ParentID, s.RootID = "root", "root" })
	t.create("other")
	t.putTasks(t.task("root", "one"))
	t.putTasks(t.task("kid", "one"), t.task("kid", "up"))
	t.putTasks(t.task("other", "one"))
	t.putTasks(t.task("", "clean-up"))
	held := t.hold(session.TaskRef{SessionID: "root", ID: "one"}, "me")
	t.ok(t.finishTask(t.hold(session.TaskRef{SessionID: "kid", ID: "up"}, "me"), session.TaskResult{Outcome: session.TaskGivenUp}), "FinishTask")
	t.ok(t.delete("root"), "delete")
	t.tasksAre("/clean-up", "other/one")
	t.refused(t.store().RenewTask(t.Context(), held.Ref(), held.Fence(), time.Hour), session.ErrNotFound, "RenewTask")
	t.refused(t.finishTask(held, session.TaskResult{Outcome: session.TaskFailed}), session.ErrNotFound, "FinishTask")
	page, err := t.store().ListTasks(t.Context(), session.TaskQuery{GivenUp: true})
	t.ok(err, "ListTasks")
	equal(t, "given up", len(page.Items), 0)
	t.create("root")
	t.tasksAre("/clean-up", "other/one")
	t.drain()
}

func taskDeleteRace(t *bed) {
	for round := range 5 {
		id := fmt.Sprintf("s%d", round)
		r := t.running(id)
		t.putTasks(t.task(id, "held"), t.task(id, "due"))
		held := t.hold(session.TaskRef{SessionID: id, ID: "held"}, "me")
		writes := []func(ctx context.Context, s session.Store) error{
			func(ctx context.Context, s session.Store) error { _, err := s.Delete(ctx, id); return err },
			func(ctx context.Context, s session.Store) error {
				_, err := s.Commit(ctx, r.request(session.Change{Tasks: []session.Task{t.task("", "committed")}}))
				return err
			},
			func(ctx context.Context, s session.Store) error {
				return s.PutTasks(ctx, []session.Task{t.task(id, "put")})
			},
			func(ctx context.Context, s session.Store) error {
				_, err := s.ClaimTask(ctx, session.TaskClaim{TaskRef: session.TaskRef{SessionID: id, ID: "due"}, Owner: "me", TTL: time.Hour})
				return err
			},
			func(ctx context.Context, s session.Store) error {
				return s.RenewTask(ctx, held.Ref(), held.Fence(), time.Hour)
			},
			func(ctx context.Context, s session.Store) error {
				return unless(s.FinishTask(ctx, held.Ref(), held.Fence(), session.TaskResult{Outcome: session.TaskFailed}), session.ErrStale)
			},
		}
		errs := t.race(len(writes), func(ctx context.Context, s session.Store, i int) error {
			return writes[(i+round)%len(writes)](ctx, s)
		})
		for i, err := range errs {
			if (i+round)%len(writes) == 0 {
				t.ok(err, "delete")
			} else if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrStale) {
				t.Fatalf("a write that came too late: %v", err)
			}
		}
		t.tasksAre()
		t.dueIs()
	}
}

func taskCopy(t *bed) {
	r := t.running("a")
	first := step(1, "cp-1", user("u1", "x"))
	first.Tasks = []session.Task{t.task("", "one")}
	r.commit(first)
	second := step(2, "cp-2", user("u2", "x"))
	second.Tasks = []session.Task{t.task("", "two")}
	r.commit(second)
	for name, clone := range map[string]session.Clone{
		"latest": {}, "point": {CheckpointID: "cp-1"}, "count": {MessageCount: new(1)},
	} {
		clone.From, clone.To = "a", *blank("copy-" + name)
		_, err := t.store().Clone(t.Context(), &clone)
		t.ok(err, "Clone")
	}
	r.commit(session.Change{KeepMessages: new(1), State: &session.CustomState{}})
	t.tasksAre("a/one", "a/two")
}

func taskPutRace(t *bed) {
	t.create("a")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		tasks := []session.Task{t.task("a", "one"), t.task("a", "two"), t.task("a", fmt.Sprint("own-", i))}
		if i%3 == 1 {
			slices.Reverse(tasks)
		}
		return s.PutTasks(ctx, tasks)
	})
	for _, err := range errs {
		t.ok(err, "PutTasks")
	}
	equal(t, "tasks", len(t.tasks(t.store())), racers+2)
	t.drain()
}

func taskFinishRace(t *bed) {
	t.create("a")
	t.putTasks(t.task("a", "one"))
	held := t.hold(session.TaskRef{SessionID: "a", ID: "one"}, "me")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		return s.FinishTask(ctx, held.Ref(), held.Fence(), session.TaskResult{Outcome: session.TaskFailed, Error: fmt.Sprint(i)})
	})
	winner := t.oneWinner(errs, session.ErrStale)
	equal(t, "error", t.getTask(held.Ref()).LastError, fmt.Sprint(winner))
}
