package host

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
)

// Config configures a host.
type Config struct {
	helix.RuntimeOptions
	// Name is the runtime's name. Runs record it, and only a runtime of the same name
	// recovers them.
	Name string
	// WorkflowEngine says that a workflow engine passes the effects of turns to
	// [Host.Do] and decides which process takes a turn over.
	WorkflowEngine bool
	// ReleaseOpened releases each turn as soon as this process has opened it, so that
	// any process can take it over: because turns wait in a queue, or because this
	// process only starts them.
	ReleaseOpened bool
	// HolderTimeout is for how long [Host.TakeOver] leaves a turn to the process that holds
	// it, while that renews its lease or waits for the store: the workflow engine may have
	// lost sight of it because the store was away. If it is zero, the engine knows that the
	// process is dead.
	HolderTimeout time.Duration
}

const defaultLeaseTTL = 5 * time.Second

// check completes the configuration.
func (c *Config) check() error {
	if c.Backend == nil {
		return session.Invalid("Backend", "is not set")
	}
	// A lease and a sweep together are less than 10 s, with time to take the runs over.
	if c.LeaseTTL == 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.LeaseTTL / 3
	}
	if c.Sweep == 0 {
		c.Sweep = 2 * time.Second
	}
	switch {
	case c.LeaseTTL < 0:
		return session.Invalid("LeaseTTL", "%s is negative", c.LeaseTTL)
	case c.Heartbeat <= 0 || c.Heartbeat > c.LeaseTTL/2: // or one renewal that fails may cost the lease
		return session.Invalid("Heartbeat", "%s must be positive and at most half of LeaseTTL %s", c.Heartbeat, c.LeaseTTL)
	case c.Sweep < 0:
		return session.Invalid("Sweep", "%s is negative", c.Sweep)
	case c.HookTimeout < 0:
		return session.Invalid("HookTimeout", "%s is negative", c.HookTimeout)
	case c.RemotePatience < 0:
		return session.Invalid("RemotePatience", "%s is negative", c.RemotePatience)
	}
	if c.Logger == nil {
		c.Logger = DefaultLogger()
	}
	return nil
}

// Driver is the part that differs between runtimes: where the effects of a turn run.
type Driver interface {
	// Drive starts to drive a turn that the host has opened, and returns without waiting
	// for the turn's end. If it returns an error, the host releases the turn, and some
	// process recovers the run.
	Drive(ctx context.Context, turn *Turn) error
	// Recover continues a run whose lease has expired or was released. It returns the
	// error of [Host.Recover], if it calls that, as it is.
	Recover(ctx context.Context, due session.Due) error
	// EnsureDriven checks that a workflow still drives a run that this process holds,
	// and for which the workflow engine has asked for no effect in a while. It is called
	// only if [Config].WorkflowEngine is set.
	EnsureDriven(ctx context.Context, due session.Due) error
	// NotifyStop notifies the process that works on a run of a stop request. The request
	// is in the store, and every process reads it when it renews its leases: a driver
	// that does nothing here only delays the stop.
	NotifyStop(ctx context.Context, start Start)
}

// Host is one process of a runtime.
type Host struct {
	cfg     Config
	driver  Driver
	handler *engine.Handler
	log     *slog.Logger

	mu         sync.Mutex // guards the fields up to changed
	closing    bool
	handedOver bool             // Shutdown has cancelled the turns that were left
	cutShort   bool             // a turn was among them, or was opened after that
	turns      map[string]*Turn // by run id
	children   map[string]*Turn // by run id of a child: the turn of the root
	opening    map[string]bool  // runs that are about to be driven
	inFlight   map[string]*work // what a workflow engine has asked for, by key
	rounds     int64            // rounds of renewals that have begun
	changed    *sync.Cond       // an effect has ended, or a run has been opened

	judging sync.Mutex // guards the fields up to wanted
	judge   *judge
	shared  time.Time            // since when others may recover runs, too, because this process could not recover one
	tried   map[string]try       // by run id: when this process last tried to recover it
	wanted  map[session.Key]want // leases that a workflow engine asks for

	absence atomic.Pointer[absence] // nil if the store can be read

	recoverer string        // this process as the owner of the lock for recovering runs
	features  string        // identifies the set of features that runs may require here
	lost      chan struct{} // receives when there may be runs to recover

	wg            sync.WaitGroup     // turns, openings and work in flight, for Shutdown
	stop          context.CancelFunc // ends the background loops
	loops         sync.WaitGroup
	wakes         *announced              // for sessions of which this process has heard
	stops         chan session.Wake       // stop requests to be sent to remote agents
	sweeping      *workers                // what sweeps have found
	recoveries    *workers                // of lost runs
	suspects      *workers                // of runs that were lost more than once, one after the other
	sweptTo       map[string]*session.Due // by list: what the last sweep saw last, if it has not seen all; of the goroutine that sweeps
	refusedSweeps int                     // in a row, which were left to other processes; of the goroutine that sweeps
	checkSlots    chan struct{}           // limits concurrent calls of Driver.EnsureDriven
	intake        *intake                 // when runs are taken over
	tasks         *tasks                  // what follows commits
	renewals      chan struct{}           // limits rounds of renewals under way
}

var errClosing = session.ErrClosed.WithMessage("the runtime is closing")

// New returns a host. It does nothing in the background before [Host.Start].
func New(cfg Config, driver Driver) (*Host, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, driver: driver, log: cfg.Logger, turns: map[string]*Turn{}, children: map[string]*Turn{},
		opening: map[string]bool{}, inFlight: map[string]*work{}, wakes: &announced{ready: make(chan struct{}, 1)}, stops: make(chan session.Wake, sweepPage), sweptTo: map[string]*session.Due{},
		checkSlots: make(chan struct{}, maxChecks), renewals: make(chan struct{}, maxRenewals), intake: newIntake(),
		judge: newJudge(cfg.LeaseTTL), recoverer: session.NewOwner(cfg.Name), features: featureSet(cfg.Features), lost: make(chan struct{}, 1), tried: map[string]try{}, wanted: map[session.Key]want{},
	}
	h.sweeping, h.recoveries, h.suspects = newWorkers(sweepers, h.log), newWorkers(recoverers, h.log), newWorkers(1, h.log)
	h.changed = sync.NewCond(&h.mu)
	var err error
	if h.tasks, err = h.newTasks(cfg.Tasks); err != nil {
		return nil, err
	}
	h.handler = engine.NewHandler(engine.Config{
		Backend: cfg.Backend, Runtime: cfg.Name, LeaseTTL: cfg.LeaseTTL, Hooks: cfg.Hooks, Usage: cfg.Usage, Observers: cfg.Observers,
		ModelRetries: cfg.ModelRetries, RetryBackoff: cfg.RetryBackoff, Features: cfg.Features, MaxResult: cfg.MaxResult,
		MaxArguments: cfg.MaxArguments, MaxSession: cfg.MaxSession,
		MaxChunks: cfg.MaxChunks, HookTimeout: cfg.HookTimeout, RemotePatience: cfg.RemotePatience, NotifyStop: h.notifyStop, Abort: h.abortRun,
		Resume: h.resumeRun, Retry: h.retryRun, TasksAdded: h.tasks.notify, TrimStreams: cfg.Tasks.TrimStreams, CleanCalls: cfg.Tasks.CleanCalls, Logger: cfg.Logger,
	})
	if err := h.Register(cfg.Agents...); err != nil {
		return nil, err
	}
	return h, nil
}

// Register implements [helix.Registry].
func (h *Host) Register(agents ...*helix.Agent) error {
	for _, agent := range agents {
		if _, err := h.handler.Register(agent); err != nil {
			return err
		}
		h.warnOfTools(agent)
	}
	return nil
}

// warnOfTools logs which tools have no description: the model is told only their names.
func (h *Host) warnOfTools(agent *helix.Agent) {
	for i := range agent.Tools {
		if agent.Tools[i].Description == "" {
			h.log.Warn("tool.not_described", "agent", agent.Name, "tool", agent.Tools[i].Name)
		}
	}
}

// RegisterFactory implements [helix.Registry].
func (h *Host) RegisterFactory(name string, factory helix.Factory) error {
	err := h.handler.RegisterFactory(name, factory)
	if err == nil {
		h.tasks.factoryAdded()
	}
	return err
}

// Replace implements [helix.Registry].
func (h *Host) Replace(agents ...*helix.Agent) error { return h.handler.Replace(agents...) }

// Unregister implements [helix.Registry].
func (h *Host) Unregister(names ...string) { h.handler.Unregister(names...) }

// UnregisterAll implements [helix.Registry].
func (h *Host) UnregisterAll() { h.handler.Unregister(h.handler.Agents()...) }

// HasAgent implements [helix.Registry].
func (h *Host) HasAgent(name string) bool { return h.handler.Knows(name) }

// Agents implements [helix.Registry].
func (h *Host) Agents() []string { return h.handler.Agents() }

// Start starts the renewal of leases, the sweep, and the handling of signals.
func (h *Host) Start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.loops.Go(func() { h.every(ctx, h.cfg.Heartbeat, h.beginRenewal) })
	for range stopSenders {
		h.loops.Go(func() { h.sendStops(ctx) })
	}
	h.loops.Go(func() { h.watchLeases(ctx) })
	h.loops.Go(func() { h.recoverRuns(ctx) })
	h.loops.Go(func() { h.sweeps(ctx) })
	h.loops.Go(func() { h.every(ctx, blobSweep, h.sweepBlobs) })
	h.tasks.start(ctx)
	h.listen(ctx)
}

// every calls do once per interval, until ctx ends.
func (h *Host) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Executor returns the executor of the default tenant.
func (h *Host) Executor() helix.Executor {
	return &executor{h: h, tenant: session.DefaultTenant}
}

// Handler returns the engine's handler, which carries effects out.
func (h *Host) Handler() *engine.Handler { return h.handler }

// Log returns the runtime's logger.
func (h *Host) Log() *slog.Logger { return h.log }

// Shutdown implements [helix.Runtime].
func (h *Host) Shutdown(ctx context.Context) (err error) {
	h.mu.Lock()
	closed := h.closing
	h.closing = true
	h.mu.Unlock()
	if !closed {
		close(h.intake.closing)
		h.log.InfoContext(ctx, "runtime.closing")
	}
	grace := h.tasks.opts.Grace
	if ctx.Err() != nil {
		grace = 0
	}
	finished := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		h.handOver()
		<-finished
		h.mu.Lock()
		if h.cutShort {
			err = ctx.Err()
		}
		h.mu.Unlock()
	}
	if h.stop != nil { // Start was called
		h.stop()
	}
	for _, w := range h.workers() {
		w.close()
	}
	h.loops.Wait()
	h.tasks.shutdown(ctx, grace)
	return err
}

func (h *Host) workers() []*workers { return []*workers{h.sweeping, h.recoveries, h.suspects} }

// CloseNow implements Close of a runtime: it calls shutdown with a context that has
// ended, which hands all turns over at once.
func CloseNow(shutdown func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := shutdown(ctx)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		rest := slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(err error) bool { return errors.Is(err, context.Canceled) })
		return errors.Join(rest...)
	}
	if errors.Is(err, context.Canceled) {
		return nil // its turns were handed over, as they should be
	}
	return err
}

// handOver cancels all turns. Their leases are released, so that other processes can
// continue them.
func (h *Host) handOver() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handedOver = true
	for _, w := range h.workers() {
		w.cancel()
	}
	for _, t := range h.turns {
		t.cancel(errClosing)
		h.cutShort = true
	}
}
