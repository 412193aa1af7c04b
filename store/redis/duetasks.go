package redis

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// someDue is how many due tasks are read before tenants are visited one by one.
const someDue = 256

// DueTasks implements [session.Sweeps]. Few tasks are due as a rule: then those of all
// kinds are read. If many are, those of one tenant or of an agent that nobody knows
// may be before all others; then the tenants of the given kinds are visited.
func (s *sessions) DueTasks(ctx context.Context, request session.TaskRequest) ([]session.Task, error) {
	if len(request.Kinds) == 0 {
		return nil, ctx.Err()
	}
	now, err := s.b.now(ctx)
	if err != nil {
		return nil, err
	}
	due, err := s.taskSweep("list due tasks", sweepTasks, now, nil, func(t *session.Task) bool { return t.IsDue(now) }).page(ctx, someDue)
	if err != nil {
		return nil, err
	}
	if len(due) < someDue {
		return request.FirstOfTenants(slices.DeleteFunc(due, func(t session.Task) bool { return !slices.Contains(request.Kinds, t.OfKind()) })), nil
	}
	v := &visit{b: s.b, now: now, request: &request}
	return v.tenants(ctx)
}

// OldTasks implements [session.Sweeps].
func (s *sessions) OldTasks(ctx context.Context, request session.OldTaskRequest) ([]session.Task, error) {
	index, old := sweepTasks, func(t *session.Task) bool { return t.GivenUpAt.IsZero() && t.DueAt.Before(request.Before) }
	if request.GivenUp {
		index, old = sweepGivenUp, func(t *session.Task) bool { return t.GivenUpAt.Before(request.Before) }
	}
	return s.taskSweep("list old tasks", index, request.Before, request.After, old).page(ctx, request.Size())
}

// taskSweep returns a read of an index of all tasks, up to a time.
func (s *sessions) taskSweep(name, index string, to time.Time, after *session.Task, listed func(*session.Task) bool) *sweep[session.Task] {
	since := func(t *session.Task) time.Time {
		if index == sweepGivenUp {
			return t.GivenUpAt
		}
		return t.DueAt
	}
	w := &sweep[session.Task]{
		b: s.b, index: index, name: name, from: "-inf", to: micros(to), after: after,
		time: since, order: (*session.Task).CompareOld,
		verify: func(ctx context.Context, found []candidate) ([]verdict[session.Task], error) {
			names := make([]taskName, len(found))
			for i := range found {
				names[i] = found[i].task()
			}
			tasks, damaged, err := s.b.readTasks(ctx, names)
			if err != nil {
				return nil, err
			}
			out := make([]verdict[session.Task], len(found))
			for i, t := range tasks {
				switch {
				case damaged[i]:
				case t == nil || t.GivenUpAt.IsZero() == (index == sweepGivenUp):
					out[i] = verdict[session.Task]{gone: true, rest: s.b.restOf(&found[i], t)}
				default:
					out[i].at = since(t)
					if listed(t) {
						out[i].item = t
					}
				}
			}
			return out, nil
		},
	}
	if after != nil {
		w.from = micros(since(after))
	}
	return w
}

// task returns the name of the task that an entry stands for.
func (c *candidate) task() taskName {
	id, _, _ := strings.Cut(c.sub, "\x00")
	return taskName{c.tenant, session.TaskRef{SessionID: c.id, ID: id}}
}

// restOf returns the other entries of a task whose entry in the index of all tasks
// is no longer true: t is nil if the task does not exist, and otherwise given up.
func (b *Backend) restOf(c *candidate, t *session.Task) []hint {
	parts := strings.Split(c.sub, "\x00")
	if len(parts) != 3 {
		return nil
	}
	was := &session.Task{Tenant: c.tenant, SessionID: c.id, ID: parts[0], Agent: parts[1], Kind: parts[2]}
	out := []hint{{c.entry.slot, kindIndexOf(was.OfKind(), was.Tenant), taskMember(was), "", sooner}}
	if t == nil {
		out = append(out, hint{b.keys.listing(was.Tenant), indexTasks, taskMember(was), "0", inPlace})
	}
	return out
}

// visit lists the tasks of some kinds that have been due longest, of each tenant one.
type visit struct {
	b       *Backend
	now     time.Time
	request *session.TaskRequest
}

// kindPlace is where a tenant may have tasks of a kind that are due.
type kindPlace struct {
	kind   session.TaskKind
	slot   string
	tenant string
	score  string
}

// tenants visits the tenants that may have due tasks, in the order of their names.
func (v *visit) tenants(ctx context.Context) ([]session.Task, error) {
	began := time.Now()
	places, err := v.places(ctx)
	if err != nil {
		return nil, failure("list due tasks", err)
	}
	var out []session.Task
	var wrong []correction
	for i := 0; i < len(places) && len(out) < v.request.Size(); {
		tenant := places[i].tenant
		var found []session.Task
		for ; i < len(places) && places[i].tenant == tenant; i++ {
			due, corrections, err := v.first(ctx, &places[i])
			if err != nil {
				return nil, failure("list due tasks", err)
			}
			wrong = append(wrong, corrections...)
			if due != nil {
				found = append(found, *due)
			}
		}
		out = append(out, v.request.FirstOfTenants(found)...)
	}
	v.b.settle(ctx, began, wrong)
	return out, nil
}

// places returns where tasks of the kinds may be due, ordered by tenant, beginning
// after the request's.
func (v *visit) places(ctx context.Context) ([]kindPlace, error) {
	pipe := v.b.client.Pipeline()
	var cmds []*goredis.ZSliceCmd
	for _, kind := range v.request.Kinds {
		for shard := range sweepShards {
			cmds = append(cmds, pipe.ZRangeArgsWithScores(ctx, goredis.ZRangeArgs{
				Key: v.b.keys.sweep(shard) + kindIndex(kind), Start: "-inf", Stop: micros(v.now), ByScore: true,
			}))
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var out []kindPlace
	for i, cmd := range cmds {
		entries, err := cmd.Result()
		if err != nil {
			return nil, err
		}
		for _, z := range entries {
			if tenant := text(z.Member); tenant > v.request.After {
				out = append(out, kindPlace{v.request.Kinds[i/sweepShards], v.b.keys.sweep(i % sweepShards), tenant, score(z.Score)})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b kindPlace) int { return cmp.Compare(a.tenant, b.tenant) })
	return out, nil
}

// first returns the task of a place that has been due longest, or nil, and which
// entries were found to be untrue.
func (v *visit) first(ctx context.Context, p *kindPlace) (*session.Task, []correction, error) {
	key := p.slot + kindIndexOf(p.kind, p.tenant)
	var wrong []correction
	var best *session.Task
	const some = 16
	for from := 0; ; from += some {
		entries, err := v.b.client.ZRangeWithScores(ctx, key, int64(from), int64(from+some-1)).Result()
		if err != nil {
			return nil, nil, err
		}
		names := make([]taskName, len(entries))
		for i, z := range entries {
			names[i].tenant = p.tenant
			names[i].SessionID, names[i].ID, _ = strings.Cut(text(z.Member), "\x00")
		}
		tasks, damaged, err := v.b.readTasks(ctx, names)
		if err != nil {
			return nil, nil, err
		}
		for i, t := range tasks {
			entry := hint{p.slot, kindIndexOf(p.kind, p.tenant), text(entries[i].Member), score(entries[i].Score), sooner}
			if at := entries[i].Score; best != nil && at > float64(best.DueAt.UnixMicro()) || at > float64(v.now.UnixMicro()) {
				if best == nil { // the first that may be due is due later
					wrong = append(wrong, correction{hint{p.slot, kindIndex(p.kind), p.tenant, p.score, sooner}, score(entries[i].Score)})
				}
				return best, wrong, nil // entries are never later than what they stand for
			}
			switch {
			case damaged[i]:
			case t == nil || !t.GivenUpAt.IsZero():
				wrong = append(wrong, correction{entry, ""})
			default:
				if at := micros(t.DueAt); at != entry.score {
					wrong = append(wrong, correction{entry, at})
				}
				if t.IsDue(v.now) && (best == nil || t.DueAt.Before(best.DueAt)) {
					best = t
				}
			}
		}
		if len(entries) < some {
			if from == 0 && len(entries) == 0 {
				wrong = append(wrong, correction{hint{p.slot, kindIndex(p.kind), p.tenant, p.score, sooner}, ""})
			}
			return best, wrong, nil
		}
	}
}
