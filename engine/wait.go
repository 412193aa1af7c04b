package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
	"github.com/helixagents/helix/usage"
)

// stepWaits is the calls of a step that wait for people and other agents. Effects that
// run alone use it; calls of a wave use only readAnswers and answer.
type stepWaits struct {
	t *turn
	f *flight
}

func (t *turn) waits(f *flight) *stepWaits { return &stepWaits{t: t, f: f} }

// entries makes the entries of the calls that wait for people, and registers them
// with the sessions that route answers, before anybody can see the calls.
func (w *stepWaits) entries(ctx context.Context) ([]session.Pending, error) {
	var pending []session.Pending
	var owned []session.Ownership
	var now time.Time
	for _, c := range w.f.calls {
		if !machine.WaitsForPerson(c.Kind) {
			continue
		}
		if now.IsZero() {
			var err error
			if now, err = retry.Do(ctx, func() (time.Time, error) { return w.t.sessions.Now(ctx) }); err != nil {
				return nil, err
			}
		}
		p := w.t.tools.pending(c, now)
		p.Begin(w.t.key.ID, w.t.run.ID, now)
		c.pending = &p
		pending = append(pending, p)
		owned = append(owned, session.Ownership{CallID: c.ID, SessionID: w.t.key.ID})
	}
	if len(owned) == 0 {
		return nil, nil
	}
	return pending, w.t.own(ctx, owned)
}

// owners lists the other sessions at which somebody may answer calls of the turn.
func (t *turn) owners(ctx context.Context) ([]string, error) {
	if t.state.ParentID == "" {
		return nil, nil
	}
	t.mu.Lock()
	roots := t.roots
	t.mu.Unlock()
	if roots != nil {
		return roots, nil
	}
	l, err := lineageOf(ctx, t.sessions, &t.state)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roots = l.others()
	return t.roots, nil
}

// announce shows watchers which calls of a reply wait for people. It comes after the
// commit, because they may be answered at once.
func (w *stepWaits) announce() {
	if w.f.announced || !w.f.committed {
		return
	}
	w.f.announced = true
	for _, c := range w.f.calls {
		if c.settled != nil || c.pending == nil {
			continue
		}
		switch c.Kind {
		case session.CallClient:
			w.t.emitStart(c)
			continue
		case session.CallQuestion:
			if c.pending.State == session.PendingWaiting {
				w.t.showQuestion(c.pending)
			}
			continue
		}
		wait := struct {
			Deadline    time.Time `json:"deadline,omitzero"`
			Fingerprint string    `json:"fingerprint"`
		}{c.pending.Deadline, c.pending.Fingerprint}
		data, _ := session.Encode(wait) // always encodes
		w.t.emit(stream.Chunk{
			Kind: stream.ApprovalRequest, CallID: c.ID, Tool: c.Tool, Arguments: c.part.Input,
			ApprovalID: c.pending.ApprovalID, Data: data,
		})
	}
}

// readAnswers reads the entries of the step's waits from the store.
func (w *stepWaits) readAnswers(ctx context.Context) error {
	for _, all := range []bool{false, true} {
		found, err := retry.Do(ctx, func() ([]session.Pending, error) { return w.t.sessions.PendingCalls(ctx, w.t.key.ID, all) })
		if err != nil {
			return err
		}
		if w.match(found) { // else a wait has ended
			return nil
		}
	}
	return session.ErrCorrupt.WithMessage("session %s: a call of message %s waits but has no pending entry", w.t.key.ID, w.f.reply.ID)
}

// match assigns entries to the step's unanswered calls. It reports whether there is
// one for each.
func (w *stepWaits) match(found []session.Pending) bool {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	for _, c := range w.f.calls {
		if !machine.WaitsForPerson(c.Kind) || c.settled != nil {
			continue
		}
		at := slices.IndexFunc(found, func(p session.Pending) bool { return p.CallID == c.WaitID() })
		if at < 0 {
			return false
		}
		c.pending = &found[at]
	}
	return true
}

// answer is the result that the end of a wait gives a call. It is nil if nobody has
// answered, or if the answer lets the call run and it is yet to be carried out.
func (w *stepWaits) answer(ctx context.Context, c *call) *settled {
	p := w.t.pendingOf(c)
	if p.State == session.PendingAnswered && p.Response != nil {
		w.record(ctx, c, p, p.SubmittedAt, true)
	}
	v := verdictOf(c, p)
	switch {
	case !v.settles:
		return nil
	case v.failure != nil:
		return w.t.failed(c, v.failure, v.took)
	}
	return &settled{message: w.t.stamp(session.ToolResult(c.part, v.output)), took: v.took}
}

// result is the result that the end of a wait gives a call, as it is to be stored. It is nil
// where answer is.
func (w *stepWaits) result(ctx context.Context, c *call) (*settled, error) {
	result := w.t.filter(ctx, c, w.answer(ctx, c))
	if result == nil {
		return nil, nil
	}
	return result, w.t.evict(ctx, c, result)
}

// verdict is what the entry of a wait means for its call.
type verdict struct {
	settles bool // the call has a result: output or failure
	output  json.RawMessage
	failure *session.Error
	took    time.Duration
}

// verdictOf decides what the entry of a wait means for its call.
func verdictOf(c *call, p *session.Pending) verdict {
	answer := p.Response
	switch {
	case p.State == session.PendingTimedOut:
		return verdict{settles: true, failure: timeout(p), took: p.Deadline.Sub(p.CreatedAt)}
	case p.State != session.PendingAnswered || answer == nil:
		return verdict{}
	case answer.Kind == session.PendingApproval && !answer.Approved:
		return verdict{settles: true, failure: notApproved(answer.Reason)}
	case answer.Kind == session.PendingApproval && p.Fingerprint != session.Fingerprint(c.Tool, c.part.Input):
		return verdict{settles: true, failure: toolError(session.CodeToolDenied, "the approved input differs from the call's input")}
	case answer.Kind == session.PendingApproval || answer.Kind == session.PendingQuestion:
		return verdict{}
	case answer.Error != "" && c.Kind == session.CallApproval:
		return verdict{settles: true, failure: toolError(session.CodeToolNotRun, "%s", answer.Error)}
	case answer.Error != "":
		return verdict{settles: true, failure: toolError(session.CodeToolFailed, "%s", answer.Error)}
	}
	v := verdict{settles: true, output: answer.Result, took: p.SubmittedAt.Sub(p.CreatedAt)}
	if v.output == nil {
		v.output = json.RawMessage("null")
	}
	return v
}

// pendingOf returns the entry of a call's wait. Another call of the wave may be
// reading all entries again.
func (t *turn) pendingOf(c *call) *session.Pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.pending
}

func notApproved(reason string) *session.Error {
	if reason == "" {
		return toolError(session.CodeToolDenied, "the call was not approved by the user")
	}
	return toolError(session.CodeToolDenied, "the call was not approved by the user: %s", reason)
}

// record reports once how long a call waited for a person.
func (w *stepWaits) record(ctx context.Context, c *call, p *session.Pending, until time.Time, answered bool) {
	if c.waitReported {
		return
	}
	c.waitReported = true
	w.t.reportWait(ctx, p, until, answered)
}

func (t *turn) reportWait(ctx context.Context, p *session.Pending, until time.Time, answered bool) {
	if !answered {
		t.h.log.WarnContext(ctx, "client_tool.timeout", t.attrs("tool", p.Tool, "call", p.CallID, "deadline", p.Deadline)...)
	}
	t.usage.record(ctx, t.current(), usage.Entry{
		ID: "wait/" + p.CallID, Kind: usage.ClientToolWait, Source: p.Tool,
		Duration: until.Sub(p.CreatedAt), Amount: float64(until.Sub(p.CreatedAt).Milliseconds()), Success: answered,
	})
}

// gatherTries bounds how often a step is examined again because an answer arrived
// while it was about to suspend.
const gatherTries = 100

// gather settles the calls that people and other agents have answered. It returns the
// calls that can be carried out now. If there are none and answers are missing, it
// suspends the turn.
func (t *turn) gather(ctx context.Context, e effect) (machine.Result, error) {
	if t.ended != nil || t.final != nil {
		return t.sendFinal(ctx)
	}
	if e.Step < t.current() || t.flight == nil {
		return machine.Result{}, nil // an earlier effect, delivered again
	}
	f := t.flight
	if e.Round <= f.round { // delivered again: what followed it may be in progress
		return f.gathered, nil
	}
	t.announceStart(ctx)
	res, err := t.waits(f).gather(ctx, e)
	if err == nil {
		f.round, f.gathered = e.Round, res
	}
	return res, err
}

// gather examines the answers until it can decide what follows.
func (w *stepWaits) gather(ctx context.Context, e effect) (machine.Result, error) {
	if err := w.takeQuestions(ctx, e); err != nil {
		return machine.Result{}, err
	}
	for range gatherTries {
		if w.t.stops.requested() != nil || !w.f.waiting() {
			return machine.Result{}, nil // the step's commit answers the calls that are left
		}
		ready, waiting, err := w.classify(ctx)
		switch {
		case err != nil:
			return machine.Result{}, err
		case len(ready) > 0:
			return machine.Result{Next: machine.NextTools, Calls: ready}, nil
		case len(waiting) == 0:
			return machine.Result{}, nil
		}
		res, err := w.suspend(ctx, e, waiting)
		if !errors.Is(err, session.ErrAnswered) {
			return res, err
		}
		w.f.tasksRound = 0 // it suspends with another outcome, if at all
		w.reconsider()
		w.t.discardResults(w.f, "answered")
	}
	return machine.Result{}, session.ErrUnavailable.WithMessage("could not commit: answers arrived during every attempt")
}

// classify settles the calls that have been answered. It returns which of the others
// can be carried out and which still wait.
func (w *stepWaits) classify(ctx context.Context) (ready []machine.PlannedCall, waiting []*call, err error) {
	if slices.ContainsFunc(w.f.calls, func(c *call) bool { return c.settled == nil && machine.WaitsForPerson(c.Kind) }) {
		if err := w.readAnswers(ctx); err != nil {
			return nil, nil, err
		}
	}
	now, err := retry.Do(ctx, func() (time.Time, error) { return w.t.sessions.Now(ctx) })
	if err != nil {
		return nil, nil, err
	}
	for _, c := range w.f.calls {
		if c.settled != nil || !machine.Waits(c.Kind) {
			continue
		}
		if machine.WaitsForAgent(c.Kind) {
			isReady, err := w.t.agentCall(effect{}, c).ready(ctx, now)
			if err != nil {
				return nil, nil, err
			}
			if isReady {
				ready = append(ready, machine.PlannedCall{ID: c.ID, Kind: c.Kind, Ready: true})
			} else {
				waiting = append(waiting, c)
			}
			continue
		}
		result, err := w.result(ctx, c)
		switch {
		case err != nil:
			return nil, nil, err
		case result != nil:
		case c.releasedBy(c.pending):
			ready = append(ready, machine.PlannedCall{ID: c.ID, Kind: c.Kind, Ready: true})
			continue
		case due(c.pending, now):
			result = w.expire(ctx, c)
		default:
			waiting = append(waiting, c)
			continue
		}
		w.t.show(c, result)
		if c.Serial && w.f.holdsUp(c) { // those behind it need not wait any more
			ready = append(ready, machine.PlannedCall{ID: c.ID, Kind: c.Kind, Ready: true})
		}
	}
	return ready, waiting, nil
}

// keepAnswers settles the answered calls of a step that is about to be abandoned. A
// call that was approved, or whose question was answered, is not carried out any more.
func (w *stepWaits) keepAnswers(ctx context.Context) error {
	if !w.f.committed || !slices.ContainsFunc(w.f.calls, func(c *call) bool { return c.settled == nil && machine.WaitsForPerson(c.Kind) }) {
		return nil
	}
	if err := w.readAnswers(ctx); err != nil {
		return err
	}
	for _, c := range w.f.calls {
		if c.settled != nil || !machine.WaitsForPerson(c.Kind) {
			continue
		}
		result, err := w.result(ctx, c)
		if err != nil {
			return err
		}
		if result != nil {
			w.t.show(c, result)
		}
	}
	return nil
}

// due reports whether the deadline of a wait has passed without an answer.
func due(p *session.Pending, now time.Time) bool {
	return p.State == session.PendingWaiting && !p.Deadline.IsZero() && !now.Before(p.Deadline)
}

func (w *stepWaits) expire(ctx context.Context, c *call) *settled {
	c.expired = true
	w.record(ctx, c, c.pending, c.pending.Deadline, false)
	return w.t.failed(c, timeout(c.pending), c.pending.Deadline.Sub(c.pending.CreatedAt))
}

func timeout(p *session.Pending) *session.Error {
	return toolError(session.CodeClientTimeout, "nobody answered %s within %s", p.Tool, p.Deadline.Sub(p.CreatedAt))
}

// suspend ends the run. Finished results are kept in their rows, and another run
// resumes the step when answers have arrived. The store refuses the commit if an
// answer has arrived meanwhile.
func (w *stepWaits) suspend(ctx context.Context, e effect, waiting []*call) (machine.Result, error) {
	kept := false
	for _, c := range w.f.calls {
		if c.settled == nil {
			continue
		}
		w.t.showAgain(c)
		kept = kept || !c.refused()
		if err := w.t.keepResult(ctx, e, w.f, c); err != nil {
			return machine.Result{}, err
		}
	}
	outcome := &session.Outcome{SuspendedStep: w.f.reply.ID, Reply: w.f.reply.Content()}
	change := session.Change{Status: session.Active, Outcome: outcome, Writes: w.t.hooks.written}
	own := false
	for _, c := range waiting {
		if c.pending != nil {
			own = true
			outcome.Pending = append(outcome.Pending, *c.pending)
			change.Waits = append(change.Waits, c.pending.CallID)
			continue
		}
		change.Writes = session.Compose(change.Writes, c.writes) // of hooks, which are not called again
		ref := c.ref(w.t.run.ID)
		ref.Status, ref.Awaited = session.ChildWaiting, true
		outcome.Children = append(outcome.Children, ref)
		outcome.Pending = append(outcome.Pending, c.child.pending...)
		if ref.Mode == session.ChildPersistent && !ref.Blocking {
			continue // an answer resumes the companion, not this session
		}
		for i := range c.child.pending {
			change.Waits = append(change.Waits, c.child.pending[i].CallID)
		}
	}
	change.Children = append(w.t.results(w.f).refs(), outcome.Children...)
	for _, c := range w.f.calls {
		switch {
		case c.expired: // final, unless somebody answers first
			change.Waits = append(change.Waits, c.pending.CallID)
			change.Resolve = append(change.Resolve, session.Resolution{CallID: c.pending.CallID, State: session.PendingTimedOut})
		case c.settled != nil && c.pending != nil && c.pending.State == session.PendingAnswered: // its row has the result
			change.Resolve = append(change.Resolve, session.Resolution{CallID: c.pending.CallID, State: session.PendingConsumed})
		}
	}
	outcome.Status = session.SuspensionStatus(own, len(outcome.Children) > 0, kept)
	change.Run = w.t.runChange("")
	if w.f.tasksRound != e.Round {
		w.t.finishTasks(ctx, e.Key(), &change)
		if err := w.t.finishCutOff(ctx); err != nil {
			return machine.Result{}, err
		}
		w.f.tasks, w.f.tasksRound = change.Tasks, e.Round
	}
	change.Tasks = w.f.tasks
	w.t.emitPatches(change.Writes)
	if _, err := w.t.commit(ctx, w.t.newCommit(e.Key(), change)); err != nil {
		return machine.Result{}, err
	}
	w.t.h.log.InfoContext(ctx, "client_tool.suspended", w.t.attrs("status", outcome.Status, "waits", change.Waits)...)
	return machine.Result{Next: machine.NextClose}, nil
}

// keepResult writes the result of a settled call to its row, unless that was done: the
// commit that adds it to the transcript may be another run's.
func (t *turn) keepResult(ctx context.Context, e effect, f *flight, c *call) error {
	if c.settled == nil || c.settled.stored || c.refused() || c.Kind == session.CallFinish || c.timedOut() {
		return nil
	}
	return t.toolCall(e, f, c).persist(ctx, c.settled)
}

// reconsider clears the results of calls that nobody answered in time, or before the
// step was abandoned: somebody did answer, just before the commit.
func (w *stepWaits) reconsider() {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	for _, c := range w.f.calls {
		if c.expired || c.abandoned {
			c.expired, c.abandoned, c.waitReported, c.settled, c.result = false, false, false, nil, nil
		}
	}
}
