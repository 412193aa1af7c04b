package memory

import (
	"cmp"
	"context"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// due says which sweeps a session may have something for.
type due uint8

const (
	dueLease    due = 1 << iota // a run is running
	dueClose                    // a stream's close is owed
	dueExpiry                   // it expires
	dueDeadline                 // an unanswered call has a deadline
	dueCalls                    // there are rows of calls

	dues = iota
)

// dueSets has, for each sweep, the sessions to look at, so that a sweep's cost
// does not depend on the number of sessions.
type dueSets [dues]map[*record]struct{}

func newDueSets() (sets dueSets) {
	for i := range sets {
		sets[i] = map[*record]struct{}{}
	}
	return sets
}

func (d *dueSets) of(kind due) map[*record]struct{} { return d[bits.TrailingZeros8(uint8(kind))] }

// mark enters a session into the sets it belongs to now. Only what has changed
// is touched, which for most commits is nothing.
func (d *dueSets) mark(rec *record) { d.set(rec, rec.dues()) }

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
	if run := r.currentRun(); run != nil && run.Status == session.RunRunning {
		marks |= dueLease
	} else if r.state.CloseOwed {
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
func (s *sessions) DueDeadlines(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, limit, dueDeadline, func(rec *record, now time.Time, found []session.Due) []session.Due {
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
func (s *sessions) ExpiredLeases(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, limit, dueLease, func(rec *record, now time.Time, found []session.Due) []session.Due {
		st := &rec.state
		if st.ParentID != "" || st.Status == session.Paused || st.Lease.Live(now) {
			return found
		}
		return append(found, rec.due(st.Lease.ExpiresAt))
	})
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, limit, dueExpiry, func(rec *record, now time.Time, found []session.Due) []session.Due {
		if rec.state.Status == session.Paused || !passed(rec.state.ExpiresAt, now) {
			return found
		}
		return append(found, rec.due(rec.state.ExpiresAt))
	})
}

// OwedCloses implements [session.Sweeps].
func (s *sessions) OwedCloses(ctx context.Context, limit int) ([]session.Due, error) {
	return s.sweep(ctx, limit, dueClose, func(rec *record, _ time.Time, found []session.Due) []session.Due {
		at := rec.state.UpdatedAt
		if run := rec.currentRun(); run != nil {
			at = run.EndedAt
		}
		return append(found, rec.due(at))
	})
}

// Wakes implements [session.Sweeps].
func (s *sessions) Wakes(ctx context.Context, limit int) ([]session.Wake, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	found := slices.SortedFunc(maps.Values(s.b.wakes), func(a, b session.Wake) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.SessionID, b.SessionID), cmp.Compare(a.ChildID, b.ChildID))
	})
	return atMost(limit, found), nil
}

// sweep collects what is due among the sessions of one set, the longest due
// first.
func (s *sessions) sweep(
	ctx context.Context, limit int, kind due, collect func(*record, time.Time, []session.Due) []session.Due,
) ([]session.Due, error) {
	if err := s.b.rlock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	now := s.b.now()
	found := []session.Due{}
	for rec := range s.b.due.of(kind) {
		found = collect(rec, now, found)
	}
	slices.SortFunc(found, func(a, b session.Due) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.CallID, b.CallID))
	})
	return atMost(limit, found), nil
}

func (r *record) due(at time.Time) session.Due {
	out := session.Due{
		Key:   session.Key{Tenant: r.state.Tenant, ID: r.state.ID},
		Agent: r.state.Agent, RunID: r.state.CurrentRunID, Lease: r.state.Lease, At: at,
	}
	if run := r.currentRun(); run != nil {
		out.Runtime = run.Runtime
	}
	return out
}

// passed reports whether a time that was set has come.
func passed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// atMost cuts a list to limit items; a limit of 0 or less is none.
func atMost[T any](limit int, list []T) []T {
	if limit > 0 && len(list) > limit {
		return list[:limit]
	}
	return list
}
