package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/helixagents/helix/session"
)

// changeDirectly applies a change outside a turn.
func (s *sessions) changeDirectly(ctx context.Context, id, verb string, c *session.Change) (session.Committed, error) {
	if err := c.Check(); err != nil {
		return session.Committed{}, err
	}
	out, err := s.writeDocument(ctx, id, verb, func(p *plan, v *view) error {
		return p.change(id, v.header.CurrentRunID, c, nil, v.now)
	})
	if err != nil {
		return session.Committed{}, err
	}
	if out.Stop != nil {
		out.Stop = nil // of a run that has ended
	}
	out.Warnings = c.Writes.Warnings
	s.afterChange(ctx, id, c)
	return out.Committed, nil
}

// writeDocument is a direct write of a document: refused while a run holds the
// session, and a new version of it.
func (s *sessions) writeDocument(ctx context.Context, id, verb string, write func(*plan, *view) error) (*done, error) {
	out, err := s.edit(ctx, id, verb, query, func(v *view) (*plan, error) {
		h := v.header
		if h == nil {
			return nil, notFound("session %s", id)
		}
		if err := h.Free(h.run(), v.now); err != nil {
			return nil, err
		}
		p := &plan{}
		p.do("same", "", h.unmoved()...)
		p.do("bump", "", "")
		return p, write(p, v)
	})
	if err == nil {
		s.rests(ctx, id)
	}
	return out, err
}

// Save implements [session.Documents].
func (s *sessions) Save(ctx context.Context, state *session.State) error {
	if err := state.Check(); err != nil {
		return err
	}
	was := ""
	out, err := s.writeDocument(ctx, state.ID, "save", func(p *plan, v *view) error {
		h := v.header
		was = h.UserID
		if err := h.atVersion(state.Version); err != nil {
			return err
		}
		if err := session.Transition(h.Status, state.Status); err != nil {
			return err
		}
		if err := p.replaceDocument(state); err != nil {
			return err
		}
		if err := p.writeWhole(state.ID, &state.Custom); err != nil {
			return err
		}
		at := session.NewCheckpoint{
			ID:   session.CheckpointID(h.ID, h.StepCount, v.now, fmt.Sprint(h.Version+1)),
			Step: h.StepCount, Source: session.FromSave,
		}
		p.addCheckpoint(h.ID, at, v.now)
		if err := unlessCorrupt(h.labels()); err != nil {
			return err
		}
		is := *state
		is.CreatedAt = h.CreatedAt
		s.stateHints(&p.hints, &is, &h.State)
		s.activityHints(&p.hints, &is, session.ActivityOf(is.Status, h.runStatus), inPlace)
		if err := s.stayFor(ctx, p, h, &is); err != nil {
			return err
		}
		if is.UserID == h.UserID {
			return nil
		}
		waiting, err := s.PendingCalls(ctx, h.ID, false)
		s.waitingHints(&p.hints, &is, waiting, asOfNow)
		return unlessCorrupt(err)
	})
	if err != nil {
		return err
	}
	state.Version = out.Version
	if state.UserID == was {
		return nil
	}
	s.b.places.drop(s.tenant, state.ID)
	return s.giveBelow(ctx, state, was)
}

// giveBelow gives the sessions below one to its new user, as far as they were the former
// user's, each in a step of its own.
func (s *sessions) giveBelow(ctx context.Context, state *session.State, was string) error {
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
			if err := unlessCorrupt(h.labels()); err != nil {
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
			return p, unlessCorrupt(err)
		})
		s.b.places.drop(s.tenant, id)
		if err != nil {
			return err
		}
	}
	return nil
}

// Merge implements [session.Documents].
func (s *sessions) Merge(ctx context.Context, id string, w session.Writes) (session.Committed, error) {
	return s.changeDirectly(ctx, id, "merge", &session.Change{Writes: w})
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
			return nil, notFound("session %s", id)
		}
		if err := change.Free(&h.State, h.run(), v.now); err != nil {
			return nil, err
		}
		if err := h.takeDoc(fieldsOf(v.parts[0])); err != nil {
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
		end, err := encodeEnd(&h.State)
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

// PatchMetadata implements [session.Documents].
func (s *sessions) PatchMetadata(ctx context.Context, id string, patch map[string]*string) error {
	if err := session.CheckMetadata(patch); err != nil {
		return err
	}
	_, err := s.edit(ctx, id, "patch metadata", query, func(v *view) (*plan, error) {
		h := v.header
		if h == nil {
			return nil, notFound("session %s", id)
		}
		if err := h.labels(); err != nil {
			return nil, err
		}
		is := h.State
		var err error
		if is.Metadata, err = h.PatchedMetadata(patch); err != nil {
			return nil, err
		}
		_, metadata, err := encodeLabels(nil, is.Metadata)
		if err != nil {
			return nil, session.ErrInvalid.WithCause(err, "session %s: metadata cannot be encoded", id)
		}
		p := &plan{}
		p.do("same", "", h.unmoved("meta")...)
		p.do("set", "", "meta", metadata, "updated", "*")
		s.stateHints(&p.hints, &is, &h.State)
		return p, nil
	})
	return err
}

// IncrementSteps implements [session.Documents].
func (s *sessions) IncrementSteps(ctx context.Context, id string) (steps int, err error) {
	_, err = s.writeDocument(ctx, id, "count step", func(p *plan, v *view) error {
		steps = v.header.StepCount + 1
		p.do("set", "", "steps", steps)
		return nil
	})
	return steps, err
}

// IncrementResumes implements [session.Documents].
func (s *sessions) IncrementResumes(ctx context.Context, id string) (resumes int, err error) {
	_, err = s.writeDocument(ctx, id, "count resume", func(p *plan, v *view) error {
		resumes = v.header.ResumeCount + 1
		p.do("set", "", "resumes", resumes)
		return nil
	})
	return resumes, err
}
