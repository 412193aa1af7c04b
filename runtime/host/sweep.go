package host

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// A sweep sees to at most so many pages of sessions of a kind.
const (
	sweepPages = 50
	sweepPage  = 100 // sessions
)

// sweep takes over orphaned runs, unless recovery is turned off, and sees to everything
// else that may be due.
func (h *Host) sweep(ctx context.Context) {
	sessions := h.cfg.Backend.Sessions()
	h.sweepOrphans(ctx)
	h.each(ctx, "owed closes", sessions.OwedCloses, h.settleClose)
	h.each(ctx, "deadlines", sessions.DueDeadlines, h.expireCall)
	h.each(ctx, "expired sessions", sessions.ExpiredSessions, h.expireSession)
	h.sweepWakes(ctx)
}

// sweepOrphans takes orphaned runs over: suspects last, and first among them those
// that were lost the fewest times.
func (h *Host) sweepOrphans(ctx context.Context) {
	type suspect struct {
		session.Due
		lost int
	}
	var suspects []suspect
	h.each(ctx, "expired leases", h.cfg.Backend.Sessions().ExpiredLeases, func(ctx context.Context, due session.Due) {
		if !h.mayTakeOver(due) {
			h.endUnclaimed(ctx, due)
			return
		}
		if h.intake.full(false) {
			return
		}
		loss, err := h.handler.Lost(ctx, due)
		switch {
		case err != nil:
			h.sweepFailed(ctx, "look at "+due.ID, err)
		case loss.Before > 0:
			suspects = append(suspects, suspect{due, loss.Before})
		default:
			h.takeOver(ctx, due)
		}
	})
	slices.SortStableFunc(suspects, func(a, b suspect) int { return cmp.Compare(a.lost, b.lost) })
	for _, s := range suspects {
		if h.intake.full(true) {
			return
		}
		h.takeOver(ctx, s.Due)
	}
}

// sweeps sweeps at once, for what the process before this one has left is not to
// wait, and then about once in an interval. The wait is random, so that of several
// processes not always the same comes first.
func (h *Host) sweeps(ctx context.Context) {
	if !h.cfg.NoRecovery {
		h.sweep(ctx)
	}
	next := func() time.Duration { return h.cfg.Sweep*3/4 + rand.N(h.cfg.Sweep/2+1) }
	timer := time.NewTimer(next())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			h.sweepInTurn(ctx)
			timer.Reset(next())
		case <-h.intake.again:
			if wait(ctx, againPause) == nil {
				h.sweepOrphans(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// againPause is how long a sweep for runs that were turned away gathers reasons.
const againPause = 50 * time.Millisecond

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sweepInTurn sweeps unless another process has just done so: a fleet with the
// same agents costs the store little more than one process, and what it finds is
// spread over all of them. The lock is left to expire, so that nobody holds it from
// one sweep to the next. A process that closes takes nothing over and leaves the
// turn to others.
func (h *Host) sweepInTurn(ctx context.Context) {
	h.mu.Lock()
	closing := h.closing
	h.mu.Unlock()
	if closing {
		return
	}
	name := "sweep/" + h.cfg.Name + "/" + h.handler.AgentSet()
	if h.cfg.NoRecovery { // it does not see to everything that the others do
		name += "/no-recovery"
	}
	_, ours, err := h.cfg.Backend.Locks().TryAcquire(ctx, name, session.NewOwner(h.cfg.Name), max(h.cfg.Sweep/2, 1))
	switch {
	case err != nil:
		h.sweepFailed(ctx, "lock", err)
	case ours:
		h.sweep(ctx)
	}
}

// each sees to what a sweep lists. What is left alone, because it is for another
// process, stays on the list, so it goes on behind that.
func (h *Host) each(
	ctx context.Context, what string,
	list func(context.Context, session.SweepRequest) ([]session.Due, error), do func(context.Context, session.Due),
) {
	request := session.SweepRequest{Limit: sweepPage}
	for range sweepPages {
		page, err := list(ctx, request)
		if err != nil {
			h.sweepFailed(ctx, what, err)
			return
		}
		for _, due := range page {
			do(ctx, due)
		}
		if len(page) < sweepPage {
			return
		}
		request.After = &page[len(page)-1]
	}
}

// settleClose closes a stream that was left open, unless the run's driver here is
// about to.
func (h *Host) settleClose(ctx context.Context, due session.Due) {
	if !h.handler.Knows(due.Agent) || h.drives(due.RunID) {
		return // whoever knows the agent also tells its hooks
	}
	if err := h.handler.SettleClose(ctx, due); err != nil {
		h.sweepFailed(ctx, "close "+due.ID, err)
	}
}

func (h *Host) sweepFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, session.ErrClosed) { // a runtime that closes leaves it to others
		h.log.WarnContext(ctx, "sweep failed", "what", what, "error", err)
	}
}

// takeOver has one orphaned run gone on with, if it is this runtime's and its agent
// is known here.
func (h *Host) takeOver(ctx context.Context, due session.Due) {
	if !h.mayTakeOver(due) {
		return
	}
	err := h.driver.Revive(ctx, due)
	if err != nil && !errors.Is(err, errLater) && !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning) {
		h.sweepFailed(ctx, "recover "+due.ID, err)
	}
}

// mayTakeOver reports whether a run is for this process to take over.
func (h *Host) mayTakeOver(due session.Due) bool {
	return !h.cfg.NoRecovery && due.Runtime == h.cfg.Name && !h.drives(due.RunID) && h.handler.Knows(due.Agent) && !h.unfit()
}

// endUnclaimed ends a run that nobody takes over, though it was lost a while ago, if it
// is to be aborted: perhaps no process has the agent any more.
func (h *Host) endUnclaimed(ctx context.Context, due session.Due) {
	if h.drives(due.RunID) {
		return
	}
	now, err := h.cfg.Backend.Sessions().Now(ctx)
	if err == nil && now.Sub(due.At) >= h.unclaimed() {
		err = h.handler.EndAborted(ctx, due)
	}
	if err != nil && !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning) && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "end "+due.ID, err)
	}
}

// unclaimed is how long a run that was lost is left to those who can go on with it:
// they also tell the agent's hooks.
func (h *Host) unclaimed() time.Duration { return h.cfg.LeaseTTL }

// endAborted sees to a run that is to be aborted and that nobody works on.
func (h *Host) endAborted(ctx context.Context, key session.Key) error {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return err
	}
	now, err := sessions.Now(ctx)
	if err != nil {
		return err
	}
	if state.RootID != "" || state.Lease.Live(now) || state.Lease.ExpiresAt.IsZero() {
		return nil // whoever holds it sees the request
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil || run.Status != session.RunRunning {
		return err
	}
	due := session.Due{Key: key, Agent: state.Agent, RunID: run.ID, Runtime: run.Runtime, Lease: state.Lease, At: state.Lease.ExpiresAt}
	if state.Status == session.Paused { // nobody would take it over
		swap, err := sessions.SetStatus(ctx, key.ID, session.StatusChange{
			Expect: []session.Status{session.Paused}, ExpectVersion: state.Version, To: session.Active,
		})
		if err != nil || !swap.OK {
			return err
		}
	}
	if h.mayTakeOver(due) && !h.cfg.NoRecovery {
		h.recoverOne(ctx, key)
		return nil
	}
	h.endUnclaimed(ctx, due)
	return nil
}

// StartOf is how the workflow of an orphaned run is started.
func (h *Host) StartOf(ctx context.Context, due session.Due) (Start, error) {
	run, err := h.cfg.Backend.Sessions().Tenant(due.Tenant).Run(ctx, due.ID, due.RunID)
	if err != nil {
		return Start{}, err
	}
	return startOf(due.Key, run), nil
}

// nudge tells whoever works on a run, which is not this process, that it is to be
// stopped.
func (h *Host) nudge(ctx context.Context, key session.Key, runID string) {
	start, err := h.StartOf(ctx, session.Due{Key: key, RunID: runID})
	if err != nil {
		h.log.WarnContext(ctx, "run not nudged", "tenant", key.Tenant, "session", key.ID, "run", runID, "error", err)
		return
	}
	h.driver.Nudge(ctx, start)
}
