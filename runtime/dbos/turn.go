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
	entered bool // it has begun; guarded by the driver's lock
	done    chan struct{}
	// Once it is done: how the turn ended, or why the execution was left.
	end   *machine.Outcome
	fault error

	held atomic.Bool // this process holds the turn, or has since the execution began
}

// note takes down an execution that is about to begin. The lock is held.
func (d *driver) note(in *input) *execution {
	x := &execution{in: in, done: make(chan struct{})}
	d.running[in.RunID] = x
	return x
}

// exit notes that an execution is over, and tells whoever waits for it.
func (d *driver) exit(x *execution) {
	d.mu.Lock()
	d.forget(x)
	d.mu.Unlock()
	close(x.done)
}

// forget strikes out an execution. A turn that has not ended is left to others, while
// nobody here can have taken it anew. The lock is held.
func (d *driver) forget(x *execution) {
	if x.end == nil {
		d.host.Leave(x.in.RunID, x.fault)
	}
	delete(d.running, x.in.RunID)
}

// turn is the workflow: it hands the machine's effects to the host, each as a step,
// until the turn has ended.
//
// Neither it nor a step ever returns an error. DBOS would record it as the outcome,
// for good, where it only means that this process cannot go on. Such an execution is
// left instead: it ends as if the process had died, with nothing recorded, and the
// workflow stays pending for whoever takes the turn over.
func (d *driver) turn(ctx transact.Context, in input) (machine.Outcome, error) {
	d.mu.Lock()
	x := d.running[in.RunID]
	if x == nil { // DBOS has found it in a queue
		x = d.note(&in)
	}
	x.in, x.entered = &in, true
	d.mu.Unlock()
	defer d.exit(x)
	x.end, x.fault = d.drive(ctx, x)
	switch {
	case x.fault == nil:
	case d.gone(&in):
		x.end = &machine.Outcome{Lost: true}
	default:
		d.cfg.Logger.WarnContext(ctx, "turn given up", in.attrs("error", x.fault)...)
		runtime.Goexit()
	}
	return *x.end, nil
}

// gone reports whether a run was deleted with its session: nobody will go on with it.
func (d *driver) gone(in *input) bool {
	_, err := d.cfg.Backend.Sessions().Tenant(in.Tenant).Run(context.Background(), in.SessionID, in.RunID)
	return errors.Is(err, session.ErrNotFound)
}

func (d *driver) drive(ctx transact.Context, x *execution) (*machine.Outcome, error) {
	position := x.in.Position
	for {
		if position == nil {
			standing, err := d.take(ctx, x)
			if err != nil || standing.End != nil {
				return standing.End, err
			}
			position = standing.Position
		}
		m, wave := machine.New(x.in.Key(), x.in.RunID, *position)
		position = nil
		for {
			waves, left, err := d.run(ctx, x, *m, wave)
			if err != nil {
				return nil, err
			}
			if left {
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

// run carries out a wave, all its effects at the same time, and gives their results,
// perhaps with those of what comes next. It reports whether the turn is to be taken
// over before anything can be done.
func (d *driver) run(ctx transact.Context, x *execution, m machine.Machine, wave []machine.Effect) (waves [][]machine.Result, left bool, err error) {
	if wave[0].Kind == machine.CommitStep {
		return d.commit(ctx, x, m, wave[0])
	}
	steps := make([]func() (host.Answer, error), len(wave))
	for i, effect := range wave {
		steps[i] = step(ctx, x.in.step(effect.Key()), func(ctx context.Context) (host.Answer, error) { return d.call(ctx, x, effect) })
	}
	var results []machine.Result
	for _, wait := range steps {
		answer, fault := wait()
		results = append(results, answer.Result)
		left, err = left || answer.Left, cmp.Or(err, fault)
	}
	if err == nil && left && x.held.Load() {
		err = errLost
	}
	return [][]machine.Result{results}, left, err
}

// commit commits what the agent has done, and asks the model what to do next, if
// that follows. It is one step: whether a commit was made the store knows, so that
// another would cost as much as the rest and tell nobody anything.
func (d *driver) commit(ctx transact.Context, x *execution, m machine.Machine, effect machine.Effect) (waves [][]machine.Result, left bool, err error) {
	answers, err := step(ctx, x.in.step(effect.Key()), func(ctx context.Context) ([]host.Answer, error) {
		done, err := d.call(ctx, x, effect)
		if err != nil || done.Left {
			return []host.Answer{done}, err
		}
		next, end := m.Next([]machine.Result{done.Result})
		if end != nil || len(next) != 1 || next[0].Kind != machine.CallModel {
			return []host.Answer{done}, nil
		}
		reply, err := d.call(ctx, x, next[0])
		return []host.Answer{done, reply}, err
	})()
	for _, answer := range answers {
		waves = append(waves, []machine.Result{answer.Result})
		left = left || answer.Left
	}
	return waves, left, err
}

var errLost = session.ErrStale.WithMessage("this process does not hold the turn any more")

// call carries out one effect. That of a call of another agent includes the agent's
// turn, which is a workflow of its own.
func (d *driver) call(ctx context.Context, x *execution, effect machine.Effect) (host.Answer, error) {
	if effect.Kind == machine.CallChild {
		opened, err := d.host.OpenChild(ctx, effect)
		if err == nil && opened.Child != nil {
			err = d.child(ctx, &input{Start: *opened.Child})
		}
		if err != nil || opened.Left {
			return d.answer(ctx, x, effect, opened, err)
		}
	}
	done, err := d.host.Do(ctx, effect)
	return d.answer(ctx, x, effect, done, err)
}

// child drives the turn of another agent, and waits for its end if somebody does.
func (d *driver) child(ctx context.Context, in *input) error {
	for range 2 { // what DBOS has found in a queue ends at once, because nobody waited for it yet
		x, err := d.begin(ctx, *in)
		switch {
		case in.Detached && err != nil:
			d.cfg.Logger.WarnContext(ctx, "turn not started, it is left to a sweep", in.attrs("error", err)...)
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
			return fmt.Errorf("session %s was given up: %w", in.SessionID, x.fault)
		case !x.end.Lost:
			return nil
		}
	}
	return nil // somebody else runs it, as the call will say
}

// take takes over a turn that this process does not hold.
func (d *driver) take(ctx transact.Context, x *execution) (host.Standing, error) {
	return step(ctx, x.in.step("take"), func(ctx context.Context) (host.Standing, error) {
		standing, err := d.host.Take(ctx, x.in.Start)
		if err == nil {
			x.held.Store(true)
		}
		return standing, err
	})()
}

// answer is what is recorded of an effect: nothing, if this process has lost the turn,
// or may have: whoever has it now records effects under the same numbers.
func (d *driver) answer(ctx context.Context, x *execution, effect machine.Effect, answer host.Answer, err error) (host.Answer, error) {
	ended := effect.Kind == machine.CloseTurn // then it is not held any more
	switch {
	case err != nil:
	case answer.Left && !x.held.Load():
	case answer.Left, answer.Result.Next == machine.NextLost, !ended && !d.host.Holds(ctx, x.in.RunID):
		err = errLost
	default:
		x.held.Store(true)
	}
	return answer, err
}

// step begins a step that others may run beside. It gives what waits for its end.
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
