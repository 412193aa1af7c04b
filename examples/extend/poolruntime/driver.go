package poolruntime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// driver carries out the effects of turns on the pool. It implements [host.Driver].
type driver struct {
	host *host.Host
	pool *pool
}

// Drive implements [host.Driver].
func (d *driver) Drive(_ context.Context, opened *host.Turn) error {
	d.begin(opened.Context, opened.Opened, func(end *machine.Outcome) { d.host.Finish(opened, end) })
	return nil
}

// Recover implements [host.Driver].
func (d *driver) Recover(ctx context.Context, due session.Due) error { return d.host.Recover(ctx, due) }

// EnsureDriven implements [host.Driver]: no workflow engine drives turns here.
func (d *driver) EnsureDriven(context.Context, session.Due) error { return nil }

// NotifyStop implements [host.Driver]: the process that works on the run reads the
// request when it renews its leases.
func (d *driver) NotifyStop(context.Context, host.Start) {}

// turn is a turn in progress. No goroutine waits for it: the worker that carries out
// the last effect of a wave queues the next wave.
type turn struct {
	*driver
	opened  *engine.Opened
	machine *machine.Machine
	done    func(end *machine.Outcome)

	mu      sync.Mutex // guards the wave in progress
	left    int        // effects without a result
	results []machine.Result
	failed  error
}

// begin queues the first wave of a turn. done is called with the turn's end, or with
// nil if the turn was released before its end.
func (d *driver) begin(ctx context.Context, opened *engine.Opened, done func(end *machine.Outcome)) {
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	t := &turn{driver: d, opened: opened, machine: m, done: done}
	t.dispatch(ctx, wave)
}

// dispatch queues the effects of a wave. No effect of the turn is in progress.
func (t *turn) dispatch(ctx context.Context, wave []machine.Effect) {
	t.left, t.results = len(wave), make([]machine.Result, len(wave))
	for i, effect := range wave {
		t.pool.add(func() { t.carryOut(ctx, i, effect) })
	}
}

// carryOut carries out the effect at place i of the wave. If the effect calls another
// agent, that agent's turn comes first; the worker begins it and does not wait.
func (t *turn) carryOut(ctx context.Context, i int, effect machine.Effect) {
	if effect.Kind == machine.CallChild {
		child, err := t.host.OpenChild(ctx, effect)
		switch {
		case err != nil:
			t.report(ctx, i, machine.Result{}, err)
			return
		case child == nil: // there is nothing to drive
		case child.Detached: // nobody waits for it
			t.host.DriveDetached(child)
		default:
			t.begin(ctx, child, func(end *machine.Outcome) { t.afterChild(ctx, i, effect, end) })
			return
		}
	}
	t.handle(ctx, i, effect)
}

// afterChild continues with a call of another agent whose turn has ended.
func (t *turn) afterChild(ctx context.Context, i int, effect machine.Effect, end *machine.Outcome) {
	if end == nil {
		t.report(ctx, i, machine.Result{}, fmt.Errorf("the turn that effect %s waits for was released", effect.Key()))
		return
	}
	t.host.FinishChild(ctx, end)
	t.handle(ctx, i, effect)
}

func (t *turn) handle(ctx context.Context, i int, effect machine.Effect) {
	result, err := t.host.Handle(ctx, effect)
	t.report(ctx, i, result, err)
}

// report records the result of an effect. The last result of a wave leads to the next
// wave, or to the end of the turn.
func (t *turn) report(ctx context.Context, i int, result machine.Result, err error) {
	t.mu.Lock()
	t.results[i], t.failed = result, errors.Join(t.failed, err)
	t.left--
	last := t.left == 0
	t.mu.Unlock()
	if !last {
		return
	}
	if t.failed != nil {
		t.host.Log().WarnContext(ctx, "turn.released", "session", t.opened.Key.ID, "run", t.opened.Run.ID, "error", t.failed)
		t.host.Handler().Release(context.WithoutCancel(ctx), t.opened)
		t.done(nil)
		return
	}
	wave, end := t.machine.Next(t.results)
	if end != nil {
		t.done(end)
		return
	}
	t.dispatch(ctx, wave)
}
