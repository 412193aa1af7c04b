package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// Name is the runtime's name, as runs record it.
const Name = "local"

// Config configures a [Runtime]. Only Backend is required.
type Config = helix.RuntimeOptions

// Runtime runs agents in this process. It implements [helix.Runtime].
type Runtime struct {
	helix.Executor // the default tenant's
	helix.Registry

	host *host.Host
}

// New starts a runtime. Stop it with Shutdown or Close.
func New(cfg Config) (*Runtime, error) {
	d := &driver{}
	h, err := host.New(host.Config{RuntimeOptions: cfg, Name: Name}, d)
	if err != nil {
		return nil, err
	}
	d.host = h
	h.Start()
	return &Runtime{Executor: h.Executor(), Registry: h, host: h}, nil
}

// Cleanup implements [helix.Runtime].
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// TaskStats implements [helix.Runtime].
func (r *Runtime) TaskStats() helix.TaskStats { return r.host.TaskStats() }

// Shutdown implements [helix.Runtime].
func (r *Runtime) Shutdown(ctx context.Context) error { return r.host.Shutdown(ctx) }

// Close implements [helix.Runtime].
func (r *Runtime) Close() error { return host.CloseNow(r.Shutdown) }

// driver drives turns in goroutines.
type driver struct{ host *host.Host }

// Drive implements [host.Driver].
func (d *driver) Drive(_ context.Context, turn *host.Turn) error {
	go func() {
		end := d.loop(turn.Context, turn.Opened)
		d.host.Finish(turn, end)
	}()
	return nil
}

// Recover implements [host.Driver].
func (d *driver) Recover(ctx context.Context, due session.Due) error { return d.host.Recover(ctx, due) }

// EnsureDriven implements [host.Driver]: no workflow engine drives turns here.
func (d *driver) EnsureDriven(context.Context, session.Due) error { return nil }

// NotifyStop implements [host.Driver]: the process that works on the run reads the
// request when it renews its leases.
func (d *driver) NotifyStop(context.Context, host.Start) {}

// loop carries out the machine's effects until the turn ends, and returns its end. It
// returns nil if it released the turn before.
func (d *driver) loop(ctx context.Context, opened *engine.Opened) *machine.Outcome {
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	var results []machine.Result
	for {
		results = slices.Grow(results[:0], len(wave))[:len(wave)]
		if err := d.run(ctx, wave, results); err != nil {
			d.host.Log().WarnContext(ctx, "turn.released", "session", opened.Key.ID, "run", opened.Run.ID, "error", err)
			d.host.Handler().Release(context.WithoutCancel(ctx), opened)
			return nil
		}
		next, end := m.Next(results)
		if end != nil {
			return end
		}
		wave = next
	}
}

// run carries out a wave, all its effects at the same time, and sets their results.
func (d *driver) run(ctx context.Context, wave []machine.Effect, results []machine.Result) (err error) {
	if len(wave) == 1 {
		results[0], err = d.handle(ctx, wave[0])
		return err
	}
	errs := make([]error, len(wave))
	var wg sync.WaitGroup
	for i, effect := range wave {
		wg.Go(func() { results[i], errs[i] = d.handle(ctx, effect) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// handle carries out one effect. If the effect calls another agent, handle drives that
// agent's turn first.
func (d *driver) handle(ctx context.Context, effect machine.Effect) (machine.Result, error) {
	if effect.Kind == machine.CallChild {
		opened, err := d.host.OpenChild(ctx, effect)
		switch {
		case err != nil:
			return machine.Result{}, err
		case opened == nil:
		case opened.Detached:
			d.host.DriveDetached(opened)
		default:
			end := d.loop(ctx, opened)
			if end == nil { // it was released, and so is the turn that waits for it
				return machine.Result{}, fmt.Errorf("the turn of session %s was released", opened.Key.ID)
			}
			d.host.FinishChild(ctx, end)
		}
	}
	return d.host.Handle(ctx, effect)
}
