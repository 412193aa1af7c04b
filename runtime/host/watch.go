package host

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
)

const (
	// leasePages pages of leasePage leases are read at most, of those that have expired lately.
	// Of the others one page is read.
	leasePages   = 10
	leasePage    = 512
	recentLeases = time.Minute
	// maxProbes is how many leases are written on account of at the same time.
	maxProbes = renewalBatch
	// leaseHorizon is after the end of every lease.
	leaseHorizon = 100 * 365 * 24 * time.Hour
)

// leaseWatch is what the goroutine that watches leases remembers.
type leaseWatch struct {
	recovers bool       // this process has a lock for recovering runs, or shares recovery
	lock     *lock.Lock // that lock
	failing  bool       // the last reading failed
	late     time.Time  // when leases that end too late were last looked for
	isSet    bool       // there were some: the store's clock was set back
	old      oldLeases
}

// oldLeases is what is remembered of leases that expired long ago.
type oldLeases struct {
	after *session.Due // the last lease before the page that is read
	since time.Time    // since when that page is read
	read  time.Time    // when it was last read
	found bool         // it had leases that this process may take over
}

// watchLeases judges the leases of other processes, until ctx ends. What it calls is the
// store and nothing else: whatever takes long would break its contact.
func (h *Host) watchLeases(ctx context.Context) {
	watch := leaseWatch{old: oldLeases{since: time.Now()}}
	defer h.releaseRecovery(ctx, &watch)
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
	return h.judge.pause(time.Now()) * 9 / 10
}

// judgeLeases reads which leases may have lost their holders, writes on their account, and
// has runs recovered whose leases may be taken over.
func (h *Host) judgeLeases(ctx context.Context, watch *leaseWatch) {
	reading, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	began := time.Now()
	now, err := h.cfg.Backend.Sessions().Now(reading)
	read := time.Now()
	var due []session.Due
	if err == nil {
		due, err = h.listLeases(reading, watch, answer{began: began, store: now})
	}
	if err != nil {
		h.judging.Lock()
		h.judge.failed()
		h.judging.Unlock()
		switch {
		case session.IsRetryable(err):
			h.noteAway(ctx, began, err)
		case !watch.failing: // a line for each try would fill the log
			h.sweepFailed(ctx, "leases", err)
		}
		watch.failing = true
		return
	}
	watch.failing = false
	h.noteBack(ctx)
	h.judging.Lock()
	h.judge.list(h.addWanted(due), read, now)
	wanted, others := h.splitWanted(h.judge.held(maxProbes, read, h.isLeftAlone))
	ready := h.judge.isReady()
	h.judging.Unlock()
	h.probeLeases(ctx, wanted)
	watch.recovers = ready && h.acquireRecovery(ctx, watch)
	if !watch.recovers {
		h.noteProbes(others, nil, time.Time{})
		return
	}
	h.probeLeases(ctx, others)
	select {
	case h.lost <- struct{}{}:
	default: // it has not yet begun with what was found before
	}
}

// noteAnswer notes that the store has answered a call. Each counts by itself: reading many
// leases may take long without any silence.
func (h *Host) noteAnswer(a answer) {
	a.ended = time.Now()
	h.judging.Lock()
	defer h.judging.Unlock()
	h.judge.answered(a)
}

// listLeases lists leases that expire soon, have expired or were released, and those that
// expire later than any lease should, of runs that this process may have to continue or end.
// It notes the store's clock, which was just read, with the first answer: the clock alone may
// be told without asking the store.
func (h *Host) listLeases(ctx context.Context, watch *leaseWatch, clock answer) (due []session.Due, err error) {
	request := session.SweepRequest{
		Limit: leasePage, Ahead: lookAhead(h.recoveryTTL()), Agents: h.handler.Agents(), Runtime: h.cfg.Name,
	}
	read := func(after *session.Due) (page []session.Due, err error) {
		a := answer{began: time.Now()}
		request.After = after
		if page, err = h.cfg.Backend.Sessions().ExpiredLeases(ctx, request); err != nil {
			return nil, err
		}
		if clock != (answer{}) {
			a, clock = clock, answer{}
		}
		h.noteAnswer(a)
		for _, d := range page {
			if h.mayRecover(d) || h.mayEnd(d) {
				due = append(due, d)
			}
		}
		return page, nil
	}
	now := clock.store
	// While another process recovers runs, it is enough to know that there are some.
	for after, pages := (&session.Due{At: now.Add(-recentLeases)}), 0; pages < leasePages && (watch.recovers || len(due) == 0); pages++ {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		if len(page) < leasePage {
			break
		}
		after = &page[leasePage-1]
	}
	if time.Since(watch.late) >= h.cfg.LeaseTTL || watch.isSet {
		found := len(due)
		h.judging.Lock()
		longest := h.judge.longest
		h.judging.Unlock()
		request.Ahead = leaseHorizon
		if _, err := read(&session.Due{At: now.Add(longest + part(jumpPart, longest))}); err != nil {
			return nil, err
		}
		watch.late, watch.isSet = time.Now(), len(due) > found
	}
	if watch.old.isDue(h.recoveryTTL()) {
		found := len(due)
		request.Ahead = -recentLeases
		page, err := read(watch.old.after)
		if err != nil {
			return nil, err
		}
		h.judging.Lock()
		turn := h.judge.turnTime()
		h.judging.Unlock()
		watch.old.noteRead(page, len(due) > found, turn)
	}
	return due, nil
}

// isDue reports whether the page is to be read: always if there is something to recover, else
// once per length of a lease.
func (o *oldLeases) isDue(ttl time.Duration) bool { return o.found || time.Since(o.read) >= ttl }

// noteRead notes the page that was read, and whether it had leases that this process may take
// over. The next page is read when this one was looked at for so long.
func (o *oldLeases) noteRead(page []session.Due, found bool, turn time.Duration) {
	o.read, o.found = time.Now(), found
	if time.Since(o.since) <= turn {
		return
	}
	o.after, o.since = nil, time.Now()
	if len(page) == leasePage {
		o.after = &page[leasePage-1]
	}
}

// acquireRecovery makes this process the one that recovers runs of its agents, unless
// another one does, or this one has no room for more. So several processes write on account
// of a lease no more often than one, and do not compete for a run. The lock is released when
// this process must not recover any more. Otherwise it expires, when nothing is left to
// recover or the process has died.
func (h *Host) acquireRecovery(ctx context.Context, watch *leaseWatch) bool {
	if h.isClosing() || h.intake.full(false) {
		h.releaseRecovery(ctx, watch)
		return false
	}
	if h.sharesRecovery() { // it goes on, so that nothing is lost if there are no others
		return true
	}
	name := "recovery/" + h.cfg.Name + "/" + h.handler.AgentSet() + "/" + h.features
	if h.cfg.NoRecovery { // it only ends runs
		name += "/no-recovery"
	}
	ours := h.tryRecoveryLock(ctx, watch, name)
	if ours {
		return true
	}
	// The process that has the lock cannot recover what has waited for so long. Or there is none:
	// the store's clock was set back after it took the lock.
	h.judging.Lock()
	overdue := h.judge.longestOverdue(time.Now(), h.isLeftAlone)
	h.judging.Unlock()
	return overdue > spareTimes*h.recoveryTTL() && h.tryRecoveryLock(ctx, watch, name+"/spare")
}

const (
	// lockPart is for which part of the length of a lease a process that has died keeps others
	// from recovering runs.
	lockPart = 0.3
	// spareTimes is after how many times the length of a lease a second process recovers runs.
	spareTimes = 1
)

// tryRecoveryLock acquires a lock for recovering runs.
func (h *Host) tryRecoveryLock(ctx context.Context, watch *leaseWatch, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	a := answer{began: time.Now()}
	held, ours, err := h.cfg.Backend.Locks().TryAcquire(ctx, name, h.recoverer, max(part(lockPart, h.recoveryTTL()), 1))
	if err != nil {
		h.sweepFailed(ctx, "lock", err)
		h.judging.Lock()
		h.judge.refusesWrites(time.Now())
		h.judging.Unlock()
		return false
	}
	h.noteAnswer(a)
	if ours {
		watch.lock = &held
	}
	return ours
}

// releaseRecovery releases the lock for recovering runs, if this process has it, so that
// another one need not wait until it expires.
func (h *Host) releaseRecovery(ctx context.Context, watch *leaseWatch) {
	if watch.lock == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	_ = h.cfg.Backend.Locks().Release(ctx, *watch.lock) // otherwise it expires
	watch.lock = nil
}

// releaseLimit bounds how long closing waits for the store to release a lock that expires soon.
const releaseLimit = time.Second

// probeLeases writes on account of leases.
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
	refused := len(errs) > 0
	for i := range held {
		if i < len(errs) && errs[i] == nil {
			h.judge.wrote(held[i].Key, began, ended)
		} else {
			h.judge.notWritten(held[i].Key)
		}
		refused = refused && session.IsRetryable(errs[i])
	}
	if refused {
		h.judge.refusesWrites(ended)
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

// lostRuns returns the runs that have lost their process, those first that lost it first.
func (h *Host) lostRuns() []session.Due {
	h.judging.Lock()
	defer h.judging.Unlock()
	return h.judge.condemned(time.Now())
}
