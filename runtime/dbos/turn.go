package dbos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// execution is a workflow that runs in this process.
type execution struct {
	in      *input
	entered bool // the workflow function was called; guarded by the driver's lock
	done    chan struct{}
	// Once it is done: the turn's end, or why the execution was abandoned.
	end   *machine.Outcome
	fault error

	held atomic.Bool // this process has held the turn since the execution began
}

// add records an execution that is about to begin. The caller holds the lock.
func (d *driver) add(in *input) *execution {
	x := &execution{in: in, done: make(chan struct{})}
	d.running[in.RunID] = x
	return x
}

// exit records that an execution is over, and wakes those that wait for it.
func (d *driver) exit(x *execution) {
	d.mu.Lock()
	d.remove(x)
	d.mu.Unlock()
	close(x.done)
}

// remove deletes the record of an execution. It releases a turn that has not ended, while
// this process cannot have taken it over again. The caller holds the lock.
func (d *driver) remove(x *execution) {
	if x.end == nil {
		d.host.Release(x.in.RunID, x.fault)
	}
	delete(d.running, x.in.RunID)
}

// turn is the workflow: it passes the machine's effects to the host, each as a step, until
// the turn ends.
//
// Neither it nor a step ever returns an error, because DBOS would record the error as the
// final outcome, where it only means that this process cannot continue. Such an execution
// is abandoned instead: it ends as if the process had died, with nothing recorded, and the
// workflow stays pending for the process that takes the turn over.
func (d *driver) turn(ctx transact.Context, in input) (machine.Outcome, error) {
	d.mu.Lock()
	x := d.running[in.RunID]
	if x == nil { // DBOS has found it in a queue
		x = d.add(&in)
	}
	x.in, x.entered = &in, true
	d.mu.Unlock()
	defer d.exit(x)
	x.end, x.fault = d.drive(ctx, x)
	switch {
	case x.fault == nil:
	case d.deleted(&in):
		x.end = &machine.Outcome{Lost: true}
	default:
		d.cfg.Logger.WarnContext(ctx, "turn.released", in.attrs("error", x.fault)...)
		runtime.Goexit()
	}
	return *x.end, nil
}

// deleted reports whether a run was deleted with its session, so that no process will
// continue it.
func (d *driver) deleted(in *input) bool {
	_, err := d.cfg.Backend.Sessions().Tenant(in.Tenant).Run(context.Background(), in.SessionID, in.RunID)
	return errors.Is(err, session.ErrNotFound)
}

func (d *driver) drive(ctx transact.Context, x *execution) (*machine.Outcome, error) {
	position := x.in.Position
	for {
		if position == nil {
			taken, err := d.takeOver(ctx, x)
			if err != nil || taken.End != nil {
				return taken.End, err
			}
			position = taken.Position
		}
		m, wave := machine.New(x.in.Key(), x.in.RunID, *position)
		position = nil
		for {
			waves, notHeld, err := d.run(ctx, x, *m, wave)
			if err != nil {
				return nil, err
			}
			if notHeld {
				break
			}
			for _, results := range waves {
				next, end := m.Next(results)
				if end != nil {
					return end, nil
				}
				wave = next
			}
		}
	}
}

// run carries out a wave, all its effects at the same time, and returns their results,
// perhaps with those of the next wave. It reports notHeld if the turn has to be taken
// over first.
func (d *driver) run(ctx transact.Context, x *execution, m machine.Machine, wave []machine.Effect) (waves [][]machine.Result, notHeld bool, err error) {
	if wave[0].Kind == machine.CommitStep {
		return d.commit(ctx, x, m, wave[0])
	}
	steps := make([]func() (host.EffectResult, error), len(wave))
	for i, effect := range wave {
		steps[i] = step(ctx, x.in.step(effect.Key()), func(ctx context.Context) (host.EffectResult, error) { return d.call(ctx, x, effect) })
	}
	var results []machine.Result
	for _, wait := range steps {
		result, fault := wait()
		results = append(results, result.Result)
		notHeld, err = notHeld || result.NotHeld, cmp.Or(err, fault)
	}
	if err == nil && notHeld && x.held.Load() {
		err = errLost
	}
	return [][]machine.Result{results}, notHeld, err
}

// commit carries out the effect that commits a step, and the model call, if that is the
// next effect, as one step of DBOS. The store knows whether the commit was made: a DBOS
// step of its own would cost as much as the rest and add no information.
func (d *driver) commit(ctx transact.Context, x *execution, m machine.Machine, effect machine.Effect) (waves [][]machine.Result, notHeld bool, err error) {
	effects, err := step(ctx, x.in.step(effect.Key()), func(ctx context.Context) ([]host.EffectResult, error) {
		done, err := d.call(ctx, x, effect)
		if err != nil || done.NotHeld {
			return []host.EffectResult{done}, err
		}
		next, end := m.Next([]machine.Result{done.Result})
		if end != nil || len(next) != 1 || next[0].Kind != machine.CallModel {
			return []host.EffectResult{done}, nil
		}
		reply, err := d.call(ctx, x, next[0])
		return []host.EffectResult{done, reply}, err
	})()
	for _, result := range effects {
		waves = append(waves, []machine.Result{result.Result})
		notHeld = notHeld || result.NotHeld
	}
	return waves, notHeld, err
}

var errLost = session.ErrStale.WithMessage("this process does not hold the turn any more")

// call carries out one effect. If the effect calls another agent, call drives that agent's
// turn first, which is a workflow of its own.
func (d *driver) call(ctx context.Context, x *execution, effect machine.Effect) (host.EffectResult, error) {
	if effect.Kind == machine.CallChild {
		opened, err := d.host.DoOpenChild(ctx, effect)
		if err == nil && opened.Child != nil {
			err = d.child(ctx, &input{Start: *opened.Child})
		}
		if err != nil || opened.NotHeld {
			return d.recorded(ctx, x, effect, opened, err)
		}
	}
	done, err := d.host.Do(ctx, effect)
	return d.recorded(ctx, x, effect, done, err)
}

// child drives the turn of another agent, and waits for its end unless it is detached.
func (d *driver) child(ctx context.Context, in *input) error {
	for range 2 { // an execution that DBOS found in a queue ends at once, because no turn waited for it yet
		x, err := d.begin(ctx, *in)
		switch {
		case in.Detached && err != nil:
			d.cfg.Logger.WarnContext(ctx, "turn.not_started", in.attrs("error", err)...)
			return nil
		case in.Detached || err != nil:
			return err
		}
		select {
		case <-x.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case x.end == nil:
			return fmt.Errorf("the turn of session %s was released: %w", in.SessionID, x.fault)
		case !x.end.Lost:
			return nil
		}
	}
	return nil // another process runs it, as the effect will find
}

// takeOver takes over a turn that this process does not hold.
func (d *driver) takeOver(ctx transact.Context, x *execution) (host.Takeover, error) {
	return step(ctx, x.in.step("take"), func(ctx context.Context) (host.Takeover, error) {
		taken, err := d.host.TakeOver(ctx, x.in.Start, 0)
		if err == nil {
			x.held.Store(true)
		}
		return taken, err
	})()
}

// recorded returns what DBOS records of an effect. It returns an error, so that nothing is
// recorded, if this process has lost the turn or may have: the process that holds it now
// records effects under the same numbers.
func (d *driver) recorded(
	ctx context.Context, x *execution, effect machine.Effect, result host.EffectResult, err error,
) (host.EffectResult, error) {
	closed := effect.Kind == machine.CloseTurn // then the turn is not held any more
	switch {
	case err != nil:
	case result.NotHeld && !x.held.Load():
	case result.NotHeld, result.Result.Next == machine.NextLost, !closed && !d.host.HoldsLease(ctx, x.in.RunID):
		err = errLost
	default:
		x.held.Store(true)
	}
	return result, err
}

// step starts a step, which may run beside others. It returns a function that waits for
// the step's end.
func step[R any](ctx transact.Context, name string, do func(context.Context) (R, error)) (wait func() (R, error)) {
	var fault error
	outcome, err := transact.Go(ctx, func(ctx context.Context) (R, error) {
		r, err := do(ctx)
		if err != nil {
			fault = err
			runtime.Goexit() // so that DBOS does not record it
		}
		return r, nil
	}, transact.WithStepName(name))
	return func() (out R, _ error) {
		if err != nil {
			return out, err
		}
		ended := <-outcome
		return ended.Result, cmp.Or(fault, ended.Err)
	}
}
