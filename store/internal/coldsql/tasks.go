package coldsql

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// Tasks are the tasks of one tenant. Those that are listed by sweeps are of all
// tenants.
type Tasks struct {
	db     Database
	tenant string
}

// NewTasks returns the tasks of a tenant.
func NewTasks(db Database, tenant string) Tasks { return Tasks{db, tenant} }

// TaskColumns are the columns of a task, in the order of [TaskValues].
const TaskColumns = "tenant, session_id, id, kind, agent, run_id, body, due_at, created_at, owner, attempts, last_error, given_up_at"

// TaskValues returns the values of a task's columns.
func TaskValues(t *session.Task) []any {
	return []any{
		t.Tenant, t.SessionID, t.ID, t.Kind, t.Agent, t.RunID, []byte(t.Body), t.DueAt, t.CreatedAt,
		t.Owner, t.Attempts, t.LastError, t.GivenUpAt,
	}
}

// readTask reads a task's columns.
func readTask(r Row) session.Task {
	return session.Task{
		Tenant: r.Text(), SessionID: r.Text(), ID: r.Text(), Kind: r.Text(), Agent: r.Text(), RunID: r.Text(), Body: r.Bytes(),
		DueAt: r.Time(), CreatedAt: r.Time(), Owner: r.Text(), Attempts: r.Int(), LastError: r.Text(), GivenUpAt: r.Time(),
	}
}

var (
	// The lock keeps a deletion of the session from leaving the task.
	findSession = Portable(`
SELECT 1 FROM helix.sessions WHERE tenant = ?1 AND id = ?2 {FOR KEY SHARE}`)

	// InsertTask adds a task with [TaskValues], unless its id exists.
	InsertTask = Portable(`
INSERT INTO helix.tasks (` + TaskColumns + `)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT DO NOTHING`)

	selectTask = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE tenant = ?1 AND session_id = ?2 AND id = ?3 {FOR UPDATE}`)

	updateTask = Portable(`
UPDATE helix.tasks SET due_at = ?4, owner = ?5, attempts = ?6, last_error = ?7, given_up_at = ?8
WHERE tenant = ?1 AND session_id = ?2 AND id = ?3`)

	deleteTask = Portable(`
DELETE FROM helix.tasks WHERE tenant = ?1 AND session_id = ?2 AND id = ?3`)
)

// PutTasks implements [session.Tasks].
func (s Tasks) PutTasks(ctx context.Context, tasks []session.Task) error {
	if err := session.CheckPutTasks(tasks); err != nil || len(tasks) == 0 {
		return err
	}
	// Two additions of the same tasks in different orders would wait for each other.
	ordered := slices.SortedFunc(slices.Values(tasks), func(a, b session.Task) int { return strings.Compare(a.ID, b.ID) })
	return s.db.WriteCold(ctx, "put tasks", func(c Conn) error {
		now, err := c.Now()
		if err != nil {
			return err
		}
		if id := tasks[0].SessionID; id != "" {
			found, err := one(c, findSession, func(Row) {}, s.tenant, id)
			if err != nil {
				return err
			}
			if !found {
				return session.NotFound(id)
			}
		}
		for i := range ordered {
			t := ordered[i].AsNew(s.tenant, "", now)
			if err := c.Exec(InsertTask, TaskValues(&t)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// change changes one task. If keep is false afterwards, the task is removed.
func (s Tasks) change(ctx context.Context, verb string, ref session.TaskRef, change func(t *session.Task, now time.Time) (keep bool, err error)) (*session.Task, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	var task session.Task
	err := s.db.WriteCold(ctx, "task "+ref.String()+": "+verb, func(c Conn) error {
		found, err := one(c, selectTask, func(r Row) { task = readTask(r) }, s.tenant, ref.SessionID, ref.ID)
		if err != nil {
			return err
		}
		if !found {
			return session.NoTask(ref)
		}
		now, err := c.Now()
		if err != nil {
			return err
		}
		keep, err := change(&task, now)
		switch {
		case err != nil:
			return err
		case !keep:
			return c.Exec(deleteTask, s.tenant, ref.SessionID, ref.ID)
		}
		return c.Exec(updateTask, s.tenant, ref.SessionID, ref.ID, task.DueAt, task.Owner, task.Attempts, task.LastError, task.GivenUpAt)
	})
	if err != nil {
		return nil, err
	}
	return &task, nil
}

// ClaimTask implements [session.Tasks].
func (s Tasks) ClaimTask(ctx context.Context, claim session.TaskClaim) (*session.Task, error) {
	if err := claim.Check(); err != nil {
		return nil, err
	}
	return s.change(ctx, "claim", claim.TaskRef, func(t *session.Task, now time.Time) (bool, error) {
		return true, claim.Apply(t, now)
	})
}

// RenewTask implements [session.Tasks].
func (s Tasks) RenewTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, ttl time.Duration) error {
	_, err := s.change(ctx, "renew", ref, func(t *session.Task, now time.Time) (bool, error) {
		return true, t.Renew(fence, ttl, now)
	})
	return err
}

// FinishTask implements [session.Tasks].
func (s Tasks) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	if err := result.Check(); err != nil {
		return err
	}
	_, err := s.change(ctx, "finish", ref, func(t *session.Task, now time.Time) (bool, error) {
		return result.Apply(t, fence, now)
	})
	return err
}

// RetryTask implements [session.Tasks].
func (s Tasks) RetryTask(ctx context.Context, ref session.TaskRef) error {
	_, err := s.change(ctx, "retry", ref, func(t *session.Task, now time.Time) (bool, error) { return true, t.Retry(now) })
	return err
}

// DropTask implements [session.Tasks].
func (s Tasks) DropTask(ctx context.Context, ref session.TaskRef, before time.Time) error {
	_, err := s.change(ctx, "drop", ref, func(t *session.Task, _ time.Time) (bool, error) { return false, t.CheckDrop(before) })
	return err
}

var (
	listTasks = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE tenant = ?1 AND (session_id, id) > (?2, ?3)
ORDER BY session_id, id
LIMIT ?4`)

	listGivenUp = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE tenant = ?1 AND given_up_at IS NOT NULL AND (session_id, id) > (?2, ?3)
ORDER BY session_id, id
LIMIT ?4`)
)

// ListTasks implements [session.Tasks].
func (s Tasks) ListTasks(ctx context.Context, query session.TaskQuery) (session.Page[session.Task], error) {
	after, err := query.After()
	if err != nil {
		return session.Page[session.Task]{}, err
	}
	text := listTasks
	if query.GivenUp {
		text = listGivenUp
	}
	found, err := s.list(ctx, "list tasks", func(Conn) (Query, []any, error) {
		return text, []any{s.tenant, after.SessionID, after.ID, query.Size() + 1}, nil
	})
	return query.Page(found), err
}

// list reads the tasks that a query selects.
func (s Tasks) list(ctx context.Context, what string, query func(Conn) (Query, []any, error)) (out []session.Task, err error) {
	err = s.db.ReadCold(ctx, what, func(c Conn) error {
		out = nil
		text, args, err := query(c)
		if err != nil {
			return err
		}
		out, err = readTasks(c, text, args...)
		return err
	})
	return out, err
}

func readTasks(c Conn, query Query, args ...any) (out []session.Task, err error) {
	for r, err := range c.Query(query, args...) {
		if err != nil {
			return nil, err
		}
		out = append(out, readTask(r))
	}
	return out, nil
}

// The sweeps. A column that is compared with a parameter which may lie before all
// times has a second condition for that.
var (
	oldTasks = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE given_up_at IS NULL AND due_at < ?1
ORDER BY due_at, tenant, session_id, id
LIMIT ?2`)

	oldTasksAfter = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE given_up_at IS NULL AND due_at < ?1 AND (due_at, tenant, session_id, id) > (?3, ?4, ?5, ?6)
ORDER BY due_at, tenant, session_id, id
LIMIT ?2`)

	oldGivenUp = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE given_up_at IS NOT NULL AND given_up_at < ?1
ORDER BY given_up_at, tenant, session_id, id
LIMIT ?2`)

	oldGivenUpAfter = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE given_up_at IS NOT NULL AND given_up_at < ?1 AND (given_up_at, tenant, session_id, id) > (?3, ?4, ?5, ?6)
ORDER BY given_up_at, tenant, session_id, id
LIMIT ?2`)
)

// OldTasks implements [session.Sweeps].
func (s Tasks) OldTasks(ctx context.Context, request session.OldTaskRequest) ([]session.Task, error) {
	text, args := oldTasks, []any{request.Before, request.Size()}
	after := request.After
	if after != nil {
		at := after.DueAt
		if text = oldTasksAfter; request.GivenUp {
			at = after.GivenUpAt
		}
		args = append(args, at, after.Tenant, after.SessionID, after.ID)
	}
	switch {
	case request.GivenUp && after != nil:
		text = oldGivenUpAfter
	case request.GivenUp:
		text = oldGivenUp
	}
	return s.list(ctx, "list old tasks", func(Conn) (Query, []any, error) { return text, args, nil })
}

// someDue is how many due tasks are read before tenants are visited one by one.
const someDue = 256

// longestDue lists the tasks that have been due longest, of any agent.
var longestDue = Portable(`
SELECT ` + TaskColumns + ` FROM helix.tasks
WHERE given_up_at IS NULL AND due_at <= ?1
ORDER BY due_at, tenant, session_id, id
LIMIT ` + strconv.Itoa(someDue))

// DueTasks implements [session.Sweeps]. Few tasks are due as a rule: then one query
// returns them all. If many are, those of one tenant or of an agent that nobody knows
// may be before all others; then another query visits the tenants that have tasks of
// the given kinds, each with a few steps in an index.
func (s Tasks) DueTasks(ctx context.Context, request session.TaskRequest) (out []session.Task, err error) {
	if len(request.Kinds) == 0 {
		return nil, ctx.Err()
	}
	err = s.db.ReadCold(ctx, "list due tasks", func(c Conn) error {
		now, err := c.Now()
		if err != nil {
			return err
		}
		if out, err = readTasks(c, longestDue, now); err != nil {
			return err
		}
		if len(out) < someDue {
			out = request.FirstOfTenants(ofKinds(out, request.Kinds))
			return nil
		}
		out, err = readTasks(c, firstOfTenants(len(request.Kinds)), firstArgs(&request, now)...)
		return err
	})
	return out, err
}

func ofKinds(tasks []session.Task, kinds []session.TaskKind) []session.Task {
	wanted := make(map[session.TaskKind]bool, len(kinds))
	for _, k := range kinds {
		wanted[k] = true
	}
	out := tasks[:0]
	for i := range tasks {
		if wanted[tasks[i].OfKind()] {
			out = append(out, tasks[i])
		}
	}
	return out
}

// firstOfTenants visits, one after the other, the tenants that have tasks of some of
// n kinds, and selects of each the task that has been due longest. The parameters are
// the time, the tenant before the first one, the page's size, and the kinds. SQLite keeps
// the order of tables in a CROSS JOIN; otherwise it would read all tasks first.
func firstOfTenants(n int) Query {
	var kinds strings.Builder
	for i := range n {
		if i > 0 {
			kinds.WriteString(", ")
		}
		kinds.WriteString("(?" + strconv.Itoa(4+2*i) + ", ?" + strconv.Itoa(5+2*i) + ")")
	}
	next := func(after string) string {
		return `(
        SELECT min(n.tenant) FROM (
            SELECT (SELECT x.tenant FROM helix.tasks x
                    WHERE x.given_up_at IS NULL AND x.agent = k.agent AND x.kind = k.kind AND x.tenant > ` + after + `
                    ORDER BY x.tenant LIMIT 1) AS tenant
            FROM kinds k) n)`
	}
	first := func(column string) string {
		return `(SELECT x.` + column + ` FROM helix.tasks x
         WHERE x.given_up_at IS NULL AND x.agent = k.agent AND x.kind = k.kind AND x.tenant = v.tenant AND x.due_at <= ?1
         ORDER BY x.due_at, x.session_id, x.id LIMIT 1)`
	}
	return Portable(`
WITH RECURSIVE kinds (agent, kind) AS (VALUES ` + kinds.String() + `),
visited (tenant) AS (
    SELECT ` + next("?2") + `
    UNION ALL
    SELECT ` + next("v.tenant") + ` FROM visited v WHERE v.tenant IS NOT NULL
),
firsts AS (
    SELECT v.tenant, ` + first("session_id") + ` AS session_id, ` + first("id") + ` AS id, ` + first("due_at") + ` AS due_at
    FROM visited v CROSS JOIN kinds k
    WHERE v.tenant IS NOT NULL
)
SELECT ` + qualified("t.", TaskColumns) + `
FROM (
    SELECT f.tenant, f.session_id, f.id, row_number() OVER (PARTITION BY f.tenant ORDER BY f.due_at, f.session_id, f.id) AS place
    FROM firsts f
    WHERE f.id IS NOT NULL
) f
CROSS JOIN helix.tasks t
WHERE f.place = 1 AND t.tenant = f.tenant AND t.session_id = f.session_id AND t.id = f.id
ORDER BY t.tenant
LIMIT ?3`)
}

func firstArgs(request *session.TaskRequest, now time.Time) []any {
	args := []any{now, request.After, request.Size()}
	for _, k := range request.Kinds {
		args = append(args, k.Agent, k.Kind)
	}
	return args
}

func qualified(by, columns string) string {
	return by + strings.ReplaceAll(columns, ", ", ", "+by)
}

// TaskQueries lists the queries over tasks by name, so that each store can check that its
// indexes serve them.
func TaskQueries() map[string]Query {
	return map[string]Query{
		"task": selectTask, "update task": updateTask, "delete task": deleteTask, "tasks": listTasks, "tasks given up": listGivenUp,
		"old tasks": oldTasks, "old tasks after": oldTasksAfter, "old given up": oldGivenUp, "old given up after": oldGivenUpAfter,
		"due tasks": longestDue,
	}
}

// TenantsQuery returns the query that visits the tenants of several kinds of tasks, for the
// same purpose.
func TenantsQuery() Query { return firstOfTenants(2) }
