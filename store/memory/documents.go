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
	if e.AllowedDuringRun() {
		c.applyRows(s.b, rec, now)
	} else {
		c.apply(s.b, rec, now)
	}
	s.b.mark(rec)
	out := &session.Edited{Committed: rec.committed(), StepCount: rec.state.StepCount, ResumeCount: rec.state.ResumeCount}
	out.Warnings = c.writes.Warnings
	return out, nil
}

// cloneEdit returns a copy of the edit that shares nothing with the caller, and
// the custom state of the session that it creates.
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

// replace sets a session's new document and updates the indexes. A new user is
// also set on the sessions below that had the old one.
func (s *sessions) replace(rec *record, is session.State, created bool) {
	catalog, was := s.b.catalog(s.tenant), rec.state.UserID
	if created {
		rec.state = is
		catalog.add(rec)
		return
	}
	if is.UserID == was && is.ParentID == rec.state.ParentID && is.RootID == rec.state.RootID {
		rec.state = is
		return
	}
	catalog.unindex(rec)
	rec.state = is
	catalog.index(rec)
	if is.UserID == was {
		return
	}
	for _, below := range catalog.tree(rec)[1:] {
		if below.state.UserID == was {
			catalog.unindex(below)
			below.state.UserID = is.UserID
			catalog.index(below)
			s.b.mark(below)
		}
	}
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (session.StatusResult, error) {
	change.Interrupt, change.Error = cloneInterrupt(change.Interrupt), cloneError(change.Error)
	rec, err := s.edit(ctx, id)
	if err != nil {
		return session.StatusResult{}, err
	}
	defer s.b.release(rec)
	now := s.b.now()
	if err := change.CheckIdle(&rec.state, rec.currentRun(), now); err != nil {
		return session.StatusResult{}, err
	}
	result, err := change.Swap(&rec.state)
	if err == nil && result.OK {
		rec.state.LastCommit, rec.state.UpdatedAt = "", now
	}
	return result, err
}
