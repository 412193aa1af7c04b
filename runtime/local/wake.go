package local

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

// driveApart drives a turn that nobody here waits for. A runtime that closes leaves
// it to whoever takes it over.
func (r *Runtime) driveApart(opened *engine.Opened) {
	done, err := r.open(opened.Run.ID)
	if err != nil {
		r.handler.Release(context.Background(), opened.Run.ID)
		return
	}
	defer done()
	r.drive(opened)
}

// expireCall goes on with a session one of whose calls has waited too long.
func (r *Runtime) expireCall(ctx context.Context, due session.Due) {
	head, err := r.handler.Head(ctx, due.Key)
	if err == nil {
		_, err = r.goOn(ctx, *head)
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		r.sweepFailed(ctx, "deadline of "+due.ID, err)
	}
}

// expireSession ends a session whose time is up.
func (r *Runtime) expireSession(ctx context.Context, due session.Due) {
	if r.known(due.Agent) == nil {
		return
	}
	_, err := r.handler.Expire(ctx, due)
	if err != nil && !errors.Is(err, session.ErrAlreadyRunning) && !errors.Is(err, session.ErrNotFound) {
		r.sweepFailed(ctx, "expire "+due.ID, err)
	}
}

// sweepWakes delivers wakes.
func (r *Runtime) sweepWakes(ctx context.Context) {
	request := session.WakeRequest{Limit: sweepPage}
	for range sweepPages {
		page, err := r.cfg.Backend.Sessions().Wakes(ctx, request)
		if err != nil {
			r.sweepFailed(ctx, "wakes", err)
			return
		}
		for _, wake := range page {
			r.deliver(ctx, wake)
		}
		if len(page) < sweepPage {
			return
		}
		request.After = &page[len(page)-1]
	}
}

// deliver delivers one wake, if the session that it is for is one of ours.
func (r *Runtime) deliver(ctx context.Context, wake session.Wake) {
	key, err := r.handler.Head(ctx, session.Key{Tenant: wake.Tenant, ID: wake.SessionID})
	if err == nil && !r.ours(ctx, *key) {
		return
	}
	if err == nil || errors.Is(err, session.ErrNotFound) {
		key, err = r.handler.Deliver(ctx, wake)
	}
	if errors.Is(err, engine.ErrStopOwed) {
		select {
		case r.debts <- wake:
		default: // the next sweep finds it again
		}
		return
	}
	seen := seenTo
	if err == nil && key != nil {
		seen, err = r.goOn(ctx, *key)
	}
	early := seen == stillWaits && wake.ChildID == wake.SessionID && time.Since(wake.At) < wakePatience
	if err == nil && seen != notNow && !early {
		err = r.handler.Delivered(ctx, wake)
	}
	if err != nil {
		r.sweepFailed(ctx, "wake "+wake.SessionID, err)
	}
}

// payers is how many remote agents are told to stop at the same time: one that does
// not answer holds up neither a sweep nor all others.
const payers = 2

// payStops tells remote agents to stop, until ctx ends.
func (r *Runtime) payStops(ctx context.Context) {
	for {
		select {
		case wake := <-r.debts:
			paid, err := r.handler.PayStop(ctx, wake)
			if err == nil && paid {
				err = r.handler.Delivered(ctx, wake)
			}
			if err != nil {
				r.sweepFailed(ctx, "stop of "+wake.SessionID, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// What became of a session that may have something to go on with.
type gone int

const (
	seenTo     gone = iota // it goes on, or there is nothing to do
	stillWaits             // what it waits for is not there
	notNow                 // it is held, or another runtime's
)

// wakePatience is how long a wake is kept that came before what it is about.
const wakePatience = time.Minute

// ours reports whether a session's agent is known here.
func (r *Runtime) ours(ctx context.Context, key session.Key) bool {
	state, err := r.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, key.ID)
	return err == nil && r.known(state.Agent) != nil
}

// known finds an agent that is registered here, or nil.
func (r *Runtime) known(name string) *helix.Agent {
	agent, err := r.handler.Agent(name)
	if err != nil {
		return nil
	}
	return agent
}

// goOn goes on with a session that waits, or with a companion that was sent
// something. It leaves alone what is not ours or runs.
func (r *Runtime) goOn(ctx context.Context, key session.Key) (gone, error) {
	sessions := r.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return notNow, err
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil {
		return notNow, err
	}
	agent := r.known(state.Agent)
	switch {
	case agent == nil || run.Runtime != Name || state.Status == session.Paused:
		return notNow, nil
	case run.Status == session.RunRunning:
		return seenTo, nil // it looks for itself before it suspends
	}
	request := engine.OpenRequest{Agent: agent, Tenant: key.Tenant, SessionID: key.ID}
	switch {
	case run.Status.Suspended() && state.Status == session.Active:
		request.Kind = session.RunResume
		stop, err := sessions.StopRequest(ctx, key.ID, run.ID)
		if err != nil {
			return notNow, err
		}
		if stop != nil && stop.Kind == session.StopAbort { // it came as the run suspended
			request.Stop = stop
		}
	case state.ParentID != "" && state.RootID == "" && state.Status == session.Completed:
		request.Kind, request.Inbox = session.RunExecute, true
	default:
		return seenTo, nil
	}
	x := &executor{r: r, tenant: key.Tenant}
	_, err = x.start(ctx, request, true)
	switch {
	case errors.Is(err, session.ErrAwaitingInput):
		return stillWaits, nil
	case errors.Is(err, session.ErrAlreadyRunning), errors.Is(err, session.ErrStale), errors.Is(err, session.ErrNotResumable):
		return seenTo, nil // there is nothing to go on with, or somebody else does
	}
	return seenTo, err
}

// abortWaiting aborts a session that waits: it is resumed, and ends at once.
func (r *Runtime) abortWaiting(ctx context.Context, key session.Key, stop session.Stop) error {
	sessions := r.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return err
	}
	agent := r.known(state.Agent)
	if agent == nil { // nobody here can tell its hooks
		why := session.ErrCancelled.WithMessage("the session was aborted")
		if stop.Reason != "" {
			why = session.ErrCancelled.WithMessage("%s", stop.Reason)
		}
		_, err := r.handler.Fail(ctx, key, why, session.FailureAbandoned)
		return err
	}
	x := &executor{r: r, tenant: key.Tenant}
	_, err = x.start(ctx, engine.OpenRequest{
		Kind: session.RunResume, Agent: agent, Tenant: key.Tenant, SessionID: key.ID, Stop: &stop,
	}, true)
	return err
}

// Submit implements [helix.Executor].
func (x *executor) Submit(ctx context.Context, sessionID string, submission helix.Submission) (*helix.Submitted, error) {
	out, err := x.r.handler.Submit(ctx, session.Key{Tenant: x.tenant, ID: sessionID}, submission)
	if err == nil && out.Continuation == helix.ContinuesRunning {
		x.r.wakeCompanion(context.WithoutCancel(ctx), session.Key{Tenant: x.tenant, ID: out.SessionID})
	}
	return out, err
}

// wakeCompanion goes on with a companion that works by itself and was answered: its
// wake would have the next sweep do so.
func (r *Runtime) wakeCompanion(ctx context.Context, key session.Key) {
	head, err := r.handler.Head(ctx, key)
	if err != nil {
		return
	}
	state, err := r.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, head.ID)
	if err != nil || state.ParentID == "" {
		return
	}
	if _, err := r.goOn(ctx, *head); err != nil {
		r.sweepFailed(ctx, "go on with "+head.ID, err)
	}
}

// Waiting implements [helix.Executor].
func (x *executor) Waiting(ctx context.Context, sessionID string) ([]session.Pending, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	return x.r.handler.Waiting(ctx, session.Key{Tenant: x.tenant, ID: sessionID})
}
