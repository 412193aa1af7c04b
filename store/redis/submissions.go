package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// pendingAttributes are the attributes of a wait's row: document, state, message,
// deadline, creation, input, result, late result, number, whether it was noticed,
// revision.
const pendingAttributes = "dsmltirenzu"

// encodePending encodes an entry as a row, whose document does not contain the
// fields that are kept in attributes.
func encodePending(p *session.Pending) (*stored.Pending, error) {
	return stored.EncodePending(p, func(p *session.Pending) { p.State, p.LateNoticed, p.CreatedAt = "", false, time.Time{} })
}

func decodePending(id, callID string, r row) (*session.Pending, error) {
	body := stored.Pending{Doc: []byte(r['d']), Input: r.body('i'), Result: r.body('r'), Late: r.body('e')}
	p, err := body.Decode(id, callID)
	if err != nil {
		return nil, err
	}
	p.State, p.CreatedAt, p.LateNoticed = session.PendingState(r['s']), r.time('t'), r['z'] == "1"
	return p, nil
}

func (w *batch) addPending(id, runID string, entries []session.Pending) error {
	if len(entries) == 0 {
		return nil
	}
	args := make([]any, 0, 9*len(entries))
	for i := range entries {
		p := entries[i]
		created := orNow(p.CreatedAt)
		p.Begin(id, runID, p.CreatedAt)
		row, err := encodePending(&p)
		if err != nil {
			return err
		}
		args = append(args, p.CallID, p.MessageID, string(p.State), micros(p.Deadline), created, row.Doc, row.Input, row.Result, row.Late)
	}
	w.do("pending", keyOpen+keyOver, args...)
	return nil
}

func (w *batch) resolve(resolutions []session.Resolution) {
	if len(resolutions) == 0 {
		return
	}
	args := make([]any, 0, 3*len(resolutions))
	for _, r := range resolutions {
		args = append(args, r.CallID, string(r.State), flag(r.Noticed))
	}
	w.do("resolve", keyOpen+keyOver, args...)
}

func (w *batch) own(owned []session.Ownership) {
	if len(owned) == 0 {
		return
	}
	args := make([]any, 0, 3*len(owned))
	for _, o := range owned {
		args = append(args, o.CallID, o.SessionID, micros(o.CompletedAt))
	}
	w.do("own", keyOwnership, args...)
}

// decodePendings lists entries of several hashes, oldest first.
func decodePendings(id string, parts ...any) ([]session.Pending, error) {
	rows := map[string]row{}
	for _, part := range parts {
		maps.Copy(rows, rowsOf(fieldsOf(part)))
	}
	out := make([]session.Pending, 0, len(rows))
	for _, callID := range oldestFirst(rows) {
		p, err := decodePending(id, callID, rows[callID])
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// Submit implements [session.Submissions]. The entry is read, the submission
// decided, and the entry written unless it has changed: the answer that is written
// first wins.
func (s *sessions) Submit(ctx context.Context, id string, submission session.Submission) (session.SubmitOutcome, error) {
	if err := submission.Check(); err != nil {
		return "", err
	}
	const verb = "submit"
	token := s.b.tokens.next()
	for range maxEdits {
		letter, r, now, err := s.pendingRow(ctx, id, submission.CallID)
		if err != nil {
			return "", err
		}
		if r == nil {
			return session.SubmitUnknownCall, nil
		}
		if r['u'] == token { // this request itself, whose answer was lost
			return session.SubmitAccepted, nil
		}
		p, err := decodePending(id, submission.CallID, r)
		if err != nil {
			return "", err
		}
		outcome, err := p.Accept(&submission, now)
		if err != nil || outcome == session.SubmitAlreadyCompleted {
			return outcome, err
		}
		is, err := encodePending(p)
		if err != nil {
			return "", err
		}
		row := submission.CallID + "\x00"
		w := &batch{}
		w.do("match", letter, letter, row+"s", r['s'], row+"u", r['u'])
		w.do("hset", letter, letter, row+"d", is.Doc, row+"s", string(p.State), row+"r", is.Result, row+"e", is.Late, row+"u", token)
		_, err = s.apply(ctx, id, verb, "", w)
		refused, ok := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			if session.PendingState(r['s']) == session.PendingWaiting && p.State != session.PendingWaiting {
				s.answered(ctx, id, []string{submission.CallID})
			}
			return outcome, nil
		case !ok:
			return outcome, err
		case refused.why != "moved":
			return "", refused.domain(id)
		}
	}
	return "", session.ErrUnavailable.WithMessage("%s: the entry changed too often", what(id, verb))
}

// pendingRow reads an entry's row and the letter of its hash; nil if there is
// none.
func (s *sessions) pendingRow(ctx context.Context, id, callID string) (string, row, time.Time, error) {
	q := query()
	for _, letter := range []string{keyOpen, keyOver} {
		fields := []any{letter}
		for _, attribute := range pendingAttributes {
			fields = append(fields, callID+"\x00"+string(attribute))
		}
		q.do("get", letter, fields...)
	}
	v, err := s.read(ctx, id, "submit", q)
	if err != nil {
		return "", nil, time.Time{}, err
	}
	for i, letter := range []string{keyOpen, keyOver} {
		r := row{}
		for j, attribute := range pendingAttributes {
			r[byte(attribute)] = text(list(v.parts[i])[j])
		}
		if r['n'] != "" {
			return letter, r, v.now, nil
		}
	}
	return "", nil, v.now, nil
}

// PendingCalls implements [session.Submissions].
func (s *sessions) PendingCalls(ctx context.Context, id string, all bool) ([]session.Pending, error) {
	q := query()
	q.do("all", keyOpen, keyOpen)
	if all {
		q.do("all", keyOver, keyOver)
	}
	v, err := s.read(ctx, id, "list pending calls", q)
	if err != nil {
		return nil, err
	}
	return decodePendings(id, v.parts...)
}

// Own implements [session.Submissions]. It is a separate step on the root, before
// the owner's commit: an ownership without a commit leads to a session that does
// not have the call.
func (s *sessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	for i := range owned {
		if err := owned[i].Check(); err != nil {
			return err
		}
	}
	w := &batch{}
	w.own(owned)
	return s.write(ctx, rootID, "own calls", w)
}

// Owner implements [session.Submissions].
func (s *sessions) Owner(ctx context.Context, rootID, callID string) (session.Ownership, error) {
	q := query()
	q.do("get", keyOwnership, keyOwnership, callID, callID+"\x00")
	v, err := s.read(ctx, rootID, "find owner", q)
	if err != nil {
		return session.Ownership{}, err
	}
	found := list(v.parts[0])
	if found[0] == nil {
		return session.Ownership{}, notFound("session %s: the owner of call %s", rootID, callID)
	}
	return session.Ownership{CallID: callID, SessionID: text(found[0]), CompletedAt: moment(text(found[1]))}, nil
}

// Disown implements [session.Submissions].
func (s *sessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	w := &batch{}
	if callIDs = slices.Clone(callIDs); len(callIDs) > 0 {
		w.do("disown", keyOwnership, anys(callIDs)...)
	}
	return s.write(ctx, rootID, "disown calls", w)
}
