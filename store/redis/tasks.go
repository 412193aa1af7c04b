package redis

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// The tasks of a session are in its slot, so that its commits can add them and its
// deletion removes them. Those without a session are in a slot of their tenant.
//
// What has to find them over sessions is in indexes, as hints.go describes: all that
// are not given up by when they are due, the same by agent, kind and tenant, those
// that were given up, and the lists for operators. Tasks that are done stay in the
// indexes until the sweep over all of them finds that they are gone.

// The sweeps' indexes of tasks. Those of a kind have it in their names, and those of
// its tasks the tenant as well.
const (
	sweepTasks   = "tasks"
	sweepGivenUp = "givenup"
	sweepKinds   = "tasks/"
)

// The indexes of a tenant's tasks, ordered by session and id.
const (
	indexTasks   = "tasks"
	indexGivenUp = "tasks/givenup"
)

// tasks returns the prefix of the key of a session's tasks, or of those of a tenant
// that have no session.
func (k keyspace) tasks(tenant, sessionID string) string {
	if sessionID == "" {
		return k.prefix + ":{+tasks/" + escape(tenant, false) + "}:"
	}
	return k.session(tenant, sessionID)
}

// taskRow returns the stored form of a task behind its times.
func taskRow(t *session.Task) string {
	return strings.Join([]string{
		t.Owner, strconv.Itoa(t.Attempts), micros(t.GivenUpAt), t.LastError, t.RunID, t.Kind, t.Agent, string(t.Body),
	}, "\x00")
}

// wholeTaskRow returns the stored form of a task.
func wholeTaskRow(t *session.Task) string {
	return micros(t.DueAt) + "\x00" + micros(t.CreatedAt) + "\x00" + taskRow(t)
}

func decodeTask(tenant string, ref session.TaskRef, row string) (*session.Task, error) {
	parts := strings.SplitN(row, "\x00", 10)
	if len(parts) != 10 {
		return nil, session.ErrCorrupt.WithMessage("task %s: its row has %d parts", ref, len(parts))
	}
	t := &session.Task{
		Tenant: tenant, SessionID: ref.SessionID, ID: ref.ID, DueAt: moment(parts[0]), CreatedAt: moment(parts[1]),
		Owner: parts[2], Attempts: int(number(parts[3])), GivenUpAt: moment(parts[4]), LastError: parts[5],
		RunID: parts[6], Kind: parts[7], Agent: parts[8],
	}
	if parts[9] != "" {
		t.Body = []byte(parts[9])
	}
	return t, nil
}

// addTasks adds the tasks of a session's change.
func (w *batch) addTasks(id string, tasks []session.Task) {
	if len(tasks) == 0 {
		return
	}
	args := make([]any, 0, 3*len(tasks))
	for i := range tasks {
		t := tasks[i].AsNew("", id, time.Time{})
		args = append(args, t.ID, orNow(t.DueAt), taskRow(&t))
	}
	w.do("tasks", keyTasks, args...)
}

// The entries of a task in the indexes.
func taskMember(t *session.Task) string  { return t.SessionID + "\x00" + t.ID }
func sweepMember(t *session.Task) string { return t.Tenant + "\x00" + taskMember(t) }
func (k keyspace) taskSlot(t *session.Task) string {
	return k.sweep(shardOf(t.Tenant, cmp.Or(t.SessionID, t.ID)))
}
func kindIndex(kind session.TaskKind) string { return sweepKinds + indexed(kind.Agent, kind.Kind) }
func kindIndexOf(kind session.TaskKind, tenant string) string {
	return kindIndex(kind) + "/" + indexed(tenant)
}

// dueTask adds the entries with which a task is found when it is due. The entry in
// the index of all tasks also has the kind, so that whoever finds that the task is
// gone can find its other entries.
func (h *hints) dueTask(keys keyspace, t *session.Task) {
	slot, at, kind := keys.taskSlot(t), micros(t.DueAt), t.OfKind()
	h.entries = append(
		h.entries,
		hint{slot, sweepTasks, sweepMember(t) + "\x00" + kind.Agent + "\x00" + kind.Kind, at, sooner},
		hint{slot, kindIndex(kind), t.Tenant, at, sooner},
		hint{slot, kindIndexOf(kind, t.Tenant), taskMember(t), at, sooner},
	)
}

// newTasks adds the entries of tasks that are about to be added.
func (h *hints) newTasks(keys keyspace, tenant, id string, tasks []session.Task, at time.Time) {
	for i := range tasks {
		t := tasks[i].AsNew(tenant, id, at)
		h.dueTask(keys, &t)
		h.list(keys, tenant, indexTasks, taskMember(&t), "0")
	}
}

// givenUpTask adds the entries of a task that is about to be given up.
func (h *hints) givenUpTask(keys keyspace, t *session.Task) {
	h.entries = append(h.entries, hint{keys.taskSlot(t), sweepGivenUp, sweepMember(t), micros(t.GivenUpAt), sooner})
	h.list(keys, t.Tenant, indexGivenUp, taskMember(t), "0")
}

// PutTasks implements [session.Tasks].
func (s *sessions) PutTasks(ctx context.Context, tasks []session.Task) error {
	const name = "put tasks"
	if err := session.CheckPutTasks(tasks); err != nil || len(tasks) == 0 {
		return err
	}
	if err := s.b.begin(ctx, name); err != nil {
		return err
	}
	at, err := s.b.notAfter(ctx)
	if err != nil {
		return err
	}
	id := tasks[0].SessionID
	var h hints
	h.newTasks(s.b.keys, s.tenant, id, tasks, at)
	if err := s.b.addHints(ctx, name, &h); err != nil {
		return err
	}
	letters := keyTasks
	if id != "" {
		letters += keyHeader
	}
	args := []any{letters, s.b.stamp()}
	for i := range tasks {
		t := tasks[i].AsNew(s.tenant, "", time.Time{})
		args = append(args, t.ID, orNow(t.DueAt), taskRow(&t))
	}
	done, err := s.b.eval(ctx, putTasks, keyNamesOf(s.b.keys.tasks(s.tenant, id), letters), args)
	if err != nil {
		return failure(name, err)
	}
	if text(done) == "0" {
		return session.NotFound(id)
	}
	return nil
}

// changeTask changes one task. The decision is repeated if somebody else has changed
// the task since it was read.
func (s *sessions) changeTask(
	ctx context.Context, verb string, ref session.TaskRef, change func(t *session.Task, now time.Time) (keep bool, err error),
) (*session.Task, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	name := "task " + ref.String() + ": " + verb
	prefix := s.b.keys.tasks(s.tenant, ref.SessionID)
	for range maxEdits {
		if err := s.b.begin(ctx, name); err != nil {
			return nil, err
		}
		now, err := s.b.now(ctx)
		if err != nil {
			return nil, err
		}
		row, err := s.b.client.HGet(ctx, prefix+keyTasks, ref.ID).Result()
		if errors.Is(err, goredis.Nil) {
			return nil, session.NoTask(ref)
		}
		if err != nil {
			return nil, failure(name, err)
		}
		t, err := decodeTask(s.tenant, ref, row)
		if err != nil {
			return nil, err
		}
		was := *t
		keep, err := change(t, now)
		if err != nil {
			return nil, err
		}
		t.DueAt = t.DueAt.Truncate(time.Microsecond)
		becomes := ""
		if keep {
			becomes = wholeTaskRow(t)
			if err := s.b.addHints(ctx, name, s.b.taskHints(t, &was)); err != nil {
				return nil, err
			}
		}
		done, err := s.b.eval(ctx, changeTask, []string{prefix + keyTasks}, []any{keyTasks, s.b.stamp(), ref.ID, row, becomes})
		if err != nil {
			return nil, failure(name, err)
		}
		if text(done) == "1" {
			return t, nil
		}
	}
	return nil, session.ErrUnavailable.WithMessage("%s: it changed too often", name)
}

// taskHints returns the entries that a change of a task makes true. A task that
// becomes due later has its own, which readers correct.
func (b *Backend) taskHints(t, was *session.Task) *hints {
	h := &hints{}
	switch {
	case !t.GivenUpAt.IsZero():
		h.givenUpTask(b.keys, t)
	case !was.GivenUpAt.IsZero() || t.DueAt.Before(was.DueAt):
		h.dueTask(b.keys, t)
	}
	return h
}

// ClaimTask implements [session.Tasks].
func (s *sessions) ClaimTask(ctx context.Context, claim session.TaskClaim) (*session.Task, error) {
	if err := claim.Check(); err != nil {
		return nil, err
	}
	return s.changeTask(ctx, "claim", claim.TaskRef, func(t *session.Task, now time.Time) (bool, error) {
		return true, claim.Apply(t, now)
	})
}

// RenewTask implements [session.Tasks].
func (s *sessions) RenewTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, ttl time.Duration) error {
	_, err := s.changeTask(ctx, "renew", ref, func(t *session.Task, now time.Time) (bool, error) {
		return true, t.Renew(fence, ttl, now)
	})
	return err
}

// FinishTask implements [session.Tasks].
func (s *sessions) FinishTask(ctx context.Context, ref session.TaskRef, fence session.TaskFence, result session.TaskResult) error {
	if err := result.Check(); err != nil {
		return err
	}
	_, err := s.changeTask(ctx, "finish", ref, func(t *session.Task, now time.Time) (bool, error) {
		return result.Apply(t, fence, now)
	})
	return err
}

// RetryTask implements [session.Tasks].
func (s *sessions) RetryTask(ctx context.Context, ref session.TaskRef) error {
	_, err := s.changeTask(ctx, "retry", ref, func(t *session.Task, now time.Time) (bool, error) { return true, t.Retry(now) })
	return err
}

// DropTask implements [session.Tasks].
func (s *sessions) DropTask(ctx context.Context, ref session.TaskRef, before time.Time) error {
	_, err := s.changeTask(ctx, "drop", ref, func(t *session.Task, _ time.Time) (bool, error) { return false, t.CheckDrop(before) })
	return err
}

// taskName names a task of any tenant.
type taskName struct {
	tenant string
	session.TaskRef
}

// readTasks reads tasks; nil for one that does not exist. One that cannot be decoded
// is logged, and treated likewise in damaged.
func (b *Backend) readTasks(ctx context.Context, names []taskName) (out []*session.Task, damaged []bool, err error) {
	out, damaged = make([]*session.Task, len(names)), make([]bool, len(names))
	pipe := b.client.Pipeline()
	cmds := make([]*goredis.StringCmd, len(names))
	for i, name := range names {
		cmds[i] = pipe.HGet(ctx, b.keys.tasks(name.tenant, name.SessionID)+keyTasks, name.ID)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		row, err := cmd.Result()
		if errors.Is(err, goredis.Nil) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if out[i], err = decodeTask(names[i].tenant, names[i].TaskRef, row); err != nil {
			b.config.Logger.WarnContext(ctx, "a task cannot be read", "task", names[i].String(), "tenant", names[i].tenant, "error", err)
			damaged[i] = true
		}
	}
	return out, damaged, nil
}

// ListTasks implements [session.Tasks].
func (s *sessions) ListTasks(ctx context.Context, query session.TaskQuery) (session.Page[session.Task], error) {
	const name = "list tasks"
	none := session.Page[session.Task]{}
	after, err := query.After()
	if err != nil {
		return none, err
	}
	if err := s.b.begin(ctx, name); err != nil {
		return none, err
	}
	index, from := indexTasks, "-"
	if query.GivenUp {
		index = indexGivenUp
	}
	if after.ID != "" {
		from = "(" + after.SessionID + "\x00" + after.ID
	}
	slot := s.b.keys.listing(s.tenant)
	var items []session.Task
	var wrong []correction
	began := time.Now()
	for n := query.Size() + 1; len(items) <= query.Size(); {
		members, err := s.b.client.ZRangeArgs(ctx, goredis.ZRangeArgs{Key: slot + index, Start: from, Stop: "+", ByLex: true, Count: int64(n)}).Result()
		if err != nil {
			return none, failure(name, err)
		}
		names := make([]taskName, len(members))
		for i, member := range members {
			names[i].tenant = s.tenant
			names[i].SessionID, names[i].ID, _ = strings.Cut(member, "\x00")
		}
		tasks, damaged, err := s.b.readTasks(ctx, names)
		if err != nil {
			return none, failure(name, err)
		}
		for i, t := range tasks {
			switch {
			case damaged[i]:
			case t == nil, query.GivenUp && t.GivenUpAt.IsZero():
				wrong = append(wrong, correction{hint{slot, index, members[i], "0", inPlace}, ""})
			default:
				items = append(items, *t)
			}
		}
		if len(members) < n {
			break
		}
		from = "(" + members[n-1]
	}
	s.b.settle(ctx, began, wrong)
	return query.Page(items), nil
}
