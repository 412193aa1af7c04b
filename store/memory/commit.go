package memory

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// change is a [session.Change] that was checked, copied and encoded, so that only
// bookkeeping remains inside the lock.
type change struct {
	*session.Change
	messages []*message
	results  []*message // the promoted results; nil for one that its row has, until check has found it
	state    *custom    // replaces custom state; it already includes the writes
	writes   session.Writes
	calls    []*call
	pending  []session.Pending
	children []session.ChildRef
	outcome  *session.Outcome
}

// prepare does the work of a checked change that does not need the session.
func prepare(c *session.Change) (change, error) {
	out := change{Change: c, writes: cloneWrites(c.Writes)}
	err := out.prepareMessages()
	if err == nil {
		err = out.prepareState()
	}
	if err == nil {
		err = out.prepareRows()
	}
	return out, err
}

func (c *change) prepareMessages() (err error) {
	if c.messages, err = encodeMessages(c.Messages); err != nil || c.Promote == nil {
		return err
	}
	c.results = make([]*message, len(c.Promote.Results))
	for i, result := range c.Promote.Results {
		if result.Message == nil {
			continue
		}
		if c.results[i], err = encodeMessage(result.Message); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) prepareState() error {
	if c.State == nil {
		return nil
	}
	state := newCustom(cloneDocument(c.State))
	c.state = &state
	return state.apply(c.writes)
}

func (c *change) prepareRows() error {
	c.calls = make([]*call, len(c.Calls))
	for i := range c.Calls {
		var err error
		if c.calls[i], err = newCall(&c.Calls[i]); err != nil {
			return err
		}
	}
	c.pending = cloneEach(c.Pending, clonePending)
	c.children = cloneEach(c.Children, cloneChild)
	c.outcome = cloneOutcome(c.Outcome)
	return nil
}

// check makes all decisions that depend on the stored session. If it returns an
// error, nothing has changed.
func (c *change) check(rec *record) error {
	if n := len(rec.messages); c.KeepMessages != nil && *c.KeepMessages > n {
		return session.Invalid("message count", "%d is more than the session's %d", *c.KeepMessages, n)
	}
	for i := range c.results {
		if c.results[i] != nil {
			continue
		}
		callID := c.Promote.Results[i].CallID
		if c.results[i] = rec.settled(c.Promote.MessageID, callID); c.results[i] == nil {
			err := session.Invalid("promotion", "of call %s: it has no settled result", callID)
			err.Calls = []string{callID}
			return err
		}
	}
	if err := rec.checkUnanswered(c.Waits); err != nil {
		return err
	}
	if err := c.checkMessages(rec); err != nil {
		return err
	}
	if c.Checkpoint != nil {
		return rec.checkCheckpoint(c.Checkpoint.ID)
	}
	return nil
}

func (c *change) checkMessages(rec *record) error {
	keep := len(rec.messages)
	if c.KeepMessages != nil {
		keep = *c.KeepMessages
	}
	return rec.checkNew(keep, c.messages, c.results)
}

// perform writes custom state. It is the first step of a change that writes and
// the last that can fail.
func (c *change) perform(rec *record) error {
	if c.state != nil {
		rec.custom = *c.state
		return nil
	}
	return rec.custom.apply(c.writes)
}

// apply writes everything else. It cannot fail.
func (c *change) apply(b *Backend, rec *record, now time.Time) {
	c.applyMessages(rec, now)
	c.applyRows(b, rec, now)
	if c.Status != "" {
		rec.state.Status = c.Status
	}
	if c.ExpiresAt != nil {
		rec.state.ExpiresAt = *c.ExpiresAt
	}
	c.applyRun(rec, now)
	rec.touch(now)
	if c.Checkpoint != nil {
		rec.writeCheckpoint(*c.Checkpoint, now)
	}
}

func (c *change) applyMessages(rec *record, now time.Time) {
	rec.state.Marks = rec.state.Marks.After(len(rec.messages), c.Change)
	if c.KeepMessages != nil {
		rec.truncate(*c.KeepMessages, now)
	}
	rec.append(c.messages...)
	rec.append(c.results...)
	if c.Promote != nil {
		delete(rec.calls, c.Promote.MessageID)
	}
}

func (c *change) applyRows(b *Backend, rec *record, now time.Time) {
	for _, row := range c.calls {
		rec.addCall(row, now)
	}
	for i := range c.pending {
		c.pending[i].Begin(rec.state.ID, rec.state.CurrentRunID, now)
		rec.pending.add(c.pending[i])
	}
	rec.pending.resolve(c.Resolve)
	rec.own(c.Own)
	rec.disown(c.Disown, now)
	for i := range c.children {
		rec.putChild(c.children[i], now)
	}
	rec.inbox.consume(c.Consume)
	if c.Wake != nil && b.find(rec.state.Tenant, c.Wake.SessionID) != nil { // a deleted parent needs no wake
		b.putWake(rec.state.Tenant, *c.Wake, now)
	}
	b.tasks.add(c.Tasks, rec.state.Tenant, rec.state.ID, now)
}

func (c *change) applyRun(rec *record, now time.Time) {
	run := rec.currentRun()
	if c.StepCount != nil {
		rec.state.StepCount = *c.StepCount
		if run != nil {
			run.StepCount = *c.StepCount
		}
	}
	if run == nil {
		return
	}
	if c.Run != nil {
		if c.Run.CompletionReason != "" {
			run.CompletionReason = c.Run.CompletionReason
		}
		run.Usage = run.Usage.Add(c.Run.Usage)
	}
	if c.outcome != nil {
		run.Status, run.Outcome, run.EndedAt = c.outcome.Status, c.outcome, now
		rec.state.Finish(c.outcome) // which consumed the stop request; it is kept so that it can be returned again
	}
}

// Commit implements [session.Turns].
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	c, err := prepare(&commit.Change)
	if err != nil {
		return nil, err
	}
	rec, err := s.edit(ctx, commit.SessionID)
	if err != nil {
		return nil, err
	}
	defer s.b.release(rec)
	repeated, err := commit.Guard(&rec.state, rec.currentRun())
	if err != nil {
		return nil, err
	}
	if repeated {
		out := rec.committed()
		out.Repeated, out.Stop = true, clonePointer(rec.stop)
		return &out, nil
	}
	if err := c.check(rec); err != nil {
		return nil, err
	}
	if err := c.perform(rec); err != nil {
		return nil, err
	}
	stop := rec.stop
	c.apply(s.b, rec, s.b.now())
	rec.state.LastCommit = commit.Key
	out := rec.committed()
	out.Stop = clonePointer(stop) // also a request that the outcome has consumed
	out.Warnings = c.writes.Warnings
	return &out, nil
}
