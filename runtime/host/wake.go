package host

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

// expireCall continues a session in which a call has waited until its deadline.
func (h *Host) expireCall(ctx context.Context, j *job, due session.Due) {
	head, err := h.handler.Head(ctx, due.Key)
	if err == nil && *head != due.Key {
		if agent, ours := h.agentOf(ctx, *head); !ours || !j.setAgent(agent) {
			return
		}
	}
	if err == nil {
		_, err = h.continueSession(ctx, *head)
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "expire call of "+due.ID, err)
	}
}

// expireSession fails a session that has expired.
func (h *Host) expireSession(ctx context.Context, _ *job, due session.Due) {
	if !h.knows(due.Agent, due.Requires) {
		return
	}
	_, err := h.handler.Expire(ctx, due)
	if err != nil && !errors.Is(err, session.ErrAlreadyRunning) && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "expire "+due.ID, err)
	}
}

// sweepWakes delivers the wakes that are due, if mine says that this process handles them.
func (h *Host) sweepWakes(ctx context.Context, mine func() bool) {
	all := func(session.Key) bool { return true }
	h.eachWake(ctx, nil, mine, all, func(ctx context.Context, j *job, wake session.Wake) { h.deliver(ctx, j, wake) }, h.wakes.add)
}

// eachWake calls do for each wake after the given one that is for a wanted session, one after
// the other for each session, if mine says that this process handles them. It does not wait
// for calls that take long. For a session that something else is done for, it calls later.
func (h *Host) eachWake(
	ctx context.Context, after *session.Wake, mine func() bool,
	wanted func(session.Key) bool, do func(context.Context, *job, session.Wake), later func(session.Key),
) {
	request := session.WakeRequest{Limit: sweepPage, After: after}
	jobs := h.sweeping.newBatch("wakes")
	defer jobs.wait()
	for range sweepPages {
		page, err := h.cfg.Backend.Sessions().Wakes(ctx, request)
		if err != nil {
			h.sweepFailed(ctx, "wakes", err)
			return
		}
		if len(page) > 0 && !mine() {
			return
		}
		for key, wakes := range groupWakes(page) {
			if !wanted(key) {
				continue
			}
			at := jobs.begin(ctx, jobKey(key), "", func(ctx context.Context, j *job) {
				for _, wake := range wakes {
					do(ctx, j, wake)
				}
			})
			if at == busy {
				later(key)
			}
		}
		if len(page) < sweepPage {
			return
		}
		request.After = &page[len(page)-1]
	}
}

// groupWakes returns wakes by the sessions that they are for, in the order of the first of each.
func groupWakes(wakes []session.Wake) iter.Seq2[session.Key, []session.Wake] {
	var order []session.Key
	groups := map[session.Key][]session.Wake{}
	for _, wake := range wakes {
		key := session.Key{Tenant: wake.Tenant, ID: wake.SessionID}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], wake)
	}
	return func(yield func(session.Key, []session.Wake) bool) {
		for _, key := range order {
			if !yield(key, groups[key]) {
				return
			}
		}
	}
}

// deliver delivers a wake, if the agent of the session that it is for is registered here and
// too many jobs of that agent are not slow. It reports whether what the wake announces has not
// arrived.
func (h *Host) deliver(ctx context.Context, j *job, wake session.Wake) (early bool) {
	key, err := h.handler.Head(ctx, session.Key{Tenant: wake.Tenant, ID: wake.SessionID})
	if err == nil {
		if agent, ours := h.agentOf(ctx, *key); !ours || !j.setAgent(agent) {
			return false
		}
	}
	if err == nil || errors.Is(err, session.ErrNotFound) {
		key, err = h.handler.Deliver(ctx, wake)
	}
	if errors.Is(err, engine.ErrStopUndelivered) {
		select {
		case h.stops <- wake:
		default: // the next sweep finds it again
		}
		return false
	}
	outcome := handled
	if err == nil && key != nil {
		outcome, err = h.continueSession(ctx, *key)
	}
	early = outcome == stillWaiting && wake.ChildID == wake.SessionID && time.Since(wake.At) < wakePatience
	if err == nil && outcome != deferred && !early {
		err = h.handler.Delivered(ctx, wake)
	}
	if err != nil {
		h.sweepFailed(ctx, "wake "+wake.SessionID, err)
	}
	return early
}

// stopSenders is how many remote agents are stopped at the same time: one that does not
// answer delays neither a sweep nor all others.
const stopSenders = 2

// sendStops sends stop requests to remote agents, until ctx ends.
func (h *Host) sendStops(ctx context.Context) {
	for {
		select {
		case wake := <-h.stops:
			delivered, err := h.handler.DeliverStop(ctx, wake)
			if err == nil && delivered {
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

// continuation is the result of continueSession.
type continuation int

const (
	handled      continuation = iota // the session runs, or there is nothing to do
	stillWaiting                     // what it waits for has not arrived
	deferred                         // it is paused, or its agent is not registered here
)

// wakePatience is how long a wake is kept that arrived before what it announces.
const wakePatience = time.Minute

// agentOf returns the agent of a session and reports whether this process can work on it.
func (h *Host) agentOf(ctx context.Context, key session.Key) (agent string, ours bool) {
	state, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, key.ID)
	if err != nil {
		return "", false
	}
	return state.Agent, h.knows(state.Agent, state.Requires)
}

// continueSession resumes a session that waits, or starts a run of a companion that was
// sent a message. It does nothing if the session runs, or its agent is not registered
// here.
func (h *Host) continueSession(ctx context.Context, key session.Key) (continuation, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return deferred, err
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil {
		return deferred, err
	}
	switch {
	case !h.knows(state.Agent, state.Requires) || state.Status == session.Paused:
		return deferred, nil
	case run.Status == session.RunRunning:
		return handled, nil // the run looks for news itself before it suspends
	}
	request := engine.OpenRequest{Tenant: key.Tenant, SessionID: key.ID}
	switch {
	case run.Status.Suspended() && state.Status == session.Active:
		request.Kind = session.RunResume
		stop, err := sessions.StopRequest(ctx, key.ID, run.ID)
		if err != nil {
			return deferred, err
		}
		if stop != nil && stop.Kind == session.StopAbort { // it arrived as the run suspended
			request.Stop = stop
		}
	case state.ParentID != "" && state.RootID == "" && state.Status == session.Completed:
		request.Kind, request.Inbox, request.Agent = session.RunExecute, true, helix.Named(state.Agent)
	default:
		return handled, nil
	}
	x := &executor{h: h, tenant: key.Tenant}
	_, err = x.start(ctx, request, true)
	switch {
	case errors.Is(err, session.ErrAwaitingInput):
		return stillWaiting, nil
	case errors.Is(err, session.ErrAlreadyRunning), errors.Is(err, session.ErrStale), errors.Is(err, session.ErrNotResumable):
		return handled, nil // there is nothing to do, or another process does it
	}
	return handled, err
}

// abortWaiting aborts a session that waits: it resumes the session, whose run then ends
// at once.
func (h *Host) abortWaiting(ctx context.Context, key session.Key, stop session.Stop) error {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return err
	}
	if !h.handler.Knows(state.Agent) { // this process cannot call its hooks
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

// abortChild aborts a child that waits: only the child and the agents that it called end.
// Its caller gets a tool error, in the run that continues the head, or in the current
// one. It reports whether to try again.
func (h *Host) abortChild(ctx context.Context, key, head session.Key, reason string) (again bool, err error) {
	if err := h.handler.AbortWaiting(ctx, key, head, reason); err != nil {
		return errors.Is(err, session.ErrUnavailable) || errors.Is(err, session.ErrStale), err
	}
	if _, err := h.continueSession(context.WithoutCancel(ctx), head); err != nil {
		h.sweepFailed(ctx, "continue "+head.ID, err) // its wake has the next sweep continue it
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

// wakeCompanion continues a detached companion that was answered, which otherwise the
// next sweep would do.
func (h *Host) wakeCompanion(ctx context.Context, key session.Key) {
	head, err := h.handler.Head(ctx, key)
	if err != nil {
		return
	}
	state, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).Load(ctx, head.ID)
	if err != nil || state.ParentID == "" {
		return
	}
	if _, err := h.continueSession(ctx, *head); err != nil {
		h.sweepFailed(ctx, "continue "+head.ID, err)
	}
}

// Waiting implements [helix.Executor].
func (x *executor) Waiting(ctx context.Context, sessionID string) ([]session.Pending, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	return x.h.handler.Waiting(ctx, session.Key{Tenant: x.tenant, ID: sessionID})
}
