package temporal

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/internal/host"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/usage"
)

// Name is the runtime's name, as runs record it.
const Name = "temporal"

// Config configures a [Runtime]. Client and Backend are required.
type Config struct {
	// Client is a client of the Temporal server. It is not closed with the runtime.
	Client  client.Client
	Backend store.Backend
	// TaskQueue is where the processes of a deployment share work: all have the same
	// Backend and know the same agents. Defaults to "helix".
	TaskQueue string
	// Prefix begins the ids of workflows. Defaults to TaskQueue.
	Prefix string
	// NoWorker keeps this process from working on turns: it starts them, and leaves
	// them to others.
	NoWorker bool
	// WorkerTimeout is how long a process may be silent before another goes on with
	// its turns. Defaults to 15 seconds; at least 1.
	WorkerTimeout time.Duration
	// MaxHistory is after how many events of its history a workflow goes on as a new
	// one. Defaults to what the server suggests.
	MaxHistory int
	// MaxEffects is how many effects this process works on at the same time; others
	// wait. Defaults to 1,000.
	MaxEffects int

	// Agents are those whose sessions this process runs. An agent that is first
	// executed is added to them.
	Agents []*helix.Agent
	// Hooks are called for every run, before the agent's own.
	Hooks *helix.Hooks
	// Usage receives usage entries. Defaults to none.
	Usage usage.Sink
	// LeaseTTL is how long a session stays with a process that no longer renews its
	// lease before its workflow is looked for. Defaults to 30 seconds.
	LeaseTTL time.Duration
	// Heartbeat is how often leases are renewed. Defaults to a third of LeaseTTL.
	Heartbeat time.Duration
	// Sweep is about how often turns without a workflow, and sessions that have
	// something to go on with, are looked for. Defaults to 5 seconds.
	Sweep time.Duration
	// NoRecovery keeps this process from looking for turns without a workflow. It still
	// sees to deadlines, expired sessions and whatever else is due.
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

func (c *Config) check() error {
	if c.Client == nil {
		return session.Invalid("Client", "is not set")
	}
	if c.TaskQueue == "" {
		c.TaskQueue = "helix"
	}
	if c.Prefix == "" {
		c.Prefix = c.TaskQueue
	}
	if c.WorkerTimeout == 0 {
		c.WorkerTimeout = 15 * time.Second
	}
	switch {
	case c.WorkerTimeout < time.Second:
		return session.Invalid("WorkerTimeout", "%s is less than a second", c.WorkerTimeout)
	case c.MaxHistory < 0:
		return session.Invalid("MaxHistory", "%d is negative", c.MaxHistory)
	case c.MaxEffects < 0:
		return session.Invalid("MaxEffects", "%d is negative", c.MaxEffects)
	}
	return nil
}

// Runtime starts turns on Temporal and, unless told not to, works on them.
type Runtime struct {
	helix.Executor // the default tenant's
	helix.Registry

	host *host.Host
	// Turns of others are not taken on while this process closes; those it has go on.
	taker   worker.Worker
	workers []worker.Worker
}

// New starts a runtime. Close it when done.
func New(cfg Config) (*Runtime, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &driver{client: cfg.Client, noWorker: cfg.NoWorker, settings: settings{
		TaskQueue: cfg.TaskQueue, Prefix: cfg.Prefix, Silence: cfg.WorkerTimeout, MaxHistory: cfg.MaxHistory,
	}}
	d.slots = make(chan struct{}, cmp.Or(cfg.MaxEffects, 1000))
	d.queue = cfg.TaskQueue + "/" + session.NewOwner("worker")
	h, err := host.New(host.Config{
		Name: Name, Engine: true, Elsewhere: cfg.NoWorker, Backend: cfg.Backend, Agents: cfg.Agents, Hooks: cfg.Hooks, Usage: cfg.Usage,
		LeaseTTL: cfg.LeaseTTL, Heartbeat: cfg.Heartbeat, Sweep: cfg.Sweep, NoRecovery: cfg.NoRecovery,
		ModelRetries: cfg.ModelRetries, RetryBackoff: cfg.RetryBackoff, MaxResult: cfg.MaxResult, MaxSession: cfg.MaxSession, MaxChunks: cfg.MaxChunks,
		RemotePatience: cfg.RemotePatience, Logger: cfg.Logger,
	}, d)
	if err != nil {
		return nil, err
	}
	d.host = h
	r := &Runtime{Executor: h.Executor(), Registry: h, host: h}
	if !cfg.NoWorker {
		if err := r.work(&cfg, d); err != nil {
			return nil, err
		}
	}
	h.Start()
	return r, nil
}

// work starts to work on turns: on workflows, on what any process may do for them,
// and on what only this one can, which holds their turns.
func (r *Runtime) work(cfg *Config, d *driver) error {
	options := worker.Options{
		// An effect that waits for its turn must not look like one that nobody is there
		// for, so they are counted here and not by the SDK.
		MaxConcurrentActivityExecutionSize: 1_000_000,
		WorkerStopTimeout:                  stopTimeout,
		StickyScheduleToStartTimeout:       min(cfg.WorkerTimeout, 5*time.Second),
		MaxHeartbeatThrottleInterval:       cfg.WorkerTimeout / 3,
		DefaultHeartbeatThrottleInterval:   cfg.WorkerTimeout / 3,
		DisableWorkflowWorker:              true,
	}
	own := worker.New(cfg.Client, d.queue, options)
	own.RegisterActivityWithOptions(d.effect, activity.RegisterOptions{Name: effectActivity})
	own.RegisterActivityWithOptions(d.openChild, activity.RegisterOptions{Name: openChildActivity})
	own.RegisterActivityWithOptions(d.look, activity.RegisterOptions{Name: lookActivity})
	own.RegisterActivityWithOptions(d.take, activity.RegisterOptions{Name: takeActivity})
	r.taker = worker.New(cfg.Client, cfg.TaskQueue, options)
	r.taker.RegisterActivityWithOptions(d.take, activity.RegisterOptions{Name: takeActivity})
	r.taker.RegisterActivityWithOptions(d.cancel, activity.RegisterOptions{Name: cancelActivity})
	options.DisableWorkflowWorker, options.LocalActivityWorkerOnly = false, true
	flows := worker.New(cfg.Client, cfg.TaskQueue, options)
	flows.RegisterWorkflowWithOptions(turnWorkflow, workflow.RegisterOptions{Name: workflowName})
	for _, w := range []worker.Worker{own, r.taker, flows} {
		if err := w.Start(); err != nil {
			r.stopWorkers()
			return session.ErrUnavailable.WithCause(err, "Temporal: the worker could not be started")
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

// stopTimeout is how long a worker that is stopped waits for what it has answered to
// reach the server.
const stopTimeout = 3 * time.Second

func (r *Runtime) stopWorkers() {
	for _, w := range r.workers {
		w.Stop()
	}
}

// Cleanup fails the sessions of a tenant whose time is up, or, of no tenant, those of
// all. The runtime does that by itself for the agents that it has; this is for
// operators, who want to have it done now, for every agent, and to be told.
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// Close stops the runtime. It takes no new work, lets the turns that it works on go
// on until ctx ends, then leaves what is left to other processes.
func (r *Runtime) Close(ctx context.Context) error {
	if r.taker != nil {
		r.taker.Stop()
	}
	r.host.Close(ctx)
	r.stopWorkers()
	return nil
}
