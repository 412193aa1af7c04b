package redis

import (
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// change adds the operations of a checked change, in an order in which each sees
// the results of those before it. The script checks all of them before it performs
// the first.
//
// custom, if set, is the initial state of a new session.
func (w *batch) change(id, runID string, c *session.Change, custom *session.CustomState, at time.Time) (err error) {
	if c.KeepMessages != nil {
		w.do("keep", keyMessages+keyMetas+keyNames+keyUndone+keyPoints+keyCalls+keyOpen+keyOver+keyChildren+keyAwaited,
			*c.KeepMessages)
	}
	w.mark(c)
	if err := w.appendMessages(c); err != nil {
		return err
	}
	if len(c.Waits) > 0 {
		w.do("waits", keyOpen+keyOver+keyOwnership, anys(c.Waits)...)
	}
	if err := w.changeState(id, c, custom); err != nil {
		return err
	}
	for _, part := range []func() error{
		func() error { return w.addCalls(c.Calls) },
		func() error { return w.addPending(id, runID, c.Pending) },
		func() error { return w.putChildren(c.Children) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	w.resolve(c.Resolve)
	w.own(c.Own)
	if len(c.Disown) > 0 {
		w.do("disown", keyOwnership, anys(c.Disown)...)
	}
	if len(c.Consume) > 0 {
		w.do("consume", keyInbox, anys(c.Consume)...)
	}
	if c.Wake != nil {
		w.do("outbox", keyOutbox, c.Wake.SessionID, c.Wake.ChildID, c.Wake.RunID, orNow(c.Wake.At))
	}
	w.addTasks(id, c.Tasks)
	w.changeHeader(c)
	if c.Checkpoint != nil {
		w.addCheckpoint(id, *c.Checkpoint, at)
	}
	if c.Outcome != nil {
		return w.endRun(id, runID, c.Outcome)
	}
	return nil
}

func (w *batch) changeHeader(c *session.Change) {
	var fields []any
	if c.Status != "" {
		fields = append(fields, "status", string(c.Status))
	}
	if c.StepCount != nil {
		fields = append(fields, "steps", *c.StepCount, "rsteps", *c.StepCount)
	}
	if c.ExpiresAt != nil {
		fields = append(fields, "expires", micros(*c.ExpiresAt))
	}
	if len(fields) > 0 {
		w.do("set", "", fields...)
	}
	if c.Run != nil {
		args := []any{string(c.Run.CompletionReason)}
		usage := c.Run.Usage
		for _, n := range stored.Usage(&usage) {
			args = append(args, *n)
		}
		w.do("runchange", "", args...)
	}
}

func (w *batch) changeState(id string, c *session.Change, custom *session.CustomState) error {
	replace := c.State
	if replace == nil {
		replace = custom
	}
	if replace == nil {
		return w.writeState(c.Writes)
	}
	doc := replace.Clone()
	if err := doc.Apply(c.Writes); err != nil {
		return err
	}
	if c.State == nil && doc.Len() == 0 { // a new session has none yet
		return nil
	}
	return w.writeWhole(id, &doc)
}

// appendMessages adds a change's messages, then the results that it promotes:
// those that it contains, or those in the rows of calls.
func (w *batch) appendMessages(c *session.Change) error {
	args := []any{""}
	for i := range c.Messages {
		id, meta, body, err := encodeMessage(&c.Messages[i])
		if err != nil {
			return err
		}
		args = append(args, "m", id, meta, body)
	}
	if c.Promote != nil {
		args[0] = c.Promote.MessageID
		for _, result := range c.Promote.Results {
			if result.Message == nil {
				args = append(args, "p", result.CallID, "", "")
				continue
			}
			id, meta, body, err := encodeMessage(result.Message)
			if err != nil {
				return err
			}
			args = append(args, "m", id, meta, body)
		}
	}
	if len(args) == 1 && c.Promote == nil {
		return nil
	}
	letters := keyMessages + keyMetas + keyNames
	if c.Promote != nil {
		letters += keyCalls
	}
	w.do("append", letters, args...)
	return nil
}

// mark records where the markers among a change's messages will be: for each, its
// place among the messages that are appended, and how many messages before it its view
// needs, or -1 if it needs those that the marker before it does.
func (w *batch) mark(c *session.Change) {
	var args []any
	for i := range c.Messages {
		if what := c.Messages[i].Compaction(); what != nil {
			kept := what.Kept
			if what.Kind == session.CompactionTrim {
				kept = -1
			}
			args = append(args, i+1, kept)
		}
	}
	if len(args) > 0 {
		w.do("mark", "", args...)
	}
}

// changeHints adds the index entries that a change of a session makes true, such
// as deadlines, apart from those of its status.
func (s *sessions) changeHints(h *hints, id string, c *session.Change, at time.Time) {
	for i := range c.Pending {
		p := &c.Pending[i]
		if !p.Deadline.IsZero() && (p.State == "" || p.State == session.PendingWaiting) {
			h.sweep(s.b.keys, sweepDeadlines, s.tenant, id, p.CallID, p.Deadline)
		}
	}
	if c.ExpiresAt != nil && !c.ExpiresAt.IsZero() && !over(c.Status) {
		h.sweep(s.b.keys, sweepExpiries, s.tenant, id, "", *c.ExpiresAt)
	}
	if c.Outcome != nil {
		h.sweep(s.b.keys, sweepCloses, s.tenant, id, "", at)
	}
	if c.Wake != nil {
		when := c.Wake.At
		if when.IsZero() {
			when = at
		}
		h.sweep(s.b.keys, sweepWakes, s.tenant, c.Wake.SessionID, c.Wake.ChildID, when)
	}
	h.newTasks(s.b.keys, s.tenant, id, c.Tasks, at)
}

// orNow returns a time in the form that scripts take; '*' means their own.
func orNow(t time.Time) string {
	if t.IsZero() {
		return "*"
	}
	return micros(t)
}

func anys[T any](items []T) []any {
	out := make([]any, len(items))
	for i := range items {
		out[i] = items[i]
	}
	return out
}
