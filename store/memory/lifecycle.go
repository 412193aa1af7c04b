package memory

import (
	"context"
	"slices"

	"github.com/helixagents/helix/session"
)

// Exists implements [session.Lifecycle].
func (s *sessions) Exists(ctx context.Context, id string) (bool, error) {
	if err := s.b.rlock(ctx); err != nil {
		return false, err
	}
	defer s.b.mu.RUnlock()
	return s.b.find(s.tenant, id) != nil, nil
}

// Load implements [session.Lifecycle].
func (s *sessions) Load(ctx context.Context, id string) (*session.State, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	shared := rec.load()
	s.b.mu.RUnlock()
	return detach(&shared), nil
}

// load builds the whole document. It shares immutable parts with the store;
// detach, outside the lock, copies them for the caller.
func (r *record) load() session.State {
	out := r.state
	out.Activity = r.activity()
	out.Custom = r.custom.doc.Clone()
	for _, p := range r.pending.open {
		out.Pending = append(out.Pending, *p)
	}
	for _, c := range r.children.list {
		if c.ref.Awaited {
			out.AwaitingChildren = append(out.AwaitingChildren, c.ref)
		}
	}
	return out
}

func detach(shared *session.State) *session.State {
	out := cloneState(shared)
	out.Custom = cloneDocument(&shared.Custom)
	out.Pending = cloneEach(shared.Pending, clonePending)
	out.AwaitingChildren = cloneEach(shared.AwaitingChildren, cloneChild)
	return &out
}

// Clone implements [session.Lifecycle].
func (s *sessions) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	if err := clone.Check(); err != nil {
		return nil, err
	}
	shared, err := s.clone(ctx, clone)
	if err != nil {
		return nil, err
	}
	return detach(shared), nil
}

func (s *sessions) clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	src, err := s.edit(ctx, clone.From)
	if err != nil {
		return nil, err
	}
	defer s.b.release(src)
	to, err := clone.Complete(&src.state)
	if err != nil {
		return nil, err
	}
	if found := s.b.find(s.tenant, to.ID); found != nil {
		return nil, session.Exists(&found.state)
	}
	messages, custom, err := src.upTo(clone)
	if err != nil {
		return nil, err
	}
	rec := s.b.newClone(s.tenant, &to, messages, custom)
	rec.state.Marks = src.state.Marks.Within(len(messages))
	s.b.shareBlobs(s.b.rootOf(src), rec)
	s.b.catalog(s.tenant).add(rec)
	s.b.mark(rec)
	shared := rec.load()
	return &shared, nil
}

// upTo returns what a clone copies: the messages and custom state at its end.
// Neither is ever changed in place, so the copy shares them.
func (r *record) upTo(clone *session.Clone) ([]*message, session.CustomState, error) {
	switch {
	case clone.CheckpointID != "":
		cp := r.checkpointIDs[clone.CheckpointID]
		if cp == nil {
			return nil, session.CustomState{}, noCheckpoint(r.state.ID, clone.CheckpointID)
		}
		if cp.Undone {
			return nil, session.CustomState{}, session.ErrNotFound.WithMessage(
				"session %s: a rewind has dropped messages of checkpoint %s", r.state.ID, cp.ID)
		}
		return r.messages[:cp.MessageCount:cp.MessageCount], cp.state.document(), nil
	case clone.MessageCount != nil:
		n := *clone.MessageCount
		if n < 0 || n > len(r.messages) {
			return nil, session.CustomState{}, session.Invalid("message count", "%d is not within 0 and %d", n, len(r.messages))
		}
		var custom session.CustomState
		if cp := r.checkpointWithin(n); cp != nil {
			custom = cp.state.document()
		}
		return r.messages[:n:n], custom, nil
	}
	return slices.Clip(r.messages), r.custom.doc.Clone(), nil
}

func (b *Backend) newClone(tenant string, to *session.State, messages []*message, custom session.CustomState) *record {
	now := b.now()
	rec := b.newRecord(tenant, to, custom, now)
	rec.state.StepCount, rec.state.ResumeCount = 0, 0
	rec.append(messages...)
	rec.touch(now)
	rec.writeCheckpoint(session.NewCheckpoint{Source: session.FromSave}, now)
	return rec
}

// Delete implements [session.Lifecycle]. It deletes the sessions' streams, too,
// because this backend has both.
func (s *sessions) Delete(ctx context.Context, id string) ([]string, error) {
	if err := s.b.lock(ctx); err != nil {
		return nil, err
	}
	defer s.b.mu.Unlock()
	rec := s.b.find(s.tenant, id)
	if rec == nil {
		return nil, session.NotFound(id)
	}
	catalog := s.b.catalog(s.tenant)
	var ids []string
	deleted := map[session.Key]bool{}
	for _, member := range catalog.tree(rec) {
		catalog.remove(member)
		s.b.due.remove(member)
		s.b.dropBlobs(member)
		ids = append(ids, member.state.ID)
		deleted[session.Key{Tenant: s.tenant, ID: member.state.ID}] = true
	}
	for key := range s.b.wakes {
		if deleted[key.session] {
			delete(s.b.wakes, key)
		}
	}
	for key := range s.b.tasks.byKey {
		if deleted[session.Key{Tenant: key.tenant, ID: key.SessionID}] {
			s.b.tasks.remove(key)
		}
	}
	s.b.hub.deleteAll(deleted)
	return ids, nil
}
