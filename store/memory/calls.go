package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// call is the row of a call. Its result is stored as a message ready for the
// transcript.
type call struct {
	session.Call // without Result
	result       *message
	at           time.Time // when the row was written
}

// newCall returns the row of a call that was checked.
func newCall(c *session.Call) (*call, error) {
	row := &call{Call: cloneCall(c)}
	if err := row.setResult(c); err != nil {
		return nil, err
	}
	return row, nil
}

// setResult copies the result of a call, if it has one, into the row.
func (c *call) setResult(from *session.Call) error {
	if from.Result == nil {
		return nil
	}
	m, err := encodeMessage(from.Result)
	if err != nil {
		return err
	}
	c.result = m
	return nil
}

// export returns a copy of the row for a caller.
func (c *call) export() (session.Call, error) {
	out := cloneCall(&c.Call)
	if c.result != nil {
		m, err := c.result.decode()
		if err != nil {
			return out, err
		}
		out.Result = &m
	}
	return out, nil
}

// Claim implements [session.Calls].
func (s *sessions) Claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (session.Call, bool, error) {
	row, fresh, err := s.claim(ctx, id, version, fence, messageID, callID)
	if err != nil {
		return session.Call{}, false, err
	}
	out, err := row.export()
	return out, fresh, err
}

func (s *sessions) claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (row call, fresh bool, err error) {
	rec, err := s.edit(ctx, id)
	if err != nil {
		return call{}, false, err
	}
	defer s.b.release(rec)
	if err := rec.state.CheckFence(fence); err != nil {
		return call{}, false, err
	}
	if rec.state.Version != version {
		return call{}, false, session.ErrStale.WithMessage("session %s: expected version %d", id, version).WithSaw(rec.state.Saw())
	}
	found := rec.call(messageID, callID)
	if found == nil {
		return call{}, false, noCall(id, messageID, callID)
	}
	if found.Status == session.CallOpen {
		found.Status, found.BegunAt, fresh = session.CallBegun, s.b.now(), true
	}
	return *found, fresh, nil
}

// Settle implements [session.Calls].
func (s *sessions) Settle(ctx context.Context, id string, fence session.Fence, settled session.Call) (session.Call, error) {
	settled.Status = session.CallSettled
	if err := settled.Check(); err != nil {
		return session.Call{}, err
	}
	row, err := s.settle(ctx, id, fence, &settled)
	if err != nil {
		return session.Call{}, err
	}
	return row.export()
}

func (s *sessions) settle(ctx context.Context, id string, fence session.Fence, settled *session.Call) (call, error) {
	given := call{Call: cloneCall(settled)}
	if err := given.setResult(settled); err != nil {
		return call{}, err
	}
	rec, err := s.edit(ctx, id)
	if err != nil {
		return call{}, err
	}
	defer s.b.release(rec)
	if err := rec.state.CheckFence(fence); err != nil {
		return call{}, err
	}
	found := rec.call(settled.MessageID, settled.ID)
	if found == nil {
		return call{}, noCall(id, settled.MessageID, settled.ID)
	}
	if found.Status != session.CallSettled {
		found.Status, found.SettledAt = session.CallSettled, s.b.now()
		found.result, found.Writes = given.result, given.Writes
		if given.Extra != nil {
			found.Extra = given.Extra
		}
	}
	return *found, nil
}

// Ask implements [session.Calls].
func (s *sessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := ask.Check(); err != nil {
		return err
	}
	ask.Call.Memo = bytes.Clone(ask.Call.Memo)
	rec, err := s.edit(ctx, id)
	if err != nil {
		return err
	}
	defer s.b.release(rec)
	if err := rec.state.CheckFence(fence); err != nil {
		return err
	}
	rows := rec.calls[ask.Call.MessageID]
	calls := make([]session.Call, len(rows))
	for i, row := range rows {
		calls[i] = cloneCall(&row.Call)
	}
	changed, err := ask.Apply(id, calls)
	if err != nil || len(changed) == 0 {
		return err
	}
	for _, i := range changed {
		rows[i].Call = calls[i]
	}
	entry := clonePending(&ask.Pending)
	entry.Begin(id, rec.state.CurrentRunID, s.b.now())
	rec.pending.add(entry)
	rec.pending.resolve(ask.Resolve)
	return nil
}

// Calls implements [session.Calls].
func (s *sessions) Calls(ctx context.Context, id, messageID string) ([]session.Call, error) {
	found, err := s.callRows(ctx, id, messageID)
	if err != nil {
		return nil, err
	}
	out := make([]session.Call, len(found))
	for i := range found {
		if out[i], err = found[i].export(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *sessions) callRows(ctx context.Context, id, messageID string) ([]call, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	out := make([]call, 0, len(rec.calls[messageID]))
	for _, row := range rec.calls[messageID] {
		out = append(out, *row)
	}
	return out, nil
}

// CleanCalls implements [session.Calls].
func (s *sessions) CleanCalls(ctx context.Context, before time.Time) (int, error) {
	if err := s.b.lock(ctx); err != nil {
		return 0, err
	}
	defer s.b.mu.Unlock()
	n := 0
	for rec := range s.b.due.of(dueCalls) {
		if rec.state.Tenant == s.tenant {
			n += rec.cleanCalls(before)
			s.b.mark(rec)
		}
	}
	return n, nil
}

func (r *record) cleanCalls(before time.Time) int {
	n, open := 0, r.openMessage()
	for messageID, list := range r.calls {
		if messageID == r.state.SuspendedStep || messageID == open && !ended(r.state.Status) {
			continue
		}
		kept := slices.DeleteFunc(list, func(row *call) bool { return row.at.Before(before) })
		n += len(list) - len(kept)
		r.setCalls(messageID, kept)
	}
	return n
}

func (r *record) call(messageID, callID string) *call {
	for _, row := range r.calls[messageID] {
		if row.ID == callID {
			return row
		}
	}
	return nil
}

// settled returns a call's result, or nil.
func (r *record) settled(messageID, callID string) *message {
	if row := r.call(messageID, callID); row != nil && row.Status == session.CallSettled {
		return row.result
	}
	return nil
}

// addCall adds a row, or replaces one that has no result.
func (r *record) addCall(row *call, now time.Time) {
	row.at = now
	row.Begin(now)
	list := r.calls[row.MessageID]
	if was := r.call(row.MessageID, row.ID); was == nil {
		list = append(list, row)
	} else if was.Status != session.CallSettled {
		*was = *row
	}
	slices.SortStableFunc(list, func(a, b *call) int { return cmp.Compare(a.Index, b.Index) })
	r.setCalls(row.MessageID, list)
}

func (r *record) setCalls(messageID string, list []*call) {
	if len(list) == 0 {
		delete(r.calls, messageID)
		return
	}
	if r.calls == nil {
		r.calls = map[string][]*call{}
	}
	r.calls[messageID] = list
}

func noCall(id, messageID, callID string) error {
	err := session.ErrNotFound.WithMessage("session %s: call %s of message %s not found", id, callID, messageID)
	err.Calls = []string{callID}
	return err
}

// ended reports whether a session has ended. An interrupted or paused session has
// not: it can continue.
func ended(status session.Status) bool {
	return status == session.Completed || status == session.Failed
}
