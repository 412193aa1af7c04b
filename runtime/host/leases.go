package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

const (
	// renewalBatch is how many leases one call of the store renews at most.
	renewalBatch = 500
	// maxRenewals is how many rounds of renewals are under way at the same time.
	maxRenewals = 3
	// A lease that could not be renewed is renewed again after this part of its TTL.
	renewalPause = 20
)

// beginRenewal begins to renew the leases of all turns that this process holds, and does
// not wait for it: a round that is slow may still succeed, and the next one goes on beside
// it. If too many are under way, the store answers none of them, and this round is left out.
func (h *Host) beginRenewal(ctx context.Context) {
	select {
	case h.renewals <- struct{}{}:
	default:
		return
	}
	h.loops.Go(func() {
		defer func() { <-h.renewals }()
		h.renewLeases(ctx)
	})
}

// renewLeases renews leases until it has renewed them all, or a later round has begun to.
func (h *Host) renewLeases(ctx context.Context) {
	round, turns := h.beginRound()
	for try := 1; len(turns) > 0; try++ {
		var (
			failed []*Turn
			reason error
		)
		for batch := range slices.Chunk(turns, renewalBatch) {
			left, err := h.renewBatch(ctx, h.takeBatch(round, batch))
			if err != nil {
				failed, reason = append(failed, left...), err
			}
		}
		if len(failed) > 0 && try == 1 && ctx.Err() == nil { // a line for each try would fill the log
			first := failed[0].Opened
			h.log.Log(ctx, h.retryLevel(reason), "lease.not_renewed", "leases", len(failed), "session", first.Key.ID, "run", first.Run.ID, "error", reason)
		}
		if len(failed) > 0 && retry.Sleep(ctx, h.cfg.LeaseTTL/renewalPause) != nil {
			return
		}
		turns = failed
	}
}

// beginRound returns all turns that this process holds, those first whose leases the store
// was not asked to renew for the longest time, and the number of a round that renews them.
// Earlier rounds leave to it what they have not begun to renew.
func (h *Host) beginRound() (round int64, turns []*Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds++
	turns = make([]*Turn, 0, len(h.turns))
	for _, t := range h.turns {
		t.round = h.rounds
		turns = append(turns, t)
	}
	slices.SortFunc(turns, func(a, b *Turn) int { return a.asked.Compare(b.asked) })
	return h.rounds, turns
}

// takeBatch returns those turns that are held and that no later round renews, and notes
// that the store is asked to renew their leases.
func (h *Host) takeBatch(round int64, turns []*Turn) []*Turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	var batch []*Turn
	for _, t := range turns {
		if t.round == round && h.turns[t.Opened.Run.ID] == t {
			t.asked = time.Now()
			batch = append(batch, t)
		}
	}
	return batch
}

// renewBatch renews the leases of turns with one call. It returns the turns whose leases
// could not be renewed and are not known to be lost, and why.
func (h *Host) renewBatch(ctx context.Context, turns []*Turn) (failed []*Turn, reason error) {
	if len(turns) == 0 {
		return nil, nil
	}
	runs := make([]string, len(turns))
	for i, t := range turns {
		runs[i] = t.Opened.Run.ID
	}
	renewing, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	began := time.Now()
	errs := h.handler.Renew(renewing, h.cfg.LeaseTTL, runs...)
	answered := false
	for i, t := range turns {
		err, asked := errs[runs[i]]
		switch {
		case err == nil:
			answered = answered || asked
			h.noteRenewal(t, began)
			h.ensureDriven(ctx, t)
		case t.cancelled(): // it is being released
		case errors.Is(err, session.ErrStale), errors.Is(err, session.ErrNotFound):
			// Another process holds the session: what is in flight here cannot be committed.
			h.log.WarnContext(ctx, "lease.lost", "session", t.Opened.Key.ID, "run", runs[i], "error", err)
			t.cancel(err)
		default:
			failed, reason = append(failed, t), err
		}
	}
	if len(failed) > 0 && ctx.Err() == nil {
		h.noteFailure(failed)
	}
	if answered {
		h.noteAnswer(answer{began: began})
	}
	return failed, reason
}

// renewalLimit is how long one call to renew leases may take. A call that a server has
// forgotten must not keep a connection until the leases have expired.
func (h *Host) renewalLimit() time.Duration { return max(h.cfg.LeaseTTL, time.Second) }

// noteRenewal notes that a renewal that began at a time has succeeded.
func (h *Host) noteRenewal(t *Turn, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.After(t.renewed) { // not a slow one that a later one has overtaken
		t.renewed, t.failing = began, false
	}
}

// noteFailure tells who waits for turns if their leases have expired, as far as this process
// can know, because they could not be renewed. It goes on with the turns: only the store
// knows whether another process has taken them.
func (h *Host) noteFailure(turns []*Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range turns {
		t.failing = true
	}
	if slices.ContainsFunc(turns, func(t *Turn) bool { return !h.leased(t) }) {
		h.changed.Broadcast()
	}
}

// leased reports whether this process can be sure to hold a turn's lease without asking
// the store. The caller holds the lock.
func (h *Host) leased(t *Turn) bool {
	return elapsed(t.renewed, time.Now()) < h.cfg.LeaseTTL && !t.cancelled()
}

// cannotRenew reports whether this process works on a run whose lease it could not renew when
// it last tried.
func (h *Host) cannotRenew(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.turnOf(runID)
	return turn != nil && (turn.failing || !h.leased(turn))
}

// Holds reports whether this process holds a turn, whether or not it knows that it still has
// the lease.
func (h *Host) Holds(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.turns[runID]
	return turn != nil && !turn.cancelled()
}

// LeaseLost reports whether this process works on a run whose lease it has lost, or
// could not renew in time. A driver that sends heartbeats for effects of the run then
// stops sending them, so that the workflow engine asks another process.
func (h *Host) LeaseLost(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.turnOf(runID)
	return turn != nil && !h.leased(turn)
}

// HoldsLease reports whether this process holds the lease of the turn that a run belongs
// to, so that no other process can hold the turn. If the last renewal is too old to be
// sure, it asks the store, again while that is unavailable.
func (h *Host) HoldsLease(ctx context.Context, runID string) bool {
	for {
		h.mu.Lock()
		turn := h.turnOf(runID)
		leased := turn != nil && h.leased(turn)
		h.mu.Unlock()
		switch {
		case leased:
			return true
		case turn == nil || turn.cancelled():
			return false
		}
		if err := h.Renew(ctx, runID); !session.IsRetryable(err) {
			return err == nil
		}
		if retry.Sleep(ctx, h.cfg.LeaseTTL/renewalPause) != nil {
			return false
		}
	}
}

// Renew renews the lease of a run that this process works on, and reads a stop request
// for it from the store.
func (h *Host) Renew(ctx context.Context, runID string) error {
	renewing, cancel := context.WithTimeout(ctx, h.renewalLimit())
	defer cancel()
	err := h.handler.Renew(renewing, h.cfg.LeaseTTL, runID)[runID]
	if err != nil && renewing.Err() != nil && ctx.Err() == nil {
		return session.ErrUnavailable.WithCause(err, "the store took longer than %s to renew a lease", h.renewalLimit())
	}
	return err
}

// turnOf returns the turn that this process holds and that a run belongs to, as the root
// or as a child, or nil. The caller holds the lock.
func (h *Host) turnOf(runID string) *Turn {
	if turn := h.turns[runID]; turn != nil {
		return turn
	}
	return h.children[runID]
}
