package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Exists implements [session.Lifecycle].
func (s *sessions) Exists(ctx context.Context, id string) (bool, error) {
	if err := s.b.lock(ctx); err != nil {
		return false, err
	}
	defer s.b.mu.Unlock()
	return s.find(id) != nil, nil
}

// Load implements [session.Lifecycle].
func (s *sessions) Load(ctx context.Context, id string) (out *session.State, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		out = rec.load()
		return nil
	})
	return out, err
}

// load returns the whole document: rows that the document shows are put together
// with it.
func (r *record) load() *session.State {
	state := r.state
	state.Activity = r.activity()
	for i := range r.pending {
		if r.pending[i].Open() {
			state.Pending = append(state.Pending, r.pending[i].Pending)
		}
	}
	for _, ref := range r.children {
		if ref.Awaited {
			state.AwaitingChildren = append(state.AwaitingChildren, *ref)
		}
	}
	state.Custom = r.custom
	return copied(&state)
}

// Edit implements [session.Documents].
func (s *sessions) Edit(ctx context.Context, edit *session.Edit) (*session.Edited, error) {
	if err := edit.Check(); err != nil {
		return nil, err
	}
	e := copied(edit)
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	now, rec := s.b.now(), s.find(e.SessionID)
	if err := e.Guard(rec.document(), rec.currentRun(), now); err != nil {
		return nil, err
	}
	if e.Create != nil {
		rec = s.b.newRecord(s.tenant, e.Create, now)
	} else {
		rec = rec.draft()
	}
	if err := check(&e.Change, rec); err != nil {
		return nil, err
	}
	was := rec.state.UserID
	if err := e.Apply(&rec.state, now); err != nil {
		return nil, err
	}
	if e.AllowedDuringRun() {
		s.b.applyRows(&e.Change, rec, now)
	} else if err := s.b.apply(&e.Change, rec, now); err != nil {
		return nil, err
	}
	s.put(rec)
	if rec.state.UserID != was {
		s.passOn(rec, was)
	}
	out := &session.Edited{Committed: rec.committed(), StepCount: rec.state.StepCount, ResumeCount: rec.state.ResumeCount}
	out.Warnings = e.Writes.Warnings
	return out, nil
}

// passOn gives the new user of a session to those sessions below it that had the old
// one.
func (s *sessions) passOn(rec *record, was string) {
	for _, below := range s.tree(rec)[1:] {
		if below.state.UserID == was {
			draft := below.draft()
			draft.state.UserID = rec.state.UserID
			s.put(draft)
		}
	}
}

// tree returns a session and all its descendants. A session that is its own ancestor
// is in the list once.
func (s *sessions) tree(root *record) []*record {
	children := map[string][]*record{}
	for key, rec := range s.b.sessions {
		if key.Tenant == s.tenant && rec.state.ParentID != "" {
			children[rec.state.ParentID] = append(children[rec.state.ParentID], rec)
		}
	}
	out, seen := []*record{root}, map[*record]bool{root: true}
	for i := 0; i < len(out); i++ {
		for _, rec := range children[out[i].state.ID] {
			if !seen[rec] {
				seen[rec] = true
				out = append(out, rec)
			}
		}
	}
	return out
}

// SetStatus implements [session.Documents].
func (s *sessions) SetStatus(ctx context.Context, id string, change session.StatusChange) (out session.StatusResult, err error) {
	change = copied(change)
	err = s.edit(ctx, id, func(rec *record, now time.Time) error {
		if err := change.CheckIdle(&rec.state, rec.currentRun(), now); err != nil {
			return err
		}
		out, err = change.Swap(&rec.state)
		if out.OK {
			rec.state.LastCommit, rec.state.UpdatedAt = "", now
		}
		return err
	})
	return out, err
}

// Clone implements [session.Lifecycle].
func (s *sessions) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	if err := clone.Check(); err != nil {
		return nil, err
	}
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	from := s.find(clone.From)
	if from == nil {
		return nil, session.NotFound(clone.From)
	}
	document, err := clone.Complete(&from.state)
	if err != nil {
		return nil, err
	}
	if found := s.find(document.ID); found != nil {
		return nil, session.Exists(&found.state)
	}
	keep, custom, err := from.upTo(clone)
	if err != nil {
		return nil, err
	}
	now := s.b.now()
	document.Custom = *custom
	rec := s.b.newRecord(s.tenant, copied(&document), now)
	rec.messages = append(rec.messages, from.messages[:keep]...)
	rec.state.StepCount, rec.state.ResumeCount, rec.state.MessageCount = 0, 0, keep
	rec.state.Marks = from.state.Marks.Within(keep)
	rec.state.Version++
	rec.checkpoint(session.NewCheckpoint{}, now)
	s.put(rec)
	for ref, size := range s.b.references[s.b.rootOf(from)] {
		s.b.refer(s.key(document.ID), ref, size)
	}
	return rec.load(), nil
}

// upTo returns how many messages a clone copies, and the custom state at that point.
func (r *record) upTo(clone *session.Clone) (int, *session.CustomState, error) {
	switch {
	case clone.CheckpointID != "":
		cp := r.findCheckpoint(clone.CheckpointID)
		if cp == nil {
			return 0, nil, noCheckpoint(r.state.ID, clone.CheckpointID)
		}
		if cp.Undone {
			return 0, nil, session.ErrNotFound.WithMessage("session %s: a rewind has dropped messages of checkpoint %s", r.state.ID, cp.ID)
		}
		return cp.MessageCount, cp.State, nil
	case clone.MessageCount != nil:
		n := *clone.MessageCount
		if n < 0 || n > len(r.messages) {
			return 0, nil, session.Invalid("message count", "%d is not within 0 and %d", n, len(r.messages))
		}
		custom := &session.CustomState{}
		for i := range r.checkpoints {
			if cp := &r.checkpoints[i]; !cp.Undone && cp.MessageCount <= n {
				custom = cp.State
			}
		}
		return n, custom, nil
	}
	return len(r.messages), &r.custom, nil
}

// Delete implements [session.Lifecycle]. The streams of the sessions are deleted with
// them, because this backend keeps both.
func (s *sessions) Delete(ctx context.Context, id string) (ids []string, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		for _, member := range s.tree(rec) {
			key := s.key(member.state.ID)
			ids = append(ids, key.ID)
			delete(s.b.sessions, key)
			delete(s.b.logs, key)
			s.b.drop(key)
			for wake := range s.b.wakes {
				if wake.session == key {
					delete(s.b.wakes, wake)
				}
			}
			for task := range s.b.tasks {
				if task.tenant == key.Tenant && task.SessionID == key.ID {
					delete(s.b.tasks, task)
				}
			}
		}
		s.b.wakeReaders()
		return nil
	})
	return ids, err
}
