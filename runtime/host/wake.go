package host

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

// expireCall goes on with a session one of whose calls has waited too long.
func (h *Host) expireCall(ctx context.Context, due session.Due) {
	head, err := h.handler.Head(ctx, due.Key)
	if err == nil {
		_, err = h.goOn(ctx, *head)
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "deadline of "+due.ID, err)
	}
}

// expireSession ends a session whose time is up.
func (h *Host) expireSession(ctx context.Context, due session.Due) {
	if !h.handler.Knows(due.Agent) {
		return
	}
	_, err := h.handler.Expire(ctx, due)
	if err != nil && !errors.Is(err, session.ErrAlreadyRunning) && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "expire "+due.ID, err)
	}
}

// sweepWakes delivers wakes.
func (h *Host) sweepWakes(ctx context.Context) {
	request := session.WakeRequest{Limit: sweepPage}
	for range sweepPages {
		page, err := h.cfg.Backend.Sessions().Wakes(ctx, request)
		if err != nil {
			h.sweepFailed(ctx, "wakes", err)
			return
		}
		for _, wake := range page {
			h.deliver(ctx, wake)
		}
		if len(page) < sweepPage {
			return
		}
		request.After = &page[len(page)-1]
	}
}

// deliver delivers one wake, if the session that it is for is one of ours.
func (h *Host) deliver(ctx context.Context, wake session.Wake) {
	key, err := h.handler.Head(ctx, session.Key{Tenant: wake.Tenant, ID: wake.SessionID})
	if err == nil && !h.ours(ctx, *key) {
		return
	}
	if err == nil || errors.Is(err, session.ErrNotFound) {
		key, err = h.handler.Deliver(ctx, wake)
	}
	if errors.Is(err, engine.ErrStopUndelivered) {
		select {
		case h.debts <- wake:
		default: // the next sweep finds it again
		}
		return
	}
	seen := seenTo
	if err == nil && key != nil {
		seen, err = h.goOn(ctx, *key)
	}
	early := seen == stillWaits && wake.ChildID == wake.SessionID && time.Since(wake.At) < wakePatience
	if err == nil && seen != notNow && !early {
		err = h.handler.Delivered(ctx, wake)
	}
	if err != nil {
		h.sweepFailed(ctx, "wake "+wake.SessionID, err)
	}
}

// payers is how many remote agents are told to stop at the same time: one that does
// not answer holds up neither a sweep nor all others.
const payers = 2

// payStops tells remote agents to stop, until ctx ends.
func (h *Host) payStops(ctx context.Context) {
	for {
		select {
		case wake := <-h.debts:
			paid, err := h.handler.DeliverStop(ctx, wake)
			if err == nil && paid {
				err = h.handler.Delivered(ctx, wake)
			}
			if err != nil {
				h.sweepFailed(ctx, "stop of "+wake.SessionID, err)
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
	notNow                 // it is held, or its agent is not known here
)

// wakePatience is how long a wake is kept that came before what it is about.
const wakePatience = time.Minute

// ours reports whether a session's agent is known here.
func (h *Host) ours(ctx context.Context, key session.Key) bool {
	state, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, key.ID)
	return err == nil && h.handler.Knows(state.Agent)
}

// goOn goes on with a session that waits, or with a companion that was sent
// something. It leaves alone what is not ours or runs.
func (h *Host) goOn(ctx context.Context, key session.Key) (gone, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return notNow, err
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil {
		return notNow, err
	}
	switch {
	case !h.handler.Knows(state.Agent) || state.Status == session.Paused:
		return notNow, nil
	case run.Status == session.RunRunning:
		return seenTo, nil // it looks for itself before it suspends
	}
	request := engine.OpenRequest{Tenant: key.Tenant, SessionID: key.ID}
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
		request.Kind, request.Inbox, request.Agent = session.RunExecute, true, helix.Named(state.Agent)
	default:
		return seenTo, nil
	}
	x := &executor{h: h, tenant: key.Tenant}
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
func (h *Host) abortWaiting(ctx context.Context, key session.Key, stop session.Stop) error {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return err
	}
	if !h.handler.Knows(state.Agent) { // nobody here can tell its hooks
		why := session.ErrCancelled.WithMessage("%s", cmp.Or(stop.Reason, "the session was aborted"))
		_, err := h.handler.Fail(ctx, key, why, session.FailureAbandoned)
		return err
	}
	x := &executor{h: h, tenant: key.Tenant}
	_, err = x.start(ctx, engine.OpenRequest{
		Kind: session.RunResume, Tenant: key.Tenant, SessionID: key.ID, Stop: &stop,
	}, true)
	return err
}

// abortBelow aborts an agent that waits and works for another: only that agent, and
// those below it, end. Its caller gets a tool error, from the run that goes on with the
// head, or from the one that is under way. It reports whether to try again.
func (h *Host) abortBelow(ctx context.Context, key, head session.Key, reason string) (again bool, err error) {
	if err := h.handler.AbortWaiting(ctx, key, head, reason); err != nil {
		return errors.Is(err, session.ErrUnavailable) || errors.Is(err, session.ErrStale), err
	}
	if _, err := h.goOn(context.WithoutCancel(ctx), head); err != nil {
		h.sweepFailed(ctx, "go on with "+head.ID, err) // its wake has the next sweep do so
	}
	return false, nil
}

// Submit implements [helix.Executor].
func (x *executor) Submit(ctx context.Context, sessionID string, submission helix.Submission) (*helix.Submitted, error) {
	out, err := x.h.handler.Submit(ctx, session.Key{Tenant: x.tenant, ID: sessionID}, submission)
	if err == nil && out.Continuation == helix.ContinuesRunning {
		x.h.wakeCompanion(context.WithoutCancel(ctx), session.Key{Tenant: x.tenant, ID: out.SessionID})
	}
	return out, err
}

// wakeCompanion goes on with a companion that works by itself and was answered: its
// wake would have the next sweep do so.
func (h *Host) wakeCompanion(ctx context.Context, key session.Key) {
	head, err := h.handler.Head(ctx, key)
	if err != nil {
		return
	}
	state, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, head.ID)
	if err != nil || state.ParentID == "" {
		return
	}
	if _, err := h.goOn(ctx, *head); err != nil {
		h.sweepFailed(ctx, "go on with "+head.ID, err)
	}
}

// Waiting implements [helix.Executor].
func (x *executor) Waiting(ctx context.Context, sessionID string) ([]session.Pending, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	return x.h.handler.Waiting(ctx, session.Key{Tenant: x.tenant, ID: sessionID})
}
