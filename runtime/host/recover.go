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
		h.noteRecovery(time.Now())
		h.recoverLost(ctx)
		h.noteRecovery(time.Time{})
	}
}

// againPause is how long to wait after a run that was refused may be admitted, so that
// several are admitted at once.
const againPause = 50 * time.Millisecond

// noteRecovery notes when this process began to recover runs, or that it does not.
func (h *Host) noteRecovery(began time.Time) {
	h.judging.Lock()
	h.recovering = began
	h.judging.Unlock()
}

// leavesRecovery reports whether others should try: this process has not come to the end of
// recovering for long, perhaps because a factory of an agent does not return, or it has just
// failed to recover a run.
func (h *Host) leavesRecovery() bool {
	h.judging.Lock()
	defer h.judging.Unlock()
	ttl := min(h.cfg.LeaseTTL, defaultLeaseTTL)
	return !h.recovering.IsZero() && time.Since(h.recovering) > 2*ttl || !h.left.IsZero() && time.Since(h.left) < tenths(leaveTenths, ttl)
}

// leaveRecovery leaves recovery to others for a moment, for which a lock that is not renewed
// expires, but not all the time: perhaps there are none.
func (h *Host) leaveRecovery() {
	h.judging.Lock()
	defer h.judging.Unlock()
	if ttl := min(h.cfg.LeaseTTL, defaultLeaseTTL); h.left.IsZero() || time.Since(h.left) > leaveTimes*ttl {
		h.left = time.Now()
	}
}

const (
	leaveTenths = 7 // for so many tenths of the length of a lease
	leaveTimes  = 4 // at most once in so many times of it
)

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
	h.forgetTried()
	for _, due := range h.lostRuns() {
		if !h.mayRecover(due) {
			h.endUnclaimed(ctx, due)
			continue
		}
		if h.intake.full(false) {
			break
		}
		if h.justTried(due.RunID) { // its turn may wait in a queue
			continue
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
				h.recoverRun(ctx, due)
			}
		})
	}
	working.Wait()
	slices.SortStableFunc(suspects, func(a, b suspect) int { return cmp.Compare(a.lost, b.lost) })
	for _, s := range suspects {
		if h.intake.full(true) {
			h.leaveRecovery() // another process may have room for it
			return
		}
		h.recoverRun(ctx, s.Due)
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
		h.leaveRecovery()
	}
	h.judging.Lock()
	defer h.judging.Unlock()
	h.tried[due.RunID] = time.Now()
}

// justTried reports whether this process has tried to recover a run a moment ago.
func (h *Host) justTried(runID string) bool {
	h.judging.Lock()
	defer h.judging.Unlock()
	return time.Since(h.tried[runID]) < h.triedTime()
}

// forgetTried forgets the runs that were not tried a moment ago.
func (h *Host) forgetTried() {
	h.judging.Lock()
	defer h.judging.Unlock()
	maps.DeleteFunc(h.tried, func(_ string, at time.Time) bool { return time.Since(at) >= h.triedTime() })
}

// triedTime returns how long to wait before a run is tried again that was not refused.
func (h *Host) triedTime() time.Duration {
	return tenths(triedTenths, min(h.cfg.LeaseTTL, defaultLeaseTTL))
}

const triedTenths = 4

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
