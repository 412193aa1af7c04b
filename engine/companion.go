package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// companionCall is what a call asks of a companion.
type companionCall struct {
	agent    string
	status   session.ChildStatus // the status in the reference
	blocking bool
	message  string
	reason   string
	spawns   bool // it adds the reference
	consults bool // it gives the companion work to do
	opened   bool // it began a turn of the companion
	queued   bool // the companion consumes the message later
}

// bindCompanions finds the companion of each call that names one. It does so before
// the reply is committed, so that a name is given once.
func (r *replyStep) bindCompanions(ctx context.Context, f *flight) error {
	var refs []session.ChildRef
	read := false
	named := map[string]bool{} // calls of one reply run at the same time; a companion runs one turn at a time
	for _, c := range f.calls {
		if c.Kind != session.CallCompanion || c.Rejected != nil {
			continue
		}
		if !read {
			var err error
			refs, err = retry.Do(ctx, func() ([]session.ChildRef, error) { return r.t.sessions.Children(ctx, r.t.key.ID) })
			if err != nil {
				return err
			}
			read = true
		}
		err := r.t.tools.bindCompanion(c, refs)
		if err == nil && c.Child != "" {
			if named[c.Child] {
				err = toolError(session.CodeToolNotRun, "%s was called in the same reply; call it again when you have its answer", c.Name)
			}
			named[c.Child] = true
		}
		if err != nil {
			c.Kind, c.Rejected, c.companion, c.Child = session.CallServer, err, nil, ""
			continue
		}
		if c.companion != nil && c.companion.spawns {
			refs = append(refs, c.ref(r.t.run.ID))
		}
	}
	return nil
}

// openCompanion opens a turn of a companion, or leaves it a message, if the call
// gives it work to do.
func (a *agentCall) openCompanion(ctx context.Context) (*Opened, error) {
	if a.companion == nil || !a.companion.consults {
		return nil, nil
	}
	state, err := a.t.sessions.Load(ctx, a.Child)
	if errors.Is(err, session.ErrNotFound) {
		return a.begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := childOf(a.t.key.ID, state); err != nil {
		return nil, err
	}
	_, err = a.t.sessions.RunByRequest(ctx, a.Child, a.ID)
	if err == nil { // the call began before
		a.companion.opened = true
		if a.companion.blocking {
			return a.resume(ctx, state)
		}
		return nil, nil
	}
	if !errors.Is(err, session.ErrNotFound) {
		return nil, err
	}
	run, err := a.t.sessions.CurrentRun(ctx, a.Child)
	switch {
	case errors.Is(err, session.ErrNotFound): // it was never started
	case err != nil:
		return nil, err
	case state.Status == session.Failed:
		// A failed companion starts fresh: nothing of it could be continued.
		if _, err := a.t.sessions.Delete(ctx, a.Child); err != nil && !errors.Is(err, session.ErrNotFound) {
			return nil, err
		}
	case run.Status == session.RunRunning && a.aborting(ctx, run):
		a.child.fault = toolError(session.CodeSubAgent, "%s is ending; try again in a moment", a.Name)
		return nil, nil
	case a.companion.spawns && (run.Status == session.RunRunning || run.Status.Suspended()) && state.Status != session.Interrupted:
		a.child.fault = toolError(session.CodeSubAgent, "%s is at work; send it a message with %s", a.Name, helix.SendMessageTool)
		return nil, nil
	default:
		to, fresh, err := a.rewindTarget(ctx, run)
		switch {
		case err != nil:
			return nil, err
		case (to != nil || fresh) && run.Status == session.RunRunning: // it was stopped when its caller was rewound
			a.child.fault = toolError(session.CodeSubAgent, "%s is ending; try again in a moment", a.Name)
			return nil, nil
		case to != nil:
			return a.beginFrom(ctx, to)
		case fresh:
			if _, err := a.t.sessions.Delete(ctx, a.Child); err != nil && !errors.Is(err, session.ErrNotFound) {
				return nil, err
			}
		case !a.companion.spawns && !a.companion.blocking:
			return a.enqueue(ctx)
		}
	}
	return a.begin(ctx)
}

// aborting reports whether a run is about to be aborted: it consumes no more
// messages.
func (a *agentCall) aborting(ctx context.Context, run *session.Run) bool {
	stop, err := a.t.sessions.StopRequest(ctx, run.SessionID, run.ID)
	return err == nil && stop != nil && stop.Kind == session.StopAbort
}

// beginFrom begins a turn of the companion at one of its checkpoints.
func (a *agentCall) beginFrom(ctx context.Context, from *session.Checkpoint) (*Opened, error) {
	agent, err := a.permittedAgent(ctx)
	if agent == nil || err != nil {
		return nil, err
	}
	message := session.UserText(a.companion.message)
	opened, err := a.openTurn(ctx, !a.companion.blocking, OpenRequest{
		Kind: session.RunResume, Agent: agent, RequestID: a.ID,
		Resume: helix.ResumeOptions{Checkpoint: from.ID, Message: &message},
	})
	a.companion.opened = opened != nil
	return opened, err
}

// begin begins a turn of the companion.
func (a *agentCall) begin(ctx context.Context) (*Opened, error) {
	agent, err := a.permittedAgent(ctx)
	if agent == nil || err != nil {
		return nil, err
	}
	opened, err := a.startTurn(ctx, agent, session.UserText(a.companion.message), !a.companion.blocking)
	a.companion.opened = opened != nil
	return opened, err
}

// permittedAgent returns the agent of a companion that is to get work, or nil if the
// call must not be made.
func (a *agentCall) permittedAgent(ctx context.Context) (*helix.Agent, error) {
	if a.t.stops.requested() != nil || !a.permitted(ctx) {
		return nil, nil
	}
	agent, err := a.callee(ctx, a.companion.agent, a.Child)
	if err == nil && !a.companion.spawns {
		err = a.mark(ctx, session.ChildRunning)
	}
	if err != nil {
		return nil, err
	}
	return agent, nil
}

func (a *agentCall) mark(ctx context.Context, status session.ChildStatus) error {
	_, err := a.t.sessions.UpdateChild(ctx, a.t.key.ID, a.Child, func(ref *session.ChildRef) error {
		ref.Status = status
		return nil
	})
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	return err
}

// unmark corrects the reference to a companion that works by itself, if the call
// could not be made: the reply's commit, or the attempt, marked it as running.
func (a *agentCall) unmark(ctx context.Context) error {
	if a.companion == nil || !a.companion.consults || a.companion.blocking || a.companion.opened || a.companion.queued {
		return nil
	}
	run, err := childRun(ctx, a.t.sessions, a.t.key.ID, a.Child)
	if err != nil || (run != nil && (run.Status == session.RunRunning || run.Status.Suspended())) {
		return err // it works on an earlier message
	}
	_, err = a.t.sessions.UpdateChild(ctx, a.t.key.ID, a.Child, func(ref *session.ChildRef) error {
		if ref.Status == session.ChildRunning {
			if ref.Status = session.ChildFailed; run != nil && run.Status == session.RunCompleted {
				ref.Status = session.ChildCompleted
			}
		}
		return nil
	})
	return absent(err)
}

// enqueue leaves a message in a companion's inbox. A companion that runs consumes it
// in its next step; for any other, a turn is opened. The entry's id is the call's, so
// that a repeated message is consumed once.
func (a *agentCall) enqueue(ctx context.Context) (*Opened, error) {
	agent, err := a.permittedAgent(ctx)
	if agent == nil || err != nil {
		return nil, err
	}
	err = a.t.sessions.Send(ctx, a.Child, session.InboxEntry{
		ID: a.ID, From: a.t.key.ID, Kind: inboxMessage, Body: encoded(a.companion.message),
	})
	if err != nil {
		return nil, err
	}
	a.companion.queued = true
	run, err := a.t.sessions.CurrentRun(ctx, a.Child)
	if err != nil || !run.Status.Ended() || run.Status.Suspended() {
		return nil, err
	}
	opened, err := a.openTurn(ctx, true, OpenRequest{Kind: session.RunExecute, Agent: agent, RequestID: a.ID, Inbox: true})
	if errors.Is(err, errNothingToDo) || errors.Is(err, session.ErrAlreadyRunning) || errors.Is(err, session.ErrStale) {
		return nil, nil // another process began it
	}
	a.companion.queued = opened == nil
	return opened, err
}

// companionResult is the result of a call of a companion tool. It is nil if the call
// has to wait.
func (a *agentCall) companionResult(ctx context.Context) (*settled, error) {
	if a.Tool == helix.ListChildrenTool {
		return a.listChildren(ctx)
	}
	cc := a.companion
	switch {
	case a.Tool == helix.TerminateChildTool:
		return a.terminate(ctx)
	case cc.consults && !cc.blocking && a.t.stops.requested() != nil && !cc.queued && !cc.opened:
		if err := a.unmark(ctx); err != nil {
			return nil, err
		}
		return a.conclude(ctx, nil, stoppedCall(a.t.stops.requested())), nil
	case cc.consults && !cc.blocking:
		status := "running"
		if cc.queued {
			status = "queued"
		}
		return a.conclude(ctx, encoded(childStatus{Name: a.Name, Agent: cc.agent, Status: status}), nil), nil
	}
	run, err := a.childRun(ctx)
	if err == nil && !cc.consults {
		run, err = a.validRun(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	switch a.Tool {
	case helix.GetChildStatusTool:
		return a.conclude(ctx, encoded(statusOf(a.Name, cc.agent, cc.status, run)), nil), nil
	case helix.WaitForResultTool:
		if cc.status == session.ChildTerminated {
			return a.conclude(ctx, nil, toolError(session.CodeSubAgent, "%s was terminated", a.Name)), nil
		}
		if run != nil && !cc.blocking && (!run.Status.Ended() || run.Status.Suspended()) && a.t.stops.requested() == nil {
			return nil, nil
		}
	}
	return a.childResult(ctx, run, func(o *session.Outcome) json.RawMessage {
		return encoded(childStatus{Name: a.Name, Agent: cc.agent, Status: string(session.RunCompleted), Output: resultOf(o)})
	})
}

// workRun returns the run that the call began, or latest, the latest run of its companion, if
// that continues it. It is nil if the call began none.
func (a *agentCall) workRun(ctx context.Context, latest *session.Run) (*session.Run, error) {
	first, err := a.firstRun(ctx, latest)
	switch {
	case err != nil:
		return nil, err
	case first.RequestID == a.ID:
		return latest, nil
	}
	began, err := retry.Do(ctx, func() (*session.Run, error) { return a.t.sessions.RunByRequest(ctx, a.Child, a.ID) })
	return began, absent(err)
}

// firstRun returns the run that began what a run continues: run itself, or an earlier one. Runs
// that continue have no request of their own.
func (a *agentCall) firstRun(ctx context.Context, run *session.Run) (*session.Run, error) {
	for range maxDepth {
		if run.RequestID != "" || run.PreviousRunID == "" {
			break
		}
		before, err := a.t.sessions.Run(ctx, run.SessionID, run.PreviousRunID)
		if err != nil {
			return nil, err
		}
		run = before
	}
	return run, nil
}

// childStatus is what a model sees of a companion.
type childStatus struct {
	Name   string          `json:"name"`
	Agent  string          `json:"agent"`
	Status string          `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// statusOf is the status of a companion: that of its latest run, unless its reference
// says more.
func statusOf(name, agent string, ref session.ChildStatus, run *session.Run) childStatus {
	s := childStatus{Name: name, Agent: agent, Status: string(ref)}
	switch {
	case ref == session.ChildTerminated || ref == session.ChildSuperseded:
		return s
	case run == nil:
		s.Status = "not_started"
	case run.Status.Suspended() && (ref == session.ChildFailed || ref == session.ChildCompleted): // its caller abandoned the wait
		s.Status = string(session.RunInterrupted)
	case run.Status.Suspended():
		s.Status = string(session.ChildWaiting)
	default:
		s.Status = string(run.Status)
	}
	if run != nil && run.Outcome != nil {
		switch run.Status {
		case session.RunCompleted:
			s.Output = resultOf(run.Outcome)
		case session.RunFailed:
			if run.Outcome.Error != nil {
				s.Error = run.Outcome.Error.Message
			}
		}
	}
	return s
}

func (a *agentCall) listChildren(ctx context.Context) (*settled, error) {
	refs, err := a.t.sessions.Children(ctx, a.t.key.ID)
	if err != nil {
		return nil, err
	}
	list := []childStatus{}
	for i := range refs {
		ref := &refs[i]
		if ref.Mode != session.ChildPersistent || ref.Status == session.ChildSuperseded {
			continue
		}
		run, err := childRun(ctx, a.t.sessions, a.t.key.ID, ref.SessionID)
		if err == nil {
			run, err = a.validRun(ctx, run)
		}
		if err != nil {
			return nil, err
		}
		status := statusOf(ref.Name, ref.Agent, ref.Status, run)
		status.Output = nil // get_child_status returns the output
		list = append(list, status)
	}
	return a.conclude(ctx, encoded(list), nil), nil
}

// terminate ends a companion for good.
func (a *agentCall) terminate(ctx context.Context) (*settled, error) {
	reason := "the companion was terminated"
	if a.companion.reason != "" {
		reason = a.companion.reason
	}
	run, err := a.childRun(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.mark(ctx, session.ChildTerminated); err != nil { // first, so that its end is not announced to the model
		return nil, err
	}
	if err := a.t.h.tree(a.t.sessions).abandon(ctx, a.t.key.ID, a.Child, session.ErrCancelled.WithMessage("%s", reason), false); err != nil {
		return nil, err
	}
	if err := a.awaitEnd(ctx, run); err != nil {
		return nil, err
	}
	if run == nil {
		return a.terminatedResult(ctx), nil
	}
	// A companion that has ended must not be continued either.
	_, err = a.t.sessions.SetStatus(ctx, a.Child, session.StatusChange{
		Expect: []session.Status{session.Completed, session.Interrupted}, To: session.Failed,
		Error: session.ErrCancelled.WithMessage("%s", reason),
	})
	if err != nil && !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrAlreadyRunning) {
		return nil, err
	}
	return a.terminatedResult(ctx), nil
}

func (a *agentCall) terminatedResult(ctx context.Context) *settled {
	status := childStatus{Name: a.Name, Agent: a.companion.agent, Status: string(session.ChildTerminated)}
	return a.conclude(ctx, encoded(status), nil)
}

// terminated reports whether the turn is that of a companion which its caller
// terminated. The caller needs no notice of its end.
func (t *turn) terminated(ctx context.Context) bool {
	if stop := t.stops.requested(); stop == nil || stop.Kind != session.StopAbort {
		return false
	}
	refs, err := t.sessions.Children(ctx, t.state.ParentID)
	if err != nil {
		return false
	}
	ref := findRef(refs, func(r *session.ChildRef) bool { return r.SessionID == t.key.ID })
	return ref != nil && ref.Status == session.ChildTerminated
}

// awaitEnd waits until a terminated companion has ended, if this process runs it, so
// that its name can be used again at once.
func (a *agentCall) awaitEnd(ctx context.Context, run *session.Run) error {
	if run == nil {
		return nil
	}
	if child, here := a.t.h.held(run.ID); here {
		select {
		case <-child.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return a.t.sessions.DeleteWake(ctx, session.Wake{Tenant: a.t.key.Tenant, SessionID: a.t.key.ID, ChildID: a.Child, RunID: run.ID})
}

// encoded is a value of this package's types as JSON; they always encode.
func encoded(v any) json.RawMessage {
	raw, _ := session.Encode(v)
	return raw
}
