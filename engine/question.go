package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// question is what a call has asked since answers were last gathered. The next Gather
// makes it the call's wait.
type question struct {
	session.Ask
	limit  time.Duration // how long people have to answer; 0 or less is no limit
	stored bool
}

// textAnswer is the schema of questions that give none.
var textAnswer = json.RawMessage(`{"type":"string"}`)

// newQuestion checks what a call's tool asks. The error is the call's result.
func (x *toolCall) newQuestion(tool *helix.Tool, asked *helix.Question) (*question, error) {
	switch {
	case !tool.Asks:
		return nil, toolError(session.CodeToolFailed, "%s asked a question, but is not marked Asks", x.Tool)
	case x.Asked >= session.MaxQuestions:
		return nil, toolError(session.CodeToolFailed, "%s asked more than %d questions", x.Tool, session.MaxQuestions)
	}
	q := &question{limit: waitLimit(tool)}
	switch {
	case asked.Deadline < helix.Unlimited:
		return nil, toolError(session.CodeToolFailed, "%s asked with a Deadline of %s; use helix.NoDeadline for none", x.Tool, asked.Deadline)
	case asked.Deadline != 0:
		q.limit = asked.Deadline
	}
	q.Call = session.Call{MessageID: x.MessageID, ID: x.ID, Asked: x.Asked + 1}
	p := &q.Pending
	*p = session.Pending{
		CallID: session.QuestionID(x.ID, x.Asked+1), For: x.ID, MessageID: x.MessageID, Tool: x.Tool, Input: x.part.Input,
		Kind: session.PendingQuestion, Fingerprint: session.Fingerprint(x.Tool, x.part.Input), Policy: tool.Approver != nil,
		Prompt: cleanText(asked.Prompt), Schema: asked.Schema, URL: asked.URL,
	}
	if p.Schema == nil && p.URL == "" {
		p.Schema = textAnswer
	}
	if asked.Memo != nil {
		memo, err := session.Encode(asked.Memo)
		if err != nil {
			return nil, toolError(session.CodeToolFailed, "the memo of a question of %s cannot be encoded: %v", x.Tool, err)
		}
		q.Call.Memo = memo
	}
	err := q.Check()
	if err == nil && p.Schema != nil {
		var plain bytes.Buffer
		err = json.Compact(&plain, p.Schema)
		p.Schema = plain.Bytes()
	}
	if err == nil && p.Schema != nil {
		_, err = helix.ParseSchema(p.Schema)
	}
	if err != nil {
		return nil, toolError(session.CodeToolFailed, "%s asked a question that is not valid: %v", x.Tool, err)
	}
	return q, nil
}

// ask records that the call asks, and shows the question to watchers. It may be called
// again after an error. If the reply is not in the store yet, because all its calls are
// read-only, the next Gather does both.
func (x *toolCall) ask(ctx context.Context) error {
	q := x.asked
	if q.stored {
		return nil
	}
	// Also while the process shuts down, because the tool has run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if q.Pending.CreatedAt.IsZero() {
		now, err := retry.Do(ctx, func() (time.Time, error) { return x.t.sessions.Now(ctx) })
		if err != nil {
			return err
		}
		q.Pending.Begin(x.t.key.ID, x.t.run.ID, now)
		if q.limit > 0 {
			q.Pending.Deadline = now.Add(q.limit)
		}
	}
	if !x.f.committed {
		return nil
	}
	if x.FinishWith { // what it saw of the others must not change before it is carried out again
		for _, other := range x.f.calls {
			if err := x.t.keepResult(ctx, x.e, x.f, other); err != nil {
				return err
			}
		}
	}
	if err := x.t.own(ctx, x.t.questionOwned(&q.Pending)); err != nil {
		return err
	}
	if machine.WaitsForPerson(x.Kind) {
		q.Resolve = []session.Resolution{{CallID: x.WaitID(), State: session.PendingConsumed}}
	}
	q.Reopen = x.unstarted()
	_, err := retry.Do(ctx, func() (struct{}, error) {
		return struct{}{}, x.t.sessions.Ask(ctx, x.t.key.ID, x.t.fence, q.Ask)
	})
	if err != nil {
		return err
	}
	q.stored = true
	x.t.showQuestion(&q.Pending)
	return nil
}

// unstarted lists the calls of phase 2 that the reply's commit claimed and that have
// not started: now that a call waits, another run may start them.
func (x *toolCall) unstarted() []string {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	var out []string
	for _, other := range x.f.calls {
		if other != x.call && other.FinishWith && other.Status == session.CallBegun && other.claimed &&
			other.running == nil && other.settled == nil && other.result == nil {
			out = append(out, other.ID)
		}
	}
	return out
}

// answers are the answers to the call's questions so far.
func (x *toolCall) answers(ctx context.Context) ([]helix.Answered, error) {
	if x.Kind != session.CallQuestion {
		return nil, nil
	}
	latest := x.t.pendingOf(x.call)
	entries := []session.Pending{*latest}
	if x.Asked > 1 {
		all, err := retry.Do(ctx, func() ([]session.Pending, error) { return x.t.sessions.PendingCalls(ctx, x.t.key.ID, true) })
		if err != nil {
			return nil, err
		}
		entries = all
	}
	out := make([]helix.Answered, x.Asked)
	for i := range out {
		p := findPending(entries, session.QuestionID(x.ID, i+1))
		if p == nil || p.Response == nil {
			return nil, session.ErrCorrupt.WithMessage("session %s: the answer to question %d of call %s is missing", x.t.key.ID, i+1, x.ID)
		}
		r := p.Response
		out[i] = helix.Answered{Answer: r.Answer, Declined: r.Declined, Reason: r.Reason, By: r.By}
	}
	return out, nil
}

// takeQuestions makes what calls have asked their waits. Of a reply that is not in the
// store yet it makes the commit first.
func (w *stepWaits) takeQuestions(ctx context.Context, e effect) error {
	var asking []*call
	for _, c := range w.f.calls {
		switch {
		case c.asked == nil:
		case c.settled != nil, w.f.committed && !c.asked.stored, w.f.replyCommit == nil && !w.f.committed && w.t.stops.requested() != nil:
			c.asked = nil // a stop wins; the step's commit answers the call
		default:
			asking = append(asking, c)
		}
	}
	if len(asking) == 0 {
		return nil
	}
	if !w.f.committed {
		if err := w.commitReply(ctx, e, asking); err != nil {
			return err
		}
	}
	for _, c := range asking {
		w.take(c)
	}
	return nil
}

// take makes what a call has asked, and what the store has, its wait.
func (w *stepWaits) take(c *call) {
	q := c.asked
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	c.becomesQuestion(&q.Ask)
	c.pending, c.claimed, c.waitReported, c.asked = &q.Pending, false, false, nil
	for _, id := range q.Reopen {
		if other := w.f.call(id); other != nil {
			other.Status, other.BegunAt, other.claimed = session.CallOpen, time.Time{}, false
		}
	}
}

func (c *call) becomesQuestion(ask *session.Ask) {
	c.Kind, c.Status, c.BegunAt = session.CallQuestion, session.CallOpen, time.Time{}
	c.Asked, c.Memo = ask.Call.Asked, ask.Call.Memo
}

// commitReply commits a reply whose calls are all read-only, because some of them have
// asked: otherwise a crash would lose the questions, and nobody could answer them.
// Results that exist are part of the commit.
func (w *stepWaits) commitReply(ctx context.Context, e effect, asking []*call) error {
	f := w.f
	if f.replyCommit == nil {
		change := session.Change{Messages: w.t.withPrepared(f.reply), Calls: make([]session.Call, 0, len(f.calls))}
		var owned []session.Ownership
		for _, c := range asking {
			change.Pending = append(change.Pending, c.asked.Pending)
			owned = append(owned, w.t.questionOwned(&c.asked.Pending)...)
		}
		if err := w.t.own(ctx, owned); err != nil {
			return err
		}
		w.t.hooks.onMessage(ctx, e.Key(), f.reply)
		if ctx.Err() != nil { // hooks were cut off
			return context.Cause(ctx)
		}
		change.Writes, change.Run = w.t.hooks.written, w.t.runChange("")
		w.t.emitPatches(change.Writes)
		for _, c := range f.calls {
			row := &call{Call: c.Call}
			switch {
			case c.asked != nil:
				row.becomesQuestion(&c.asked.Ask)
			case c.settled != nil && !c.refused() && c.Kind != session.CallFinish:
				row.Status, row.Result, row.Writes = session.CallSettled, &c.settled.message, c.settled.writes
			}
			change.Calls = append(change.Calls, row.Call)
		}
		f.replyCommit = w.t.newCommit(e.Key()+"/reply", change)
	}
	if _, err := w.t.commit(ctx, f.replyCommit); err != nil {
		return err
	}
	f.committed, f.announced = true, true
	for i, c := range f.calls {
		if row := &f.replyCommit.Calls[i]; row.Status == session.CallSettled {
			c.settled.stored = true
		}
	}
	for _, c := range asking {
		w.t.showQuestion(&c.asked.Pending)
	}
	return nil
}

// questionOwned says whose a question is, and whose the call is that asks: an agent on
// another server, which chooses the ids of its calls, cannot ask in its name.
func (t *turn) questionOwned(p *session.Pending) []session.Ownership {
	return []session.Ownership{{CallID: p.CallID, SessionID: t.key.ID}, {CallID: p.For, SessionID: t.key.ID}}
}

// own routes answers to calls of the turn from the sessions above to this one.
func (t *turn) own(ctx context.Context, owned []session.Ownership) error {
	roots, err := t.owners(ctx)
	if err != nil {
		return err
	}
	for _, root := range roots {
		_, err := retry.Do(ctx, func() (struct{}, error) { return struct{}{}, t.sessions.Own(ctx, root, owned) })
		if err != nil {
			t.h.log.ErrorContext(ctx, "client_tool.ownership_write_failed", t.attrs("root", root, "error", err)...)
			return err
		}
	}
	return nil
}

// showQuestion shows watchers a question, once people can answer it.
func (t *turn) showQuestion(p *session.Pending) {
	t.emit(stream.NewQuestion(p))
}

// checkAnswer returns an error that names the field if an answer does not fit its
// question.
func checkAnswer(p *session.Pending, s *session.Submission) error {
	if s.Kind != session.PendingQuestion || s.Answer == nil || p.Schema == nil {
		return nil
	}
	if err := p.CheckEffort(s.Answer); err != nil {
		return err
	}
	err := ambiguous(s.Answer)
	if err == nil {
		var schema *helix.Schema
		if schema, err = helix.ParseSchema(p.Schema); err == nil {
			err = schema.Validate(s.Answer)
		}
	}
	if err == nil {
		return nil
	}
	out := session.Invalid("answer", "does not fit the question: %v", err)
	out.Calls = []string{p.CallID}
	return out
}

// asks returns the question in an error of a tool.
func asks(err error) *helix.Question {
	if ask, ok := errors.AsType[*helix.AskError](err); ok {
		return &ask.Question
	}
	return nil
}
