package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// Indexes that programs of an earlier version did not keep are filled from the
// sessions, when somebody first lists by them. Such programs may still be at work, as
// long as a deployment takes: so that is done again every hour for two days.
const (
	fillEvery = time.Hour
	fillFor   = 48 * time.Hour
	fillAsk   = time.Minute // how often a process asks whether it is due
)

// keyFilled is a hash beside a tenant's indexes: when they were filled for the first
// and the last time, and how far whoever is about it has come.
const keyFilled = "filled"

// fills remembers when to ask again, by tenant.
type fills struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// asked reports whether a tenant's indexes were asked about lately.
func (f *fills) asked(tenant string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.next[tenant])
}

func (f *fills) note(tenant string, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil || len(f.next) >= maxPlaces {
		f.next = map[string]time.Time{}
	}
	f.next[tenant] = next
}

// fillIndexes adds the entries that older programs have left out, if that is due. It
// goes on where one that was cut short has stopped.
func (s *sessions) fillIndexes(ctx context.Context) error {
	const name = "fill indexes"
	now := time.Now()
	if s.b.fills.asked(s.tenant, now) {
		return nil
	}
	key := s.b.keys.listing(s.tenant) + keyFilled
	noted, err := s.b.client.HMGet(ctx, key, "first", "last", "at").Result()
	if err != nil {
		return failure(name, err)
	}
	first, last, at := moment(text(noted[0])), moment(text(noted[1])), text(noted[2])
	if !last.IsZero() && (last.Sub(first) > fillFor || now.Sub(last) < fillEvery) {
		s.b.fills.note(s.tenant, now.Add(fillAsk))
		return nil
	}
	w := walk{
		sessions: s, query: &session.Query{}, slot: s.b.keys.listing(s.tenant), index: indexAll,
		holds: func(*found) bool { return true }, min: "-inf", max: "+inf",
	}
	if at != "" {
		w.max = at
	}
	for {
		entries, err := w.next(ctx, session.MaxPageSize)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		if err := s.fill(ctx, name, &w, entries); err != nil {
			return err
		}
		if err := s.b.client.HSet(ctx, key, "at", score(w.last.Score)).Err(); err != nil {
			return failure(name, err)
		}
	}
	pipe := s.b.client.TxPipeline()
	pipe.HSetNX(ctx, key, "first", micros(now))
	pipe.HSet(ctx, key, "last", micros(now))
	pipe.HDel(ctx, key, "at")
	if _, err := pipe.Exec(ctx); err != nil {
		return failure(name, err)
	}
	s.b.fills.note(s.tenant, now.Add(fillAsk))
	return nil
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
