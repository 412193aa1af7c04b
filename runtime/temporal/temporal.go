package temporal

import (
	"cmp"
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// Name is the runtime's name, as runs record it.
const Name = "temporal"

// Config configures a [Runtime]. Client and Backend are required.
type Config struct {
	helix.RuntimeOptions
	// Client is a client of the Temporal server. It is not closed with the runtime.
	Client client.Client
	// TaskQueue is the queue through which the processes of a deployment share work: all
	// of them have the same Backend and know the same agents. Defaults to "helix".
	TaskQueue string
	// Prefix begins the ids of workflows. Defaults to TaskQueue.
	Prefix string
	// NoWorker keeps this process from working on turns: it starts them, and other
	// processes work on them.
	NoWorker bool
	// WorkerTimeout is how long a process may be silent before another one continues
	// its turns. Defaults to 15 seconds; at least 1 second.
	WorkerTimeout time.Duration
	// MaxHistory is the number of history events after which a workflow continues as a
	// new one. Defaults to what the server suggests.
	MaxHistory int
	// MaxEffects is how many effects this process works on at the same time; others
	// wait. Defaults to 1,000.
	MaxEffects int
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

// Runtime starts turns on Temporal and, unless NoWorker is set, works on them. It
// implements [helix.Runtime].
type Runtime struct {
	helix.Executor // the default tenant's
	helix.Registry

	host *host.Host
	// taker takes turns over. It stops first at shutdown, while the turns that this
	// process holds continue.
	taker   worker.Worker
	workers []worker.Worker
}

// New starts a runtime. Stop it with Shutdown or Close.
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
		RuntimeOptions: cfg.RuntimeOptions, Name: Name, WorkflowEngine: true, ReleaseOpened: cfg.NoWorker, HolderTimeout: 2 * cfg.WorkerTimeout,
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

// work starts three workers: for workflows, for the activities that any process can
// carry out, and for those of turns that this process holds.
func (r *Runtime) work(cfg *Config, d *driver) error {
	options := worker.Options{
		// The driver limits effects, not the SDK: an effect that waits for a slot must send
		// heartbeats, or the server would take its process for dead.
		MaxConcurrentActivityExecutionSize: 1_000_000,
		WorkerStopTimeout:                  stopTimeout,
		StickyScheduleToStartTimeout:       min(cfg.WorkerTimeout, 5*time.Second),
		// The SDK gives a heartbeat up after as long as it waits for the next.
		MaxHeartbeatThrottleInterval:     cfg.WorkerTimeout / 3,
		DefaultHeartbeatThrottleInterval: cfg.WorkerTimeout / 3,
		DisableWorkflowWorker:            true,
	}
	own := worker.New(cfg.Client, d.queue, options)
	own.RegisterActivityWithOptions(d.effect, activity.RegisterOptions{Name: effectActivity})
	own.RegisterActivityWithOptions(d.openChild, activity.RegisterOptions{Name: openChildActivity})
	own.RegisterActivityWithOptions(d.renew, activity.RegisterOptions{Name: renewActivity})
	own.RegisterActivityWithOptions(d.takeOver, activity.RegisterOptions{Name: takeOverActivity})
	r.taker = worker.New(cfg.Client, cfg.TaskQueue, options)
	r.taker.RegisterActivityWithOptions(d.takeOver, activity.RegisterOptions{Name: takeOverActivity})
	r.taker.RegisterActivityWithOptions(d.cancel, activity.RegisterOptions{Name: cancelActivity})
	options.DisableWorkflowWorker, options.LocalActivityWorkerOnly = false, true
	flows := worker.New(cfg.Client, cfg.TaskQueue, options)
	flows.RegisterWorkflowWithOptions(turnWorkflow, workflow.RegisterOptions{Name: workflowName})
	for _, w := range []worker.Worker{own, r.taker, flows} {
		if err := w.Start(); err != nil {
			r.stopWorkers()
			return session.ErrUnavailable.WithCause(err, "start the Temporal worker")
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

// stopTimeout is how long a worker that is stopped waits until its results have reached
// the server.
const stopTimeout = 3 * time.Second

func (r *Runtime) stopWorkers() {
	for _, w := range r.workers {
		w.Stop()
	}
}

// Cleanup implements [helix.Runtime].
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// TaskStats implements [helix.Runtime].
func (r *Runtime) TaskStats() helix.TaskStats { return r.host.TaskStats() }

// Shutdown implements [helix.Runtime].
func (r *Runtime) Shutdown(ctx context.Context) error {
	if r.taker != nil {
		r.taker.Stop()
	}
	err := r.host.Shutdown(ctx)
	r.stopWorkers()
	return err
}

// Close implements [helix.Runtime].
func (r *Runtime) Close() error { return host.CloseNow(r.Shutdown) }
