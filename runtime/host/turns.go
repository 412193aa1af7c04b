package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// Turn is a turn that this process works on.
type Turn struct {
	Opened *engine.Opened
	// Context ends when the turn is to be given up here: the process closes, or has
	// lost the lease.
	Context context.Context //nolint:containedctx // it is the turn's life, not that of a call
	cancel  context.CancelCauseFunc
	done    chan struct{}
	ended   sync.Once
	renewed atomic.Int64 // when the lease was, see sinceStart

	// Where an engine hands effects to this process:
	busy  int         // how many are in flight
	idle  time.Time   // since when there are none
	leave bool        // the turn is to be given up once there are none
	watch func() bool // stops waiting for Context to end
}

// over reports whether the turn is to be given up here.
func (t *Turn) over() bool { return t.Context.Err() != nil }

// drive has an opened turn driven. It gives what is closed when this process has
// done with it.
func (h *Host) drive(ctx context.Context, opened *engine.Opened) <-chan struct{} {
	turn := h.hold(opened)
	if h.cfg.Elsewhere {
		h.GiveUp(turn)
	}
	if err := h.driver.Drive(ctx, turn); err != nil {
		h.log.WarnContext(ctx, "turn not started, it is left to a sweep",
			"tenant", opened.Key.Tenant, "session", opened.Key.ID, "run", opened.Run.ID, "error", err)
		h.GiveUp(turn)
	}
	return turn.done
}

// hold notes a turn as one that this process works on. The caller has seen to it
// that Close waits.
func (h *Host) hold(opened *engine.Opened) *Turn {
	ctx, cancel := context.WithCancelCause(context.Background())
	turn := &Turn{Opened: opened, Context: ctx, cancel: cancel, done: make(chan struct{})}
	turn.idle = time.Now()
	turn.renewed.Store(sinceStart())
	h.mu.Lock()
	if old := h.turns[opened.Run.ID]; old != nil { // this process has taken it over from itself
		defer h.Finish(old, nil)
	}
	defer h.mu.Unlock()
	h.turns[opened.Run.ID] = turn
	h.wg.Add(1)
	if h.cfg.Engine {
		turn.watch = context.AfterFunc(ctx, func() { h.pause(turn, func() { turn.leave = true }) })
	}
	if h.over {
		cancel(errClosing)
	}
	return turn
}

// Finish notes that this process has done with a turn, and sees to what its end, if
// it was one, leads to.
func (h *Host) Finish(turn *Turn, end *machine.Outcome) {
	turn.ended.Do(func() {
		h.mu.Lock()
		if h.turns[turn.Opened.Run.ID] == turn {
			delete(h.turns, turn.Opened.Run.ID)
		}
		below := h.below(turn)
		for _, run := range below {
			delete(h.members, run)
		}
		h.mu.Unlock()
		for _, run := range below {
			h.handler.Drop(run)
		}
		if turn.watch != nil {
			turn.watch()
		}
		turn.cancel(nil)
		close(turn.done)
		if end != nil {
			h.after(turn.Opened.Key, end)
		}
		h.wg.Done()
	})
}

// pause changes what is known of a turn's effects, and gives the turn up if it is
// time.
func (h *Host) pause(turn *Turn, change func()) {
	h.mu.Lock()
	change()
	h.calm.Broadcast()
	leave := turn.leave && turn.busy == 0
	h.mu.Unlock()
	if leave {
		h.GiveUp(turn)
	}
}

// GiveUp leaves a turn to others, who may take it over at once.
func (h *Host) GiveUp(turn *Turn) {
	ctx := context.WithoutCancel(turn.Context)
	h.mu.Lock()
	held := h.turns[turn.Opened.Run.ID] == turn
	below := h.below(turn)
	h.mu.Unlock()
	if !held {
		return // it has ended, or was taken anew
	}
	for _, run := range append(below, turn.Opened.Run.ID) {
		if errors.Is(context.Cause(turn.Context), errExpired) { // there is nothing to give back
			h.handler.Drop(run)
		} else {
			h.handler.Release(ctx, run)
		}
	}
	h.Finish(turn, nil)
}

// below are the runs of agents that work for a turn. The caller holds the lock.
func (h *Host) below(turn *Turn) []string {
	var runs []string
	for run, root := range h.members {
		if root == turn {
			runs = append(runs, run)
		}
	}
	return runs
}

// after sees to what the end of a turn leads to.
func (h *Host) after(key session.Key, end *machine.Outcome) {
	ctx := context.Background()
	if end.Abort != nil {
		if err := h.abortWaiting(ctx, key, *end.Abort); err != nil {
			h.log.WarnContext(ctx, "session not aborted", "tenant", key.Tenant, "session", key.ID, "error", err)
		}
	}
	if end.Wake || end.StopUndelivered {
		h.sweepWakes(ctx)
	}
}

// AfterChild sees to what the end of a turn leads to that another waits for.
func (h *Host) AfterChild(ctx context.Context, end *machine.Outcome) {
	if end.StopUndelivered {
		h.sweepWakes(ctx)
	}
}

// DriveApart drives a turn that nobody here waits for.
func (h *Host) DriveApart(opened *engine.Opened) {
	h.apart(opened, func() { h.drive(context.Background(), opened) })
}

// apart does something about a turn that nobody here waits for. A process that
// closes leaves it to whoever takes it over.
func (h *Host) apart(opened *engine.Opened, do func()) {
	done, err := h.open(opened.Run.ID)
	if err != nil {
		h.handler.Release(context.Background(), opened.Run.ID)
		return
	}
	defer done()
	do()
}

// Recover takes over a run whose owner is gone and drives it. It is refused with
// errLater while other runs come first.
func (h *Host) Recover(ctx context.Context, due session.Due) error {
	done, err := h.open(due.RunID)
	if err != nil {
		return nil // the runtime closes: others will see to it
	}
	defer done()
	loss, err := h.handler.Lost(ctx, due)
	if err != nil {
		return err
	}
	admitted := h.intake.admit(loss.Before > 0)
	if admitted == nil {
		return errLater
	}
	opened, err := h.handler.Recover(ctx, due)
	if err != nil {
		admitted.leave()
		return err
	}
	h.follow(admitted, opened, h.drive(ctx, opened))
	return nil
}

// renewLeases keeps the leases of all turns of this process.
func (h *Host) renewLeases(ctx context.Context) {
	h.mu.Lock()
	turns := make([]*Turn, 0, len(h.turns))
	for _, t := range h.turns {
		turns = append(turns, t)
	}
	h.mu.Unlock()
	// One after the other, a slow store would not get round to the last in time.
	var renewing sync.WaitGroup
	next := make(chan *Turn)
	for range min(renewers, len(turns)) {
		renewing.Go(func() {
			for t := range next {
				h.renew(ctx, t)
			}
		})
	}
	for _, t := range turns {
		next <- t
	}
	close(next)
	renewing.Wait()
}

var errExpired = session.ErrUnavailable.WithMessage("the lease has expired and could not be renewed")

// renewers is how many leases are renewed at the same time.
const renewers = 8

func (h *Host) renew(ctx context.Context, t *Turn) {
	id, runID, began := t.Opened.Key.ID, t.Opened.Run.ID, sinceStart()
	err := h.handler.Renew(ctx, runID, h.cfg.LeaseTTL)
	switch {
	case t.over(): // it is being given up
	case err == nil:
		t.renewed.Store(began)
		h.failed.Store(0)
		h.lookAfter(ctx, t)
	case ctx.Err() != nil:
	case errors.Is(err, session.ErrStale), errors.Is(err, session.ErrNotFound):
		// Somebody else has the session: what is in flight here is in vain.
		h.log.WarnContext(ctx, "lease lost", "session", id, "run", runID, "error", err)
		t.cancel(err)
	default:
		h.log.WarnContext(ctx, "lease not renewed", "session", id, "run", runID, "error", err)
		if h.leased(t) {
			return
		}
		h.failed.Store(sinceStart())
		if h.cfg.Engine { // it will have found somebody else
			t.cancel(errExpired)
		}
	}
}

// started is for sinceStart.
var started = time.Now()

// sinceStart is a time in nanoseconds which no change of the clock can move.
func sinceStart() int64 { return int64(time.Since(started)) }

// lookAfter has an engine make sure that it still drives a turn about which it has
// asked for nothing in a while.
func (h *Host) lookAfter(ctx context.Context, t *Turn) {
	h.mu.Lock()
	forgotten := h.cfg.Engine && t.busy == 0 && time.Since(t.idle) > h.cfg.LeaseTTL
	if forgotten {
		t.idle = time.Now()
	}
	h.mu.Unlock()
	if !forgotten {
		return
	}
	select {
	case h.checks <- struct{}{}:
	default:
		return // an engine that is away must not hold up the renewal of leases
	}
	h.loops.Go(func() {
		defer func() { <-h.checks }()
		run := &t.Opened.Run
		if err := h.driver.Check(ctx, session.Due{Key: t.Opened.Key, Agent: run.Agent, RunID: run.ID, Runtime: run.Runtime}); err != nil {
			h.sweepFailed(ctx, "look after "+t.Opened.Key.ID, err)
		}
	})
}

// checkers is how many turns are looked after at the same time.
const checkers = 8

func (h *Host) drives(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.turns[runID]
	return ok || h.opening[runID]
}

// open marks a run as about to be driven, so that no sweep takes it for an
// orphan, however long its start takes, and that Close waits for it.
func (h *Host) open(runID string) (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, errClosing
	}
	h.opening[runID] = true
	h.wg.Add(1)
	return func() {
		h.mu.Lock()
		delete(h.opening, runID)
		h.calm.Broadcast()
		h.mu.Unlock()
		h.wg.Done()
	}, nil
}

// doneOf is closed when this process has finished with the run, or nil if it does
// not work on it.
func (h *Host) doneOf(runID string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, ok := h.turns[runID]; ok {
		return t.done
	}
	return nil
}

// Effects whose store is unavailable are tried again for about a minute.
const (
	effectTries = 12
	firstPause  = 50 * time.Millisecond
	longPause   = 10 * time.Second
)

// Try carries out a part of an effect, again if the store was unavailable.
func Try[V any](ctx context.Context, h *Host, effect machine.Effect, do func(context.Context, machine.Effect) (V, error)) (V, error) {
	pause := firstPause
	for try := 1; ; try++ {
		result, err := do(ctx, effect)
		if err == nil || ctx.Err() != nil || !session.IsRetryable(err) || try == effectTries {
			return result, err
		}
		h.log.WarnContext(ctx, "effect failed, trying again",
			"session", effect.SessionID, "effect", effect.Key(), "try", try, "error", err)
		if err := wait(ctx, pause); err != nil {
			return result, fmt.Errorf("effect %s: %w", effect.Key(), err)
		}
		pause = min(2*pause, longPause)
	}
}

// Leave gives up the turn of a run, if this process holds it, once none of its
// effects is in flight.
func (h *Host) Leave(runID string, why error) {
	h.mu.Lock()
	turn := h.turns[runID]
	h.mu.Unlock()
	if turn != nil {
		turn.cancel(why)
	}
}
