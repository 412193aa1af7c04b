package host

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// EffectResult is what a workflow engine records of an effect.
type EffectResult struct {
	Result machine.Result `json:"result"`
	// NotHeld is set if this process does not hold the turn: nothing was done. The
	// workflow of a root then has the turn taken over with [Host.TakeOver]. The workflow
	// of a child ends, and the turn that waits for it is taken over.
	NotHeld bool `json:"left,omitempty"`
	// Child is the turn that has to be driven before the effect, which calls another
	// agent, is passed to [Host.Do]. Only [Host.DoOpenChild] sets it.
	Child *Start `json:"child,omitempty"`
}

// Takeover is the result of [Host.TakeOver]. One of its fields is set.
type Takeover struct {
	// Position is the turn's position: the workflow makes its machine from it.
	Position *machine.Position `json:"position,omitempty"`
	// End is the turn's end, if nothing is left to do.
	End *machine.Outcome `json:"end,omitempty"`
}

// work is something in flight that a workflow engine asked for.
type work struct {
	done     chan struct{} // closed when the fields below are set
	result   EffectResult
	takeover Takeover
	err      error
}

// Do carries out an effect that a workflow engine passes to this process. If the same
// effect is in flight, Do waits for it and returns its result. The effect continues
// when ctx ends.
func (h *Host) Do(ctx context.Context, effect machine.Effect) (EffectResult, error) {
	return h.onTurn(ctx, effect, "", func(turn *Turn) (EffectResult, error) {
		result, err := h.Handle(turn.Context, effect)
		if err != nil {
			return EffectResult{}, err
		}
		root := turn.Opened.Run.ID == effect.RunID
		switch {
		case result.Next == machine.NextLost && root:
			h.Finish(turn, nil)
		case effect.Kind == machine.CloseTurn:
			if root {
				h.Finish(turn, result.Outcome())
			} else {
				h.FinishChild(turn.Context, result.Outcome())
			}
		}
		return EffectResult{Result: result}, nil
	})
}

// DoOpenChild opens the turn of the agent that an effect calls, and returns it as
// Child. There is no Child if nothing has to be driven. Like [Host.Do], it may be called
// again while it is in flight.
func (h *Host) DoOpenChild(ctx context.Context, effect machine.Effect) (EffectResult, error) {
	return h.onTurn(ctx, effect, "/open", func(turn *Turn) (EffectResult, error) {
		opened, err := h.OpenChild(turn.Context, effect)
		if err != nil || opened == nil {
			return EffectResult{}, err
		}
		start := StartOf(opened)
		if start.Detached {
			h.opened(opened, func() { h.hold(opened) })
			return EffectResult{Child: &start}, nil
		}
		h.mu.Lock()
		cancelled := turn.cancelled()
		if !cancelled {
			h.children[opened.Run.ID] = turn
		}
		h.mu.Unlock()
		if cancelled { // the turn was lost meanwhile, and its children with it
			h.handler.Drop(opened.Run.ID)
			return EffectResult{NotHeld: true}, nil
		}
		return EffectResult{Child: &start}, nil
	})
}

// onTurn calls do for an effect of a turn that this process holds, or waits for the
// call that is in flight.
func (h *Host) onTurn(
	ctx context.Context, effect machine.Effect, part string, do func(*Turn) (EffectResult, error),
) (EffectResult, error) {
	h.mu.Lock()
	turn := h.turnOf(effect.RunID)
	if turn == nil || turn.cancelled() {
		h.mu.Unlock()
		return EffectResult{NotHeld: true}, nil
	}
	key := effect.Tenant + "/" + effect.SessionID + "/" + effect.Key() + part
	w := h.inFlight[key]
	if w == nil {
		w = h.begin(key)
		turn.busy++
		go func() {
			w.result, w.err = do(turn)
			if w.err != nil && turn.cancelled() {
				w.result, w.err = EffectResult{NotHeld: true}, nil
			}
			h.end(key, w)
			h.update(turn, func() { turn.busy, turn.idle = turn.busy-1, time.Now() })
		}()
	}
	h.mu.Unlock()
	err := w.wait(ctx)
	if err != nil {
		return EffectResult{}, err
	}
	return w.result, nil
}

// TakeOver makes this process hold a turn, unless the turn has ended. For as long as asked says,
// the workflow engine has been asking processes for the turn, and the one that holds it could
// have answered. If this process holds it already, TakeOver waits for the effects in flight and
// returns the position. It fails with [session.ErrUnavailable] or [session.ErrUnknownAgent] if
// another process should be asked, and with [ErrHolderLives] if the one that holds the turn should.
func (h *Host) TakeOver(ctx context.Context, start Start, asked time.Duration) (Takeover, error) {
	key := start.Tenant + "/" + start.SessionID + "/" + start.RunID
	h.mu.Lock()
	if h.closing { // Shutdown may not wait for what begins now
		h.mu.Unlock()
		return Takeover{}, errClosing
	}
	w := h.inFlight[key]
	if w == nil {
		w = h.begin(key)
		go func() {
			w.takeover, w.err = h.takeOver(ctx, start, asked)
			h.end(key, w)
		}()
	}
	h.mu.Unlock()
	err := w.wait(ctx)
	if err != nil {
		return Takeover{}, err
	}
	return w.takeover, nil
}

// begin records that something is in flight. The caller holds the lock.
func (h *Host) begin(key string) *work {
	w := &work{done: make(chan struct{})}
	h.inFlight[key] = w
	h.wg.Add(1)
	return w
}

func (h *Host) end(key string, w *work) {
	h.mu.Lock()
	delete(h.inFlight, key)
	h.mu.Unlock()
	close(w.done)
	h.wg.Done()
}

func (w *work) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeOver implements TakeOver. The takeover continues when caller ends, except while it
// waits to be admitted.
func (h *Host) takeOver(caller context.Context, start Start, asked time.Duration) (Takeover, error) {
	ctx := context.WithoutCancel(caller)
	if position, err := h.awaitPosition(caller, start.RunID); position != nil || err != nil {
		return Takeover{Position: position}, err
	}
	lost := Takeover{End: &machine.Outcome{Lost: true}}
	sessions := h.cfg.Backend.Sessions().Tenant(start.Tenant)
	state, err := sessions.Load(ctx, start.SessionID)
	if errors.Is(err, session.ErrNotFound) {
		return lost, nil
	}
	if err != nil {
		return Takeover{}, err
	}
	run, err := sessions.Run(ctx, start.SessionID, start.RunID)
	if errors.Is(err, session.ErrNotFound) {
		return lost, nil
	}
	if err != nil {
		return Takeover{}, err
	}
	due := session.Due{Key: start.Key(), Agent: state.Agent, RunID: run.ID, Runtime: run.Runtime, Requires: run.Requires, Lease: state.Lease}
	switch {
	case run.Status.Ended():
		h.finishClose(ctx, nil, due)
		return Takeover{End: &machine.Outcome{Status: run.Status}}, nil
	case state.CurrentRunID != run.ID || run.Runtime != h.cfg.Name || state.RootID != "":
		return lost, nil
	}
	force, err := h.awaitVerdict(caller, &due, asked)
	if err != nil {
		return Takeover{}, err
	}
	done, err := h.open(run.ID)
	if err != nil {
		return Takeover{}, err
	}
	defer done()
	if caller.Err() != nil { // another process may have been asked since
		return Takeover{}, context.Cause(caller)
	}
	var entry *admitted
	// A turn that waits in a queue, or that another process began, was handed over.
	if loss := engine.LossOf(state, run); !loss.HandedOver || loss.Before > 0 {
		if entry, err = h.intake.await(caller, loss.Before > 0); err != nil {
			return Takeover{}, err
		}
	}
	opened, err := h.handler.TakeOver(ctx, due, force)
	if errors.Is(err, session.ErrAlreadyRunning) {
		err = errHolderLives(due.RunID)
	}
	if err != nil {
		if entry != nil {
			entry.leave()
		}
		return Takeover{}, err
	}
	turn := h.hold(opened)
	if entry != nil {
		h.follow(entry, opened, turn.done)
	}
	return Takeover{Position: &opened.Position}, nil
}

// awaitPosition calls heldPosition again while this process holds a turn and cannot reach the
// store to renew its lease, but not for too long: if it gave the turn up then, what is in flight
// would be lost.
func (h *Host) awaitPosition(ctx context.Context, runID string) (*machine.Position, error) {
	for {
		position, err := h.heldPosition(runID)
		if err == nil || h.isClosing() || !h.waitsForStore(runID) {
			return position, err
		}
		if retry.Sleep(ctx, h.cfg.LeaseTTL/renewalPause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// waitsForStore reports whether this process holds a turn whose lease it could not renew for a
// while, but not for too long.
func (h *Host) waitsForStore(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.turns[runID]
	return turn != nil && !turn.cancelled() && elapsed(turn.renewed, time.Now()) < h.cfg.LeaseTTL+h.cfg.HolderTimeout
}

// heldPosition returns the position of a turn that this process holds, though the
// workflow engine believes that it was lost, or nil if this process does not hold it. It
// waits for the effects in flight.
func (h *Host) heldPosition(runID string) (*machine.Position, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.opening[runID] { // this process may be about to hold it
		h.changed.Wait()
	}
	turn := h.turns[runID]
	if turn == nil {
		return nil, nil //nolint:nilnil // not held
	}
	for h.turns[runID] == turn && turn.busy > 0 && h.leased(turn) {
		h.changed.Wait()
	}
	opened := h.handler.Opened(runID)
	if h.turns[runID] != turn || !h.leased(turn) || opened == nil { // another process may hold it now
		return nil, session.ErrUnavailable.WithMessage("run %s may be another process's: its lease is being released here, or could not be renewed in time", runID)
	}
	return &opened.Position, nil
}
