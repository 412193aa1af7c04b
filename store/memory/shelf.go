package memory

import (
	"cmp"
	"slices"

	"github.com/helixagents/helix/session"
)

// shelf holds a tenant's sessions, and the orders in which they are found.
type shelf struct {
	sessions map[string]*record
	all      ordered
	byUser   index
	byParent index
	byRoot   index
	// The sessions whose current run is running: all of them, and by user.
	running       ordered
	runningByUser index
}

func newShelf() *shelf {
	return &shelf{sessions: map[string]*record{}, byUser: index{}, byParent: index{}, byRoot: index{}, runningByUser: index{}}
}

func (s *shelf) add(rec *record) {
	s.sessions[rec.state.ID] = rec
	s.all.add(rec)
	s.index(rec)
}

func (s *shelf) remove(rec *record) {
	delete(s.sessions, rec.state.ID)
	s.all.remove(rec)
	s.unindex(rec)
	s.setRunning(rec, false)
}

// setRunning notes whether a session's current run is running. Its user does not
// change meanwhile: nobody may save a session that a run holds.
func (s *shelf) setRunning(rec *record, running bool) {
	if running {
		s.running.add(rec)
		s.runningByUser.add(rec.state.UserID, rec)
		return
	}
	s.running.remove(rec)
	s.runningByUser.remove(rec.state.UserID, rec)
}

// index enters a session under what can change about it; unindex must be called
// before it does.
func (s *shelf) index(rec *record) {
	s.byUser.add(rec.state.UserID, rec)
	s.byParent.add(rec.state.ParentID, rec)
	s.byRoot.add(rec.state.RootID, rec)
}

func (s *shelf) unindex(rec *record) {
	s.byUser.remove(rec.state.UserID, rec)
	s.byParent.remove(rec.state.ParentID, rec)
	s.byRoot.remove(rec.state.RootID, rec)
}

// tree is a session with all its descendants. Links that go round in a circle
// are followed once.
func (s *shelf) tree(root *record) []*record {
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

// ordered is a list of sessions, oldest first, then by id. New sessions mostly
// go to its end.
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

// search finds a position or the place where it would be.
func (o *ordered) search(pos session.Position) (int, bool) {
	return slices.BinarySearchFunc(*o, pos, func(rec *record, pos session.Position) int {
		at := positionOf(rec)
		return cmp.Or(cmp.Compare(at.N, pos.N), cmp.Compare(at.ID, pos.ID))
	})
}

// positionOf is a session's place in listings.
func positionOf(rec *record) session.Position {
	return session.Position{N: rec.state.CreatedAt.UnixNano(), ID: rec.state.ID}
}

// index groups sessions by a property; those without it are not in it.
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
