package host

import (
	"context"
	"errors"
	"time"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/session"
)

// Answer is what an engine records of an effect.
type Answer struct {
	Result machine.Result `json:"result"`
	// Left is set, and nothing was done, when this process does not hold the turn. One
	// that nobody waits for is then taken over with [Host.Take]; that of an agent which
	// works for another is left to the turn that waits for it.
	Left bool `json:"left,omitempty"`
	// Child is the turn to be driven before a call of another agent is taken in.
	Child *Start `json:"child,omitempty"`
}

// Standing is how a turn stands that was to be taken over.
type Standing struct {
	// Position is where the turn stands: its machine is to be made anew from there.
	Position *machine.Position `json:"position,omitempty"`
	// End is set instead if there is nothing left to do.
	End *machine.Outcome `json:"end,omitempty"`
}

// work is something in flight that an engine asked for.
type work struct {
	done     chan struct{}
	answer   Answer
	standing Standing
	err      error
}

// Do carries out an effect that an engine hands to this process. An effect that is
// delivered again while it is in flight is waited for: it goes on also when the one
// who asked for it is gone.
func (h *Host) Do(ctx context.Context, effect machine.Effect) (Answer, error) {
	return h.onTurn(ctx, effect, "", func(turn *Turn) (Answer, error) {
		result, err := Try(turn.Context, h, effect, h.handler.Handle)
		if err != nil {
			return Answer{}, err
		}
		root := turn.Opened.Run.ID == effect.RunID
		switch {
		case result.Next == machine.NextLost && root:
			h.Finish(turn, nil)
		case effect.Kind == machine.CloseTurn:
			if root {
				h.Finish(turn, result.Outcome())
			} else {
				h.AfterChild(turn.Context, result.Outcome())
			}
		}
		return Answer{Result: result}, nil
	})
}

// OpenChild opens the turn of the agent that an effect calls. The answer has none if
// there is nothing to drive.
func (h *Host) OpenChild(ctx context.Context, effect machine.Effect) (Answer, error) {
	return h.onTurn(ctx, effect, "/open", func(turn *Turn) (Answer, error) {
		opened, err := Try(turn.Context, h, effect, h.handler.OpenChild)
		if err != nil || opened == nil {
			return Answer{}, err
		}
		start := StartOf(opened)
		if start.Detached {
			h.apart(opened, func() { h.hold(opened) })
			return Answer{Child: &start}, nil
		}
		h.mu.Lock()
		over := turn.over()
		if !over {
			h.members[opened.Run.ID] = turn
		}
		h.mu.Unlock()
		if over { // the turn was lost meanwhile, and with it whatever works for it
			h.handler.Drop(opened.Run.ID)
			return Answer{Left: true}, nil
		}
		return Answer{Child: &start}, nil
	})
}

// onTurn does what is to be done about an effect of a turn that this process holds,
// or waits for it if it is being done.
func (h *Host) onTurn(ctx context.Context, effect machine.Effect, part string, do func(*Turn) (Answer, error)) (Answer, error) {
	h.mu.Lock()
	turn := h.worksOn(effect.RunID)
	if turn == nil || turn.over() {
		h.mu.Unlock()
		return Answer{Left: true}, nil
	}
	key := effect.Tenant + "/" + effect.SessionID + "/" + effect.Key() + part
	w := h.working[key]
	if w == nil {
		w = h.begin(key)
		turn.busy++
		go func() {
			w.answer, w.err = do(turn)
			if w.err != nil && turn.over() {
				w.answer, w.err = Answer{Left: true}, nil
			}
			h.end(key, w)
			h.pause(turn, func() { turn.busy, turn.idle = turn.busy-1, time.Now() })
		}()
	}
	h.mu.Unlock()
	err := w.wait(ctx)
	if err != nil {
		return Answer{}, err
	}
	return w.answer, nil
}

// Take takes over a turn that this process does not hold, or says how it stands.
func (h *Host) Take(ctx context.Context, start Start) (Standing, error) {
	key := start.Tenant + "/" + start.SessionID + "/" + start.RunID
	h.mu.Lock()
	if h.closing { // nothing may begin that Close would not wait for
		h.mu.Unlock()
		return Standing{}, errClosing
	}
	w := h.working[key]
	if w == nil {
		w = h.begin(key)
		go func() {
			w.standing, w.err = h.take(ctx, start)
			h.end(key, w)
		}()
	}
	h.mu.Unlock()
	err := w.wait(ctx)
	if err != nil {
		return Standing{}, err
	}
	return w.standing, nil
}

// begin notes that something is in flight. The caller holds the lock.
func (h *Host) begin(key string) *work {
	w := &work{done: make(chan struct{})}
	h.working[key] = w
	h.wg.Add(1)
	return w
}

func (h *Host) end(key string, w *work) {
	h.mu.Lock()
	delete(h.working, key)
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

func (h *Host) take(asked context.Context, start Start) (Standing, error) {
	ctx := context.WithoutCancel(asked)
	if standing, held, err := h.stillHeld(start.RunID); held || err != nil {
		return standing, err
	}
	lost := Standing{End: &machine.Outcome{Lost: true}}
	sessions := h.cfg.Backend.Sessions().Tenant(start.Tenant)
	state, err := sessions.Load(ctx, start.SessionID)
	if errors.Is(err, session.ErrNotFound) {
		return lost, nil
	}
	if err != nil {
		return Standing{}, err
	}
	run, err := sessions.Run(ctx, start.SessionID, start.RunID)
	if errors.Is(err, session.ErrNotFound) {
		return lost, nil
	}
	if err != nil {
		return Standing{}, err
	}
	due := session.Due{Key: start.Key(), Agent: state.Agent, RunID: run.ID, Runtime: run.Runtime, Lease: state.Lease}
	switch {
	case run.Status.Ended():
		h.settleClose(ctx, due)
		return Standing{End: &machine.Outcome{Status: run.Status}}, nil
	case state.CurrentRunID != run.ID || run.Runtime != h.cfg.Name || state.RootID != "":
		return lost, nil
	}
	if h.unfit() {
		return Standing{}, session.ErrUnavailable.WithMessage("leases could not be renewed here a moment ago")
	}
	done, err := h.open(run.ID)
	if err != nil {
		return Standing{}, err
	}
	defer done()
	if asked.Err() != nil { // others may have been asked since
		return Standing{}, context.Cause(asked)
	}
	var entry *admitted
	// A turn that waits in a queue, or that another process began, was handed over.
	if loss := engine.LossOf(state, run); !loss.HandedOver || loss.Before > 0 {
		if entry, err = h.intake.await(asked, loss.Before > 0); err != nil {
			return Standing{}, err
		}
	}
	opened, err := h.handler.TakeOver(ctx, due)
	if err != nil {
		if entry != nil {
			entry.leave()
		}
		return Standing{}, err
	}
	turn := h.hold(opened)
	if entry != nil {
		h.follow(entry, opened, turn.done)
	}
	return Standing{Position: &opened.Position}, nil
}

// stillHeld says where a turn stands that the engine believes lost, and this process
// holds. What is in flight is waited for.
func (h *Host) stillHeld(runID string) (standing Standing, held bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.opening[runID] { // by this process: it may come to hold it
		h.calm.Wait()
	}
	turn := h.turns[runID]
	if turn == nil {
		return Standing{}, false, nil
	}
	for h.turns[runID] == turn && turn.busy > 0 && h.leased(turn) {
		h.calm.Wait()
	}
	opened := h.handler.Opened(runID)
	if h.turns[runID] != turn || !h.leased(turn) || opened == nil { // perhaps another process has it now
		return Standing{}, false, session.ErrUnavailable.WithMessage("run %s is about to be given up here", runID)
	}
	return Standing{Position: &opened.Position}, true, nil
}

// Alive reports whether this process can work on a run: one that cannot renew the
// turn's lease had better be taken for dead.
func (h *Host) Alive(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.worksOn(runID)
	return turn == nil || h.leased(turn)
}

// Holds reports whether this process holds the turn which a run is, or works for,
// beyond doubt: nobody else has it.
func (h *Host) Holds(ctx context.Context, runID string) bool {
	h.mu.Lock()
	turn := h.worksOn(runID)
	leased := turn != nil && h.leased(turn)
	h.mu.Unlock()
	return leased || (turn != nil && !turn.over() && h.Look(ctx, runID) == nil)
}

// unfit reports whether this process would be likely to lose a turn again that it
// took over: for a while, others are asked first.
func (h *Host) unfit() bool {
	at := h.failed.Load()
	return at != 0 && sinceStart()-at < int64(max(3*h.cfg.Sweep, askedAround))
}

// askedAround is how long an engine may take to ask somebody else.
const askedAround = 3 * time.Second

// worksOn is the turn that this process holds which a run is, or works for; or nil.
// The caller holds the lock.
func (h *Host) worksOn(runID string) *Turn {
	if turn := h.turns[runID]; turn != nil {
		return turn
	}
	return h.members[runID]
}

func (h *Host) leased(turn *Turn) bool {
	return sinceStart()-turn.renewed.Load() < int64(h.cfg.LeaseTTL) && !turn.over()
}

// Look renews the lease of a run that this process works on, and notices that it is
// to be stopped.
func (h *Host) Look(ctx context.Context, runID string) error {
	return h.handler.Renew(ctx, runID, h.cfg.LeaseTTL)
}
