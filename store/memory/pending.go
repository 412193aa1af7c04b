package memory

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// waits stores the entries of calls that wait for people. Closed entries are kept,
// so the open ones are listed separately.
type waits struct {
	rows[session.Pending]
	open []*session.Pending
}

// add adds an entry, or replaces one that still waits.
func (w *waits) add(p session.Pending) {
	if was := w.get(p.CallID); was != nil {
		if p.Replaces(was) {
			*was = p
			w.refilter()
		}
		return
	}
	w.rows.add(p.CallID, &p)
	if p.Open() {
		w.open = append(w.open, &p)
	}
}

func (w *waits) resolve(resolutions []session.Resolution) {
	for _, r := range resolutions {
		p := w.get(r.CallID)
		if p == nil {
			continue
		}
		if r.State != "" {
			p.State = r.State
		}
		p.LateNoticed = p.LateNoticed || r.Noticed
	}
	if len(resolutions) > 0 {
		w.refilter()
	}
}

// refilter drops entries from open that are no longer open.
func (w *waits) refilter() {
	w.open = slices.DeleteFunc(w.open, func(p *session.Pending) bool { return !p.Open() })
}

// checkUnanswered returns an error if one of the calls that a commit requires to
// be unanswered has an answer.
func (r *record) checkUnanswered(callIDs []string) error {
	var answered []string
	for _, callID := range callIDs {
		p := r.pending.get(callID)
		if p != nil && p.State != session.PendingWaiting || !r.owned[callID].CompletedAt.IsZero() {
			answered = append(answered, callID)
		}
	}
	if len(answered) == 0 {
		return nil
	}
	err := session.ErrAnswered.WithMessage("session %s: calls %v were answered in the meantime", r.state.ID, answered).WithSaw(r.state.Saw())
	err.Calls = answered
	return err
}

// Submit implements [session.Submissions].
func (s *sessions) Submit(ctx context.Context, id string, submission session.Submission) (session.SubmitOutcome, error) {
	if err := submission.Check(); err != nil {
		return "", err
	}
	submission.Response = *cloneResponse(&submission.Response)
	rec, err := s.edit(ctx, id)
	if err != nil {
		return "", err
	}
	defer s.b.release(rec)
	p := rec.pending.get(submission.CallID)
	if p == nil {
		return session.SubmitUnknownCall, nil
	}
	return p.Accept(&submission, s.b.now())
}

// PendingCalls implements [session.Submissions].
func (s *sessions) PendingCalls(ctx context.Context, id string, all bool) ([]session.Pending, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	if all {
		return clonePendings(rec.pending.list), nil
	}
	return clonePendings(rec.pending.open), nil
}

func clonePendings(list []*session.Pending) []session.Pending {
	out := make([]session.Pending, len(list))
	for i, p := range list {
		out[i] = clonePending(p)
	}
	return out
}

// Own implements [session.Submissions].
func (s *sessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	for i := range owned {
		if err := owned[i].Check(); err != nil {
			return err
		}
	}
	rec, err := s.edit(ctx, rootID)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	rec.own(owned)
	return nil
}

// Owner implements [session.Submissions].
func (s *sessions) Owner(ctx context.Context, rootID, callID string) (session.Ownership, error) {
	rec, err := s.view(ctx, rootID)
	if err != nil {
		return session.Ownership{}, err
	}
	defer s.b.mu.RUnlock()
	owned, ok := rec.owned[callID]
	if !ok {
		return session.Ownership{}, session.ErrNotFound.WithMessage("session %s: call %s has no owner", rootID, callID)
	}
	return owned, nil
}

// Disown implements [session.Submissions].
func (s *sessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	rec, err := s.edit(ctx, rootID)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	rec.disown(callIDs, s.b.now())
	return nil
}

// own records owners. A completed call stays completed: recording its owner again
// must not open it for another answer.
func (r *record) own(owned []session.Ownership) {
	if r.owned == nil && len(owned) > 0 {
		r.owned = make(map[string]session.Ownership, len(owned))
	}
	for _, o := range owned {
		if was := r.owned[o.CallID]; !was.CompletedAt.IsZero() {
			o.CompletedAt = was.CompletedAt
		}
		o.CompletedAt = utc(o.CompletedAt)
		r.owned[o.CallID] = o
	}
}

func (r *record) disown(callIDs []string, now time.Time) {
	for _, callID := range callIDs {
		if o, ok := r.owned[callID]; ok && o.CompletedAt.IsZero() {
			o.CompletedAt = now
			r.owned[callID] = o
		}
	}
}
