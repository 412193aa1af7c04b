package redis

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeChild encodes a reference's document without the fields that are kept in
// attributes of its row.
func encodeChild(ref *session.ChildRef) ([]byte, error) {
	return stored.EncodeChild(ref, func(r *session.ChildRef) {
		r.Status, r.Awaited, r.Remote, r.CreatedAt, r.UpdatedAt = "", false, nil, time.Time{}, time.Time{}
	})
}

func decodeChild(id, childID string, r row) (session.ChildRef, error) {
	ref, err := stored.DecodeChild(id, childID, []byte(r['d']))
	if err != nil {
		return *ref, err
	}
	ref.Status, ref.Awaited = session.ChildStatus(r['s']), r['a'] == "1"
	ref.Remote = r.body('r')
	ref.CreatedAt, ref.UpdatedAt = r.time('c'), r.time('u')
	return *ref, nil
}

// decodeChildren lists references, oldest first.
func decodeChildren(id string, flat any) ([]session.ChildRef, error) {
	rows := rowsOf(fieldsOf(flat))
	out := make([]session.ChildRef, 0, len(rows))
	for _, childID := range oldestFirst(rows) {
		ref, err := decodeChild(id, childID, rows[childID])
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

// oldestFirst lists rows in the order in which they were added.
func oldestFirst(rows map[string]row) []string {
	return slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return cmp.Compare(rows[a].number(), rows[b].number()) })
}

func (w *batch) putChildren(refs []session.ChildRef) error {
	if len(refs) == 0 {
		return nil
	}
	args := make([]any, 0, 7*len(refs))
	for i := range refs {
		ref := &refs[i]
		doc, err := encodeChild(ref)
		if err != nil {
			return err
		}
		args = append(args, ref.SessionID, doc, string(ref.Status), flag(ref.Awaited), ref.CallID, micros(ref.CreatedAt), []byte(ref.Remote))
	}
	w.do("children", keyChildren+keyAwaited, args...)
	return nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// UpdateChild implements [session.Children]. The function is called again if the
// reference has changed since it was read.
func (s *sessions) UpdateChild(
	ctx context.Context, id, childID string, change func(*session.ChildRef) error,
) (*session.ChildRef, error) {
	const verb = "update child"
	token := s.b.tokens.next()
	for range maxEdits {
		q := query()
		fields := []any{keyChildren}
		for _, attribute := range "dsakcurnv" {
			fields = append(fields, childID+"\x00"+string(attribute))
		}
		q.do("get", keyChildren, fields...)
		v, err := s.read(ctx, id, verb, q)
		if err != nil {
			return nil, err
		}
		r := row{}
		for i, attribute := range "dsakcurnv" {
			r[byte(attribute)] = text(list(v.parts[0])[i])
		}
		if r['n'] == "" {
			return nil, notFound("session %s: child %s", id, childID)
		}
		ref, err := decodeChild(id, childID, r)
		if err != nil {
			return nil, err
		}
		if err := ref.Update(change); err != nil {
			return nil, err
		}
		w := &batch{}
		w.do("match", keyChildren, keyChildren, childID+"\x00v", r['v'])
		if err := w.putChildren([]session.ChildRef{ref}); err != nil {
			return nil, err
		}
		_, err = s.apply(ctx, id, verb, token, w)
		refused, ok := errors.AsType[*refusal](err)
		switch {
		case ok && refused.why == "moved":
			continue
		case ok:
			return nil, refused.domain(id)
		case err != nil:
			return nil, err
		}
		ref.UpdatedAt = v.now
		return &ref, nil
	}
	return nil, session.ErrUnavailable.WithMessage("%s: the reference changed too often", what(id, verb))
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) ([]session.ChildRef, error) {
	q := query()
	q.do("all", keyChildren, keyChildren)
	v, err := s.read(ctx, id, "list children", q)
	if err != nil {
		return nil, err
	}
	return decodeChildren(id, v.parts[0])
}
