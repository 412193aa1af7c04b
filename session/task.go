package session

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Limits of tasks.
const (
	MaxTaskBody  = 16 << 10
	MaxTasks     = 64 // of one change
	maxTaskError = 1 << 10
)

// Task is work that follows a commit and is not part of the run: an index to update,
// a notification to send. It is carried out at least once, by any process that has
// the agent, so whoever handles it recognises a repetition by the id.
type Task struct {
	Tenant string `json:"tenant,omitempty"`
	// ID is unique among the tasks of the session, or among those of the tenant that
	// have no session. It is derived from what the task follows, so that a repeated
	// commit does not add a second task.
	ID string `json:"id"`
	// Kind says what is to be done. Agent is the agent whose extension handles it; the
	// framework's own tasks have none.
	Kind  string `json:"kind"`
	Agent string `json:"agent"`
	// SessionID and RunID say what the task follows. Deleting a session deletes its
	// tasks; a task that must survive that has no session.
	SessionID string `json:"sessionId,omitempty"`
	RunID     string `json:"runId,omitempty"`
	// Body holds ids, never content: what they name may have changed meanwhile.
	Body json.RawMessage `json:"body,omitempty"`
	// DueAt is when the task may be carried out next. In a new task zero means at once.
	// While somebody holds the task, it is when the hold expires.
	DueAt     time.Time `json:"dueAt,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Owner is who holds the task, and Attempts counts how often a handler was started:
	// together they are the fence of the hold.
	Owner    string `json:"owner,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// LastError is how the last attempt failed.
	LastError string `json:"lastError,omitempty"`
	// GivenUpAt is set when nobody tries any more.
	GivenUpAt time.Time `json:"givenUpAt,omitzero"`
}

// TaskRef names a task of a tenant.
type TaskRef struct {
	SessionID string `json:"sessionId,omitempty"`
	ID        string `json:"id"`
}

// Ref returns the task's name.
func (t *Task) Ref() TaskRef { return TaskRef{t.SessionID, t.ID} }

// Compare orders names by session, then by id, bytewise.
func (r TaskRef) Compare(s TaskRef) int {
	return cmp.Or(cmp.Compare(r.SessionID, s.SessionID), cmp.Compare(r.ID, s.ID))
}

// TaskKind names the tasks that one handler carries out.
type TaskKind struct {
	Agent string
	Kind  string
}

// OfKind returns the agent and kind of the task.
func (t *Task) OfKind() TaskKind { return TaskKind{t.Agent, t.Kind} }

// TaskFence proves that a process still holds a task.
type TaskFence struct {
	Owner   string
	Attempt int
}

// Fence returns the fence of the task's hold.
func (t *Task) Fence() TaskFence { return TaskFence{t.Owner, t.Attempts} }

// TaskClaim takes hold of a task that is due. It counts as the start of a handler.
type TaskClaim struct {
	TaskRef
	// Owner is different for each claim.
	Owner string
	// TTL is how long the hold is valid without renewal.
	TTL time.Duration
}

// TaskOutcome says how an attempt ended.
type TaskOutcome string

// The outcomes of attempts.
const (
	TaskDone    TaskOutcome = "done"     // the task is removed
	TaskFailed  TaskOutcome = "failed"   // it is tried again
	TaskGivenUp TaskOutcome = "given up" // it is kept, and not tried again
	// TaskReturned hands the task back: no handler was started, so the attempt does not
	// count.
	TaskReturned TaskOutcome = "returned"
)

// TaskResult is the result of an attempt.
type TaskResult struct {
	Outcome TaskOutcome
	// Error is why the attempt failed. It is cut to a few lines.
	Error string
	// After is the time until the next attempt.
	After time.Duration
}

// Check returns an error if the task cannot be stored.
func (t *Task) Check() error {
	if err := t.Ref().Check(); err != nil {
		return err
	}
	if t.Kind == "" {
		return Invalid("task kind", "must not be empty")
	}
	for _, name := range [...]struct{ field, text string }{
		{"task kind", t.Kind}, {"task agent", t.Agent}, {"task run id", t.RunID},
	} {
		if len(name.text) > MaxIDBytes {
			return Invalid(name.field, "has %d bytes, at most %d are allowed", len(name.text), MaxIDBytes)
		}
		if err := CheckText(name.field, name.text); err != nil {
			return err
		}
	}
	if len(t.Body) > MaxTaskBody {
		return ErrTooLarge.WithMessage("the body of task %s has %d bytes, at most %d are allowed", t.ID, len(t.Body), MaxTaskBody)
	}
	if err := CheckTime("task due time", t.DueAt); err != nil {
		return err
	}
	return CheckJSON("task body", t.Body)
}

// Check returns an error if no task can have the name.
func (r TaskRef) Check() error {
	if r.SessionID != "" {
		if err := checkID("task session id", r.SessionID); err != nil {
			return err
		}
	}
	return CheckKeyID("task id", r.ID)
}

// CheckTasks returns an error if the tasks cannot be added together.
func CheckTasks(tasks []Task) error {
	if len(tasks) > MaxTasks {
		return Invalid("tasks", "are %d, at most %d may be added at once", len(tasks), MaxTasks)
	}
	for i := range tasks {
		if err := tasks[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckPutTasks returns an error if the tasks cannot be added outside a change.
func CheckPutTasks(tasks []Task) error {
	for i := range tasks {
		if of := tasks[i].SessionID; of != tasks[0].SessionID {
			return Invalid("task session id", "%q and %q differ: tasks that are added together have the same one, or none", tasks[0].SessionID, of)
		}
	}
	return CheckTasks(tasks)
}

// checkTasksOf returns an error if a task follows another session.
func checkTasksOf(sessionID string, tasks []Task) error {
	for i := range tasks {
		if of := tasks[i].SessionID; of != "" && of != sessionID {
			return Invalid("task session id", "%q is not that of the session that adds task %q", of, tasks[i].ID)
		}
	}
	return nil
}

// AsNew returns the task as a store adds it. of is the session whose change adds it,
// empty outside a change.
func (t *Task) AsNew(tenant, of string, now time.Time) Task {
	out := *t
	out.Tenant, out.SessionID, out.CreatedAt = tenant, cmp.Or(t.SessionID, of), now
	if out.DueAt.IsZero() {
		out.DueAt = now
	}
	out.Owner, out.Attempts, out.LastError, out.GivenUpAt = "", 0, "", time.Time{}
	return out
}

// IsDue reports whether the task can be claimed.
func (t *Task) IsDue(now time.Time) bool { return t.GivenUpAt.IsZero() && !now.Before(t.DueAt) }

// Held reports whether somebody carries the task out.
func (t *Task) Held(now time.Time) bool { return t.Owner != "" && now.Before(t.DueAt) }

// Check returns an error if the claim is invalid for every task.
func (c *TaskClaim) Check() error {
	if err := c.TaskRef.Check(); err != nil {
		return err
	}
	if c.TTL <= 0 {
		return Invalid("task hold", "%s is not a time to hold a task for", c.TTL)
	}
	return CheckKeyID("task owner", c.Owner)
}

// Apply changes a stored task to one that the claim holds. It returns [ErrStale],
// and changes nothing, if the task is not due. Stores share it, and the functions
// below, so that they agree on every case.
func (c *TaskClaim) Apply(t *Task, now time.Time) error {
	switch {
	case !t.GivenUpAt.IsZero():
		return staleTask(t.Ref(), "it was given up")
	case t.Held(now):
		return staleTask(t.Ref(), "somebody else carries it out")
	case !t.IsDue(now):
		return staleTask(t.Ref(), "it is not due")
	}
	t.Owner, t.Attempts, t.DueAt = c.Owner, t.Attempts+1, now.Add(c.TTL)
	return nil
}

// CheckFence returns [ErrStale] if the fence is not that of the task's hold.
func (t *Task) CheckFence(fence TaskFence) error {
	if t.Owner == "" || t.Fence() != fence || !t.GivenUpAt.IsZero() {
		return staleTask(t.Ref(), "it is no longer held by this attempt")
	}
	return nil
}

// Renew extends the hold.
func (t *Task) Renew(fence TaskFence, ttl time.Duration, now time.Time) error {
	if ttl <= 0 {
		return Invalid("task hold", "%s is not a time to hold a task for", ttl)
	}
	if err := t.CheckFence(fence); err != nil {
		return err
	}
	t.DueAt = now.Add(ttl)
	return nil
}

// Check returns an error if the result is invalid for every task.
func (r *TaskResult) Check() error {
	switch r.Outcome {
	case TaskDone, TaskFailed, TaskGivenUp, TaskReturned:
	default:
		return Invalid("task outcome", "%q is not one of %q, %q, %q and %q", r.Outcome, TaskDone, TaskFailed, TaskGivenUp, TaskReturned)
	}
	if r.After < 0 {
		return Invalid("task delay", "%s is negative", r.After)
	}
	return nil
}

// Apply ends the hold. It reports whether the task is kept.
func (r *TaskResult) Apply(t *Task, fence TaskFence, now time.Time) (keep bool, err error) {
	if err := t.CheckFence(fence); err != nil {
		return true, err
	}
	t.Owner, t.DueAt = "", now.Add(r.After)
	switch r.Outcome {
	case TaskDone:
		return false, nil
	case TaskReturned:
		t.Attempts--
		return true, nil
	case TaskGivenUp:
		t.DueAt, t.GivenUpAt = now, now
	}
	t.LastError = cutError(r.Error)
	return true, nil
}

// Retry makes the task due at once. A task that was given up begins anew.
func (t *Task) Retry(now time.Time) error {
	if t.Held(now) {
		return staleTask(t.Ref(), "somebody carries it out")
	}
	if !t.GivenUpAt.IsZero() {
		t.Attempts, t.GivenUpAt = 0, time.Time{}
	}
	t.Owner, t.DueAt = "", now
	return nil
}

// CheckDrop returns an error if the task must not be dropped; see [Tasks.DropTask].
func (t *Task) CheckDrop(before time.Time) error {
	if !before.IsZero() && (t.GivenUpAt.IsZero() || !t.GivenUpAt.Before(before)) {
		return staleTask(t.Ref(), "it was not given up before "+before.Format(time.RFC3339))
	}
	return nil
}

// NoTask returns the error of a task that does not exist.
func NoTask(ref TaskRef) error { return ErrNotFound.WithMessage("task %s: not found", ref) }

func staleTask(ref TaskRef, why string) error { return ErrStale.WithMessage("task %s: %s", ref, why) }

// String implements [fmt.Stringer].
func (r TaskRef) String() string {
	if r.SessionID == "" {
		return r.ID
	}
	return r.ID + " of session " + r.SessionID
}

// cutError returns an error's text as it is stored.
func cutError(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) > maxTaskError {
		text = strings.ToValidUTF8(text[:maxTaskError], "") + "…"
	}
	return text
}

// TaskRequest selects tasks that are due, over all tenants.
type TaskRequest struct {
	// Kinds are the tasks that the process can carry out: tasks of other agents and
	// kinds are not listed, however many there are.
	Kinds []TaskKind
	// After is the tenant of the previous page's last task.
	After string
	// Limit defaults to 100.
	Limit int
}

// Size returns the page's size.
func (r TaskRequest) Size() int { return sweepSize(r.Limit) }

// FirstOfTenants reduces due tasks to the page that the request selects: of each
// tenant the task that has been due longest. It changes the order of the tasks.
func (r TaskRequest) FirstOfTenants(due []Task) []Task {
	first := map[string]*Task{}
	for i := range due {
		t := &due[i]
		if f := first[t.Tenant]; t.Tenant > r.After && (f == nil || compareDue(t, f) < 0) {
			first[t.Tenant] = t
		}
	}
	out := make([]Task, 0, len(first))
	for _, t := range first {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Task) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return out[:min(len(out), r.Size())]
}

// OldTaskRequest selects tasks that nobody has carried out for a long time, over all
// tenants.
type OldTaskRequest struct {
	// Before is when they became due, or were given up.
	Before time.Time
	// GivenUp selects tasks that were given up; otherwise they are not listed.
	GivenUp bool
	// After is the last task of the previous page.
	After *Task
	// Limit defaults to 100.
	Limit int
}

// Size returns the page's size.
func (r OldTaskRequest) Size() int { return sweepSize(r.Limit) }

// CompareOld orders tasks by when they became due or were given up, then by tenant,
// session and id, bytewise.
func (t *Task) CompareOld(u *Task) int {
	return cmp.Or(t.since().Compare(u.since()), cmp.Compare(t.Tenant, u.Tenant), t.Ref().Compare(u.Ref()))
}

func (t *Task) since() time.Time {
	if !t.GivenUpAt.IsZero() {
		return t.GivenUpAt
	}
	return t.DueAt
}

// compareDue orders the tasks of a tenant, the longest due first.
func compareDue(t, u *Task) int { return cmp.Or(t.DueAt.Compare(u.DueAt), t.Ref().Compare(u.Ref())) }

// TaskQuery selects a page of a tenant's tasks, in the order of [TaskRef.Compare].
type TaskQuery struct {
	// GivenUp selects the tasks that were given up; otherwise all are listed.
	GivenUp bool
	// Limit and Cursor are those of a [PageRequest].
	Limit  int
	Cursor string
}

// Size returns the page's size, within limits.
func (q TaskQuery) Size() int { return PageRequest{Limit: q.Limit}.Size() }

// After decodes the cursor; it is empty if there is none.
func (q TaskQuery) After() (after TaskRef, err error) {
	if q.Cursor == "" {
		return after, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err == nil {
		err = json.Unmarshal(raw, &after)
	}
	if err == nil {
		err = after.Check()
	}
	if err != nil {
		return TaskRef{}, Invalid("cursor", "%.40q is not a cursor of this listing", q.Cursor)
	}
	return after, nil
}

// Page makes a page of the tasks that follow the cursor, of which there is one more
// than the page's size if another page follows.
func (q TaskQuery) Page(tasks []Task) Page[Task] {
	size := q.Size()
	page := Page[Task]{Items: tasks, Limit: size}
	if len(tasks) > size {
		page.Items, page.HasMore = tasks[:size], true
		raw, _ := json.Marshal(tasks[size-1].Ref())
		page.Next = base64.RawURLEncoding.EncodeToString(raw)
	}
	if page.Items == nil {
		page.Items = []Task{}
	}
	return page
}
