package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// Send implements [session.Inboxes].
func (s *sessions) Send(ctx context.Context, id string, entry session.InboxEntry) error {
	if err := entry.Check(); err != nil {
		return err
	}
	record := entry
	record.Body, record.At = nil, time.Time{}
	doc, err := session.Encode(&record)
	if err != nil {
		return session.ErrInvalid.WithCause(err, "inbox entry %s cannot be encoded", entry.ID)
	}
	w := &batch{}
	w.do("send", keyInbox+keyInboxSeen, entry.ID, orNow(entry.At), doc, []byte(entry.Body))
	return s.write(ctx, id, "send", w)
}

// Inbox implements [session.Inboxes].
func (s *sessions) Inbox(ctx context.Context, id string) ([]session.InboxEntry, error) {
	q := query()
	q.do("all", keyInbox, keyInbox)
	v, err := s.read(ctx, id, "read inbox", q)
	if err != nil {
		return nil, err
	}
	rows := rowsOf(fieldsOf(v.parts[0]))
	out := make([]session.InboxEntry, 0, len(rows))
	for _, entryID := range oldestFirst(rows) {
		r := rows[entryID]
		var entry session.InboxEntry
		if err := session.Decode("session "+id+": inbox entry "+entryID, []byte(r['d']), &entry); err != nil {
			return nil, err
		}
		entry.Body, entry.At = r.body('b'), r.time('t')
		out = append(out, entry)
	}
	return out, nil
}

// PutWake implements [session.Inboxes]. Wakes are stored with the session to wake,
// and are deleted with it.
func (s *sessions) PutWake(ctx context.Context, wake session.Wake) error {
	if err := wake.Check(); err != nil {
		return err
	}
	at := wake.At
	if at.IsZero() {
		var err error
		if at, err = s.b.notAfter(ctx); err != nil {
			return err
		}
	}
	p := &plan{}
	p.hints.sweep(s.b.keys, sweepWakes, s.tenant, wake.SessionID, wake.ChildID, at)
	p.do("wake", keyWakes, wake.ChildID, wake.RunID, micros(at))
	_, err := s.carryOut(ctx, wake.SessionID, "put wake", "", p)
	if r, refused := errors.AsType[*refusal](err); refused {
		return r.domain(wake.SessionID)
	}
	if err == nil {
		s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: wake.SessionID}})
	}
	return err
}

// moveWake moves a wake that a commit left in the slot of the child to that of the
// session to wake: it is first added there, then removed here. If the process dies
// in between, the wake is in both places and is moved again; it may then be
// delivered twice, which the contract of a wake allows.
func (s *sessions) moveWake(ctx context.Context, childID string, wake *session.Wake) error {
	const verb = "move wake"
	at := wake.At
	if at.IsZero() {
		var err error
		if at, err = s.b.notAfter(ctx); err != nil {
			return err
		}
	}
	p := &plan{}
	p.hints.sweep(s.b.keys, sweepWakes, s.tenant, wake.SessionID, wake.ChildID, at)
	p.do("wake", keyWakes, wake.ChildID, wake.RunID, orNow(wake.At))
	_, err := s.carryOut(ctx, wake.SessionID, verb, "", p)
	r, refused := errors.AsType[*refusal](err)
	if err != nil && !(refused && r.why == "missing") { // a deleted parent needs no wake
		return err
	}
	return s.clearOutbox(ctx, childID, wake)
}

// clearOutbox removes a wake that was moved or delivered, unless a later run has
// replaced it.
func (s *sessions) clearOutbox(ctx context.Context, childID string, wake *session.Wake) error {
	q, field := query(), wake.SessionID+"\x00"+wake.ChildID
	q.do("get", keyOutbox, keyOutbox, field)
	v, err := s.look(ctx, childID, "move wake", q)
	if err != nil || v.header == nil {
		return err
	}
	stands := text(list(v.parts[0])[0])
	if run, _, _ := strings.Cut(stands, "\x00"); stands == "" || (wake.RunID != "" && run != wake.RunID) {
		return nil
	}
	w := &batch{}
	w.do("match", keyOutbox, keyOutbox, field, stands)
	w.do("hdel", keyOutbox, keyOutbox, field)
	_, err = s.apply(ctx, childID, "move wake", "", w)
	if _, refused := errors.AsType[*refusal](err); refused {
		return nil
	}
	return err
}

// DeleteWake implements [session.Inboxes].
func (s *sessions) DeleteWake(ctx context.Context, wake session.Wake) error {
	const verb = "delete wake"
	if wake.ChildID != "" {
		if err := s.clearOutbox(ctx, wake.ChildID, &wake); err != nil {
			return err
		}
	}
	for range maxEdits {
		q := query()
		q.do("get", keyWakes, keyWakes, wake.ChildID)
		v, err := s.look(ctx, wake.SessionID, verb, q)
		if err != nil || v.header == nil {
			return err
		}
		stands := text(list(v.parts[0])[0])
		if run, _, _ := strings.Cut(stands, "\x00"); stands == "" || (wake.RunID != "" && run != wake.RunID) {
			return nil
		}
		w := &batch{}
		w.do("match", keyWakes, keyWakes, wake.ChildID, stands)
		w.do("hdel", keyWakes, keyWakes, wake.ChildID)
		_, err = s.apply(ctx, wake.SessionID, verb, "", w)
		r, refused := errors.AsType[*refusal](err)
		switch {
		case !refused:
			return err
		case r.why == "missing":
			return nil
		}
	}
	return session.ErrUnavailable.WithMessage("%s: it changed too often", what(wake.SessionID, verb))
}
