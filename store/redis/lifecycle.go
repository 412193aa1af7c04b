package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// newState returns the document of a session to create, with the precision of
// stored times.
func newState(tenant string, state *session.State, now time.Time) session.State {
	out := state.AsNew(tenant, now)
	out.CreatedAt = out.CreatedAt.UTC().Truncate(time.Microsecond)
	return out
}

// create adds the operations that create a session, without its custom state. Its
// version is 0 until it is bumped.
func (w *batch) create(state *session.State, born string) error {
	w.do("absent", "")
	w.do("set", "", "born", born, "v", "0", "msgs", "0", "turn", "0",
		"created", micros(state.CreatedAt), "steps", state.StepCount, "resumes", state.ResumeCount)
	return w.replaceDocument(state)
}

// replaceDocument writes the fields of a session that a caller may set.
func (w *batch) replaceDocument(state *session.State) error {
	tags, metadata, err := encodeLabels(state.Tags, state.Metadata)
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s cannot be encoded", state.ID)
	}
	w.do("set", "", append(writtenFields(state), "status", string(state.Status), "tags", tags, "meta", metadata)...)
	return w.writeDoc(state)
}

// absent returns an error if the session exists, before index entries are added
// for a new one.
func (s *sessions) absent(ctx context.Context, id, verb string) (*view, error) {
	v, err := s.look(ctx, id, verb, query())
	if err == nil && v.header != nil {
		err = session.Exists(&v.header.State)
	}
	return v, err
}

// carryOutNew creates a session.
func (s *sessions) carryOutNew(ctx context.Context, verb string, is *session.State, p *plan) error {
	s.stateHints(&p.hints, is, nil)
	s.activityHints(&p.hints, is, session.ActivityOf(is.Status, ""), moved)
	_, err := s.carryOut(ctx, is.ID, verb, s.b.tokens.next(), p)
	if r, refused := errors.AsType[*refusal](err); refused {
		return r.domain(is.ID)
	}
	if err == nil {
		s.rests(ctx, is.ID)
	}
	return err
}

// Exists implements [session.Lifecycle].
func (s *sessions) Exists(ctx context.Context, id string) (bool, error) {
	name := what(id, "exists")
	if err := s.b.begin(ctx, name); err != nil {
		return false, err
	}
	n, err := s.b.client.Exists(ctx, s.prefix(id)+keyHeader).Result()
	return n > 0, failure(name, err)
}

// Load implements [session.Lifecycle].
func (s *sessions) Load(ctx context.Context, id string) (*session.State, error) {
	q := query()
	q.readState("")
	q.do("all", keyDoc, keyDoc)
	q.do("all", keyOpen, keyOpen)
	q.do("awaited", keyAwaited+keyChildren)
	v, err := s.read(ctx, id, "load", q)
	if err != nil {
		return nil, err
	}
	h := v.header
	if err := h.setDoc(fieldsOf(v.parts[1])); err != nil {
		return nil, err
	}
	state := h.State
	state.Activity = h.activity()
	var logged int
	if state.Custom, logged, err = stateAt(id, v.parts[0]); err != nil {
		return nil, err
	}
	if outweighs(logged, v.parts[0]) {
		s.condense(ctx, h, &state.Custom)
	}
	if state.Pending, err = decodePendings(id, v.parts[2]); err != nil {
		return nil, err
	}
	if state.AwaitingChildren, err = decodeChildren(id, v.parts[3]); err != nil {
		return nil, err
	}
	if len(state.Pending) == 0 {
		state.Pending = nil
	}
	if len(state.AwaitingChildren) == 0 {
		state.AwaitingChildren = nil
	}
	return &state, nil
}

// Clone implements [session.Lifecycle]. The source is read at one version; the
// copy is then created in one step in its own slot, from what was read.
func (s *sessions) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	if err := clone.Check(); err != nil {
		return nil, err
	}
	shared := &sharedBlobs{sessions: s, born: s.b.tokens.next(), to: clone.To.ID}
	for range maxEdits {
		v, err := s.readPoint(ctx, clone)
		if err != nil {
			return nil, err
		}
		p, is, err := s.planClone(ctx, clone, v, shared)
		if err == nil && p == nil {
			continue
		}
		if err == nil {
			err = s.carryOutNew(ctx, "clone", is, p)
		}
		if err != nil {
			shared.unclaim(ctx)
			return nil, err
		}
		if err := shared.confirm(ctx); err != nil {
			return nil, err
		}
		return s.Load(ctx, is.ID)
	}
	shared.unclaim(ctx)
	return nil, session.ErrUnavailable.WithMessage("%s: the session changed too often", what(clone.From, "clone"))
}

// readPoint reads the checkpoint of a clone, if it names one, and at last the source's
// blobs.
func (s *sessions) readPoint(ctx context.Context, clone *session.Clone) (*view, error) {
	q := query()
	switch {
	case clone.CheckpointID != "":
		q.do("checkpoint", keyNames+keyUndone+keyPoints, clone.CheckpointID)
	case clone.MessageCount != nil:
		q.do("within", keyNames+keyUndone+keyPoints, max(*clone.MessageCount, 0))
	}
	q.do("all", keyBlobs, keyBlobs)
	return s.read(ctx, clone.From, "clone", q)
}

// planClone reads what a clone copies. It returns no plan if the source has
// changed since v. The bytes of its blobs are claimed before it is read again, so that
// they are there for certain.
func (s *sessions) planClone(ctx context.Context, clone *session.Clone, v *view, shared *sharedBlobs) (*plan, *session.State, error) {
	to, err := clone.Complete(&v.header.State)
	if err != nil {
		return nil, nil, err
	}
	count, version, err := cloned(clone, v)
	if err != nil {
		return nil, nil, err
	}
	if _, err := s.absent(ctx, to.ID, "clone"); err != nil {
		return nil, nil, err
	}
	if err := shared.claim(ctx, v); err != nil {
		return nil, nil, err
	}
	q := query()
	q.readState(itoa(version))
	q.do("range", keyMessages, keyMessages, 0, count-1)
	q.do("range", keyMetas, keyMetas, 0, count-1)
	again, err := s.read(ctx, clone.From, "clone", q)
	if err != nil {
		return nil, nil, err
	}
	if again.header.raw["born"] != v.header.raw["born"] || again.header.Version != v.header.Version {
		return nil, nil, nil
	}
	is := newState(s.tenant, &to, v.now)
	is.StepCount, is.ResumeCount = 0, 0
	p := &plan{}
	if err := p.create(&is, shared.born); err != nil {
		return nil, nil, err
	}
	p.do("bump", "", "")
	shared.add(&p.batch)
	p.copyMessages(count, list(again.parts[1]), list(again.parts[2]))
	if marks := v.header.Marks.Within(count); len(marks) > 0 {
		p.do("set", "", "marks", encodeMarks(marks))
	}
	if version > 0 {
		custom, _, err := stateAt(clone.From, again.parts[0])
		if err != nil {
			return nil, nil, err
		}
		if custom.Len() > 0 {
			if err := p.writeWhole(is.ID, &custom); err != nil {
				return nil, nil, err
			}
		}
	}
	p.addCheckpoint(is.ID, session.NewCheckpoint{Source: session.FromSave}, v.now)
	return p, &is, nil
}

// copyMessages appends messages in the form in which another session stores them.
func (w *batch) copyMessages(count int, bodies, metas []any) {
	args := []any{""}
	for i := range min(count, len(bodies)) {
		meta := text(metas[i])
		args = append(args, "m", messageID(meta), meta, text(bodies[i]))
	}
	if len(args) > 1 {
		w.do("append", keyMessages+keyMetas+keyNames, args...)
	}
}

// cloned returns the number of messages and the version of custom state that a
// clone copies; version 0 has no state.
func cloned(clone *session.Clone, v *view) (count int, version int64, err error) {
	h := v.header
	switch n := clone.MessageCount; {
	case clone.CheckpointID != "":
		point, err := decodePoint(h.ID, v.parts[0])
		switch {
		case err != nil:
			return 0, 0, err
		case point == nil:
			return 0, 0, notFound("session %s: checkpoint %s", h.ID, clone.CheckpointID)
		case point.Undone:
			return 0, 0, session.ErrNotFound.WithMessage("session %s: a rewind has dropped messages of checkpoint %s", h.ID, point.ID)
		}
		return point.MessageCount, point.Version, nil
	case n != nil:
		if *n < 0 || *n > h.MessageCount {
			return 0, 0, session.Invalid("message count", "%d is not within 0 and %d", *n, h.MessageCount)
		}
		point, err := decodePoint(h.ID, v.parts[0])
		if err != nil || point == nil {
			return *n, 0, err
		}
		return *n, point.Version, nil
	}
	return h.MessageCount, h.Version, nil
}

// Delete implements [session.Lifecycle]. Each session is deleted in one step,
// those furthest from the root first: if the deletion is interrupted, the root
// still exists and can be deleted again.
func (s *sessions) Delete(ctx context.Context, id string) ([]string, error) {
	const verb = "delete"
	if _, err := s.read(ctx, id, verb, query()); err != nil {
		return nil, err
	}
	tree, err := s.tree(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, member := range slices.Backward(tree) {
		err := s.deleteOne(ctx, member, verb)
		if r, refused := errors.AsType[*refusal](err); refused {
			if member != id {
				continue // another process has deleted it
			}
			return nil, r.domain(id)
		}
		if err != nil {
			return nil, err
		}
		s.b.watch.hub.Notify(s.b.keys.channel(s.tenant, member))
		s.b.places.drop(s.tenant, member)
	}
	return tree, nil
}

// deleteOne deletes one session. If it has blobs, they are listed for the sweep first.
func (s *sessions) deleteOne(ctx context.Context, id, verb string) error {
	count := ""
	for range maxEdits {
		w := &batch{}
		w.do("match", keyBlobs, keyBlobs, "count", count)
		w.do("delete", sessionLetters, s.b.keys.channel(s.tenant, id))
		_, err := s.apply(ctx, id, verb, "", w)
		if r, refused := errors.AsType[*refusal](err); !refused || r.why != "moved" {
			return err
		}
		if count, err = s.blobsUnused(ctx, id, verb); err != nil {
			return err
		}
	}
	return session.ErrUnavailable.WithMessage("%s: the session changed too often", what(id, verb))
}

// tree lists a session and all sessions below it. It visits each session once,
// even if links form a cycle.
func (s *sessions) tree(ctx context.Context, id string) ([]string, error) {
	tree, seen := []string{id}, map[string]bool{id: true}
	for i := 0; i < len(tree); i++ {
		key := s.b.keys.listing(s.tenant) + indexParent + indexed(tree[i])
		found, err := s.b.client.ZRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, failure(what(id, "delete"), err)
		}
		parents, err := s.parents(ctx, found)
		if err != nil {
			return nil, failure(what(id, "delete"), err)
		}
		for j, child := range found {
			if parents[j] == tree[i] && !seen[child] {
				seen[child] = true
				tree = append(tree, child)
			}
		}
	}
	return tree, nil
}

// parents reads the parents of sessions.
func (s *sessions) parents(ctx context.Context, ids []string) ([]string, error) {
	out := make([]string, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	pipe := s.b.client.Pipeline()
	found := make([]*goredis.StringCmd, len(ids))
	for i, id := range ids {
		found[i] = pipe.HGet(ctx, s.prefix(id)+keyHeader, "parent")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range found {
		parent, err := cmd.Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		out[i] = parent
	}
	return out, nil
}
