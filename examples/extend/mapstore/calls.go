package mapstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// call is the row of a call of a step in flight.
type call struct {
	session.Call
	at time.Time // when the row was written
}

func (r *record) call(messageID, callID string) *call {
	for i := range r.calls {
		if r.calls[i].MessageID == messageID && r.calls[i].ID == callID {
			return &r.calls[i]
		}
	}
	return nil
}

// resultOf returns the result of a settled call, or nil.
func (r *record) resultOf(messageID, callID string) *session.Message {
	if row := r.call(messageID, callID); row != nil && row.Status == session.CallSettled {
		return row.Result
	}
	return nil
}

// addCall adds a row, or replaces one. A result stays.
func (r *record) addCall(row session.Call, now time.Time) {
	row.Begin(now)
	if was := r.call(row.MessageID, row.ID); was == nil {
		r.calls = append(r.calls, call{row, now})
	} else if was.Status != session.CallSettled {
		*was = call{row, now}
	}
}

// Claim implements [session.Calls]. Of concurrent claims one gets fresh, so that one
// process executes the call.
func (s *sessions) Claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (out session.Call, fresh bool, err error) {
	err = s.edit(ctx, id, func(rec *record, now time.Time) error {
		if err := rec.state.CheckFence(fence); err != nil {
			return err
		}
		if rec.state.Version != version {
			return session.ErrStale.WithMessage("session %s: version %d was expected", id, version).WithSaw(rec.state.Saw())
		}
		row := rec.call(messageID, callID)
		if row == nil {
			return noCall(id, messageID, callID)
		}
		if row.Status == session.CallOpen {
			row.Status, row.BegunAt, fresh = session.CallBegun, now, true
		}
		out = copied(row.Call)
		return nil
	})
	return out, fresh, err
}

// Settle implements [session.Calls]. The first result stays.
func (s *sessions) Settle(ctx context.Context, id string, fence session.Fence, settled session.Call) (out session.Call, err error) {
	settled.Status = session.CallSettled
	if err := settled.Check(); err != nil {
		return out, err
	}
	if _, err := newMessage(settled.Result); err != nil {
		return out, err
	}
	settled = copied(settled)
	err = s.edit(ctx, id, func(rec *record, now time.Time) error {
		if err := rec.state.CheckFence(fence); err != nil {
			return err
		}
		row := rec.call(settled.MessageID, settled.ID)
		if row == nil {
			return noCall(id, settled.MessageID, settled.ID)
		}
		if row.Status != session.CallSettled {
			row.Status, row.SettledAt = session.CallSettled, now
			row.Result, row.Writes = settled.Result, settled.Writes
			if settled.Extra != nil {
				row.Extra = settled.Extra
			}
		}
		out = copied(row.Call)
		return nil
	})
	return out, err
}

// Ask implements [session.Calls]. [session.Ask.Apply] decides; the store makes what it
// decides one write.
func (s *sessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := ask.Check(); err != nil {
		return err
	}
	ask.Call, ask.Pending = copied(ask.Call), copied(ask.Pending)
	return s.edit(ctx, id, func(rec *record, now time.Time) error {
		if err := rec.state.CheckFence(fence); err != nil {
			return err
		}
		calls := make([]session.Call, len(rec.calls)) // of other messages, too; they stay as they are
		for i := range rec.calls {
			if rec.calls[i].MessageID == ask.Call.MessageID {
				calls[i] = rec.calls[i].Call
			}
		}
		changed, err := ask.Apply(id, calls)
		if err != nil || len(changed) == 0 {
			return err
		}
		for _, i := range changed {
			rec.calls[i].Call = calls[i]
		}
		s.b.addWait(rec, ask.Pending, now)
		rec.resolve(ask.Resolve)
		return nil
	})
}

// Calls implements [session.Calls].
func (s *sessions) Calls(ctx context.Context, id, messageID string) (out []session.Call, err error) {
	out = []session.Call{}
	err = s.view(ctx, id, func(rec *record) error {
		for i := range rec.calls {
			if rec.calls[i].MessageID == messageID {
				out = append(out, copied(rec.calls[i].Call))
			}
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b session.Call) int { return cmp.Compare(a.Index, b.Index) })
	return out, err
}

// CleanCalls implements [session.Calls].
func (s *sessions) CleanCalls(ctx context.Context, before time.Time) (n int, err error) {
	if err := s.b.lock(ctx); err != nil {
		return 0, err
	}
	defer s.b.mu.Unlock()
	for key, rec := range s.b.sessions {
		if key.Tenant != s.tenant || len(rec.calls) == 0 {
			continue
		}
		draft := rec.draft()
		draft.calls = slices.DeleteFunc(draft.calls, func(row call) bool { return row.at.Before(before) && !rec.needs(row.MessageID) })
		n += len(rec.calls) - len(draft.calls)
		s.put(draft)
	}
	return n, nil
}

// needs reports whether a step may still use the calls of a message: one that is
// suspended, or one in flight, whose message only results follow.
func (r *record) needs(messageID string) bool {
	if messageID == r.state.SuspendedStep {
		return true
	}
	if ended(r.state.Status) {
		return false
	}
	for _, m := range slices.Backward(r.messages) {
		if m.Role != session.RoleTool {
			return m.Role == session.RoleAssistant && m.ID == messageID
		}
	}
	return false
}

// ended reports whether a session is over. One that was interrupted or paused can be
// resumed where it stopped.
func ended(status session.Status) bool {
	return status == session.Completed || status == session.Failed
}

func noCall(id, messageID, callID string) error {
	err := session.ErrNotFound.WithMessage("session %s: call %s of message %s not found", id, callID, messageID)
	err.Calls = []string{callID}
	return err
}
