package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

// gate refuses a start that the session's state does not allow.
func (o *opening) gate(ctx context.Context) error {
	if err := gateCaller(o.req, o.state); err != nil {
		return err
	}
	// The commit that completes or fails a session ends its run, which therefore need
	// not be read.
	if o.state.CurrentRunID != "" && o.state.Status != session.Completed && o.state.Status != session.Failed {
		run, err := o.sessions.Run(ctx, o.req.SessionID, o.state.CurrentRunID)
		if err != nil {
			return err
		}
		switch {
		case run.Status == session.RunRunning && o.state.Status == session.Paused:
			return session.ErrAlreadyRunning.WithMessage("the session is paused while run %s is unfinished; resume it without a message or checkpoint first", run.ID).WithSaw(o.state.Saw())
		case run.Status == session.RunRunning:
			return session.ErrAlreadyRunning.WithMessage("run %s is running", run.ID).WithSaw(o.state.Saw())
		case o.state.SuspendedStep != "" && o.state.Status == session.Active && !run.Status.Suspended():
			// The session was read while that run continued the step.
			return session.ErrStale.WithMessage("run %s has just ended", run.ID).WithSaw(o.state.Saw())
		}
		if to := settledStatus(o.state, run); to != "" {
			return o.h.closer(o.sessions).restoreStatus(ctx, o.state, run, to)
		}
	}
	if err := o.gateWaits(ctx); err != nil {
		return err
	}
	switch o.req.Kind {
	case session.RunExecute:
		if o.state.Status == session.Paused {
			return session.ErrPaused.WithMessage("the session is paused; resume it first")
		}
	case session.RunRetry:
		switch {
		case o.state.Status != session.Failed:
			return session.ErrNotResumable.WithMessage("only a failed session can be retried; this one is %s", o.state.Status)
		case o.state.Error != nil && errors.Is(o.state.Error, session.ErrCancelled):
			return session.ErrNotResumable.WithMessage("an aborted run cannot be retried; send a new message instead")
		}
	case session.RunResume:
		if o.req.Stop != nil && (o.state.SuspendedStep == "" || (o.state.Status != session.Active && o.state.Status != session.Paused)) {
			return session.ErrNotResumable.WithMessage("the session no longer waits") // a run that does something else must not be stopped
		}
		if o.req.Stop == nil && o.req.Resume.Checkpoint == "" && (o.state.Status == session.Completed || o.state.Status == session.Failed) {
			return session.ErrNotResumable.WithMessage("the session is %s; %s", o.state.Status,
				map[session.Status]string{
					session.Completed: "execute a new message, or resume from a checkpoint",
					session.Failed:    "retry it, execute a new message, or resume from a checkpoint",
				}[o.state.Status])
		}
	}
	return nil
}

// gateCaller refuses a turn of a session that belongs to another user, caller or
// agent.
func gateCaller(req *OpenRequest, state *session.State) error {
	if user := req.Input.User.ID; user != "" && state.UserID != "" && user != state.UserID {
		return session.ErrNotFound.WithMessage("user %s has no such session", user) // another user's session does not exist
	}
	if c := req.caller; c != nil && state.ParentID != c.state.ID {
		return session.ErrExists.WithMessage("session %s was not made by %s", state.ID, c.state.ID)
	}
	if req.caller == nil && state.RootID != "" {
		return session.Invalid("session id", "%q is the session of a child; use its root, %q", state.ID, state.RootID)
	}
	if state.Agent != req.Agent.Name {
		return session.Invalid("agent", "%q is not the session's agent, which is %q", req.Agent.Name, state.Agent)
	}
	return nil
}

// gateWaits refuses a turn of a session that waits, unless the session can make
// progress or the request abandons the waits.
func (o *opening) gateWaits(ctx context.Context) error {
	waits := o.state.SuspendedStep != "" && o.state.Status == session.Active // a paused session is resumed, and suspends again
	if !waits || o.req.Stop != nil || o.req.Input.AbandonPending || o.req.Resume.Checkpoint != "" {
		return nil
	}
	now, err := o.sessions.Now(ctx)
	if err != nil {
		return err
	}
	tree := waitingTree{}
	if err := o.h.tree(o.sessions).addWaits(ctx, o.state, now, &tree); err != nil {
		return err
	}
	switch {
	case o.req.Kind == session.RunResume && o.req.Resume.Message != nil:
		return session.Invalid("Message", "cannot be added while calls wait for their results; resume without, or execute it with AbandonPending")
	case o.req.Kind == session.RunResume && tree.ready:
		return nil
	case o.req.Kind == session.RunExecute && overdue(o.state, now):
		return nil
	case o.req.Kind == session.RunResume && o.req.caller == nil:
		if moved, err := o.h.remoteLink(o.sessions).poll(ctx, o.state); err != nil || moved {
			return err
		}
	}
	text := fmt.Sprintf("the session is waiting for %d answers", len(tree.pending))
	if len(tree.pending) == 1 {
		text = "the session is waiting for 1 answer"
	}
	if tree.ready {
		text += ", and has answers that no run has used: resume it"
	}
	out := session.ErrAwaitingInput.WithMessage("%s", text)
	for i := range tree.pending {
		out.Calls = append(out.Calls, tree.pending[i].CallID)
	}
	return out
}

// overdue reports whether everything that a session waits for has passed its
// deadline.
func overdue(state *session.State, now time.Time) bool {
	for i := range state.Pending {
		if !due(&state.Pending[i], now) {
			return false
		}
	}
	return len(state.AwaitingChildren) == 0
}

// unpause resumes a paused session that needs no new run, and returns its run: one in
// progress, which continues, or one that completed or failed. It returns nil for any
// other session.
func (o *opening) unpause(ctx context.Context) (*session.Run, error) {
	if o.state.CurrentRunID == "" {
		return nil, nil
	}
	if err := gateCaller(o.req, o.state); err != nil {
		return nil, err
	}
	run, err := o.sessions.Run(ctx, o.state.ID, o.state.CurrentRunID)
	if err != nil {
		return nil, err
	}
	to := run.Status.SessionStatus()
	if run.Status != session.RunRunning && to != session.Completed && to != session.Failed {
		return nil, nil
	}
	steps := []session.Status{session.Paused, to}
	if to == session.Completed { // no commit may change paused to completed directly
		steps = []session.Status{session.Paused, session.Active, to}
	}
	version := o.state.Version
	for i := range steps[1:] {
		swap, err := o.sessions.SetStatus(ctx, o.state.ID, session.StatusChange{
			Expect: steps[i : i+1], ExpectVersion: version, To: steps[i+1],
		})
		if err == nil && !swap.OK {
			err = session.ErrStale.WithMessage("session %s has changed since it was read", o.state.ID)
		}
		if err != nil {
			return nil, err
		}
		version = swap.Version
	}
	return run, nil
}

// settledStatus is the status that an active session should have because its current
// run completed or failed, or "". A process that unpauses a session whose run has
// completed makes it active first, and may die in between.
func settledStatus(state *session.State, run *session.Run) session.Status {
	if state.Status != session.Active || run == nil {
		return ""
	}
	if to := run.Status.SessionStatus(); to == session.Completed || to == session.Failed {
		return to
	}
	return ""
}
