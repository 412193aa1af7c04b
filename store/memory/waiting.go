package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/helixagents/helix/session"
)

// waiting is a call that waits for a person, as the inbox lists it.
type waiting struct {
	number int64 // the order in which calls began to wait
	rec    *record
	call   *session.Pending
	user   string // the user under whom it is listed
}

// queue lists calls in the order in which they began to wait.
type queue []*waiting

func (q *queue) add(w *waiting) {
	i, _ := q.search(w.number)
	*q = slices.Insert(*q, i, w)
}

func (q *queue) remove(w *waiting) {
	if i, found := q.search(w.number); found {
		*q = slices.Delete(*q, i, i+1)
	}
}

func (q *queue) search(number int64) (int, bool) {
	return slices.BinarySearchFunc(*q, number, func(w *waiting, n int64) int { return cmp.Compare(w.number, n) })
}

// inboxes has a tenant's calls that wait for people: all of them, and by user.
type inboxes struct {
	all    queue
	byUser map[string]*queue
}

// put updates the lists with the calls of a session that wait now; a deleted
// session has none.
func (x *inboxes) put(rec *record, next func() int64, deleted bool) {
	for callID, w := range rec.waits {
		if deleted || w.call.State != session.PendingWaiting {
			x.drop(w)
			delete(rec.waits, callID)
		} else if user := rec.state.UserID; w.user != user {
			x.drop(w)
			w.user = user
			x.add(w)
		}
	}
	if deleted {
		return
	}
	for _, p := range rec.pending.open {
		if p.State != session.PendingWaiting || rec.waits[p.CallID] != nil {
			continue
		}
		if rec.waits == nil {
			rec.waits = map[string]*waiting{}
		}
		w := &waiting{next(), rec, p, rec.state.UserID}
		rec.waits[p.CallID] = w
		x.add(w)
	}
}

func (x *inboxes) add(w *waiting) {
	x.all.add(w)
	if w.user == "" {
		return
	}
	if x.byUser == nil {
		x.byUser = map[string]*queue{}
	}
	if x.byUser[w.user] == nil {
		x.byUser[w.user] = &queue{}
	}
	x.byUser[w.user].add(w)
}

func (x *inboxes) drop(w *waiting) {
	x.all.remove(w)
	if q := x.byUser[w.user]; q != nil {
		q.remove(w)
		if len(*q) == 0 {
			delete(x.byUser, w.user)
		}
	}
}

// of returns the list of a user, or of all users.
func (x *inboxes) of(userID string) queue {
	if userID == "" {
		return x.all
	}
	if q := x.byUser[userID]; q != nil {
		return *q
	}
	return nil
}

// Waiting implements [session.Lister].
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (page session.Page[session.Waiting], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	if err := s.b.rlock(ctx); err != nil {
		return page, err
	}
	defer s.b.mu.RUnlock()
	sh := s.b.catalogs[s.tenant]
	if sh == nil {
		sh = newShelf()
	}
	list := slices.DeleteFunc(slices.Clone(sh.inboxes.of(query.UserID)), func(w *waiting) bool { return !w.rec.activity().Listed() })
	total := len(list)
	if query.NewestFirst {
		slices.Reverse(list)
	}
	if resumed {
		list = slices.DeleteFunc(list, func(w *waiting) bool {
			return w.number == at.N || (w.number > at.N) == query.NewestFirst
		})
	} else {
		list = list[min(query.Skip(), len(list)):]
	}
	page = session.Page[session.Waiting]{Items: []session.Waiting{}, Limit: query.Size(), Offset: query.Skip()}
	if query.Total {
		page.Total = &total
	}
	links, size := map[string]session.Link{}, int64(0)
	for i, w := range list {
		size += int64(len(w.call.Input))
		if len(page.Items) == page.Limit || !query.Fits(len(page.Items), size) {
			page.HasMore, page.Next = true, session.Position{N: list[i-1].number}.Cursor()
			break
		}
		page.Items = append(page.Items, session.Waiting{Call: clonePending(w.call), SessionID: w.rec.state.ID, Agent: w.rec.state.Agent})
		links[w.rec.state.ID] = linkOf(w.rec)
	}
	page.Items, err = query.FindRoots(page.Items, links, func(ids []string) (map[string]session.Link, error) {
		found := map[string]session.Link{}
		for _, id := range ids {
			if rec := s.b.find(s.tenant, id); rec != nil {
				found[id] = linkOf(rec)
			}
		}
		return found, nil
	})
	return page, err
}

func linkOf(rec *record) session.Link {
	return session.Link{UserID: rec.state.UserID, ParentID: rec.state.ParentID}
}
