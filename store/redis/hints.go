package redis

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
)

// The indexes of a tenant's sessions, ordered by creation time. Each but all and
// calls has a value in its name.
const (
	indexAll    = "all"
	indexUser   = "user/"
	indexAgent  = "agent/"
	indexStatus = "status/"
	indexTag    = "tag/"
	indexMeta   = "meta/"
	indexParent = "parent/"
	indexRoot   = "root/"
	// Runs that may be running, of all users and by user. An entry is for one run, so
	// that it can be removed when that run has ended, whatever has begun since.
	indexRunning       = "running"
	indexRunningOfUser = "running/"
	// Sessions by activity other than running, of all users and by user; see
	// activityIndex.
	indexActivity = "activity/"
	// Calls that may wait for people, of all users and by user; see waitingIndex. They
	// are ordered by when their entries were added.
	indexWaiting = "waiting"
	indexCalls   = "calls" // sessions that may have rows of calls
)

// The sweeps' indexes, ordered by when something becomes due at the earliest.
const (
	sweepLeases    = "leases"
	sweepDeadlines = "deadlines"
	sweepExpiries  = "expiries"
	sweepCloses    = "closes"
	sweepWakes     = "wakes"
	sweepBlobs     = "blobs" // those that may have lost their last reference, by when that was at the latest
)

// hints are index entries that a change is about to make true.
//
// Indexes are on other slots than sessions, so the two cannot change atomically.
// An entry is added before the change: a session that matches is always found. An
// entry may exist without being true, so readers verify it and remove it if it is
// not true, but not shortly after it was added, because its change may still be in
// progress. That period is far longer than the timeouts of connections allow a
// change to take; a process that was delayed for longer adds the entries again.
//
// The change may also be refused, so an existing entry must not be moved to where
// readers would miss what it stands for: in a listing it stays, in a sweep it may
// only move to an earlier time. The reader moves it.
type hints struct {
	entries []hint
}

type hint struct {
	slot   string // the prefix of the index's key
	index  string
	member string
	score  string
	how    string // see hints_add.lua
}

const (
	inPlace = "NX"   // an existing entry stays where it is
	moved   = "to"   // the entry is moved: it belonged to a deleted session
	sooner  = "LT"   // the entry is only moved to a lower score
	later   = "GT"   // the entry is only moved to a higher score
	known   = "true" // the entry stands for something that has happened
	gone    = "gone" // the entry is removed: it will never be true again
	asOfNow = "now"  // an existing entry stays where it is; a new one is added at the end
)

func (h *hints) list(keys keyspace, tenant, index, id, created string) {
	h.entries = append(h.entries, hint{keys.listing(tenant), index, id, created, inPlace})
}

// sweep adds an entry that is examined from a time on.
func (h *hints) sweep(keys keyspace, index, tenant, id, rest string, at time.Time) {
	member := tenant + "\x00" + id
	if rest != "" {
		member += "\x00" + rest
	}
	h.entries = append(h.entries, hint{keys.sweep(shardOf(tenant, id)), index, member, micros(at), sooner})
}

// stateHints adds the entries for a session's new document, except those that its
// old one, if there is one, already had.
func (s *sessions) stateHints(h *hints, is, was *session.State) {
	created, how := micros(is.CreatedAt), inPlace
	if was == nil {
		how = moved
	}
	add := func(index string) {
		h.entries = append(h.entries, hint{s.b.keys.listing(s.tenant), index, is.ID, created, how})
	}
	value := func(index, is, was string) {
		if is != was && is != "" {
			add(index + indexed(is))
		}
	}
	old := session.State{}
	if was == nil {
		add(indexAll)
	} else {
		old = *was
	}
	value(indexStatus, string(is.Status), string(old.Status))
	for i := range documentFields {
		if f := &documentFields[i]; f.index != "" {
			value(f.index, f.value(is), f.value(&old))
		}
	}
	seen := make(map[string]bool, len(old.Tags)+len(is.Tags))
	for _, tag := range old.Tags {
		seen[tag] = true
	}
	for _, tag := range is.Tags {
		if !seen[tag] {
			seen[tag] = true
			add(indexTag + indexed(tag))
		}
	}
	for name, value := range is.Metadata {
		if had, ok := old.Metadata[name]; !ok || had != value {
			add(indexMeta + indexed(name, value))
		}
	}
	expires := !is.ExpiresAt.IsZero() && !over(is.Status)
	if expires && (!is.ExpiresAt.Equal(old.ExpiresAt) || over(old.Status)) {
		h.sweep(s.b.keys, sweepExpiries, s.tenant, is.ID, "", is.ExpiresAt)
	}
}

// runningHints adds the entries for a run that is about to begin, or removes those
// of a run that has ended. They are removed at once, because whoever starts runs
// counts them.
func (s *sessions) runningHints(h *hints, is *session.State, runID, how string) {
	slot, created, member := s.b.keys.listing(s.tenant), micros(is.CreatedAt), is.ID+runMark+runID
	h.entries = append(h.entries, hint{slot, indexRunning, member, created, how})
	if is.UserID != "" {
		h.entries = append(h.entries, hint{slot, indexRunningOfUser + indexed(is.UserID), member, created, how})
	}
}

// activityIndex returns the name of the index of sessions with an activity, of all
// users or of one.
func activityIndex(activity session.Activity, userID string) string {
	if userID == "" {
		return indexActivity + string(activity)
	}
	return indexActivity + string(activity) + "/" + indexed(userID)
}

// activityHints adds the entries for a session's next activity. Runs have their
// own entries.
func (s *sessions) activityHints(h *hints, is *session.State, activity session.Activity, how string) {
	if activity == session.ActivityRunning {
		return
	}
	slot, created := s.b.keys.listing(s.tenant), micros(is.CreatedAt)
	h.entries = append(h.entries, hint{slot, activityIndex(activity, ""), is.ID, created, how})
	if is.UserID != "" {
		h.entries = append(h.entries, hint{slot, activityIndex(activity, is.UserID), is.ID, created, how})
	}
}

// runMark separates a session from its run in the entries of runs. It sorts before
// all characters of ids.
const runMark = "\x00"

// over reports whether a session has ended. An interrupted or paused session has
// not: it can continue.
func over(status session.Status) bool { return status == session.Completed || status == session.Failed }

// addHints adds index entries, those of one slot in one step.
func (b *Backend) addHints(ctx context.Context, what string, h *hints) error {
	return failure(what, b.evalEach(ctx, addHints, b.hintGroups(h)))
}

func (b *Backend) hintGroups(h *hints) []*slotArgs {
	return b.perSlot(h.entries, func(e *hint) []any { return []any{e.member, e.score, e.how} })
}

// putBack moves the entries of a session that was not created, because its id
// already exists, to where those of the existing session belong. Readers remove
// the others.
func (b *Backend) putBack(ctx context.Context, what string, h *hints, created string) error {
	var back hints
	for _, e := range h.entries {
		if e.how == moved {
			e.score = created
			back.entries = append(back.entries, e)
		}
	}
	return b.addHints(ctx, what, &back)
}

// correction is an entry that was found to be untrue.
type correction struct {
	hint
	right string // the right score, or empty if there is none
}

// settle corrects entries that a read found to be untrue; began is when the read
// began. If it fails, a later read finds them again. It does nothing if the read
// began too long ago: what was read then says nothing about changes whose entries
// are no longer new.
func (b *Backend) settle(ctx context.Context, began time.Time, corrections []correction) {
	if len(corrections) == 0 || time.Since(began) > b.config.late {
		return
	}
	entries, right := make([]hint, len(corrections)), make(map[*hint]string, len(corrections))
	for i, c := range corrections {
		entries[i] = c.hint
		right[&entries[i]] = c.right
	}
	groups := b.perSlot(entries, func(e *hint) []any {
		return []any{e.member, e.score, right[e], flag(e.how != sooner)}
	})
	if err := b.evalEach(ctx, settleHints, groups); err != nil && ctx.Err() == nil {
		b.config.Logger.WarnContext(ctx, "index entries could not be corrected", "error", err)
	}
}

// slotArgs has the arguments of a script that works on the indexes of one slot.
type slotArgs struct {
	keys []string
	args []any
}

// maxIndexes is how many indexes a script works on, because the server does
// nothing else at the same time. It is more than a session within the limits of
// its labels has.
const maxIndexes = 256

// perSlot groups entries by slot, for scripts that each work on some of them.
func (b *Backend) perSlot(entries []hint, args func(*hint) []any) []*slotArgs {
	var out []*slotArgs
	bySlot := map[string]*slotArgs{}
	for i := range entries {
		e := &entries[i]
		g := bySlot[e.slot]
		if g == nil || len(g.keys) > maxIndexes { // one key is not an index
			g = &slotArgs{[]string{e.slot + "recent"}, []any{"", b.stamp(), b.config.settling.Microseconds()}}
			bySlot[e.slot], out = g, append(out, g)
		}
		g.keys = append(g.keys, e.slot+e.index)
		g.args = append(g.args, args(e)...)
	}
	return out
}

// evalEach runs a script for several slots.
func (b *Backend) evalEach(ctx context.Context, s *script, groups []*slotArgs) error {
	runs := groupRuns(s, groups)
	b.evalSlots(ctx, runs)
	return firstError(runs)
}

// evalSlots runs scripts of several slots: in one round trip to each node, unless
// replicas are waited for. Then each is sent separately, several at a time.
func (b *Backend) evalSlots(ctx context.Context, runs []*run) {
	switch {
	case len(runs) == 0:
	case b.config.WaitReplicas > 0:
		var working sync.WaitGroup
		slots := make(chan struct{}, replicating)
		for _, r := range runs {
			slots <- struct{}{}
			working.Go(func() {
				defer func() { <-slots }()
				b.evalReplicated(ctx, r)
			})
		}
		working.Wait()
	default:
		b.evalAll(ctx, runs...)
	}
}

// replicating is how many scripts wait for replicas at the same time.
const replicating = 16

func groupRuns(s *script, groups []*slotArgs) []*run {
	runs := make([]*run, len(groups))
	for i, g := range groups {
		runs[i] = &run{script: s, keys: g.keys, args: g.args}
	}
	return runs
}

func firstError(runs []*run) error {
	for _, r := range runs {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// evalBehind runs scripts that index entries must precede: in one round trip if a
// single server executes all of it in order. If it refuses an entry but not the
// change, the entry is added afterwards; so it is if the change took so long that
// a reader may have considered the entry untrue.
func (b *Backend) evalBehind(ctx context.Context, what string, h *hints, runs ...*run) error {
	if len(h.entries) == 0 {
		b.evalAll(ctx, runs...)
		return nil
	}
	began := time.Now()
	if b.cluster != nil || b.config.WaitReplicas > 0 {
		if err := b.addHints(ctx, what, h); err != nil {
			return err
		}
		b.evalAll(ctx, runs...)
	} else {
		entries := groupRuns(addHints, b.hintGroups(h))
		for _, r := range entries {
			r.whole = true // a server without the script would apply the change alone
		}
		b.evalAll(ctx, slices.Concat(entries, runs)...)
		if firstError(entries) != nil {
			return b.addHints(ctx, what, h)
		}
	}
	if time.Since(began) > b.config.late {
		return b.addHints(ctx, what, h)
	}
	return nil
}

// placeCache remembers what index entries of sessions consist of: a session's
// creation time, which is its position in every index and never changes while it
// exists, and its user, which nobody changes during a run. If a session was
// created again under the same id, its entry would be in the wrong position, and
// readers move it.
type placeCache struct {
	mu    sync.Mutex
	known map[session.Key]place
}

// place is what the index entries of a session consist of.
type place struct{ created, user string }

const maxPlaces = 10_000

func (c *placeCache) put(tenant, id string, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxPlaces {
		c.known = map[session.Key]place{}
	}
	c.known[session.Key{Tenant: tenant, ID: id}] = at
}

func (c *placeCache) get(tenant, id string) (place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[session.Key{Tenant: tenant, ID: id}]
	return at, ok
}

// placeOf returns what the index entries of a session consist of; nil if there is
// no session.
func (s *sessions) placeOf(ctx context.Context, id string) (*session.State, error) {
	at, ok := s.b.places.get(s.tenant, id)
	if !ok {
		v, err := s.look(ctx, id, "look up", query())
		if err != nil || v.header == nil {
			return nil, err
		}
		return &v.header.State, nil
	}
	return &session.State{ID: id, UserID: at.user, CreatedAt: moment(at.created)}, nil
}

func score(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

func (c *placeCache) drop(tenant, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, session.Key{Tenant: tenant, ID: id})
}
