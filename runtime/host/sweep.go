package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// A sweep handles at most sweepPages pages of sweepPage sessions of each kind.
const (
	sweepPages = 50
	sweepPage  = 100
)

// sweep handles streams that were not closed, deadlines, expired sessions and wakes. It
// asks mine before it handles what it has found.
func (h *Host) sweep(ctx context.Context, mine func() bool) {
	sessions := h.cfg.Backend.Sessions()
	h.each(ctx, "unclosed streams", sessions.PendingCloses, h.handler.Agents(), mine, h.finishClose)
	h.each(ctx, "deadlines", sessions.DueDeadlines, nil, mine, h.expireCall) // an agent that is called need not be registered
	h.each(ctx, "expired sessions", sessions.ExpiredSessions, h.handler.Agents(), mine, h.expireSession)
	h.sweepWakes(ctx, mine)
}

// sweeps sweeps at once, so that what the process before this one has left need not wait,
// and then about once per interval. The interval is random, so that the first of several
// processes is not always the same.
func (h *Host) sweeps(ctx context.Context) {
	if !h.cfg.NoRecovery {
		h.sweep(ctx, always)
	}
	next := func() time.Duration { return h.cfg.Sweep*3/4 + rand.N(h.cfg.Sweep/2+1) }
	timer := time.NewTimer(next())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if !h.isClosing() { // else it is left to others
				h.sweep(ctx, sync.OnceValue(func() bool { return h.acquireSweep(ctx) }))
			}
			timer.Reset(next())
		case <-ctx.Done():
			return
		}
	}
}

func always() bool { return true }

// acquireSweep reports whether this process handles what it has found, because no other one
// has just swept. Several processes with the same agents then load the store little more than
// one, and share what they find. The lock is not released but expires, so that no process
// keeps it from one sweep to the next. Nobody takes it while there is nothing to do.
func (h *Host) acquireSweep(ctx context.Context) bool {
	name := "sweep/" + h.cfg.Name + "/" + h.handler.AgentSet()
	if h.cfg.NoRecovery { // it does less than the sweeps of other processes
		name += "/no-recovery"
	}
	owner, ttl := session.NewOwner(h.cfg.Name), max(h.cfg.Sweep/2, 1)
	_, ours, err := h.cfg.Backend.Locks().TryAcquire(ctx, name, owner, ttl)
	if h.refusedSweeps++; err == nil && !ours && h.refusedSweeps > maxRefusedSweeps {
		// Perhaps nobody has the lock: the store's clock was set back after it was taken.
		_, ours, err = h.cfg.Backend.Locks().TryAcquire(ctx, name+"/spare", owner, ttl)
	}
	if err != nil {
		h.sweepFailed(ctx, "lock", err)
		return false
	}
	if ours {
		h.refusedSweeps = 0
	}
	return ours
}

// maxRefusedSweeps is how many sweeps in a row a process leaves to others that have found
// something at the same time.
const maxRefusedSweeps = 10

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
// by page, if mine says that this process handles it. What is for another process stays on
// the list, so a sweep that has not seen all of it is continued by the next one. It does not
// wait for calls that take long. Only the goroutine that sweeps calls it.
func (h *Host) each(
	ctx context.Context, what string, list func(context.Context, session.SweepRequest) ([]session.Due, error), agents []string,
	mine func() bool, do func(context.Context, *job, session.Due),
) {
	request := session.SweepRequest{Limit: sweepPage, Agents: agents, After: h.sweptTo[what]}
	defer func() { h.sweptTo[what] = request.After }()
	continued := request.After != nil
	jobs := h.sweeping.newBatch(what)
	defer jobs.wait()
	for range sweepPages {
		page, err := list(ctx, request)
		if err != nil {
			h.sweepFailed(ctx, what, err)
			return
		}
		if len(page) > 0 && !mine() {
			return
		}
		for _, due := range page {
			jobs.begin(ctx, jobKey(due.Key), due.Agent, func(ctx context.Context, j *job) { do(ctx, j, due) })
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

// jobKey is the key of jobs on a session: what sweeps have found of one is done one after the
// other.
func jobKey(key session.Key) string { return key.Tenant + " " + key.ID }

// finishClose closes the stream of a run that ended without closing it, unless this
// process drives the run and is about to.
func (h *Host) finishClose(ctx context.Context, _ *job, due session.Due) {
	if !h.knows(due.Agent, due.Requires) || h.drives(due.RunID) {
		return // a process that knows the agent also calls its hooks
	}
	if err := h.handler.SettleClose(ctx, due); err != nil {
		h.sweepFailed(ctx, "close "+due.ID, err)
	}
}

func (h *Host) sweepFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, session.ErrClosed) { // a runtime that is closing leaves it to others
		h.log.Log(ctx, h.retryLevel(err), "sweep.failed", "what", what, "error", err)
	}
}

// knows reports whether this process can work on the sessions of an agent, with what
// their runs require. It leaves all others alone.
func (h *Host) knows(agent string, requires []string) bool {
	return h.handler.Knows(agent) && h.handler.Supports(requires)
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
