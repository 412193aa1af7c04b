package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
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
	// NoRecovery keeps this process from taking over orphaned runs.
	NoRecovery bool
	// ModelRetries is how often a retryable model error is retried. Defaults to 3; a
	// negative number is none. RetryBackoff is the first wait, which doubles.
	// Defaults to 1 second.
	ModelRetries int
	RetryBackoff time.Duration
	// MaxResult is the largest tool result in bytes. Defaults to 1,000,000.
	MaxResult int
	// RemotePatience is how long a remote agent may be out of reach before the call
	// that waits for it fails. Defaults to 2 minutes.
	RemotePatience time.Duration
	// Logger receives the runtime's log. Defaults to none.
	Logger *slog.Logger
}

// Runtime runs agents in this process. It is a [helix.Executor].
type Runtime struct {
	*executor // the default tenant's

	cfg     Config
	handler *engine.Handler
	log     *slog.Logger

	mu      sync.Mutex
	closing bool
	over    bool               // what still runs was given up
	turns   map[string]*driven // by run id
	opening map[string]bool    // runs that are about to be driven
	wg      sync.WaitGroup     // drivers
	stop    context.CancelFunc // ends the background loops
	loops   sync.WaitGroup
	debts   chan session.Wake // stops to be told to remote agents
}

// driven is a turn that this process drives.
type driven struct {
	key    session.Key
	runID  string
	cancel context.CancelCauseFunc
	done   chan struct{}
}

var errClosing = session.ErrClosed.WithMessage("the runtime is closing")

// New starts a runtime. Close it when done.
func New(cfg Config) (*Runtime, error) {
	if cfg.Backend == nil {
		return nil, session.Invalid("Backend", "is not set")
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = 30 * time.Second
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = cfg.LeaseTTL / 3
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = 5 * time.Second
	}
	switch {
	case cfg.LeaseTTL < 0:
		return nil, session.Invalid("LeaseTTL", "%s is negative", cfg.LeaseTTL)
	case cfg.Heartbeat <= 0 || cfg.Heartbeat >= cfg.LeaseTTL:
		return nil, session.Invalid("Heartbeat", "%s must be positive and shorter than LeaseTTL %s", cfg.Heartbeat, cfg.LeaseTTL)
	case cfg.Sweep < 0:
		return nil, session.Invalid("Sweep", "%s is negative", cfg.Sweep)
	case cfg.RemotePatience < 0:
		return nil, session.Invalid("RemotePatience", "%s is negative", cfg.RemotePatience)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{
		cfg: cfg, log: cfg.Logger, turns: map[string]*driven{}, opening: map[string]bool{}, debts: make(chan session.Wake, sweepPage),
	}
	r.handler = engine.NewHandler(engine.Config{
		Backend: cfg.Backend, Runtime: Name, Colocated: true, LeaseTTL: cfg.LeaseTTL, Hooks: cfg.Hooks, Usage: cfg.Usage,
		ModelRetries: cfg.ModelRetries, RetryBackoff: cfg.RetryBackoff, MaxResult: cfg.MaxResult, RemotePatience: cfg.RemotePatience, Logger: cfg.Logger,
	})
	for _, agent := range cfg.Agents {
		if _, err := r.handler.Register(agent); err != nil {
			return nil, err
		}
	}
	r.executor = &executor{r: r, tenant: session.DefaultTenant}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.loops.Go(func() { r.every(ctx, cfg.Heartbeat, r.renewLeases) })
	for range payers {
		r.loops.Go(func() { r.payStops(ctx) })
	}
	if !cfg.NoRecovery {
		r.loops.Go(func() { r.sweeps(ctx) })
	}
	return r, nil
}

// Replace makes agents, and all that they may call, known in place of others of
// the same names, or none of them if one cannot be used. A turn that is under way
// goes on with the definition it began with; turns that begin later, are resumed or
// taken over have the new one. Agents that are not given stay known, so that their
// sessions can go on.
func (r *Runtime) Replace(agents ...*helix.Agent) error { return r.handler.Replace(agents...) }

// every calls do at each interval, until ctx ends.
func (r *Runtime) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
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

// Close stops the runtime. It takes no new work, lets running turns go on until
// ctx ends, then gives up what is left: those turns stop where they are and their
// leases are released, so that whoever comes next continues them.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	closed := r.closing
	r.closing = true
	r.mu.Unlock()
	if !closed {
		r.log.InfoContext(ctx, "runtime closing")
	}
	finished := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
		r.giveUp()
		<-finished
	}
	r.stop()
	r.loops.Wait()
	return nil
}

// giveUp makes every turn stop where it is.
func (r *Runtime) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, d := range r.turns {
		d.cancel(errClosing)
	}
}

// drive runs an opened turn to its end in a goroutine of its own. The caller has
// seen to it that Close waits.
func (r *Runtime) drive(opened *engine.Opened) *driven {
	ctx, cancel := context.WithCancelCause(context.Background())
	d := &driven{key: opened.Key, runID: opened.Run.ID, cancel: cancel, done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[d.runID] = d
	if r.over {
		cancel(errClosing)
	}
	r.wg.Go(func() {
		end := r.loop(ctx, opened)
		r.finish(d)
		if end != nil {
			r.after(opened.Key, end)
		}
	})
	return d
}

// after sees to what the end of a turn leads to.
func (r *Runtime) after(key session.Key, end *engine.Outcome) {
	ctx := context.Background()
	if end.Abort != nil {
		if err := r.abortWaiting(ctx, key, *end.Abort); err != nil {
			r.log.WarnContext(ctx, "session not aborted", "tenant", key.Tenant, "session", key.ID, "error", err)
		}
	}
	if end.Wake || end.Owes {
		r.sweepWakes(ctx)
	}
}

func (r *Runtime) finish(d *driven) {
	r.mu.Lock()
	delete(r.turns, d.runID)
	r.mu.Unlock()
	d.cancel(nil)
	close(d.done)
}

// loop is the driver: it hands the machine's effects to the handler until the
// turn has ended, is lost, or is given up. Only an end that it saw it returns.
func (r *Runtime) loop(ctx context.Context, opened *engine.Opened) *engine.Outcome {
	machine, wave := engine.NewMachine(opened.Key, opened.Run.ID, opened.Position)
	for {
		results, err := r.run(ctx, wave)
		if err != nil {
			r.log.WarnContext(ctx, "turn given up", "session", opened.Key.ID, "run", opened.Run.ID, "error", err)
			r.handler.Release(context.WithoutCancel(ctx), opened.Run.ID)
			return nil
		}
		next, end := machine.Next(results)
		if end != nil {
			return end
		}
		wave = next
	}
}

// run handles a wave, all its effects at the same time.
func (r *Runtime) run(ctx context.Context, wave []engine.Effect) ([]engine.Result, error) {
	results := make([]engine.Result, len(wave))
	if len(wave) == 1 {
		var err error
		results[0], err = r.handle(ctx, wave[0])
		return results, err
	}
	errs := make([]error, len(wave))
	var wg sync.WaitGroup
	for i, effect := range wave {
		wg.Go(func() { results[i], errs[i] = r.handle(ctx, effect) })
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

// Effects whose store is unavailable are tried again for about a minute.
const (
	effectTries = 12
	firstPause  = 50 * time.Millisecond
	longPause   = 10 * time.Second
)

// handle carries out one effect. That of a call of another agent includes the
// agent's turn.
func (r *Runtime) handle(ctx context.Context, effect engine.Effect) (engine.Result, error) {
	if effect.Kind == engine.CallChild {
		opened, err := try(ctx, r, effect, r.handler.OpenChild)
		switch {
		case err != nil:
			return engine.Result{}, err
		case opened == nil:
		case opened.Detached:
			r.driveApart(opened)
		default:
			end := r.loop(ctx, opened)
			if end == nil { // it was given up, and so is the turn that waits for it
				return engine.Result{}, fmt.Errorf("session %s was given up", opened.Key.ID)
			}
			if end.Owes {
				r.sweepWakes(ctx)
			}
		}
	}
	return try(ctx, r, effect, r.handler.Handle)
}

// try carries out a part of an effect, again if the store was unavailable.
func try[V any](ctx context.Context, r *Runtime, effect engine.Effect, do func(context.Context, engine.Effect) (V, error)) (V, error) {
	pause := firstPause
	for try := 1; ; try++ {
		result, err := do(ctx, effect)
		if err == nil || ctx.Err() != nil || !session.IsRetryable(err) || try == effectTries {
			return result, err
		}
		r.log.WarnContext(ctx, "effect failed, trying again",
			"session", effect.SessionID, "effect", effect.Key(), "try", try, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return result, fmt.Errorf("effect %s: %w", effect.Key(), context.Cause(ctx))
		}
		pause = min(2*pause, longPause)
	}
}

// renewLeases keeps the leases of all turns of this process.
func (r *Runtime) renewLeases(ctx context.Context) {
	r.mu.Lock()
	turns := make([]*driven, 0, len(r.turns))
	for _, d := range r.turns {
		turns = append(turns, d)
	}
	r.mu.Unlock()
	// One after the other, a slow store would not get round to the last in time.
	var renewing sync.WaitGroup
	turn := make(chan *driven)
	for range min(renewers, len(turns)) {
		renewing.Go(func() {
			for d := range turn {
				r.renew(ctx, d)
			}
		})
	}
	for _, d := range turns {
		turn <- d
	}
	close(turn)
	renewing.Wait()
}

// renewers is how many leases are renewed at the same time.
const renewers = 8

func (r *Runtime) renew(ctx context.Context, d *driven) {
	err := r.handler.Renew(ctx, d.runID, r.cfg.LeaseTTL)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, session.ErrStale), errors.Is(err, session.ErrNotFound):
		// Somebody else has the session: what is in flight here is in vain.
		r.log.WarnContext(ctx, "lease lost", "session", d.key.ID, "run", d.runID, "error", err)
		d.cancel(err)
	default:
		r.log.WarnContext(ctx, "lease not renewed", "session", d.key.ID, "run", d.runID, "error", err)
	}
}

// A sweep sees to at most so many pages of sessions of a kind.
const (
	sweepPages = 50
	sweepPage  = 100 // sessions
)

// sweep takes over orphaned runs and closes streams that were left open.
func (r *Runtime) sweep(ctx context.Context) {
	sessions := r.cfg.Backend.Sessions()
	r.each(ctx, "expired leases", sessions.ExpiredLeases, r.takeOver)
	r.each(ctx, "owed closes", sessions.OwedCloses, r.settleClose)
	r.each(ctx, "deadlines", sessions.DueDeadlines, r.expireCall)
	r.each(ctx, "expired sessions", sessions.ExpiredSessions, r.expireSession)
	r.sweepWakes(ctx)
}

// sweeps sweeps at once, for what the process before this one has left is not to
// wait, and then about once in an interval. The wait is random, so that of several
// processes not always the same comes first.
func (r *Runtime) sweeps(ctx context.Context) {
	r.sweep(ctx)
	for {
		timer := time.NewTimer(r.cfg.Sweep*3/4 + rand.N(r.cfg.Sweep/2+1))
		select {
		case <-timer.C:
			r.sweepInTurn(ctx)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// sweepInTurn sweeps unless another process has just done so: a fleet with the
// same agents costs the store little more than one process, and what it finds is
// spread over all of them. The lock is left to expire, so that nobody holds it from
// one sweep to the next. A process that closes takes nothing over and leaves the
// turn to others.
func (r *Runtime) sweepInTurn(ctx context.Context) {
	r.mu.Lock()
	closing := r.closing
	r.mu.Unlock()
	if closing {
		return
	}
	name := "sweep/" + Name + "/" + r.handler.AgentSet()
	_, ours, err := r.cfg.Backend.Locks().TryAcquire(ctx, name, session.NewOwner(Name), max(r.cfg.Sweep/2, 1))
	switch {
	case err != nil:
		r.sweepFailed(ctx, "lock", err)
	case ours:
		r.sweep(ctx)
	}
}

// each sees to what a sweep lists. What is left alone, because it is for another
// process, stays on the list, so it goes on behind that.
func (r *Runtime) each(
	ctx context.Context, what string,
	list func(context.Context, session.SweepRequest) ([]session.Due, error), do func(context.Context, session.Due),
) {
	request := session.SweepRequest{Limit: sweepPage}
	for range sweepPages {
		page, err := list(ctx, request)
		if err != nil {
			r.sweepFailed(ctx, what, err)
			return
		}
		for _, due := range page {
			do(ctx, due)
		}
		if len(page) < sweepPage {
			return
		}
		request.After = &page[len(page)-1]
	}
}

// settleClose closes a stream that was left open, unless the run's driver here is
// about to.
func (r *Runtime) settleClose(ctx context.Context, due session.Due) {
	if _, err := r.handler.Agent(due.Agent); err != nil || r.drives(due.RunID) {
		return // whoever knows the agent also tells its hooks
	}
	if err := r.handler.SettleClose(ctx, due); err != nil {
		r.sweepFailed(ctx, "close "+due.ID, err)
	}
}

func (r *Runtime) sweepFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, session.ErrClosed) { // a runtime that closes leaves it to others
		r.log.WarnContext(ctx, "sweep failed", "what", what, "error", err)
	}
}

// takeOver takes one orphaned run over, if it is this runtime's and its agent is
// known here.
func (r *Runtime) takeOver(ctx context.Context, due session.Due) {
	if due.Runtime != Name || r.drives(due.RunID) {
		return
	}
	if _, err := r.handler.Agent(due.Agent); err != nil {
		return
	}
	done, err := r.open(due.RunID)
	if err != nil {
		return // the runtime closes: others will see to it
	}
	defer done()
	opened, err := r.handler.Recover(ctx, due)
	if err != nil {
		if !errors.Is(err, session.ErrStale) && !errors.Is(err, session.ErrAlreadyRunning) {
			r.sweepFailed(ctx, "recover "+due.ID, err)
		}
		return
	}
	r.drive(opened)
}

func (r *Runtime) drives(runID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.turns[runID]
	return ok || r.opening[runID]
}

// open marks a run as about to be driven, so that no sweep takes it for an
// orphan, however long its start takes, and that Close waits for it.
func (r *Runtime) open(runID string) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, errClosing
	}
	r.opening[runID] = true
	r.wg.Add(1)
	return func() {
		r.mu.Lock()
		delete(r.opening, runID)
		r.mu.Unlock()
		r.wg.Done()
	}, nil
}

// doneOf is closed when this process has finished driving the run, or nil if it
// does not drive it.
func (r *Runtime) doneOf(runID string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.turns[runID]; ok {
		return d.done
	}
	return nil
}
