package host

import (
	"context"
	"errors"
	"log/slog"
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
	// Name is the runtime's name; runs record it.
	Name string
	// Engine says that a workflow engine passes the effects of turns to [Host.Do].
	Engine bool
	// Elsewhere says that this process works on no turns.
	Elsewhere bool
}

// check completes the configuration.
func (c *Config) check() error {
	if c.Backend == nil {
		return session.Invalid("Backend", "is not set")
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 30 * time.Second
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.LeaseTTL / 3
	}
	if c.Sweep == 0 {
		c.Sweep = 5 * time.Second
	}
	switch {
	case c.LeaseTTL < 0:
		return session.Invalid("LeaseTTL", "%s is negative", c.LeaseTTL)
	case c.Heartbeat <= 0 || c.Heartbeat >= c.LeaseTTL:
		return session.Invalid("Heartbeat", "%s must be positive and shorter than LeaseTTL %s", c.Heartbeat, c.LeaseTTL)
	case c.Sweep < 0:
		return session.Invalid("Sweep", "%s is negative", c.Sweep)
	case c.RemotePatience < 0:
		return session.Invalid("RemotePatience", "%s is negative", c.RemotePatience)
	}
	if c.Logger == nil {
		c.Logger = DefaultLogger()
	}
	return nil
}

// Driver is what a runtime has of its own.
type Driver interface {
	// Drive sees to it that an opened turn is driven, from here or from elsewhere. It
	// does not wait for its end. If it fails, the turn is left to a sweep.
	Drive(ctx context.Context, turn *Turn) error
	// Revive goes on with a run whose lease has expired or was given back.
	Revive(ctx context.Context, due session.Due) error
	// Check makes sure that a run is still driven which this process holds, and about
	// which an engine has asked for nothing in a while.
	Check(ctx context.Context, due session.Due) error
	// Nudge tells whoever works on a run that it is to be stopped. The request is in
	// the store: this only makes it be noticed sooner.
	Nudge(ctx context.Context, start Start)
}

// Host is a process of a runtime.
type Host struct {
	cfg     Config
	driver  Driver
	handler *engine.Handler
	log     *slog.Logger

	mu      sync.Mutex
	closing bool
	over    bool               // what still runs was given up
	turns   map[string]*Turn   // by run id
	members map[string]*Turn   // by run id of an agent that works for another: the turn of the root
	opening map[string]bool    // runs that are about to be driven
	working map[string]*work   // effects in flight, by key
	calm    *sync.Cond         // some turn has fewer of them, or is no longer being opened
	wg      sync.WaitGroup     // what Close waits for
	stop    context.CancelFunc // ends the background loops
	loops   sync.WaitGroup
	debts   chan session.Wake // stops to be told to remote agents
	checks  chan struct{}     // turns that are being looked after
	intake  *intake           // when runs are taken over
	failed  atomic.Int64      // when a lease was last lost because it could not be renewed, see sinceStart; 0 once one was
}

var errClosing = session.ErrClosed.WithMessage("the runtime is closing")

// New makes a host. It does nothing by itself before [Host.Start].
func New(cfg Config, driver Driver) (*Host, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, driver: driver, log: cfg.Logger, turns: map[string]*Turn{}, members: map[string]*Turn{},
		opening: map[string]bool{}, working: map[string]*work{}, debts: make(chan session.Wake, sweepPage),
		checks: make(chan struct{}, checkers), intake: newIntake(),
	}
	h.calm = sync.NewCond(&h.mu)
	h.handler = engine.NewHandler(engine.Config{
		Backend: cfg.Backend, Runtime: cfg.Name, LeaseTTL: cfg.LeaseTTL, Hooks: cfg.Hooks, Usage: cfg.Usage,
		ModelRetries: cfg.ModelRetries, RetryBackoff: cfg.RetryBackoff, MaxResult: cfg.MaxResult, MaxSession: cfg.MaxSession,
		MaxChunks: cfg.MaxChunks, RemotePatience: cfg.RemotePatience, Nudge: h.nudge, Abort: h.abortRun,
		Resume: h.resumeRun, Retry: h.retryRun, Logger: cfg.Logger,
	})
	if err := h.Register(cfg.Agents...); err != nil {
		return nil, err
	}
	return h, nil
}

// Register makes agents known here.
func (h *Host) Register(agents ...*helix.Agent) error {
	for _, agent := range agents {
		if _, err := h.handler.Register(agent); err != nil {
			return err
		}
	}
	return nil
}

// RegisterFactory implements [helix.Registry].
func (h *Host) RegisterFactory(name string, factory helix.Factory) error {
	return h.handler.RegisterFactory(name, factory)
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

// Start begins to renew leases and to sweep.
func (h *Host) Start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.loops.Go(func() { h.every(ctx, h.cfg.Heartbeat, h.renewLeases) })
	for range payers {
		h.loops.Go(func() { h.payStops(ctx) })
	}
	h.loops.Go(func() { h.sweeps(ctx) })
}

// every calls do at each interval, until ctx ends.
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

// Executor is the host as its default tenant sees it.
func (h *Host) Executor() helix.Executor {
	return &executor{h: h, tenant: session.DefaultTenant}
}

// Handler is what carries effects out here.
func (h *Host) Handler() *engine.Handler { return h.handler }

// Log is where the runtime logs.
func (h *Host) Log() *slog.Logger { return h.log }

// Shutdown implements [helix.Runtime].
func (h *Host) Shutdown(ctx context.Context) (err error) {
	h.mu.Lock()
	closed := h.closing
	h.closing = true
	h.mu.Unlock()
	if !closed {
		close(h.intake.closing)
		h.log.InfoContext(ctx, "runtime closing")
	}
	finished := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		if h.handOver() {
			err = ctx.Err()
		}
		<-finished
	}
	h.stop()
	h.loops.Wait()
	return err
}

// CloseNow shuts a runtime down without waiting for its turns.
func CloseNow(shutdown func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := shutdown(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // its turns were handed over, as they should be
}

// handOver stops every turn where it is and reports whether there were any. Their leases
// are released, so that other processes can continue them.
func (h *Host) handOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for _, t := range h.turns {
		t.cancel(errClosing)
	}
	return len(h.turns) > 0
}
