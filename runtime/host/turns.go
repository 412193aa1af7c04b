package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// Turn is a turn that this process holds.
type Turn struct {
	Opened *engine.Opened
	// Context ends when this process must stop working on the turn, because it shuts
	// down or has lost the lease.
	Context context.Context //nolint:containedctx // it is the turn's life, not that of a call
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when this process no longer holds the turn
	ended   sync.Once

	// Guarded by the host's lock:
	renewed time.Time // when the last renewal of the lease that succeeded began
	asked   time.Time // when the store was last asked to renew it
	failing bool      // it could not be renewed when it was last tried
	round   int64     // the last round that renews it

	// If a workflow engine passes effects to this process; guarded by the host's lock:
	busy      int         // how many effects are in flight
	idle      time.Time   // when the last of them ended
	releasing bool        // the turn is released once none is in flight
	unwatch   func() bool // stops waiting for Context to end
}

// cancelled reports whether this process must stop working on the turn.
func (t *Turn) cancelled() bool { return t.Context.Err() != nil }

// drive passes an opened turn to the driver. It returns a channel that is closed when
// this process no longer holds the turn.
func (h *Host) drive(ctx context.Context, opened *engine.Opened) <-chan struct{} {
	turn := h.hold(opened)
	if h.cfg.ReleaseOpened {
		h.release(turn)
	}
	if err := h.driver.Drive(ctx, turn); err != nil {
		h.log.WarnContext(ctx, "turn.not_started",
			"tenant", opened.Key.Tenant, "session", opened.Key.ID, "run", opened.Run.ID, "error", err)
		h.release(turn)
	}
	return turn.done
}

// hold records that this process holds a turn. The caller makes sure that Shutdown
// waits meanwhile.
func (h *Host) hold(opened *engine.Opened) *Turn {
	ctx, cancel := context.WithCancelCause(context.Background())
	now := time.Now()
	turn := &Turn{Opened: opened, Context: ctx, cancel: cancel, done: make(chan struct{}), renewed: now, asked: now, idle: now}
	h.mu.Lock()
	if old := h.turns[opened.Run.ID]; old != nil { // this process took the turn over from itself
		defer h.Finish(old, nil)
	}
	defer h.mu.Unlock()
	h.turns[opened.Run.ID] = turn
	h.tasks.sees(opened.Key.Tenant)
	h.wg.Add(1)
	if h.cfg.WorkflowEngine {
		turn.unwatch = context.AfterFunc(ctx, func() { h.update(turn, func() { turn.releasing = true }) })
	}
	if h.handedOver {
		cancel(errClosing)
		h.cutShort = true
	}
	return turn
}

// Finish records that this process no longer works on a turn. The driver passes the
// turn's end, or nil if the turn was lost or released before its end. What follows from
// the end, such as waking the session that waits for it, is done before Finish returns,
// or begun if a hook or a factory takes long.
func (h *Host) Finish(turn *Turn, end *machine.Outcome) {
	turn.ended.Do(func() {
		h.mu.Lock()
		if h.turns[turn.Opened.Run.ID] == turn {
			delete(h.turns, turn.Opened.Run.ID)
		}
		below := h.childRuns(turn)
		for _, run := range below {
			delete(h.children, run)
		}
		h.mu.Unlock()
		for _, run := range below {
			h.handler.Drop(run)
		}
		if turn.unwatch != nil {
			turn.unwatch()
		}
		turn.cancel(nil)
		close(turn.done)
		if end != nil {
			h.after(turn.Opened.Key, end)
		}
		h.wg.Done()
	})
}

// update changes the fields of a turn that count its effects, and releases the turn if
// it is to be released and no effect is in flight.
func (h *Host) update(turn *Turn, change func()) {
	h.mu.Lock()
	change()
	h.changed.Broadcast()
	release := turn.releasing && turn.busy == 0
	h.mu.Unlock()
	if release {
		h.release(turn)
	}
}

// release releases a turn, so that another process can take it over at once.
func (h *Host) release(turn *Turn) {
	ctx := context.WithoutCancel(turn.Context)
	h.mu.Lock()
	held := h.turns[turn.Opened.Run.ID] == turn
	below := h.childRuns(turn)
	h.mu.Unlock()
	if !held {
		return // it has ended, or was taken over again
	}
	for _, run := range append(below, turn.Opened.Run.ID) {
		if opened := h.handler.Opened(run); opened != nil {
			h.handler.Release(ctx, opened)
		}
	}
	h.Finish(turn, nil)
}

// childRuns returns the runs of the children that a turn waits for. The caller holds the
// lock.
func (h *Host) childRuns(turn *Turn) []string {
	var runs []string
	for run, root := range h.children {
		if root == turn {
			runs = append(runs, run)
		}
	}
	return runs
}

// after does what follows from the end of a turn.
func (h *Host) after(key session.Key, end *machine.Outcome) {
	ctx := context.Background()
	if end.Abort != nil {
		if err := h.abortWaiting(ctx, key, *end.Abort); err != nil {
			h.log.WarnContext(ctx, "session.not_aborted", "tenant", key.Tenant, "session", key.ID, "error", err)
		}
	}
	if end.Wake || end.StopUndelivered {
		h.sweepWakes(ctx, always)
	}
}

// FinishChild does what follows from the end of a child's turn. The driver calls it for
// each turn that [Host.OpenChild] returned and that is not Detached.
func (h *Host) FinishChild(ctx context.Context, end *machine.Outcome) {
	if end.StopUndelivered {
		h.sweepWakes(ctx, always)
	}
}

// DriveDetached passes the turn of a detached companion to the driver. If the runtime is
// closing, the turn is released instead.
func (h *Host) DriveDetached(opened *engine.Opened) {
	h.opened(opened, func() { h.drive(context.Background(), opened) })
}

// opened calls do, which makes this process hold a turn that nobody here waits for. If
// the runtime is closing, it releases the turn instead.
func (h *Host) opened(opened *engine.Opened, do func()) {
	done, err := h.open(opened.Run.ID)
	if err != nil {
		h.handler.Release(context.Background(), opened)
		return
	}
	defer done()
	do()
}

// Recover takes over a run whose process has died or released it, and passes its turn to
// the driver. It fails while other runs have to be taken over first; the host asks the
// driver again later.
func (h *Host) Recover(ctx context.Context, due session.Due) error {
	done, err := h.open(due.RunID)
	if err != nil {
		return nil // the runtime is closing: another process recovers the run
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

// ensureDriven has the driver check that a workflow still drives a turn, if the workflow
// engine has asked for none of its effects in a while.
func (h *Host) ensureDriven(ctx context.Context, t *Turn) {
	h.mu.Lock()
	idle := h.cfg.WorkflowEngine && t.busy == 0 && time.Since(t.idle) > h.cfg.LeaseTTL
	if idle {
		t.idle = time.Now()
	}
	h.mu.Unlock()
	if !idle {
		return
	}
	select {
	case h.checkSlots <- struct{}{}:
	default:
		return // a workflow engine that is unreachable must not delay the renewal of leases
	}
	h.loops.Go(func() {
		defer func() { <-h.checkSlots }()
		run := &t.Opened.Run
		if err := h.driver.EnsureDriven(ctx, session.Due{Key: t.Opened.Key, Agent: run.Agent, RunID: run.ID, Runtime: run.Runtime}); err != nil {
			h.sweepFailed(ctx, "ensure driven "+t.Opened.Key.ID, err)
		}
	})
}

// maxChecks is how many calls of Driver.EnsureDriven are in flight at the same time.
const maxChecks = 8

// drives reports whether this process holds the turn of a run, or is about to.
func (h *Host) drives(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.turns[runID]
	return ok || h.opening[runID]
}

// open records that a run is about to be driven, until done is called. This process does not
// recover the run meanwhile, however long its start takes, and Shutdown waits.
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
		h.changed.Broadcast()
		h.mu.Unlock()
		h.wg.Done()
	}, nil
}

// doneChan returns a channel that is closed when this process no longer holds the turn of
// a run, or nil if it does not hold it now.
func (h *Host) doneChan(runID string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, ok := h.turns[runID]; ok {
		return t.done
	}
	return nil
}

// Handle carries out an effect. While the store is unavailable, it tries again: for about a
// minute, or for as long as this process cannot renew the lease either.
func (h *Host) Handle(ctx context.Context, effect machine.Effect) (machine.Result, error) {
	return retryEffect(ctx, h, effect, (*engine.Handler).Handle)
}

// OpenChild opens the turn of the agent that an effect of the kind [machine.CallChild]
// calls. The driver drives the turn before it passes the effect to [Host.Handle].
// OpenChild returns nil if nothing has to be driven.
func (h *Host) OpenChild(ctx context.Context, effect machine.Effect) (*engine.Opened, error) {
	return retryEffect(ctx, h, effect, (*engine.Handler).OpenChild)
}

// An effect is tried effectTries times while the store is unavailable, for about a
// minute. What is tried while the store takes no renewals does not count: nobody else can
// continue the turn then, and to give it up would lose results of calls.
const (
	effectTries = 12
	firstPause  = 50 * time.Millisecond
	longPause   = 10 * time.Second
)

// retryEffect carries out a part of an effect, again if the store was unavailable.
func retryEffect[V any](
	ctx context.Context, h *Host, effect machine.Effect, do func(*engine.Handler, context.Context, machine.Effect) (V, error),
) (V, error) {
	pause, counted := firstPause, 0
	for try := 1; ; try++ {
		result, err := do(h.handler, ctx, effect)
		if counted++; h.cannotRenew(effect.RunID) {
			counted = 0
		}
		if err == nil || ctx.Err() != nil || !session.IsRetryable(err) || counted == effectTries {
			return result, err
		}
		h.log.Log(ctx, h.retryLevel(err), "effect.retried",
			"session", effect.SessionID, "effect", effect.Key(), "try", try, "error", err)
		cut, err := h.pauseRetry(ctx, pause)
		if err != nil {
			return result, fmt.Errorf("effect %s: %w", effect.Key(), err)
		}
		pause = min(2*pause, longPause)
		if cut { // it can be read again, which may not hold for writing
			pause = firstPause
			counted--
		}
	}
}

// Release cancels the turn of a run, if this process holds it, and releases it once none
// of its effects is in flight. The cause is why: Turn.Context ends with it.
func (h *Host) Release(runID string, cause error) {
	h.mu.Lock()
	turn := h.turns[runID]
	h.mu.Unlock()
	if turn != nil {
		turn.cancel(cause)
	}
}
