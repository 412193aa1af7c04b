package mapstore

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// wait is the entry of a call that waits, or waited, for a person. The number gives
// the order in which the calls of all sessions began to wait.
type wait struct {
	session.Pending
	number int64
	owner  string // the session that has the entry
}

func (r *record) wait(callID string) *wait {
	for i := range r.pending {
		if r.pending[i].CallID == callID {
			return &r.pending[i]
		}
	}
	return nil
}

// addWait adds the entry of a call, or replaces one that still waits.
func (b *Backend) addWait(rec *record, p session.Pending, now time.Time) {
	p.Begin(rec.state.ID, rec.state.CurrentRunID, now)
	if was := rec.wait(p.CallID); was == nil {
		b.asked++
		rec.pending = append(rec.pending, wait{p, b.asked, rec.state.ID})
	} else if p.Replaces(&was.Pending) {
		was.Pending = p
	}
}

func (r *record) resolve(resolutions []session.Resolution) {
	for _, end := range resolutions {
		if p := r.wait(end.CallID); p != nil {
			if end.State != "" {
				p.State = end.State
			}
			p.LateNoticed = p.LateNoticed || end.Noticed
		}
	}
}

// Submit implements [session.Submissions].
func (s *sessions) Submit(ctx context.Context, id string, submission session.Submission) (out session.SubmitOutcome, err error) {
	if err := submission.Check(); err != nil {
		return "", err
	}
	submission = copied(submission)
	err = s.edit(ctx, id, func(rec *record, now time.Time) error {
		p := rec.wait(submission.CallID)
		if p == nil {
			out = session.SubmitUnknownCall
			return nil
		}
		out, err = p.Accept(&submission, now)
		return err
	})
	return out, err
}

// PendingCalls implements [session.Submissions].
func (s *sessions) PendingCalls(ctx context.Context, id string, all bool) (out []session.Pending, err error) {
	err = s.view(ctx, id, func(rec *record) error {
		out = []session.Pending{}
		for i := range rec.pending {
			if all || rec.pending[i].Open() {
				out = append(out, copied(rec.pending[i].Pending))
			}
		}
		return nil
	})
	return out, err
}

// Own implements [session.Submissions].
func (s *sessions) Own(ctx context.Context, rootID string, owned []session.Ownership) error {
	for i := range owned {
		if err := owned[i].Check(); err != nil {
			return err
		}
	}
	return s.edit(ctx, rootID, func(rec *record, _ time.Time) error {
		rec.own(copied(owned))
		return nil
	})
}

// own records the owners of calls. A call that was completed stays completed, so that
// it does not take another answer.
func (r *record) own(owned []session.Ownership) {
	for _, o := range owned {
		if was := r.owners[o.CallID]; !was.CompletedAt.IsZero() {
			o.CompletedAt = was.CompletedAt
		}
		r.owners[o.CallID] = o
	}
}

// Owner implements [session.Submissions].
func (s *sessions) Owner(ctx context.Context, rootID, callID string) (out session.Ownership, err error) {
	err = s.view(ctx, rootID, func(rec *record) error {
		var ok bool
		if out, ok = rec.owners[callID]; !ok {
			return session.ErrNotFound.WithMessage("session %s: nobody owns call %s", rootID, callID)
		}
		return nil
	})
	return out, err
}

// Disown implements [session.Submissions].
func (s *sessions) Disown(ctx context.Context, rootID string, callIDs []string) error {
	return s.edit(ctx, rootID, func(rec *record, now time.Time) error {
		rec.disown(callIDs, now)
		return nil
	})
}

func (r *record) disown(callIDs []string, now time.Time) {
	for _, id := range callIDs {
		if o, ok := r.owners[id]; ok && o.CompletedAt.IsZero() {
			o.CompletedAt = now
			r.owners[id] = o
		}
	}
}
