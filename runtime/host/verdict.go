package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// A workflow engine asks any process to take a turn over if it has not heard of the one that
// holds it. Whether that is dead is judged by the same rule as for other runs. What is asked
// for is written on account of by this process, whoever has the lock for recovering runs: the
// engine asks in any order, and whom it likes.

// awaitVerdict waits until this process may take over a turn for a workflow engine, which has
// been asking for so long, and reads the lease again. With force it may do so though the lease
// is renewed. It fails with [session.ErrUnavailable] if another process should be asked.
func (h *Host) awaitVerdict(ctx context.Context, due *session.Due, asked time.Duration) (force bool, err error) {
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
	case !due.Lease.Live(now):
		return false, h.awaitProof(ctx, *due)
	case min(asked, h.contactTime()) < h.cfg.HolderTimeout: // in an outage nobody can tell who lives
		return false, errHolderLives(due.RunID)
	}
	return true, nil
}

// contactTime returns for how long this process has been in contact with the store.
func (h *Host) contactTime() time.Duration {
	h.judging.Lock()
	defer h.judging.Unlock()
	return time.Since(h.judge.contacts[defaultLeaseTTL].since)
}

// ErrHolderLives is the error of [Host.TakeOver] for a turn whose process lives, as far as its
// lease tells. The workflow engine should soon ask again, until it asks that process.
var ErrHolderLives = errors.New("the process that holds the turn renews its lease")

func errHolderLives(runID string) error {
	return fmt.Errorf("take over run %s: %w", runID, ErrHolderLives)
}

// want is a lease that a workflow engine asks for.
type want struct {
	latest  session.Due // as it was last read
	waiting int         // calls of awaitProof
}

// awaitProof waits until the lease, which has expired, may be taken over by the rule. The
// takeover then compares that it was not renewed.
func (h *Host) awaitProof(ctx context.Context, due session.Due) error {
	h.judging.Lock()
	h.wanted[due.Key] = want{latest: due, waiting: h.wanted[due.Key].waiting + 1}
	limit := admission + h.judge.ttlOf(&due.Lease)
	h.judging.Unlock()
	defer func() {
		h.judging.Lock()
		defer h.judging.Unlock()
		w := h.wanted[due.Key]
		if w.waiting--; w.waiting == 0 {
			delete(h.wanted, due.Key)
		} else {
			h.wanted[due.Key] = w
		}
	}()
	for began := time.Now(); ; {
		switch {
		case h.judged(due.Key, due.Lease):
			return nil
		case h.isClosing():
			return errClosing
		case time.Since(began) > limit:
			return session.ErrUnavailable.WithMessage("run %s: this process could not prove that its holder is dead", due.RunID)
		}
		if retry.Sleep(ctx, h.cfg.LeaseTTL/renewalPause) != nil {
			return context.Cause(ctx)
		}
	}
}

// addWanted adds the leases to those that were listed which a workflow engine asks for. The
// caller holds the lock.
func (h *Host) addWanted(due []session.Due) []session.Due {
	if len(h.wanted) == 0 {
		return due
	}
	listed := make(map[session.Key]bool, len(due))
	for i := range due {
		listed[due[i].Key] = true
	}
	for key, w := range h.wanted {
		if !listed[key] {
			due = append(due, w.latest)
		}
	}
	return due
}

// splitWanted returns the leases of suspects that a workflow engine asks for, and of the others
// those that are given. The caller holds the lock.
func (h *Host) splitWanted(held []session.Held) (wanted, others []session.Held) {
	for key := range h.wanted {
		if s := h.judge.suspects[key]; s != nil && s.due.Lease.Owner != "" {
			wanted = append(wanted, session.Held{Key: key, Fence: s.due.Lease.Fence()})
		}
	}
	others = slices.DeleteFunc(held, func(l session.Held) bool {
		_, ok := h.wanted[l.Key]
		return ok
	})
	return wanted, others
}

// awaitContact waits until this process can tell whether the holder of a lease lives: until it
// has been in contact with the store for so long that the holder, if it was cut off, too, has
// renewed the lease, and has told the workflow engine that it lives.
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
