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
	if sh := s.b.catalogs[s.tenant]; sh != nil {
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

// narrowest returns the shortest available list that contains everything a query
// selects.
func (s *catalog) narrowest(q *session.Query) ordered {
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

// summarise returns the page of list that the query asks for, newest first, and
// whether there is more.
func summarise(list ordered, q *session.Query) (items []session.Summary, more bool) {
	skip := q.Skip()
	for _, rec := range slices.Backward(list) {
		item := rec.summary()
		if !q.Selects(&item) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(items) == q.Size() {
			return items, true
		}
		item.Tags, item.Metadata = slices.Clone(item.Tags), maps.Clone(item.Metadata)
		items = append(items, item)
	}
	return items, false
}

func count(list ordered, q *session.Query) int {
	n := 0
	for _, rec := range list {
		if item := rec.summary(); q.Selects(&item) {
			n++
		}
	}
	return n
}

// newPage builds a page; last is the position of its last item.
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
