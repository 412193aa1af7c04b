package memory

import (
	"context"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// due says which sweeps may have work for a session.
type due uint8

const (
	dueLease    due = 1 << iota // a run is running
	dueClose                    // the stream may not be closed
	dueExpiry                   // it expires
	dueDeadline                 // an unanswered call has a deadline
	dueCalls                    // it has call rows

	dues = iota
)

// dueSets has, for each sweep, the sessions to examine, so that the cost of a
// sweep does not depend on the number of sessions.
type dueSets [dues]map[*record]struct{}

func newDueSets() (sets dueSets) {
	for i := range sets {
		sets[i] = map[*record]struct{}{}
	}
	return sets
}

func (d *dueSets) of(kind due) map[*record]struct{} { return d[bits.TrailingZeros8(uint8(kind))] }

// mark adds a session to the sets and lists that it belongs to now. It touches
// only what has changed, which for most commits is nothing.
func (b *Backend) mark(rec *record) {
	b.due.set(rec, rec.dues())
	sh := b.catalog(rec.state.Tenant)
	sh.setActivity(rec, rec.activity())
	sh.inboxes.put(rec, b.nextWait, false)
}

// nextWait returns the number of a call that begins to wait.
func (b *Backend) nextWait() int64 {
	b.asked++
	return b.asked
}

func (d *dueSets) remove(rec *record) { d.set(rec, 0) }

func (d *dueSets) set(rec *record, marks due) {
	for i, set := range d {
		bit := due(1 << i)
		switch {
		case marks&bit == rec.marks&bit:
		case marks&bit != 0:
			set[rec] = struct{}{}
		default:
			delete(set, rec)
		}
	}
	rec.marks = marks
}

func (r *record) dues() (marks due) {
	if r.isRunning() {
		marks |= dueLease
	} else if r.state.ClosePending {
		marks |= dueClose
	}
	if !r.state.ExpiresAt.IsZero() && !ended(r.state.Status) {
		marks |= dueExpiry
	}
	for _, p := range r.pending.open {
		if p.State == session.PendingWaiting && !p.Deadline.IsZero() {
			marks |= dueDeadline
			break
		}
	}
	if len(r.calls) > 0 {
		marks |= dueCalls
	}
	return marks
}

// DueDeadlines implements [session.Sweeps].
func (s *sessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, dueDeadline, func(rec *record, now time.Time, found []session.Due) []session.Due {
		if rec.state.Status == session.Paused {
			return found
		}
		for _, p := range rec.pending.open {
			if p.State == session.PendingWaiting && passed(p.Deadline, now) {
				d := rec.due(p.Deadline)
				d.CallID = p.CallID
				found = append(found, d)
			}
		}
		return found
	})
}

// ExpiredLeases implements [session.Sweeps].
func (s *sessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, dueLease, func(rec *record, now time.Time, found []session.Due) []session.Due {
		st := &rec.state
		if st.RootID != "" || st.Status == session.Paused || !passed(st.Lease.ExpiresAt, now) {
			return found
		}
		return append(found, rec.due(st.Lease.ExpiresAt))
	})
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, dueExpiry, func(rec *record, now time.Time, found []session.Due) []session.Due {
		if rec.state.Status == session.Paused || !passed(rec.state.ExpiresAt, now) {
			return found
		}
		return append(found, rec.due(rec.state.ExpiresAt))
	})
}

// PendingCloses implements [session.Sweeps].
func (s *sessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, dueClose, func(rec *record, _ time.Time, found []session.Due) []session.Due {
		at := rec.state.UpdatedAt
		if run := rec.currentRun(); run != nil {
			at = run.EndedAt
		}
		return append(found, rec.due(at))
	})
}

// Wakes implements [session.Sweeps].
func (s *sessions) Wakes(ctx context.Context, request session.WakeRequest) ([]session.Wake, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	found := slices.Collect(maps.Values(s.b.wakes))
	return pageOf(found, (*session.Wake).Compare, request.After, request.Size()), nil
}

// sweep collects what is due among the sessions of one set.
func (s *sessions) sweep(
	ctx context.Context, request session.SweepRequest, kind due, collect func(*record, time.Time, []session.Due) []session.Due,
) ([]session.Due, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	now := s.b.now().Add(request.Ahead)
	found := []session.Due{}
	for rec := range s.b.due.of(kind) {
		found = collect(rec, now, found)
	}
	found = slices.DeleteFunc(found, func(d session.Due) bool { return !request.Wants(&d) })
	return pageOf(found, (*session.Due).Compare, request.After, request.Size()), nil
}

func (r *record) due(at time.Time) session.Due {
	out := session.Due{
		Key:   session.Key{Tenant: r.state.Tenant, ID: r.state.ID},
		Agent: r.state.Agent, RunID: r.state.CurrentRunID, Lease: r.state.Lease, At: at,
	}
	if run := r.currentRun(); run != nil {
		out.Runtime, out.Requires = run.Runtime, slices.Clone(run.Requires)
	}
	if r.stop != nil && r.isRunning() {
		out.Stop = r.stop.Kind
	}
	return out
}

// passed reports whether a time is set and has passed.
func passed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// pageOf sorts the entries and returns the page after a given entry, or the first
// page.
func pageOf[T any](found []T, compare func(a, b *T) int, after *T, size int) []T {
	if after != nil {
		found = slices.DeleteFunc(found, func(item T) bool { return compare(&item, after) <= 0 })
	}
	slices.SortFunc(found, func(a, b T) int { return compare(&a, &b) })
	return atMost(size, found)
}

// atMost cuts a list to limit items; a limit of 0 or less means no limit.
func atMost[T any](limit int, list []T) []T {
	if limit > 0 && len(list) > limit {
		return list[:limit]
	}
	return list
}
