package host

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

const (
	// leasePages pages of leasePage leases are read at most, of those that have expired lately.
	leasePages = 10
	leasePage  = 512
	// Of the others one page is read, for so many times LeaseTTL the same, then the next one.
	oldPageTimes = 2
	recentLeases = time.Minute
	// maxProbes is how many leases are written on account of at the same time.
	maxProbes = 512
	// leaseHorizon is after the end of every lease.
	leaseHorizon = 100 * 365 * 24 * time.Hour
)

// leaseWatch is what the goroutine that watches leases remembers.
type leaseWatch struct {
	recovers bool         // this process has the lock for recovering runs
	late     time.Time    // when leases that end too late were last looked for
	isSet    bool         // there were some: the store's clock was set back
	old      *session.Due // the last lease before the page of old ones that is read now
	oldSince time.Time    // since when it is
}

// watchLeases judges the leases of other processes, until ctx ends. What it calls is the
// store and nothing else: whatever takes long would break its contact.
func (h *Host) watchLeases(ctx context.Context) {
	watch := leaseWatch{oldSince: time.Now()}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			began := time.Now()
			h.judgeLeases(ctx, &watch)
			timer.Reset(max(h.probePause()-time.Since(began), minProbePause))
		case <-ctx.Done():
			return
		}
	}
}

// minProbePause is how long to wait before a store that is slow is read again.
const minProbePause = time.Millisecond

// probePause returns how long to wait before the store is read again: a little less than the
// rule asks for, because reading takes time.
func (h *Host) probePause() time.Duration {
	h.judging.Lock()
	defer h.judging.Unlock()
	return h.judge.pause() * 9 / 10
}

// judgeLeases reads which leases may have lost their holders, writes on their account, and
// has runs recovered whose leases may be taken over.
func (h *Host) judgeLeases(ctx context.Context, watch *leaseWatch) {
	reading, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	a := answer{began: time.Now()}
	now, err := h.cfg.Backend.Sessions().Now(reading)
	read := time.Now()
	var due []session.Due
	if err == nil {
		due, err = h.listLeases(reading, watch, now)
	}
	if err != nil {
		h.judging.Lock()
		h.judge.failed()
		h.judging.Unlock()
		h.sweepFailed(ctx, "leases", err)
		return
	}
	a.ended, a.store = time.Now(), now // a clock alone may be told without asking the store
	h.judging.Lock()
	h.judge.answered(a)
	h.judge.list(due, read, now)
	held := h.judge.held(maxProbes, read)
	suspects := len(h.judge.suspects)
	h.judging.Unlock()
	watch.recovers = suspects > 0 && h.acquireRecovery(ctx)
	if !watch.recovers {
		h.noteProbes(held, nil, time.Time{})
		return
	}
	h.probeLeases(ctx, held)
	select {
	case h.lost <- struct{}{}:
	default: // it has not yet begun with what was found before
	}
}

// listLeases lists leases that expire soon, have expired or were released, and those that
// expire later than any lease should, of runs that this process may have to continue or end.
func (h *Host) listLeases(ctx context.Context, watch *leaseWatch, now time.Time) (due []session.Due, err error) {
	request := session.SweepRequest{
		Limit: leasePage, Ahead: lookAhead(min(h.cfg.LeaseTTL, defaultLeaseTTL)), Agents: h.handler.Agents(), Runtime: h.cfg.Name,
	}
	read := func(after *session.Due) (page []session.Due, err error) {
		request.After = after
		if page, err = h.cfg.Backend.Sessions().ExpiredLeases(ctx, request); err != nil {
			return nil, err
		}
		for _, d := range page {
			if h.mayRecover(d) || h.mayEnd(d) {
				due = append(due, d)
			}
		}
		return page, nil
	}
	recent := &session.Due{At: now.Add(-recentLeases)}
	pages := leasePages
	if !watch.recovers { // it is enough to know that there are some
		pages = 1
	}
	for after := recent; after != nil && pages > 0; pages-- {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		if after = nil; len(page) == leasePage {
			after = &page[leasePage-1]
		}
	}
	if time.Since(watch.late) >= h.cfg.LeaseTTL || watch.isSet {
		found := len(due)
		h.judging.Lock()
		longest := h.judge.longest
		h.judging.Unlock()
		request.Ahead = leaseHorizon
		if _, err := read(&session.Due{At: now.Add(longest + longest/jumpIn)}); err != nil {
			return nil, err
		}
		watch.late, watch.isSet = time.Now(), len(due) > found
	}
	request.Ahead = -recentLeases
	page, err := read(watch.old)
	if err != nil {
		return nil, err
	}
	if time.Since(watch.oldSince) > oldPageTimes*h.cfg.LeaseTTL {
		watch.old, watch.oldSince = nil, time.Now()
		if len(page) == leasePage {
			watch.old = &page[leasePage-1]
		}
	}
	return due, nil
}

// acquireRecovery makes this process the one that recovers runs of its agents, unless
// another one does, or this one has no room for more. So several processes write on account
// of a lease no more often than one, and do not compete for a run. The lock is not released
// but expires, when nothing is left to recover or the process has died.
func (h *Host) acquireRecovery(ctx context.Context) bool {
	if h.isClosing() || h.intake.full(false) || h.leavesRecovery() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	name := "recovery/" + h.cfg.Name + "/" + h.handler.AgentSet() + "/" + h.features
	if h.cfg.NoRecovery { // it only ends runs
		name += "/no-recovery"
	}
	_, ours, err := h.cfg.Backend.Locks().TryAcquire(ctx, name, h.recoverer, max(min(h.cfg.LeaseTTL, defaultLeaseTTL)/2, 1))
	if err != nil {
		h.sweepFailed(ctx, "lock", err)
	}
	return err == nil && ours
}

// probeLeases writes on account of leases. The lock was written just before, which is a
// write to the same server that no row or slot is needed for.
func (h *Host) probeLeases(ctx context.Context, held []session.Held) {
	for batch := range slices.Chunk(held, renewalBatch) {
		began := time.Now()
		probing, cancel := context.WithTimeout(ctx, h.renewalLimit())
		errs := h.cfg.Backend.ProbeLeases(probing, batch)
		cancel()
		h.noteProbes(batch, errs, began)
	}
}

// noteProbes notes the results of probes; without results, that there was none.
func (h *Host) noteProbes(held []session.Held, errs []error, began time.Time) {
	ended := time.Now()
	h.judging.Lock()
	defer h.judging.Unlock()
	for i := range held {
		if i < len(errs) && errs[i] == nil {
			h.judge.wrote(held[i].Key, began, ended)
		} else {
			h.judge.notWritten(held[i].Key)
		}
	}
}

// judged reports whether a lease, as it was read, may be taken over: it was released, or
// its holder is dead.
func (h *Host) judged(key session.Key, lease session.Lease) bool {
	if lease.Owner == "" {
		return true
	}
	h.judging.Lock()
	defer h.judging.Unlock()
	return h.judge.condemns(key, lease, time.Now())
}

// awaitContact waits until this process may take over a turn, for a workflow engine, whose
// lease has not expired: until it has been in contact with the store for so long that the
// holder of the lease, if it was cut off, too, has told the workflow engine that it lives.
func (h *Host) awaitContact(ctx context.Context, lease session.Lease) error {
	if lease.Owner == "" || h.handler.Owns(lease) {
		return nil
	}
	for began := time.Now(); ; {
		h.judging.Lock()
		may := h.judge.inContact(lease, time.Now())
		h.judging.Unlock()
		switch {
		case may:
			return nil
		case h.isClosing():
			return errClosing
		case time.Since(began) > admission:
			return session.ErrUnavailable.WithMessage("this process has not reached the store for long enough to know whether the run's process is dead")
		}
		if err := retry.Sleep(ctx, h.probePause()); err != nil {
			return context.Cause(ctx)
		}
	}
}

// lostRuns returns the runs that have lost their process, those first that lost it first.
func (h *Host) lostRuns() []session.Due {
	h.judging.Lock()
	defer h.judging.Unlock()
	return h.judge.condemned(time.Now())
}
