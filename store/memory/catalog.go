package memory

import (
	"cmp"
	"slices"

	"github.com/helixagents/helix/session"
)

// catalog has a tenant's sessions and the indexes over them.
type catalog struct {
	sessions map[string]*record
	all      ordered
	byUser   index
	byParent index
	byRoot   index
	// By activity, and by user and activity.
	byActivity     index
	byUserActivity index
	inboxes        inboxes
}

func newShelf() *catalog {
	return &catalog{sessions: map[string]*record{}, byUser: index{}, byParent: index{}, byRoot: index{}, byActivity: index{}, byUserActivity: index{}}
}

func (s *catalog) add(rec *record) {
	s.sessions[rec.state.ID] = rec
	s.all.add(rec)
	s.index(rec)
}

func (s *catalog) remove(rec *record) {
	delete(s.sessions, rec.state.ID)
	s.all.remove(rec)
	s.unindex(rec)
	s.setActivity(rec, "")
	s.inboxes.put(rec, nil, true)
}

// setActivity lists a session under its activity, or removes it from the lists if
// activity is empty.
func (s *catalog) setActivity(rec *record, activity session.Activity) {
	user := rec.state.UserID
	if rec.listedAs == activity && (rec.listedFor == user || activity == "") {
		return
	}
	s.byActivity.remove(string(rec.listedAs), rec)
	s.byUserActivity.remove(userActivity(rec.listedFor, rec.listedAs), rec)
	rec.listedAs, rec.listedFor = activity, user
	s.byActivity.add(string(activity), rec)
	s.byUserActivity.add(userActivity(user, activity), rec)
}

// userActivity returns the key of a list, or "" if there is none.
func userActivity(userID string, activity session.Activity) string {
	if userID == "" || activity == "" {
		return ""
	}
	return string(activity) + "/" + userID
}

// index adds a session to the indexes of its mutable fields; unindex must be
// called before one of them changes.
func (s *catalog) index(rec *record) {
	s.byUser.add(rec.state.UserID, rec)
	s.byParent.add(rec.state.ParentID, rec)
	s.byRoot.add(rec.state.RootID, rec)
}

func (s *catalog) unindex(rec *record) {
	s.byUser.remove(rec.state.UserID, rec)
	s.byParent.remove(rec.state.ParentID, rec)
	s.byRoot.remove(rec.state.RootID, rec)
}

// tree returns a session with all its descendants. It visits each session once,
// even if links form a cycle.
func (s *catalog) tree(root *record) []*record {
	out := []*record{root}
	seen := map[*record]bool{root: true}
	for i := 0; i < len(out); i++ {
		for _, rec := range s.byParent.get(out[i].state.ID) {
			if !seen[rec] {
				seen[rec] = true
				out = append(out, rec)
			}
		}
	}
	return out
}

// ordered is a list of sessions, oldest first, then by id. New sessions are mostly
// appended.
type ordered []*record

func (o *ordered) add(rec *record) {
	i, _ := o.search(positionOf(rec))
	*o = slices.Insert(*o, i, rec)
}

func (o *ordered) remove(rec *record) {
	if i, found := o.search(positionOf(rec)); found {
		*o = slices.Delete(*o, i, i+1)
	}
}

// search returns the index of a position, or where it would be inserted.
func (o *ordered) search(pos session.Position) (int, bool) {
	return slices.BinarySearchFunc(*o, pos, func(rec *record, pos session.Position) int {
		at := positionOf(rec)
		return cmp.Or(cmp.Compare(at.N, pos.N), cmp.Compare(at.ID, pos.ID))
	})
}

// positionOf returns a session's position in listings.
func positionOf(rec *record) session.Position {
	return session.Position{N: rec.state.CreatedAt.UnixNano(), ID: rec.state.ID}
}

// index groups sessions by a property; sessions without it are not included.
type index map[string]*ordered

func (x index) get(key string) ordered {
	if list := x[key]; list != nil {
		return *list
	}
	return nil
}

func (x index) add(key string, rec *record) {
	if key == "" {
		return
	}
	if x[key] == nil {
		x[key] = &ordered{}
	}
	x[key].add(rec)
}

func (x index) remove(key string, rec *record) {
	list := x[key]
	if list == nil {
		return
	}
	list.remove(rec)
	if len(*list) == 0 {
		delete(x, key)
	}
}
