package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// Edit implements [session.Documents].
func (s *sessions) Edit(ctx context.Context, edit *session.Edit) (*session.Edited, error) {
	if err := edit.Check(); err != nil {
		return nil, err
	}
	if edit.AllowedDuringRun() && edit.Metadata == nil {
		return s.editChildren(ctx, edit)
	}
	var is session.State
	was := ""
	out, err := s.edit(ctx, edit.SessionID, "edit", query, func(v *view) (*plan, error) {
		h := v.header
		if err := edit.Guard(h.state(), h.run(), v.now); err != nil {
			return nil, err
		}
		if edit.Create != nil {
			h = &header{State: newState(s.tenant, edit.Create, v.now)}
		} else if err := h.labelsFor(edit); err != nil {
			return nil, err
		}
		was, is = h.UserID, h.State
		if err := edit.Apply(&is, v.now); err != nil {
			return nil, err
		}
		p, err := s.planEdit(edit, h, &is, v)
		if err != nil {
			return nil, err
		}
		return p, s.editHints(ctx, p, edit, h, is)
	})
	if err != nil {
		return nil, err
	}
	if !edit.AllowedDuringRun() {
		s.rests(ctx, edit.SessionID)
	}
	s.afterChange(ctx, edit.SessionID, &edit.Change)
	edited := &session.Edited{Committed: out.Committed, StepCount: is.StepCount, ResumeCount: is.ResumeCount}
	edited.Stop, edited.Warnings = nil, edit.Writes.Warnings // a stop request belongs to a run that has ended
	if is.UserID == was {
		return edited, nil
	}
	s.b.places.drop(s.tenant, is.ID)
	return edited, s.reassignBelow(ctx, &is, was)
}

// editChildren applies an edit of child references alone. It needs no read, so it
// is one round trip.
func (s *sessions) editChildren(ctx context.Context, edit *session.Edit) (*session.Edited, error) {
	w := &batch{}
	if err := w.putChildren(edit.Children); err != nil {
		return nil, err
	}
	out, err := s.apply(ctx, edit.SessionID, "edit", "", w)
	if r, refused := errors.AsType[*refusal](err); refused {
		return nil, r.domain(edit.SessionID)
	}
	if err != nil {
		return nil, err
	}
	return &session.Edited{Committed: out.Committed}, nil
}

// labelsFor reads the tags and metadata if an edit changes them. Labels that
// cannot be decoded may be replaced.
func (h *header) labelsFor(edit *session.Edit) error {
	switch {
	case edit.Document != nil:
		return stored.UnlessCorrupt(h.labels())
	case edit.Metadata != nil:
		return h.labels()
	}
	return nil
}

// planEdit adds the operations of an edit; is is the resulting document of the
// session.
func (s *sessions) planEdit(edit *session.Edit, h *header, is *session.State, v *view) (*plan, error) {
	p := &plan{}
	var custom *session.CustomState
	switch {
	case edit.Create != nil:
		if err := p.create(is, s.b.tokens.next()); err != nil {
			return nil, err
		}
		custom = &edit.Create.Custom
	case edit.Metadata != nil:
		p.do("same", "", h.unmoved("meta")...)
	}
	if !edit.AllowedDuringRun() {
		if edit.Create == nil {
			p.do("same", "", h.unmoved()...)
		}
		p.do("bump", "", "")
	}
	if err := p.editDocument(edit, is); err != nil {
		return nil, err
	}
	change := edit.Change
	if at := change.Checkpoint; at != nil && at.ID == "" {
		point := *at
		point.ID = session.CheckpointID(h.ID, at.Step, v.now, fmt.Sprint(h.Version+1))
		change.Checkpoint = &point
	}
	if err := p.change(h.ID, h.CurrentRunID, &change, custom, v.now); err != nil {
		return nil, err
	}
	return p, nil
}

// editDocument writes what an edit changes about the document of an existing
// session.
func (w *batch) editDocument(edit *session.Edit, is *session.State) error {
	switch {
	case edit.Create != nil:
		return nil
	case edit.Document != nil:
		if err := w.replaceDocument(is); err != nil {
			return err
		}
	case edit.Metadata != nil:
		_, metadata, err := encodeLabels(nil, is.Metadata)
		if err != nil {
			return session.ErrInvalid.WithCause(err, "session %s: metadata cannot be encoded", is.ID)
		}
		w.do("set", "", "meta", metadata, "updated", "*")
	}
	if edit.Steps != 0 || edit.Resumes != 0 {
		w.do("set", "", "steps", is.StepCount, "resumes", is.ResumeCount)
	}
	return nil
}

// editHints adds the index entries that an edit makes true.
func (s *sessions) editHints(ctx context.Context, p *plan, edit *session.Edit, h *header, is session.State) error {
	if edit.Status != "" {
		is.Status = edit.Status
	}
	if edit.ExpiresAt != nil {
		is.ExpiresAt = *edit.ExpiresAt
	}
	if edit.Create != nil {
		s.stateHints(&p.hints, &is, nil)
		s.activityHints(&p.hints, &is, session.ActivityOf(is.Status, ""), moved)
		p.hints.newTasks(s.b.keys, s.tenant, is.ID, edit.Tasks, is.UpdatedAt)
		return nil
	}
	s.changeHints(&p.hints, is.ID, &edit.Change, is.UpdatedAt)
	s.stateHints(&p.hints, &is, &h.State)
	if edit.Document == nil && edit.Status == "" {
		return nil
	}
	s.activityHints(&p.hints, &is, session.ActivityOf(is.Status, h.runStatus), inPlace)
	if err := s.stayFor(ctx, p, h, &is); err != nil {
		return err
	}
	if is.UserID == h.UserID {
		return nil
	}
	waiting, err := s.PendingCalls(ctx, h.ID, false)
	s.waitingHints(&p.hints, &is, waiting, asOfNow)
	return stored.UnlessCorrupt(err)
}

// reassignBelow assigns the sessions below one to its new user, as far as they
// belonged to the former user, one after the other.
func (s *sessions) reassignBelow(ctx context.Context, state *session.State, was string) error {
	tree, err := s.tree(ctx, state.ID)
	if err != nil {
		return err
	}
	for _, id := range tree[1:] {
		_, err := s.edit(ctx, id, "save", query, func(v *view) (*plan, error) {
			h := v.header
			if h == nil || h.UserID != was {
				return nil, nil
			}
			p, is := &plan{}, h.State
			is.UserID = state.UserID
			p.do("same", "", h.unmoved()...)
			p.do("set", "", "user", is.UserID)
			if err := stored.UnlessCorrupt(h.labels()); err != nil {
				return nil, err
			}
			is.Tags, is.Metadata = h.Tags, h.Metadata
			s.stateHints(&p.hints, &is, &h.State)
			s.activityHints(&p.hints, &is, h.activity(), inPlace)
			if h.isRunning() {
				s.runningHints(&p.hints, &is, h.CurrentRunID, inPlace)
			}
			waiting, err := s.PendingCalls(ctx, id, false)
			s.waitingHints(&p.hints, &is, waiting, asOfNow)
			if errors.Is(err, session.ErrNotFound) {
				return nil, nil
			}
			return p, stored.UnlessCorrupt(err)
		})
		s.b.places.drop(s.tenant, id)
		if err != nil {
			return err
		}
	}
	return nil
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (result session.StatusResult, err error) {
	q := func() *batch {
		q := query()
		q.do("all", keyDoc, keyDoc)
		return q
	}
	_, err = s.edit(ctx, id, "set status", q, func(v *view) (*plan, error) {
		h := v.header
		if h == nil {
			return nil, session.NotFound(id)
		}
		if err := change.CheckIdle(&h.State, h.run(), v.now); err != nil {
			return nil, err
		}
		if err := h.setDoc(fieldsOf(v.parts[0])); err != nil {
			return nil, err
		}
		was := h.State
		if result, err = change.Swap(&h.State); err != nil || !result.OK {
			return nil, err
		}
		p := &plan{}
		p.do("same", "", h.unmoved()...)
		p.do("bump", "", "")
		p.do("set", "", "status", string(h.Status))
		end, err := stored.EncodeEnding(&h.State)
		if err != nil {
			return nil, err
		}
		p.do("hset", keyDoc, keyDoc, "end", end)
		s.stateHints(&p.hints, &h.State, &was)
		s.activityHints(&p.hints, &h.State, h.activity(), inPlace)
		return p, s.stayFor(ctx, p, h, &h.State)
	})
	if err != nil {
		return session.StatusResult{}, err
	}
	s.rests(ctx, id)
	return result, nil
}
