package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// found is a session that an index entry refers to.
type found struct {
	session.Summary
	running string // the run, if it has not ended
	entry   string // the run that the index entry is for, if it is for one
}

// List implements [session.Lister]. It reads the narrowest index that contains
// everything the query selects, and verifies each session that it finds there.
func (s *sessions) List(ctx context.Context, query session.Query) (page session.Page[session.Summary], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	if err := s.b.begin(ctx, "list sessions"); err != nil {
		return page, err
	}
	index, holds := narrowest(&query)
	w := s.walk(&query, index, holds)
	w.perRun = strings.HasPrefix(w.index, indexRunning)
	if strings.HasPrefix(w.index, indexActivity) {
		s.b.fills.want(s.tenant)
	}
	if w.scan.lowest, w.scan.highest = dates(&query); resumed {
		w.after, w.scan.last = &at, &goredis.Z{Score: float64(at.N / 1000), Member: at.ID}
	}
	for range maxWalks {
		again := w
		again.strict = true
		if page, err = again.page(ctx); !errors.Is(err, errMisplaced) {
			return page, err
		}
	}
	return w.page(ctx)
}

// page lists the sessions of one page.
func (w *walk) page(ctx context.Context) (page session.Page[session.Summary], err error) {
	query, all := w.query, *w
	page = session.Page[session.Summary]{Items: []session.Summary{}, Offset: query.Skip(), Limit: query.Size()}
	skip := query.Skip()
	err = w.each(ctx, page.Limit+skip+1, func(f *found) bool {
		switch {
		case skip > 0:
			skip--
		case len(page.Items) == page.Limit:
			last := &page.Items[page.Limit-1]
			page.HasMore = true
			page.Next = session.Position{N: last.CreatedAt.UnixNano(), ID: last.ID}.Cursor()
			return false
		default:
			page.Items = append(page.Items, f.Summary)
		}
		return true
	})
	if err != nil {
		return session.Page[session.Summary]{}, err
	}
	if query.Total {
		total := 0
		all.after, all.scan.last = nil, nil
		if err := all.each(ctx, session.MaxPageSize, func(*found) bool { total++; return true }); err != nil {
			return session.Page[session.Summary]{}, err
		}
		page.Total = &total
	}
	return page, nil
}

// narrowest returns the index that is likely to be the shortest of those that
// contain everything a query selects, and what makes an entry of it true.
//
// The index of a user is preferred to those of tags and metadata, which also
// contain other users' sessions.
func narrowest(q *session.Query) (index string, holds func(*found) bool) {
	switch {
	case q.ParentID != "":
		return indexParent + indexed(q.ParentID), func(f *found) bool { return f.ParentID == q.ParentID }
	case q.Activity == session.ActivityRunning && q.UserID != "":
		return indexRunningOfUser + indexed(q.UserID), func(f *found) bool { return f.running == f.entry && f.UserID == q.UserID }
	case q.Activity == session.ActivityRunning:
		return indexRunning, func(f *found) bool { return f.running == f.entry }
	case q.Activity != "":
		return activityIndex(q.Activity, q.UserID), func(f *found) bool {
			return f.Activity == q.Activity && (q.UserID == "" || f.UserID == q.UserID)
		}
	case q.UserID != "":
		return indexUser + indexed(q.UserID), func(f *found) bool { return f.UserID == q.UserID }
	case len(q.Metadata) > 0:
		name := slices.Min(slices.Collect(maps.Keys(q.Metadata)))
		value := q.Metadata[name]
		return indexMeta + indexed(name, value), func(f *found) bool {
			has, ok := f.Metadata[name]
			return ok && has == value
		}
	case len(q.Tags) > 0:
		return indexTag + indexed(q.Tags[0]), func(f *found) bool { return slices.Contains(f.Tags, q.Tags[0]) }
	case len(q.Statuses) == 1:
		return indexStatus + indexed(string(q.Statuses[0])), func(f *found) bool { return f.Status == q.Statuses[0] }
	case q.Agent != "":
		return indexAgent + indexed(q.Agent), func(f *found) bool { return f.Agent == q.Agent }
	}
	return indexAll, func(*found) bool { return true }
}

// dates returns the bounds of the index by creation time.
func dates(q *session.Query) (oldest, newest string) {
	oldest, newest = "-inf", "+inf"
	if !q.CreatedAfter.IsZero() {
		oldest = micros(q.CreatedAfter)
	}
	if !q.CreatedBefore.IsZero() {
		newest = micros(q.CreatedBefore)
	}
	return oldest, newest
}

// walk reads an index, the newest session first.
type walk struct {
	*sessions
	query       *session.Query
	slot, index string
	holds       func(*found) bool // whether an entry of the index is true
	scan        scan
	after       *session.Position // where to begin
	strict      bool              // whether an entry in the wrong place ends it
	perRun      bool              // whether entries are for runs, of which a session may have several
}

// walk starts a walk through an index over all creation times.
func (s *sessions) walk(query *session.Query, index string, holds func(*found) bool) walk {
	slot := s.b.keys.listing(s.tenant)
	return walk{
		sessions: s, query: query, slot: slot, index: index, holds: holds,
		scan: scan{client: s.b.client, purpose: "list sessions", key: slot + index, lowest: "-inf", highest: "+inf", newestFirst: true},
	}
}

// errMisplaced ends a walk that has found entries in the wrong position and moved
// them: its result so far may be incomplete or out of order.
var errMisplaced = errors.New("entries of the index were in the wrong position")

// maxWalks is how often a walk is restarted because of that.
const maxWalks = 3

// each yields the sessions that the query selects until yield returns false.
func (w *walk) each(ctx context.Context, size int, yield func(*found) bool) error {
	return scanEach(ctx, &w.scan, max(size, 50), w.verify, yield)
}

// verify reads the sessions of entries; nil for sessions that the query does not
// select. It removes entries that are not true.
func (w *walk) verify(ctx context.Context, entries []goredis.Z) ([]*found, error) {
	began := time.Now()
	pipe := w.b.client.Pipeline()
	headers := make([]*goredis.SliceCmd, len(entries))
	for i, z := range entries {
		id, _, _ := strings.Cut(text(z.Member), runMark)
		headers[i] = pipe.HMGet(ctx, w.prefix(id)+keyHeader, listed...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]*found, len(entries))
	var wrong []correction
	misplaced := false
	for i, z := range entries {
		values, err := headers[i].Result()
		if err != nil {
			return nil, failure("list sessions", err)
		}
		id, runID, _ := strings.Cut(text(z.Member), runMark)
		is := w.summarise(ctx, id, values)
		if is != nil {
			is.entry = runID
		}
		entry := hint{w.slot, w.index, text(z.Member), score(z.Score), inPlace}
		switch {
		case is == nil || !w.holds(is):
			wrong = append(wrong, correction{entry, ""})
		case micros(is.CreatedAt) != entry.score: // it was created again since
			misplaced = true
			wrong = append(wrong, correction{entry, micros(is.CreatedAt)})
		}
		if is != nil && w.selects(is) && (!w.perRun || w.holds(is)) {
			out[i] = is
		}
	}
	w.b.settle(ctx, began, wrong)
	if misplaced && w.strict {
		return nil, errMisplaced
	}
	return out, nil
}

// summarise reads a session's summary; nil if there is none that can be decoded.
func (w *walk) summarise(ctx context.Context, id string, values []any) *found {
	raw := make(map[string]string, len(values))
	for i, value := range values {
		raw[listed[i]] = text(value)
	}
	if raw["v"] == "" {
		return nil
	}
	h := newHeader(w.tenant, id, raw)
	if err := h.labels(); err != nil {
		w.b.config.Logger.WarnContext(ctx, "a session's labels cannot be decoded", "tenant", w.tenant, "session", id, "error", err)
	}
	running := ""
	if h.isRunning() {
		running = h.CurrentRunID
	}
	return &found{running: running, Summary: h.Summary(h.runStatus)}
}

// selects reports whether the query selects a session after the position where the
// walk begins.
func (w *walk) selects(s *found) bool {
	return (w.after == nil || follows(&s.Summary, w.after)) && w.query.Selects(&s.Summary)
}

// follows reports whether a session comes after a position: it is older, or has
// the same creation time and a lower id.
func follows(s *session.Summary, at *session.Position) bool {
	n := s.CreatedAt.UnixNano()
	return n < at.N || (n == at.N && s.ID < at.ID)
}
