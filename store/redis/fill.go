package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// Indexes that programs of an earlier version did not keep are filled from the
// sessions, once somebody lists by them. Such programs may still be at work, as long as
// a deployment takes: so that is done again every hour for two days.
//
// It is done in the background, and by one process for a tenant at a time: whoever lists
// does not wait for it, and is answered from what is there.
const (
	fillEvery = time.Hour
	fillFor   = 48 * time.Hour
	fillAsk   = time.Minute      // how often a process asks whether it is due
	fillHold  = 30 * time.Second // how long the lock is held for a page
	fillPages = 10               // how many pages of sessions a tenant has filled before the next has its turn
	maxFills  = 1000             // how many tenants wait for their turn in a process
)

const (
	// keyFilled is a hash beside a tenant's indexes: when they were filled for the first
	// and the last time, and from where on to go on.
	keyFilled = "filled"
	// keyFilling is the lock of whoever is about it. Only its holder writes the hash.
	keyFilling = "filling"
)

// fills fills indexes in the background, one tenant's at a time.
type fills struct {
	b    *Backend
	work sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	working bool
	stop    context.CancelFunc   // ends the work, if there is any
	next    map[string]time.Time // when to ask again, by tenant
	queue   []string             // tenants that wait for their turn
}

func newFills(b *Backend) *fills {
	return &fills{b: b, next: map[string]time.Time{}, stop: func() {}}
}

// close stops what goes on and waits for its end.
func (f *fills) close() {
	f.mu.Lock()
	f.closed = true
	f.stop()
	f.mu.Unlock()
	f.work.Wait()
}

// want has a tenant's indexes filled, if that was not asked for lately.
func (f *fills) want(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.closed || now.Before(f.next[tenant]) || len(f.queue) >= maxFills {
		return
	}
	if len(f.next) >= maxPlaces {
		f.next = map[string]time.Time{}
	}
	f.next[tenant] = now.Add(fillAsk)
	if !slices.Contains(f.queue, tenant) {
		f.queue = append(f.queue, tenant)
	}
	if !f.working {
		ctx, cancel := context.WithCancel(context.Background())
		f.working, f.stop = true, cancel
		f.work.Go(func() {
			defer cancel()
			f.run(ctx)
		})
	}
}

// take is the tenant whose turn it is; without one the work ends.
func (f *fills) take() (tenant string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.queue) == 0 {
		f.working = false
		return "", false
	}
	tenant = f.queue[0]
	f.queue = f.queue[1:]
	return tenant, true
}

// again has a tenant's filling go on after those of others.
func (f *fills) again(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[tenant] = time.Now().Add(fillAsk)
	if !slices.Contains(f.queue, tenant) {
		f.queue = append(f.queue, tenant)
	}
}

func (f *fills) run(ctx context.Context) {
	for {
		tenant, ok := f.take()
		if !ok {
			return
		}
		more, err := (&sessions{f.b, tenant}).fillSome(ctx)
		switch {
		case err != nil && ctx.Err() == nil: // whoever lists in a while has it tried again
			f.b.config.Logger.WarnContext(ctx, "indexes could not be filled", "tenant", tenant, "error", err)
		case more:
			f.again(tenant)
		}
	}
}

// fillSome adds the entries that older programs have left out of some pages of sessions,
// if that is due and nobody else is about it. It goes on where the last one has stopped,
// and reports whether there is more to do.
func (s *sessions) fillSome(ctx context.Context) (more bool, err error) {
	const name = "fill indexes"
	if err := s.b.begin(ctx, name); err != nil {
		return false, err
	}
	slot, now := s.b.keys.listing(s.tenant), time.Now()
	if due, _, err := s.fillDue(ctx, slot+keyFilled, now); err != nil || !due {
		return false, failure(name, err)
	}
	token := s.b.tokens.next()
	taken, err := s.b.client.SetNX(ctx, slot+keyFilling, token, fillHold).Result()
	if err != nil || !taken {
		return false, failure(name, err)
	}
	// note reports whether the lock was still held.
	note := func(from, filled string) (bool, error) {
		out, err := s.b.eval(ctx, noteFilled, []string{slot + keyFilling, slot + keyFilled},
			[]any{"", s.b.stamp(), token, fillHold.Milliseconds(), from, filled})
		return err == nil && number(text(out)) == 1, failure(name, err)
	}
	due, from, err := s.fillDue(ctx, slot+keyFilled, now) // as the holder before has left it
	if err != nil || !due {
		_, freed := note("", "")
		return false, cmp.Or(failure(name, err), freed)
	}
	w := s.walk(&session.Query{}, indexAll, func(*found) bool { return true })
	if at, member, ok := strings.Cut(from, "\x00"); ok {
		w.scan.last = &goredis.Z{Score: float64(number(at)), Member: member}
	}
	for range fillPages {
		entries, err := w.scan.next(ctx, session.MaxPageSize)
		if err != nil {
			return false, err
		}
		if len(entries) == 0 {
			_, err := note("", micros(now))
			return false, err
		}
		if err := s.fill(ctx, name, &w, entries); err != nil {
			return false, err
		}
		if held, err := note(score(w.scan.last.Score)+"\x00"+text(w.scan.last.Member), ""); err != nil || !held {
			return false, err
		}
	}
	return note("", "")
}

// fillDue reports whether a tenant's indexes are to be filled, and from where on.
func (s *sessions) fillDue(ctx context.Context, key string, now time.Time) (due bool, from string, err error) {
	noted, err := s.b.client.HMGet(ctx, key, "first", "last", "from").Result()
	if err != nil {
		return false, "", err
	}
	first, last := moment(text(noted[0])), moment(text(noted[1]))
	return last.IsZero() || (last.Sub(first) <= fillFor && now.Sub(last) >= fillEvery), text(noted[2]), nil
}

// fill adds the entries of some sessions.
func (s *sessions) fill(ctx context.Context, name string, w *walk, entries []goredis.Z) error {
	sessions, err := w.verify(ctx, entries)
	if err != nil {
		return err
	}
	var h hints
	for _, f := range sessions {
		if f == nil {
			continue
		}
		is := session.State{ID: f.ID, UserID: f.UserID, CreatedAt: f.CreatedAt}
		if f.Activity.Listed() || f.Activity == session.ActivityStopped {
			waiting, err := s.PendingCalls(ctx, f.ID, false)
			if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrCorrupt) {
				return err
			}
			s.waitingHints(&h, &is, waiting, inPlace)
		}
		s.activityHints(&h, &is, f.Activity, known)
		if f.running != "" {
			s.runningHints(&h, &is, f.running, known)
		}
	}
	return s.b.addHints(ctx, name, &h)
}
