package mapstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// List implements [session.Lister].
func (s *sessions) List(ctx context.Context, query session.Query) (page session.Page[session.Summary], err error) {
	after, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	if err := s.b.lock(ctx); err != nil {
		return page, err
	}
	defer s.b.mu.Unlock()
	var found []session.Summary
	for key, rec := range s.b.sessions {
		summary := rec.state.Summary(rec.runStatus())
		if key.Tenant == s.tenant && query.Selects(&summary) {
			found = append(found, summary)
		}
	}
	newestFirst := func(a, b session.Position) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(b.ID, a.ID)) }
	slices.SortFunc(found, func(a, b session.Summary) int { return newestFirst(positionOf(&a), positionOf(&b)) })
	rest := found[min(query.Skip(), len(found)):]
	if resumed {
		rest = slices.DeleteFunc(slices.Clone(found), func(item session.Summary) bool { return newestFirst(positionOf(&item), after) <= 0 })
	}
	items := copied(rest[:min(query.Size(), len(rest))])
	var last session.Position
	if n := len(items); n > 0 {
		last = positionOf(&items[n-1])
	}
	return newPage(query.PageRequest, items, len(found), len(rest) > len(items), last), nil
}

func positionOf(item *session.Summary) session.Position {
	return session.Position{N: item.CreatedAt.UnixNano(), ID: item.ID}
}

// Waiting implements [session.Lister].
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (page session.Page[session.Waiting], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	if err := s.b.lock(ctx); err != nil {
		return page, err
	}
	defer s.b.mu.Unlock()
	waits := s.waits(query.UserID)
	total := len(waits)
	if query.NewestFirst {
		slices.Reverse(waits)
	}
	waits = waits[min(query.Skip(), len(waits)):]
	if resumed {
		waits = slices.DeleteFunc(waits, func(w *wait) bool { return w.number == at.N || (w.number > at.N) == query.NewestFirst })
	}

	var items []session.Waiting
	var last session.Position
	links, size := map[string]session.Link{}, int64(0)
	for _, w := range waits {
		if size += int64(len(w.Input)); len(items) == query.Size() || !query.Fits(len(items), size) {
			break
		}
		rec := s.find(w.owner)
		items = append(items, session.Waiting{Call: copied(w.Pending), SessionID: w.owner, Agent: rec.state.Agent})
		links[w.owner] = session.Link{UserID: rec.state.UserID, ParentID: rec.state.ParentID}
		last.N = w.number
	}
	page = newPage(query.PageRequest, items, total, len(items) < len(waits), last)
	page.Items, err = query.FindRoots(page.Items, links, s.links)
	return page, err
}

// waits returns the calls that wait for people, those that have waited longest first.
func (s *sessions) waits(userID string) []*wait {
	var out []*wait
	for key, rec := range s.b.sessions {
		if key.Tenant != s.tenant || userID != "" && rec.state.UserID != userID || !rec.activity().Listed() {
			continue
		}
		for i := range rec.pending {
			if rec.pending[i].State == session.PendingWaiting {
				out = append(out, &rec.pending[i])
			}
		}
	}
	slices.SortFunc(out, func(a, b *wait) int { return cmp.Compare(a.number, b.number) })
	return out
}

func (s *sessions) links(ids []string) (map[string]session.Link, error) {
	out := map[string]session.Link{}
	for _, id := range ids {
		if rec := s.find(id); rec != nil {
			out[id] = session.Link{UserID: rec.state.UserID, ParentID: rec.state.ParentID}
		}
	}
	return out, nil
}

// DueDeadlines implements [session.Sweeps].
func (s *sessions) DueDeadlines(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, func(rec *record, now time.Time) (found []session.Due) {
		for i := range rec.pending {
			if p := &rec.pending[i]; p.State == session.PendingWaiting && passed(p.Deadline, now) && rec.state.Status != session.Paused {
				due := rec.due(p.Deadline)
				due.CallID = p.CallID
				found = append(found, due)
			}
		}
		return found
	})
}

// ExpiredLeases implements [session.Sweeps].
func (s *sessions) ExpiredLeases(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, func(rec *record, now time.Time) []session.Due {
		st := &rec.state
		if st.RootID == "" && st.Status != session.Paused && rec.runStatus() == session.RunRunning && passed(st.Lease.ExpiresAt, now) {
			return []session.Due{rec.due(st.Lease.ExpiresAt)}
		}
		return nil
	})
}

// ExpiredSessions implements [session.Sweeps].
func (s *sessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, func(rec *record, now time.Time) []session.Due {
		st := &rec.state
		if st.Status != session.Paused && !ended(st.Status) && passed(st.ExpiresAt, now) {
			return []session.Due{rec.due(st.ExpiresAt)}
		}
		return nil
	})
}

// PendingCloses implements [session.Sweeps].
func (s *sessions) PendingCloses(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	return s.sweep(ctx, request, func(rec *record, _ time.Time) []session.Due {
		if !rec.state.ClosePending || rec.runStatus() == session.RunRunning {
			return nil
		}
		at := rec.state.UpdatedAt
		if run := rec.currentRun(); run != nil {
			at = run.EndedAt
		}
		return []session.Due{rec.due(at)}
	})
}

// Wakes implements [session.Sweeps].
func (s *sessions) Wakes(ctx context.Context, request session.WakeRequest) ([]session.Wake, error) {
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	found := slices.Collect(maps.Values(s.b.wakes))
	return pageAfter(found, (*session.Wake).Compare, request.After, request.Size()), nil
}

// sweep collects what is due in the sessions of all tenants.
func (s *sessions) sweep(
	ctx context.Context, request session.SweepRequest, due func(rec *record, now time.Time) []session.Due,
) ([]session.Due, error) {
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now, found := s.b.now().Add(request.Ahead), []session.Due{}
	for _, rec := range s.b.sessions {
		found = append(found, due(rec, now)...)
	}
	found = slices.DeleteFunc(found, func(d session.Due) bool { return !request.Wants(&d) })
	return pageAfter(found, (*session.Due).Compare, request.After, request.Size()), nil
}

func (r *record) due(at time.Time) session.Due {
	out := session.Due{
		Key:   session.Key{Tenant: r.state.Tenant, ID: r.state.ID},
		Agent: r.state.Agent, RunID: r.state.CurrentRunID, Lease: r.state.Lease, At: at,
	}
	if run := r.currentRun(); run != nil {
		out.Runtime, out.Requires = run.Runtime, slices.Clone(run.Requires)
	}
	if r.stop != nil && r.runStatus() == session.RunRunning {
		out.Stop = r.stop.Kind
	}
	return out
}

// passed reports whether a time is set and has come.
func passed(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// pageAfter sorts entries and returns the page that follows an entry, which need not
// be among them any more.
func pageAfter[T any](found []T, compare func(a, b *T) int, after *T, size int) []T {
	found = slices.DeleteFunc(found, func(item T) bool { return after != nil && compare(&item, after) <= 0 })
	slices.SortFunc(found, func(a, b T) int { return compare(&a, &b) })
	return found[:min(size, len(found))]
}
