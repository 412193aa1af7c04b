package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/internal/host"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/usage"
)

// Name is the runtime's name, as runs record it.
const Name = "local"

// Config configures a [Runtime]. Only Backend is required.
type Config struct {
	Backend store.Backend
	// Agents are those whose sessions this process runs and recovers. An agent that
	// is first executed is added to them.
	Agents []*helix.Agent
	// Hooks are called for every run, before the agent's own.
	Hooks *helix.Hooks
	// Usage receives usage entries. Defaults to none.
	Usage usage.Sink
	// LeaseTTL is how long a session stays with a process that no longer renews its
	// lease. Defaults to 30 seconds.
	LeaseTTL time.Duration
	// Heartbeat is how often leases are renewed. Defaults to a third of LeaseTTL.
	Heartbeat time.Duration
	// Sweep is about how often orphaned runs are looked for, by whichever of the
	// processes with the same agents comes first. Defaults to 5 seconds.
	Sweep time.Duration
	// NoRecovery keeps this process from taking over orphaned runs. It still sees to
	// deadlines, expired sessions and whatever else is due.
	NoRecovery bool
	// ModelRetries is how often a retryable model error is retried. Defaults to 3; a
	// negative number is none. RetryBackoff is the first wait, which doubles.
	// Defaults to 1 second.
	ModelRetries int
	RetryBackoff time.Duration
	// MaxResult is the largest tool result in bytes. Defaults to 1,000,000.
	MaxResult int
	// MaxSession is how large a session may become, messages and stream together, in
	// bytes: beyond that it takes no new message, and a run fails before its next model
	// call. Defaults to 64 MiB; a negative number is no limit.
	MaxSession int64
	// MaxChunks is how many chunks a stream keeps. The oldest go once a step is
	// committed that has made them more; those of a step in progress stay, for whoever
	// reloads needs them. A reader that is behind is told so, as after
	// stream.Manager.Trim. Defaults to 0, which keeps all.
	MaxChunks int64
	// RemotePatience is how long a remote agent may be out of reach before the call
	// that waits for it fails. Defaults to 2 minutes.
	RemotePatience time.Duration
	// Logger receives the runtime's log: one ERROR line for each run that failed, among others.
	// Defaults to [slog.Default], for errors.
	Logger *slog.Logger
}

// Runtime runs agents in this process.
type Runtime struct {
	helix.Executor // the default tenant's
	helix.Registry

	host *host.Host
}

// New starts a runtime. Close it when done.
func New(cfg Config) (*Runtime, error) {
	d := &driver{}
	h, err := host.New(host.Config{
		Name: Name, Backend: cfg.Backend, Agents: cfg.Agents, Hooks: cfg.Hooks, Usage: cfg.Usage,
		LeaseTTL: cfg.LeaseTTL, Heartbeat: cfg.Heartbeat, Sweep: cfg.Sweep, NoRecovery: cfg.NoRecovery,
		ModelRetries: cfg.ModelRetries, RetryBackoff: cfg.RetryBackoff, MaxResult: cfg.MaxResult, MaxSession: cfg.MaxSession, MaxChunks: cfg.MaxChunks,
		RemotePatience: cfg.RemotePatience, Logger: cfg.Logger,
	}, d)
	if err != nil {
		return nil, err
	}
	d.host = h
	h.Start()
	return &Runtime{Executor: h.Executor(), Registry: h, host: h}, nil
}

// Cleanup fails the sessions of a tenant whose time is up, or, of no tenant, those of
// all. The runtime does that by itself for the agents that it has; this is for
// operators, who want to have it done now, for every agent, and to be told.
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// Close stops the runtime. It takes no new work, lets running turns go on until
// ctx ends, then gives up what is left: those turns stop where they are and their
// leases are released, so that whoever comes next continues them.
func (r *Runtime) Close(ctx context.Context) error {
	r.host.Close(ctx)
	return nil
}

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

// Revive implements [host.Driver].
func (d *driver) Revive(ctx context.Context, due session.Due) error { return d.host.Recover(ctx, due) }

// Check implements [host.Driver]: no engine drives turns here.
func (d *driver) Check(context.Context, session.Due) error { return nil }

// Nudge implements [host.Driver]: a process looks for stops as it renews its leases.
func (d *driver) Nudge(context.Context, host.Start) {}

// loop hands the machine's effects to the handler until the turn has ended, is
// lost, or is given up. Only an end that it saw it returns.
func (d *driver) loop(ctx context.Context, opened *engine.Opened) *machine.Outcome {
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	for {
		results, err := d.run(ctx, wave)
		if err != nil {
			d.host.Log().WarnContext(ctx, "turn given up", "session", opened.Key.ID, "run", opened.Run.ID, "error", err)
			d.host.Handler().Release(context.WithoutCancel(ctx), opened.Run.ID)
			return nil
		}
		next, end := m.Next(results)
		if end != nil {
			return end
		}
		wave = next
	}
}

// run handles a wave, all its effects at the same time.
func (d *driver) run(ctx context.Context, wave []machine.Effect) ([]machine.Result, error) {
	results := make([]machine.Result, len(wave))
	if len(wave) == 1 {
		var err error
		results[0], err = d.handle(ctx, wave[0])
		return results, err
	}
	errs := make([]error, len(wave))
	var wg sync.WaitGroup
	for i, effect := range wave {
		wg.Go(func() { results[i], errs[i] = d.handle(ctx, effect) })
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

// handle carries out one effect. That of a call of another agent includes the
// agent's turn.
func (d *driver) handle(ctx context.Context, effect machine.Effect) (machine.Result, error) {
	handler := d.host.Handler()
	if effect.Kind == machine.CallChild {
		opened, err := host.Try(ctx, d.host, effect, handler.OpenChild)
		switch {
		case err != nil:
			return machine.Result{}, err
		case opened == nil:
		case opened.Detached:
			d.host.DriveApart(opened)
		default:
			end := d.loop(ctx, opened)
			if end == nil { // it was given up, and so is the turn that waits for it
				return machine.Result{}, fmt.Errorf("session %s was given up", opened.Key.ID)
			}
			d.host.AfterChild(ctx, end)
		}
	}
	return host.Try(ctx, d.host, effect, handler.Handle)
}
