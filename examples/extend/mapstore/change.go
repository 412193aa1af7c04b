package mapstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// check refuses what the stored session rules out. It is called before the draft
// changes, so that the error reports what the store holds.
func check(c *session.Change, rec *record) error {
	if c.Checkpoint != nil && rec.findCheckpoint(c.Checkpoint.ID) != nil {
		return session.ErrExists.WithMessage("session %s: checkpoint %s already exists", rec.state.ID, c.Checkpoint.ID).
			WithSaw(rec.state.Saw())
	}
	for i := range c.Calls {
		if result := c.Calls[i].Result; result != nil {
			if _, err := newMessage(result); err != nil {
				return err
			}
		}
	}
	return rec.checkUnanswered(c.Waits)
}

// apply writes a change, which is the store's own copy, to a draft. It raises the
// version.
func (b *Backend) apply(c *session.Change, rec *record, now time.Time) error {
	if c.State != nil {
		rec.custom = *c.State
	}
	if err := rec.custom.Apply(c.Writes); err != nil {
		return err
	}
	if err := rec.applyMessages(c, now); err != nil {
		return err
	}
	rec.applyRun(c, now)
	if c.Status != "" {
		rec.state.Status = c.Status
	}
	if c.ExpiresAt != nil {
		rec.state.ExpiresAt = *c.ExpiresAt
	}
	rec.state.Version++
	rec.state.UpdatedAt = now
	if c.Checkpoint != nil {
		rec.checkpoint(*c.Checkpoint, now)
	}
	b.applyRows(c, rec, now)
	return nil
}

// applyMessages truncates the transcript, then appends messages, then the results of
// calls. Results are looked up first, because a truncation deletes the rows that have
// them.
func (r *record) applyMessages(c *session.Change, now time.Time) error {
	added := c.Messages
	if c.Promote != nil {
		for _, result := range c.Promote.Results {
			m := result.Message
			if m == nil {
				m = r.resultOf(c.Promote.MessageID, result.CallID)
			}
			if m == nil {
				err := session.Invalid("promotion", "of call %s: it has no settled result", result.CallID)
				err.Calls = []string{result.CallID}
				return err
			}
			added = append(added, *m)
		}
	}
	r.state.Marks = r.state.Marks.After(len(r.messages), c)
	if c.KeepMessages != nil {
		if *c.KeepMessages > len(r.messages) {
			return session.Invalid("message count", "%d is more than the session's %d", *c.KeepMessages, len(r.messages))
		}
		r.truncate(*c.KeepMessages, now)
	}
	for i := range added {
		if added[i].ID != "" && r.holds(added[i].ID) {
			return session.Invalid("message id", "%q is in the transcript already", added[i].ID)
		}
		m, err := newMessage(&added[i])
		if err != nil {
			return err
		}
		r.messages = append(r.messages, m)
	}
	r.state.MessageCount = len(r.messages)
	if c.Promote != nil {
		r.calls = slices.DeleteFunc(r.calls, func(row call) bool { return row.MessageID == c.Promote.MessageID })
	}
	return nil
}

// applyRows writes the rows of a change. It cannot fail, so the wake, which is not in
// the draft, is written only with the rest.
func (b *Backend) applyRows(c *session.Change, rec *record, now time.Time) {
	for _, row := range c.Calls {
		rec.addCall(row, now)
	}
	for _, p := range c.Pending {
		b.addWait(rec, p, now)
	}
	rec.resolve(c.Resolve)
	rec.own(c.Own)
	rec.disown(c.Disown, now)
	for i := range c.Children {
		rec.putChild(c.Children[i], now)
	}
	rec.inbox = slices.DeleteFunc(rec.inbox, func(e session.InboxEntry) bool { return slices.Contains(c.Consume, e.ID) })
	if c.Wake != nil {
		b.putWake(rec.state.Tenant, *c.Wake, now)
	}
	b.addTasks(c.Tasks, rec.state.Tenant, rec.state.ID, now)
}

func (r *record) applyRun(c *session.Change, now time.Time) {
	if c.StepCount != nil {
		r.state.StepCount = *c.StepCount
	}
	run := r.currentRun()
	if run == nil {
		return
	}
	if c.StepCount != nil {
		run.StepCount = *c.StepCount
	}
	if c.Run != nil {
		if c.Run.CompletionReason != "" {
			run.CompletionReason = c.Run.CompletionReason
		}
		run.Usage = run.Usage.Add(c.Run.Usage)
	}
	if c.Outcome != nil {
		run.Status, run.Outcome, run.EndedAt = c.Outcome.Status, c.Outcome, now
		r.state.Finish(c.Outcome)
	}
}

// checkUnanswered refuses a change that relies on calls which were answered
// meanwhile, see [session.Change.Waits].
func (r *record) checkUnanswered(callIDs []string) error {
	var answered []string
	for _, id := range callIDs {
		p := r.wait(id)
		if p != nil && p.State != session.PendingWaiting || !r.owners[id].CompletedAt.IsZero() {
			answered = append(answered, id)
		}
	}
	if len(answered) == 0 {
		return nil
	}
	err := session.ErrAnswered.WithMessage("session %s: calls %v were answered meanwhile", r.state.ID, answered).WithSaw(r.state.Saw())
	err.Calls = answered
	return err
}

// truncate keeps the first messages and ends what depends on the others: checkpoints
// that count more messages, calls, waits, and children that were called by them.
func (r *record) truncate(keep int, now time.Time) {
	dropped := map[string]bool{} // calls of dropped messages
	for i := range r.messages[keep:] {
		for _, part := range r.messages[keep+i].Calls() {
			dropped[part.CallID] = true
		}
	}
	r.messages = r.messages[:keep]
	r.calls = slices.DeleteFunc(r.calls, func(row call) bool { return !r.holds(row.MessageID) })
	for i := range r.pending {
		if p := &r.pending[i]; p.Open() && !r.holds(p.MessageID) {
			p.State = session.PendingSuperseded
		}
	}
	for i, ref := range r.children {
		if dropped[ref.CallID] || (ref.Awaited && !r.makes(ref.CallID)) {
			next := *ref
			next.Status, next.Awaited, next.UpdatedAt = session.ChildSuperseded, false, now
			r.children[i] = &next
		}
	}
	latest := session.Checkpoint{}
	for i := range r.checkpoints {
		cp := &r.checkpoints[i]
		cp.Undone = cp.Undone || cp.MessageCount > keep
		if !cp.Undone {
			latest = *cp
		}
	}
	r.point(&latest)
}

// holds reports whether a message with the id is in the transcript.
func (r *record) holds(messageID string) bool {
	return messageID != "" && slices.ContainsFunc(r.messages, func(m message) bool { return m.ID == messageID })
}

// makes reports whether a message of the transcript makes the call.
func (r *record) makes(callID string) bool {
	return slices.ContainsFunc(r.messages, func(m message) bool {
		return slices.ContainsFunc(m.Calls(), func(part session.Part) bool { return part.CallID == callID })
	})
}

// checkpoint marks the session as it is now. Values of custom state never change in
// place, so the checkpoint shares them with the session.
func (r *record) checkpoint(n session.NewCheckpoint, now time.Time) {
	st := &r.state
	if n.ID == "" {
		n.ID = session.CheckpointID(st.ID, n.Step, now, fmt.Sprint(st.Version))
	}
	if n.Source == "" {
		n.Source = session.FromSave
	}
	r.checkpoints = append(r.checkpoints, session.Checkpoint{
		ID: n.ID, SessionID: st.ID, RunID: st.CurrentRunID, Turn: st.Turn, Step: n.Step,
		Status: st.Status, Source: n.Source, Version: st.Version, MessageCount: st.MessageCount,
		StreamSequence: n.StreamSequence, At: now, State: new(r.custom.Clone()),
	})
	r.point(&r.checkpoints[len(r.checkpoints)-1])
}

// point makes a checkpoint the session's latest.
func (r *record) point(cp *session.Checkpoint) {
	r.state.CheckpointID, r.state.CheckpointedAt, r.state.CheckpointSource = cp.ID, cp.At, cp.Source
}

func (r *record) findCheckpoint(id string) *session.Checkpoint {
	for i := range r.checkpoints {
		if r.checkpoints[i].ID == id {
			return &r.checkpoints[i]
		}
	}
	return nil
}
