package host

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// A sweep handles at most sweepPages pages of sweepPage sessions of each kind.
const (
	sweepPages = 50
	sweepPage  = 100
)

// sweep recovers orphaned runs, unless recovery is turned off, and handles streams that
// were not closed, deadlines, expired sessions and wakes.
func (h *Host) sweep(ctx context.Context) {
	sessions := h.cfg.Backend.Sessions()
	h.sweepOrphans(ctx)
	h.each(ctx, "unclosed streams", sessions.PendingCloses, h.handler.Agents(), h.finishClose)
	h.each(ctx, "deadlines", sessions.DueDeadlines, nil, h.expireCall) // an agent that is called need not be registered
	h.each(ctx, "expired sessions", sessions.ExpiredSessions, h.handler.Agents(), h.expireSession)
	h.sweepWakes(ctx)
}

// recoverers is how many orphaned runs are recovered at the same time.
const recoverers = 8

// sweepOrphans recovers orphaned runs. Suspects come last, ordered by how often they were
// lost.
func (h *Host) sweepOrphans(ctx context.Context) {
	type suspect struct {
		session.Due
		lost int
	}
	var (
		mu       sync.Mutex // guards suspects
		suspects []suspect
		working  sync.WaitGroup
		slots    = make(chan struct{}, recoverers)
	)
	h.each(ctx, "expired leases", h.cfg.Backend.Sessions().ExpiredLeases, h.handler.Agents(), func(ctx context.Context, due session.Due) {
		if !h.mayTakeOver(due) {
			if due.Stop == session.StopAbort {
				h.endUnclaimed(ctx, due)
			}
			return
		}
		if h.intake.full(false) {
			return
		}
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			loss, err := h.handler.Lost(ctx, due)
			switch {
			case err != nil:
				h.sweepFailed(ctx, "load "+due.ID, err)
			case loss.Before > 0:
				mu.Lock()
				defer mu.Unlock()
				suspects = append(suspects, suspect{due, loss.Before})
			default:
				h.recoverOrphan(ctx, due)
			}
		})
	})
	working.Wait()
	slices.SortStableFunc(suspects, func(a, b suspect) int { return cmp.Compare(a.lost, b.lost) })
	for _, s := range suspects {
		if h.intake.full(true) {
			return
		}
		h.recoverOrphan(ctx, s.Due)
	}
}

// sweeps sweeps at once, so that the runs of the process before this one need not wait,
// and then about once per interval. The interval is random, so that the first of several
// processes is not always the same.
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
			if retry.Sleep(ctx, againPause) == nil {
				h.sweepOrphans(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// againPause is how long the sweep waits after a run that was refused may be admitted, so
// that it finds several at once.
const againPause = 50 * time.Millisecond

// sweepInTurn sweeps unless another process has just done so. Several processes with the
// same agents then load the store little more than one, and share what they find. The
// lock is not released but expires, so that no process keeps it from one sweep to the
// next. A process that is closing takes nothing over, and leaves the sweep to others.
func (h *Host) sweepInTurn(ctx context.Context) {
	if h.isClosing() {
		return
	}
	name := "sweep/" + h.cfg.Name + "/" + h.handler.AgentSet()
	if h.cfg.NoRecovery { // it does less than the sweeps of other processes
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

// Bytes of blobs are removed every blobSweep, of at most blobSweepLimit blobs at a time. A
// sweep that removed at least blobSweepMany is followed by another one, until blobSweepTime
// has passed.
const (
	blobSweep      = 10 * time.Minute
	blobSweepLimit = 10_000
	blobSweepMany  = 1000 // a sweep of files looks at many, and removes fewer
	blobSweepTime  = time.Minute
)

// sweepBlobs removes bytes that no session has had for some time, unless another process
// has just done so.
func (h *Host) sweepBlobs(ctx context.Context) {
	_, ours, err := h.cfg.Backend.Locks().TryAcquire(ctx, "sweep/blobs", session.NewOwner(h.cfg.Name), blobSweep/2)
	if err == nil && ours {
		err = sweepAgain(func() (int, error) { return h.cfg.Backend.Blobs().Sweep(ctx, blob.SweepAge, blobSweepLimit) })
	}
	if err != nil {
		h.sweepFailed(ctx, "blobs", err)
	}
}

// sweepAgain sweeps blobs for as long as there are many to remove, so that a tenant that
// deletes many does not delay the others for hours.
func sweepAgain(sweep func() (removed int, err error)) error {
	for began := time.Now(); ; {
		if removed, err := sweep(); err != nil || removed < blobSweepMany || time.Since(began) >= blobSweepTime {
			return err
		}
	}
}

// isClosing reports whether Shutdown was called.
func (h *Host) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

// each calls do for what list returns of the given agents, or of all if that is nil, page
// by page. What is for another process stays on the list, so a sweep that has not seen all
// of it is continued by the next one. Only the goroutine that sweeps calls it.
func (h *Host) each(
	ctx context.Context, what string,
	list func(context.Context, session.SweepRequest) ([]session.Due, error), agents []string, do func(context.Context, session.Due),
) {
	request := session.SweepRequest{Limit: sweepPage, Agents: agents, After: h.sweptTo[what]}
	defer func() { h.sweptTo[what] = request.After }()
	continued := request.After != nil
	for range sweepPages {
		page, err := list(ctx, request)
		if err != nil {
			h.sweepFailed(ctx, what, err)
			return
		}
		for _, due := range page {
			do(ctx, due)
		}
		switch {
		case len(page) == sweepPage:
			request.After = &page[len(page)-1]
		case continued: // and now what was on the list before
			request.After, continued = nil, false
		default:
			request.After = nil
			return
		}
	}
}

// finishClose closes the stream of a run that ended without closing it, unless this
// process drives the run and is about to.
func (h *Host) finishClose(ctx context.Context, due session.Due) {
	if !h.knows(due.Agent, due.Requires) || h.drives(due.RunID) {
		return // a process that knows the agent also calls its hooks
	}
	if err := h.handler.SettleClose(ctx, due); err != nil {
		h.sweepFailed(ctx, "close "+due.ID, err)
	}
}

func (h *Host) sweepFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, session.ErrClosed) { // a runtime that is closing leaves it to others
		h.log.WarnContext(ctx, "sweep.failed", "what", what, "error", err)
	}
}

// recoverOrphan has the driver recover an orphaned run, if the run is this runtime's and
// its agent is registered here.
func (h *Host) recoverOrphan(ctx context.Context, due session.Due) {
	if !h.mayTakeOver(due) {
		return
	}
	err := h.driver.Recover(ctx, due)
	if err != nil && !errors.Is(err, errLater) && !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning) {
		h.sweepFailed(ctx, "recover "+due.ID, err)
	}
}

// mayTakeOver reports whether this process may take a run over.
func (h *Host) mayTakeOver(due session.Due) bool {
	return !h.cfg.NoRecovery && due.Runtime == h.cfg.Name && !h.drives(due.RunID) && h.knows(due.Agent, due.Requires) && !h.recentlyFailed()
}

// knows reports whether this process can work on the sessions of an agent, with what
// their runs require. It leaves all others alone.
func (h *Host) knows(agent string, requires []string) bool {
	return h.handler.Knows(agent) && h.handler.Supports(requires)
}

// endUnclaimed ends a run that is to be aborted and that no process has taken over for a
// while: perhaps no process knows the agent any more.
func (h *Host) endUnclaimed(ctx context.Context, due session.Due) {
	if h.drives(due.RunID) || !h.handler.Supports(due.Requires) {
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

// unclaimed returns how long a lost run is left to processes that can continue it: they
// also call the agent's hooks.
func (h *Host) unclaimed() time.Duration { return h.cfg.LeaseTTL }

// endAborted ends a run that is to be aborted and that no process works on.
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
		return nil // the process that holds the lease reads the request
	}
	run, err := sessions.CurrentRun(ctx, key.ID)
	if err != nil || run.Status != session.RunRunning {
		return err
	}
	due := session.Due{
		Key: key, Agent: state.Agent, RunID: run.ID, Runtime: run.Runtime, Requires: run.Requires, Lease: state.Lease, At: state.Lease.ExpiresAt,
	}
	if !h.handler.Supports(run.Requires) {
		return nil // another process has to end it
	}
	if state.Status == session.Paused { // no process takes a paused session over
		swap, err := sessions.SetStatus(ctx, key.ID, session.StatusChange{
			Expect: []session.Status{session.Paused}, ExpectVersion: state.Version, To: session.Active,
		})
		if err != nil || !swap.OK {
			return err
		}
	}
	if h.mayTakeOver(due) && !h.cfg.NoRecovery {
		h.recoverSession(ctx, key)
		return nil
	}
	h.endUnclaimed(ctx, due)
	return nil
}

// LoadStart returns the workflow start for a run that has to be recovered.
func (h *Host) LoadStart(ctx context.Context, due session.Due) (Start, error) {
	run, err := h.cfg.Backend.Sessions().Tenant(due.Tenant).Run(ctx, due.ID, due.RunID)
	if err != nil {
		return Start{}, err
	}
	return startOf(due.Key, run), nil
}

// notifyStop has the driver notify the process that works on a run of a stop request.
func (h *Host) notifyStop(ctx context.Context, key session.Key, runID string) {
	start, err := h.LoadStart(ctx, session.Due{Key: key, RunID: runID})
	if err != nil {
		h.log.WarnContext(ctx, "stop.not_delivered", "tenant", key.Tenant, "session", key.ID, "run", runID, "error", err)
		return
	}
	h.driver.NotifyStop(ctx, start)
}
