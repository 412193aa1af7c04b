package memory

import (
	"context"

	"github.com/helixagents/helix/session"
)

// Edit implements [session.Documents].
func (s *sessions) Edit(ctx context.Context, edit *session.Edit) (*session.Edited, error) {
	if err := edit.Check(); err != nil {
		return nil, err
	}
	c, err := prepare(&edit.Change)
	if err != nil {
		return nil, err
	}
	e, initial := cloneEdit(edit)

	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now := s.b.now()
	rec := s.b.find(s.tenant, e.SessionID)
	if err := e.Guard(rec.document(), rec.currentRun(), now); err != nil {
		return nil, err
	}
	if e.Create != nil {
		rec = s.b.newRecord(s.tenant, e.Create, initial, now)
	}
	is := rec.state
	if err := e.Apply(&is, now); err != nil {
		return nil, err
	}
	if err := c.check(rec); err != nil {
		return nil, err
	}
	if err := c.perform(rec); err != nil {
		return nil, err
	}
	s.replace(rec, is, e.Create != nil)
	if e.Beside() {
		c.applyRows(s.b, rec, now)
	} else {
		c.apply(s.b, rec, now)
	}
	s.b.mark(rec)
	out := &session.Edited{Committed: rec.committed(), StepCount: rec.state.StepCount, ResumeCount: rec.state.ResumeCount}
	out.Warnings = c.writes.Warnings
	return out, nil
}

// cloneEdit is an edit whose documents are the store's own, and the custom state
// that it creates a session with.
func cloneEdit(edit *session.Edit) (*session.Edit, session.CustomState) {
	e := *edit
	var initial session.CustomState
	if e.Create != nil {
		initial = cloneDocument(&e.Create.Custom)
		created := cloneState(e.Create)
		e.Create = &created
	}
	if e.Document != nil {
		replaced := cloneState(e.Document)
		e.Document = &replaced
	}
	return &e, initial
}

// replace gives a session its new document and brings the indexes up to date. A
// new user also becomes that of the sessions below which had the old one.
func (s *sessions) replace(rec *record, is session.State, created bool) {
	shelf, was := s.b.shelf(s.tenant), rec.state.UserID
	if created {
		rec.state = is
		shelf.add(rec)
		return
	}
	if is.UserID == was && is.ParentID == rec.state.ParentID && is.RootID == rec.state.RootID {
		rec.state = is
		return
	}
	shelf.unindex(rec)
	rec.state = is
	shelf.index(rec)
	if is.UserID == was {
		return
	}
	for _, below := range shelf.tree(rec)[1:] {
		if below.state.UserID == was {
			shelf.unindex(below)
			below.state.UserID = is.UserID
			shelf.index(below)
			s.b.mark(below)
		}
	}
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	change.Interrupt, change.Error = cloneInterrupt(change.Interrupt), cloneError(change.Error)
	rec, done, err := s.edit(ctx, id)
	if err != nil {
		return session.StatusResult{}, err
	}
	defer done()
	now := s.b.now()
	if err := change.Free(&rec.state, rec.currentRun(), now); err != nil {
		return session.StatusResult{}, err
	}
	result, err := change.Swap(&rec.state)
	if err == nil && result.OK {
		rec.state.LastCommit, rec.state.UpdatedAt = "", now
	}
	return result, err
}
