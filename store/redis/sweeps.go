package redis

import (
	"context"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// swept are the fields of a header that sweeps decide by.
var swept = []string{
	"v", "agent", "status", "root", "run", "rstatus", "runtime", "needs", "owner", "epoch", "lease", "expires", "owed", "stopk",
}

// candidate is an entry of a sweep's index: something that may be due.
type candidate struct {
	entry           hint
	score           float64
	tenant, id, sub string // sub is the call or the child
}

// verdict is the result for a candidate: an item that is due, or when to examine
// it again (zero leaves that as it is), or that it is no longer true.
type verdict[T any] struct {
	item *T
	at   time.Time
	gone bool
	rest []hint // entries of other indexes that are gone as well; without a score at any
}

// sweep is one read of an index that is spread over shards.
//
// An entry's score is never later than what it stands for, so once the entries up
// to a score have been examined, everything due before it is known.
type sweep[T any] struct {
	b      *Backend
	index  string
	name   string
	from   string // the first score
	to     string // the last score
	after  *T
	time   func(*T) time.Time
	order  func(a, b *T) int
	verify func(ctx context.Context, found []candidate) ([]verdict[T], error)
}

// page collects the next size items.
func (s *sweep[T]) page(ctx context.Context, size int) ([]T, error) {
	if err := s.b.begin(ctx, s.name); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	items := []T{}
	for n := size + 1; ; n *= 2 {
		found, frontier, err := s.candidates(ctx, n)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(c candidate) bool {
			known := seen[c.entry.member]
			seen[c.entry.member] = true
			return known
		})
		due, err := s.look(ctx, found)
		if err != nil {
			return nil, err
		}
		items = append(items, due...)
		slices.SortFunc(items, func(a, b T) int { return s.order(&a, &b) })
		if frontier < 0 || (len(items) >= size && float64(s.time(&items[size-1]).UnixMicro()) < frontier) {
			return items[:min(size, len(items))], nil
		}
	}
}

// candidates reads up to n entries of every shard. All entries below frontier are
// among them; a negative frontier means that there are no others.
func (s *sweep[T]) candidates(ctx context.Context, n int) (found []candidate, frontier float64, err error) {
	pipe := s.b.client.Pipeline()
	shards := make([]*goredis.ZSliceCmd, sweepShards)
	for i := range shards {
		shards[i] = pipe.ZRangeArgsWithScores(ctx, goredis.ZRangeArgs{
			Key: s.b.keys.sweep(i) + s.index, Start: s.from, Stop: s.to, ByScore: true, Count: int64(n),
		})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	frontier = -1
	for i, cmd := range shards {
		entries, err := cmd.Result()
		if err != nil {
			return nil, 0, failure(s.name, err)
		}
		if len(entries) == n {
			if last := entries[n-1].Score; frontier < 0 || last < frontier {
				frontier = last
			}
		}
		for _, z := range entries {
			c := candidate{entry: hint{s.b.keys.sweep(i), s.index, text(z.Member), score(z.Score), sooner}, score: z.Score}
			parts := strings.SplitN(c.entry.member, "\x00", 3)
			if len(parts) < 2 {
				continue
			}
			if c.tenant, c.id = parts[0], parts[1]; len(parts) == 3 {
				c.sub = parts[2]
			}
			found = append(found, c)
		}
	}
	return found, frontier, nil
}

// look verifies candidates, corrects the index and returns what is due.
func (s *sweep[T]) look(ctx context.Context, found []candidate) ([]T, error) {
	if len(found) == 0 {
		return nil, nil
	}
	began := time.Now()
	verdicts, err := s.verify(ctx, found)
	if err != nil {
		return nil, failure(s.name, err)
	}
	var items []T
	var wrong []correction
	for i, v := range verdicts {
		switch {
		case v.gone:
			wrong = append(wrong, correction{found[i].entry, ""})
			for _, entry := range v.rest {
				wrong = append(wrong, correction{entry, ""})
			}
		case !v.at.IsZero() && micros(v.at) != found[i].entry.score:
			wrong = append(wrong, correction{found[i].entry, micros(v.at)})
		}
		if v.item != nil && (s.after == nil || s.order(v.item, s.after) > 0) {
			items = append(items, *v.item)
		}
	}
	s.b.settle(ctx, began, wrong)
	return items, nil
}

// sweep lists the sessions that verify reports as due.
func (s *sessions) sweep(
	ctx context.Context, index, name string, request session.SweepRequest, attributes []string,
	verify func(h *header, c *candidate, rest []string, now time.Time) verdict[session.Due],
) ([]session.Due, error) {
	now, err := s.b.now(ctx)
	if err != nil {
		return nil, err
	}
	now = now.Add(request.Ahead)
	w := &sweep[session.Due]{
		b: s.b, index: index, name: name, from: "-inf", to: micros(now), after: request.After,
		time:  func(d *session.Due) time.Time { return d.At },
		order: (*session.Due).Compare,
		verify: func(ctx context.Context, found []candidate) ([]verdict[session.Due], error) {
			return s.b.verifyDue(ctx, found, attributes, func(h *header, c *candidate, rest []string) verdict[session.Due] {
				v := verify(h, c, rest, now)
				if v.item != nil && !request.Wants(v.item) {
					v.item = nil
				}
				return v
			})
		},
	}
	if request.After != nil {
		w.from = micros(request.After.At)
	}
	return w.page(ctx, request.Size())
}

// verifyDue reads the sessions of candidates, and attributes of the waits that
// they name.
func (b *Backend) verifyDue(
	ctx context.Context, found []candidate, attributes []string, verify func(*header, *candidate, []string) verdict[session.Due],
) ([]verdict[session.Due], error) {
	pipe := b.client.Pipeline()
	headers, waits := make([]*goredis.SliceCmd, len(found)), make([]*goredis.SliceCmd, len(found))
	for i := range found {
		c := &found[i]
		prefix := b.keys.session(c.tenant, c.id)
		headers[i] = pipe.HMGet(ctx, prefix+keyHeader, swept...)
		if len(attributes) > 0 {
			fields := make([]string, len(attributes))
			for j, attribute := range attributes {
				fields[j] = c.sub + "\x00" + attribute
			}
			waits[i] = pipe.HMGet(ctx, prefix+keyOpen, fields...)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]verdict[session.Due], len(found))
	for i := range found {
		values, err := headers[i].Result()
		if err != nil {
			return nil, err
		}
		var rest []string
		if waits[i] != nil {
			more, err := waits[i].Result()
			if err != nil {
				return nil, err
			}
			for _, value := range more {
				rest = append(rest, text(value))
			}
		}
		raw := make(map[string]string, len(swept))
		for j, value := range values {
			raw[swept[j]] = text(value)
		}
		if raw["v"] == "" {
			out[i].gone = true
			continue
		}
		c := &found[i]
		out[i] = verify(newHeader(c.tenant, c.id, raw), c, rest)
	}
	return out, nil
}

// due returns an item about a session.
func (h *header) due(at time.Time) *session.Due {
	due := &session.Due{
		Key:   session.Key{Tenant: h.Tenant, ID: h.ID},
		Agent: h.Agent, RunID: h.CurrentRunID, Runtime: h.runRuntime, Requires: h.Requires, Lease: h.Lease, At: at,
	}
	if h.stop != nil && h.isRunning() {
		due.Stop = h.stop.Kind
	}
	return due
}

// dueAt returns the verdict about something that becomes due at a time. What
// belongs to a paused session is examined again when the session is resumed.
func (h *header) dueAt(at, now time.Time) verdict[session.Due] {
	v := verdict[session.Due]{at: at}
	if h.Status != session.Paused && !now.Before(at) {
		v.item = h.due(at)
	}
	return v
}

// DueDeadlines implements [session.Sweeps].
func (s *sessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, sweepDeadlines, "list due deadlines", request, []string{"s", "l"},
		func(h *header, c *candidate, rest []string, now time.Time) verdict[session.Due] {
			deadline := moment(rest[1])
			if session.PendingState(rest[0]) != session.PendingWaiting || deadline.IsZero() {
				return verdict[session.Due]{gone: true}
			}
			v := h.dueAt(deadline, now)
			if v.item != nil {
				v.item.CallID = c.sub
			}
			return v
		})
}

// ExpiredLeases implements [session.Sweeps].
func (s *sessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, sweepLeases, "list expired leases", request, nil,
		func(h *header, _ *candidate, _ []string, now time.Time) verdict[session.Due] {
			if h.RootID != "" || !h.isRunning() || h.Lease.ExpiresAt.IsZero() {
				return verdict[session.Due]{gone: true}
			}
			return h.dueAt(h.Lease.ExpiresAt, now)
		})
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, sweepExpiries, "list expired sessions", request, nil,
		func(h *header, _ *candidate, _ []string, now time.Time) verdict[session.Due] {
			if h.ExpiresAt.IsZero() || over(h.Status) {
				return verdict[session.Due]{gone: true}
			}
			return h.dueAt(h.ExpiresAt, now)
		})
}

// PendingCloses implements [session.Sweeps].
func (s *sessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, sweepCloses, "list pending closes", request, nil,
		func(h *header, _ *candidate, _ []string, _ time.Time) verdict[session.Due] {
			if !h.ClosePending || h.isRunning() {
				return verdict[session.Due]{gone: true}
			}
			return verdict[session.Due]{item: h.due(h.closePendingAt), at: h.closePendingAt}
		})
}

// Wakes implements [session.Sweeps]. It moves wakes that their commit could not
// move to the session to wake.
func (s *sessions) Wakes(ctx context.Context, request session.WakeRequest) ([]session.Wake, error) {
	w := &sweep[session.Wake]{
		b: s.b, index: sweepWakes, name: "list wakes", from: "-inf", to: "+inf", after: request.After,
		time: func(w *session.Wake) time.Time { return w.At }, order: (*session.Wake).Compare, verify: s.b.verifyWakes,
	}
	if request.After != nil {
		w.from = micros(request.After.At)
	}
	return w.page(ctx, request.Size())
}

// verifyWakes checks where a wake is before it is moved, then where it is
// afterwards: a wake that another process moves in between is found.
func (b *Backend) verifyWakes(ctx context.Context, found []candidate) ([]verdict[session.Wake], error) {
	left, err := b.wakesAt(ctx, found, func(c *candidate) (key, field string) {
		return b.keys.session(c.tenant, c.sub) + keyOutbox, c.id + "\x00" + c.sub
	})
	if err != nil {
		return nil, err
	}
	for i, wake := range left {
		if wake == nil {
			continue
		}
		if err := (&sessions{b, found[i].tenant}).moveWake(ctx, found[i].sub, wake); err != nil {
			return nil, err
		}
	}
	put, err := b.wakesAt(ctx, found, func(c *candidate) (key, field string) {
		return b.keys.session(c.tenant, c.id) + keyWakes, c.sub
	})
	if err != nil {
		return nil, err
	}
	out := make([]verdict[session.Wake], len(found))
	for i, wake := range put {
		out[i] = verdict[session.Wake]{gone: true}
		if wake != nil {
			out[i] = verdict[session.Wake]{item: wake, at: wake.At}
		}
	}
	return out, nil
}

// wakesAt reads the wakes of candidates; nil where there is none.
func (b *Backend) wakesAt(ctx context.Context, found []candidate, place func(*candidate) (key, field string)) ([]*session.Wake, error) {
	pipe := b.client.Pipeline()
	cmds := make([]*goredis.SliceCmd, len(found))
	for i := range found {
		key, field := place(&found[i])
		cmds[i] = pipe.HMGet(ctx, key, field)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]*session.Wake, len(found))
	for i, cmd := range cmds {
		values, err := cmd.Result()
		if err != nil {
			return nil, err
		}
		out[i] = wakeOf(&found[i], values)
	}
	return out, nil
}

// wakeOf reads a stored wake; nil if there is none.
func wakeOf(c *candidate, values []any) *session.Wake {
	stored := text(values[0])
	if stored == "" {
		return nil
	}
	run, at, _ := strings.Cut(stored, "\x00")
	return &session.Wake{Tenant: c.tenant, SessionID: c.id, ChildID: c.sub, RunID: run, At: moment(at)}
}
