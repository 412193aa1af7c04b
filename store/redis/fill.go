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

// Indexes that earlier versions did not maintain are filled from the sessions once
// somebody lists by them. Programs of such versions may still run during a
// deployment, so the filling is repeated every hour for two days.
//
// It happens in the background, and in one process per tenant at a time: a listing
// does not wait for it and uses the entries that exist.
const (
	fillEvery = time.Hour
	fillFor   = 48 * time.Hour
	fillAsk   = time.Minute      // how often a process checks whether it is due
	fillHold  = 30 * time.Second // how long the lock is held for a page
	fillPages = 10               // how many pages of sessions are filled before the next tenant's turn
	maxFills  = 1000             // how many tenants may be queued in a process
)

const (
	// keyFilled is a hash beside a tenant's indexes: when they were filled for the
	// first and the last time, and where to continue.
	keyFilled = "filled"
	// keyFilling is the lock of the process that fills. Only its holder writes the
	// hash.
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
	next    map[string]time.Time // when to check again, by tenant
	queue   []string             // tenants that are queued
}

func newFills(b *Backend) *fills {
	return &fills{b: b, next: map[string]time.Time{}, stop: func() {}}
}

// close stops the filling and waits for its end.
func (f *fills) close() {
	f.mu.Lock()
	f.closed = true
	f.stop()
	f.mu.Unlock()
	f.work.Wait()
}

// want requests that a tenant's indexes be filled, unless that was requested
// recently.
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

// take returns the tenant whose turn it is; if there is none, the work ends.
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

// again queues the rest of a tenant's filling behind those of others.
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
		case err != nil && ctx.Err() == nil: // a later listing tries again
			f.b.config.Logger.WarnContext(ctx, "indexes could not be filled", "tenant", tenant, "error", err)
		case more:
			f.again(tenant)
		}
	}
}

// fillSome adds the entries that older programs have omitted, for some pages of
// sessions, if that is due and no other process does it. It continues where the
// last call stopped, and reports whether there is more to do.
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
	due, from, err := s.fillDue(ctx, slot+keyFilled, now) // as the previous holder has left it
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

// fillDue reports whether a tenant's indexes are to be filled, and where to
// continue.
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
