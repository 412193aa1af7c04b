package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// recoverRuns recovers runs that have lost their processes, when some are found and when
// one that was refused may be admitted, until ctx ends.
func (h *Host) recoverRuns(ctx context.Context) {
	for {
		select {
		case <-h.lost:
		case <-h.intake.again:
			if retry.Sleep(ctx, againPause) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
		h.recoverLost(ctx)
	}
}

// againPause is how long to wait after a run that was refused may be admitted, so that
// several are admitted at once.
const againPause = 50 * time.Millisecond

// sharesRecovery reports whether others should try, too, because this process has just failed
// to recover a run, or takes long to: it does not ask for the lock then.
func (h *Host) sharesRecovery() bool {
	if max(h.recoveries.longest(), h.suspects.longest()) > 2*h.recoveryTTL() { // perhaps a factory of an agent does not return
		h.shareRecovery()
	}
	h.judging.Lock()
	defer h.judging.Unlock()
	return !h.shared.IsZero() && time.Since(h.shared) < part(sharePart, h.recoveryTTL())
}

// shareRecovery lets others recover runs, too, for so long that a lock which is not renewed
// expires and another process takes it, and now and then if it has to.
func (h *Host) shareRecovery() {
	h.judging.Lock()
	defer h.judging.Unlock()
	if h.shared.IsZero() || time.Since(h.shared) > shareTimes*h.recoveryTTL() {
		h.shared = time.Now()
	}
}

const (
	sharePart  = 0.7 // of the length of a lease
	shareTimes = 4   // at most once in so many times of it
)

// recoveryTTL is the length of leases by which the times of recovery are measured: those of
// processes with long leases are no longer than those of others.
func (h *Host) recoveryTTL() time.Duration { return min(h.cfg.LeaseTTL, defaultLeaseTTL) }

// featureSet returns a name for a set of features.
func featureSet(features []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(features)), "\n")))
	return hex.EncodeToString(sum[:8])
}

// recoverers is how many lost runs are recovered at the same time.
const recoverers = 8

// recoverLost recovers the runs that have lost their processes. Those that were lost before
// come last, ordered by how often they were: they may be what kills processes.
func (h *Host) recoverLost(ctx context.Context) {
	type lostBefore struct {
		session.Due
		times int
	}
	var (
		mu    sync.Mutex // guards again
		again []lostBefore
		jobs  = h.recoveries.newBatch("lost runs")
	)
	h.forgetTries()
	for _, due := range h.lostRuns() {
		if !h.mayRecover(due) {
			jobs.begin(ctx, due.RunID, due.Agent, func(ctx context.Context, _ *job) { h.endUnclaimed(ctx, due) })
			continue
		}
		if h.intake.full(false) {
			break
		}
		if h.isTried(due.RunID) { // its turn may wait in a queue
			continue
		}
		jobs.begin(ctx, due.RunID, due.Agent, func(ctx context.Context, _ *job) {
			loss, err := h.handler.Lost(ctx, due)
			switch {
			case err != nil:
				h.sweepFailed(ctx, "load "+due.ID, err)
			case loss.Before > 0:
				mu.Lock()
				defer mu.Unlock()
				again = append(again, lostBefore{due, loss.Before})
			default:
				h.recoverRun(ctx, due)
			}
		})
	}
	jobs.wait()
	mu.Lock()
	suspects := slices.Clone(again) // jobs that take long may still add to it: the next time
	mu.Unlock()
	slices.SortStableFunc(suspects, func(a, b lostBefore) int { return cmp.Compare(a.times, b.times) })
	jobs = h.suspects.newBatch("runs lost before")
	for _, l := range suspects {
		if h.intake.full(true) {
			h.shareRecovery() // another process may have room for it
			return
		}
		jobs.begin(ctx, l.RunID, l.Agent, func(ctx context.Context, _ *job) { h.recoverRun(ctx, l.Due) })
		jobs.wait()
	}
}

// recoverRun has the driver recover a run that has lost its process, if the run is this
// runtime's and its agent is registered here.
func (h *Host) recoverRun(ctx context.Context, due session.Due) {
	if !h.mayRecover(due) || !h.judged(due.Key, due.Lease) {
		return
	}
	err := h.driver.Recover(ctx, due)
	switch {
	case errors.Is(err, errLater):
		return
	case err != nil && !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning):
		h.sweepFailed(ctx, "recover "+due.ID, err)
		h.shareRecovery()
	}
	h.noteTry(due.RunID, err)
}

// try is when a run was last tried to be recovered, and how often in a row.
type try struct {
	at    time.Time
	times int
}

// pause returns how long the run is left alone then: longer each time, so that runs that cannot
// be recovered cost little. For the store's sake it need not be longer.
func (t try) pause(ttl time.Duration) time.Duration {
	return part(tryPart, ttl) << min(t.times-1, maxTryDoublings)
}

const (
	tryPart         = 0.4 // of the length of a lease
	maxTryDoublings = 4
	// manyTries is after how many tries nothing is written on account of a run while it is left alone.
	manyTries = 3
)

// noteTry notes that this process has tried to recover a run.
func (h *Host) noteTry(runID string, err error) {
	h.judging.Lock()
	defer h.judging.Unlock()
	t := try{at: time.Now(), times: h.tried[runID].times + 1}
	if errors.Is(err, session.ErrUnavailable) {
		t.times = 1
	}
	h.tried[runID] = t
}

// isTried reports whether this process has just tried to recover a run.
func (h *Host) isTried(runID string) bool {
	h.judging.Lock()
	defer h.judging.Unlock()
	t, ok := h.tried[runID]
	return ok && time.Since(t.at) < t.pause(h.recoveryTTL())
}

// isLeftAlone reports whether nothing is written on account of a run, because it was tried too
// often. The caller holds the lock.
func (h *Host) isLeftAlone(runID string) bool {
	t := h.tried[runID]
	return t.times >= manyTries && time.Since(t.at) < t.pause(h.recoveryTTL())
}

// forgetTries forgets the runs that were not tried for a while.
func (h *Host) forgetTries() {
	h.judging.Lock()
	defer h.judging.Unlock()
	maps.DeleteFunc(h.tried, func(_ string, t try) bool { return time.Since(t.at) > 2*t.pause(h.recoveryTTL())+h.recoveryTTL() })
}

// mayRecover reports whether this process may take a run over, once its lease is judged.
func (h *Host) mayRecover(due session.Due) bool {
	return !h.cfg.NoRecovery && due.Runtime == h.cfg.Name && !h.drives(due.RunID) && h.knows(due.Agent, due.Requires)
}

// mayEnd reports whether this process may end a run instead of continuing it, once its
// lease is judged: somebody has asked for its end.
func (h *Host) mayEnd(due session.Due) bool {
	return due.Stop == session.StopAbort && !h.drives(due.RunID) && h.handler.Supports(due.Requires)
}

// endUnclaimed ends a run that is to be aborted and that no process has taken over for a
// while: perhaps no process knows the agent any more.
func (h *Host) endUnclaimed(ctx context.Context, due session.Due) {
	if !h.mayEnd(due) || !h.judged(due.Key, due.Lease) {
		return
	}
	h.judging.Lock()
	overdue := h.judge.overdue(due.Key, due.Lease, time.Now())
	h.judging.Unlock()
	if overdue < h.unclaimed() {
		return
	}
	err := h.handler.EndAborted(ctx, due)
	if err != nil && !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning) && !errors.Is(err, session.ErrNotFound) {
		h.sweepFailed(ctx, "end "+due.ID, err)
	}
}

// unclaimed returns how long a lost run is left to processes that can continue it: they
// also call the agent's hooks.
func (h *Host) unclaimed() time.Duration { return h.cfg.LeaseTTL }

// unpauseAborted ends the pause of a session whose run is to be aborted and has no process:
// nobody recovers or ends the run of a paused session.
func (h *Host) unpauseAborted(ctx context.Context, key session.Key) error {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil || state.Status != session.Paused {
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
	if err != nil || run.Status != session.RunRunning || !h.handler.Supports(run.Requires) {
		return err
	}
	_, err = sessions.SetStatus(ctx, key.ID, session.StatusChange{
		Expect: []session.Status{session.Paused}, ExpectVersion: state.Version, To: session.Active,
	})
	return err
}
