package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/helixagents/helix/session"
)

// List implements [session.Lister].
func (s *sessions) List(ctx context.Context, query session.Query) (session.Page[session.Summary], error) {
	pos, resumed, err := query.Position()
	if err != nil {
		return session.Page[session.Summary]{}, err
	}
	if err := s.b.rlock(ctx); err != nil {
		return session.Page[session.Summary]{}, err
	}
	defer s.b.mu.RUnlock()
	var list ordered
	if sh := s.b.shelves[s.tenant]; sh != nil {
		list = sh.narrowest(&query)
	}
	end := len(list)
	if resumed {
		end, _ = list.search(pos)
	}
	items, more := summarise(list[:end], &query)
	var last session.Position
	if n := len(items); n > 0 {
		last = session.Position{N: items[n-1].CreatedAt.UnixNano(), ID: items[n-1].ID}
	}
	page := newPage(query.PageRequest, items, more, last)
	if query.Total {
		page.Total = new(count(list, &query))
	}
	return page, nil
}

// narrowest is the shortest list at hand that has everything a query selects.
func (s *shelf) narrowest(q *session.Query) ordered {
	switch {
	case q.ParentID != "":
		return s.byParent.get(q.ParentID)
	case q.Activity != "" && q.UserID != "":
		return s.byUserActivity.get(userActivity(q.UserID, q.Activity))
	case q.Activity != "":
		return s.byActivity.get(string(q.Activity))
	case q.UserID != "":
		return s.byUser.get(q.UserID)
	}
	return s.all
}

// summarise gives the page of list that the query asks for, newest first, and
// whether there is more.
func summarise(list ordered, q *session.Query) (items []session.Summary, more bool) {
	skip := q.Skip()
	for _, rec := range slices.Backward(list) {
		st := &rec.state
		if !selects(q, rec) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(items) == q.Size() {
			return items, true
		}
		items = append(items, session.Summary{
			Key:   session.Key{Tenant: st.Tenant, ID: st.ID},
			Agent: st.Agent, Status: st.Status, Activity: rec.activity(), UserID: st.UserID, ParentID: st.ParentID,
			Tags: slices.Clone(st.Tags), Metadata: maps.Clone(st.Metadata),
			Turn: st.Turn, MessageCount: st.MessageCount, CreatedAt: st.CreatedAt, UpdatedAt: st.UpdatedAt,
		})
	}
	return items, false
}

func count(list ordered, q *session.Query) int {
	n := 0
	for _, rec := range list {
		if selects(q, rec) {
			n++
		}
	}
	return n
}

func selects(q *session.Query, rec *record) bool {
	st := &rec.state
	switch {
	case q.UserID != "" && q.UserID != st.UserID,
		q.Agent != "" && q.Agent != st.Agent,
		q.ParentID != "" && q.ParentID != st.ParentID,
		q.RootsOnly && st.ParentID != "",
		q.Activity != "" && q.Activity != rec.activity(),
		len(q.Statuses) > 0 && !slices.Contains(q.Statuses, st.Status),
		!q.CreatedAfter.IsZero() && !st.CreatedAt.After(q.CreatedAfter),
		!q.CreatedBefore.IsZero() && !st.CreatedAt.Before(q.CreatedBefore):
		return false
	}
	for _, tag := range q.Tags {
		if !slices.Contains(st.Tags, tag) {
			return false
		}
	}
	for key, value := range q.Metadata {
		if has, ok := st.Metadata[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// newPage puts a page together; last is the position of its last item.
func newPage[T any](req session.PageRequest, items []T, more bool, last session.Position) session.Page[T] {
	if items == nil {
		items = []T{}
	}
	page := session.Page[T]{Items: items, Offset: req.Skip(), Limit: req.Size(), HasMore: more}
	if more {
		page.Next = last.Cursor()
	}
	return page
}
