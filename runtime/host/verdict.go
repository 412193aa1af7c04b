package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// A workflow engine asks any process to take a turn over if it has not heard of the one that
// holds it. Whether that is dead is judged here by the same rule as for other runs, one lease
// at a time, because the engine asks in any order.

// leaving is since when this process leaves a turn to its holder, and when it was last asked to
// take it over.
type leaving struct {
	since, asked time.Time
}

// awaitVerdict waits until this process may take over a turn for a workflow engine, and reads
// the lease again. With force it may do so though the lease is renewed. It fails with
// [session.ErrUnavailable] if another process should be asked.
func (h *Host) awaitVerdict(ctx context.Context, due *session.Due) (force bool, err error) {
	if due.Lease.Owner == "" || h.handler.Owns(due.Lease) {
		return true, nil
	}
	if err := h.awaitContact(ctx, due.Lease); err != nil || h.cfg.HolderTimeout == 0 {
		return true, err
	}
	sessions := h.cfg.Backend.Sessions().Tenant(due.Tenant)
	state, err := sessions.Load(ctx, due.ID)
	if err != nil {
		return false, err
	}
	due.Lease = state.Lease
	now, err := sessions.Now(ctx)
	switch {
	case err != nil:
		return false, err
	case due.Lease.Owner == "":
		return true, nil
	case h.judged(due.Key, due.Lease):
		return false, nil
	case !due.Lease.Live(now):
		return false, h.proveLoss(ctx, due)
	case h.leavesTurn(due.RunID):
		return false, errHolderLives(due.RunID)
	}
	return true, nil
}

// ErrHolderLives is the error of [Host.TakeOver] for a turn whose process lives, as far as its
// lease tells. The workflow engine should soon ask again, until it asks that process.
var ErrHolderLives = errors.New("the process that holds the turn renews its lease")

func errHolderLives(runID string) error {
	return fmt.Errorf("take over run %s: %w", runID, ErrHolderLives)
}

// leavesTurn reports whether a turn is left to the process that holds it, because the workflow
// engine has not asked for long enough.
func (h *Host) leavesTurn(runID string) bool {
	h.judging.Lock()
	defer h.judging.Unlock()
	now, gap := time.Now(), 2*h.cfg.HolderTimeout
	maps.DeleteFunc(h.left, func(_ string, l leaving) bool { return now.Sub(l.asked) > gap })
	l := h.left[runID]
	if l.since.IsZero() {
		l.since = now
	}
	l.asked = now
	h.left[runID] = l
	return now.Sub(l.since) < h.cfg.HolderTimeout
}

// proveLoss writes on account of a lease that has expired, for so long that its holder, if it
// lives, has renewed it. The takeover then compares that it was not renewed.
func (h *Host) proveLoss(ctx context.Context, due *session.Due) error {
	held := []session.Held{{Key: due.Key, Fence: due.Lease.Fence()}}
	h.judging.Lock()
	ttl := min(h.judge.ttlOf(&due.Lease), defaultLeaseTTL)
	h.judging.Unlock()
	proof := part(proofPart, ttl)
	var first time.Time
	for began := time.Now(); ; {
		probing, cancel := context.WithTimeout(ctx, h.renewalLimit())
		wrote := time.Now()
		err := h.cfg.Backend.ProbeLeases(probing, held)[0]
		cancel()
		switch {
		case err != nil && session.IsRetryable(err): // the store has refused writes
			first, proof = time.Time{}, ttl
		case err != nil:
			first = time.Time{}
		case first.IsZero():
			first = time.Now()
		case wrote.Sub(first) >= proof:
			return nil
		}
		switch {
		case h.isClosing():
			return errClosing
		case time.Since(began) > admission:
			return session.ErrUnavailable.WithMessage("run %s: this process cannot write on account of its lease: %v", due.RunID, err)
		}
		if retry.Sleep(ctx, part(probePart/2, ttl)) != nil {
			return context.Cause(ctx)
		}
	}
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
