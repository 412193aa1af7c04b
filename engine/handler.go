package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/usage"
)

// Config configures a [Handler].
type Config struct {
	Backend store.Backend
	// Runtime names the runtime. Runs record it, and only that runtime recovers them.
	Runtime string
	// Features are the abilities that this process has; see [session.Run.Requires].
	// Defaults to all of [session.Features].
	Features []string
	// LeaseTTL is how long a lease holds without renewal. 0 means that leases never expire.
	LeaseTTL time.Duration
	// Hooks are called before the agent's own.
	Hooks *helix.Hooks
	// Usage receives usage entries. Defaults to none.
	Usage usage.Sink
	// Observers receive the start and the end of each activity.
	Observers []helix.Observer
	// ModelRetries is how often a retryable model error is retried, after
	// RetryBackoff, twice that, and so on, with jitter. They default to 3 and 1
	// second; a negative number of retries is none.
	ModelRetries int
	RetryBackoff time.Duration
	// MaxResult is the largest tool result in bytes, unless the agent evicts larger ones; see
	// [helix.MaxEvicted]. Defaults to 1,000,000.
	MaxResult int
	// MaxArguments is how many bytes the arguments of all calls of a reply may have. Defaults to
	// 1 MiB.
	MaxArguments int
	// MaxSession is how many bytes a session may have, messages, stream and blobs together.
	// A larger one accepts no new message, and its run fails before the next model
	// call. Defaults to 64 MiB; a negative number is no limit.
	MaxSession int64
	// MaxChunks is how many chunks a stream keeps. When a step is committed, the
	// oldest chunks beyond that are trimmed; those of a step in progress stay,
	// because a client that reloads needs them. A reader that is behind sees the gap,
	// as after [stream.Manager.Trim]. Defaults to 0, which keeps all.
	MaxChunks int64
	// TrimStreams and CleanCalls are those of [helix.TaskOptions].
	TrimStreams time.Duration
	CleanCalls  time.Duration
	// FlushEvery is how long small chunks are held back to be written together.
	// Defaults to 25 milliseconds.
	FlushEvery time.Duration
	// HookTimeout is how long each hook, factory, approval policy and function of an agent's
	// definition may take. Defaults to 30 seconds.
	HookTimeout time.Duration
	// RemotePatience is how long a remote agent may be unreachable before the call
	// that waits for it fails. A remote that cannot be started fails after an eighth
	// of that. Defaults to 2 minutes.
	RemotePatience time.Duration
	// NotifyStop, if set, is called when a stop is requested for a run that this process
	// does not drive.
	NotifyStop func(ctx context.Context, key session.Key, runID string)
	// Abort, if set, aborts a run that may be waiting, which takes a turn of its own.
	// Without it only a run in progress can be aborted.
	Abort func(ctx context.Context, key session.Key, runID, reason string) error
	// Resume and Retry begin the runs that a [Handle] asks for.
	Resume func(ctx context.Context, key session.Key, opts helix.ResumeOptions) (helix.Run, error)
	Retry  func(ctx context.Context, key session.Key, opts helix.RetryOptions) (helix.Run, error)
	// TasksAdded, if set, is called when tasks were stored with a commit.
	TasksAdded func()
	// Logger defaults to none.
	Logger *slog.Logger
}

// defaultMaxSession is the default of [Config.MaxSession].
const defaultMaxSession = 64 << 20

// LimitSession is the name under which servers report the limit [Config.MaxSession].
const LimitSession = "sessionBytes"

// checkSize refuses a session that is too large.
func (c *Config) checkSize(size int64) error {
	if c.MaxSession < 0 || size <= c.MaxSession {
		return nil
	}
	err := session.ErrTooLarge.WithMessage("the session has %d bytes, at most %d are allowed; begin a new one", size, c.MaxSession)
	err.Field = LimitSession
	return err
}

// Handler carries out effects. It keeps the turns that this process drives in memory,
// so that the cost of a step does not grow with the session. A turn that it does not
// hold is read from the store.
type Handler struct {
	*Registry // guards itself

	// These never change.
	cfg   Config
	log   *slog.Logger
	owner string // the token under which this process holds leases

	mu    sync.Mutex
	turns map[string]*turn // by run id; guarded by mu

	observers  observers   // never changes
	readResult *helix.Tool // of agents that evict; never changes

	compactions *compactions // guards itself

	// undeclared holds the names of agents that write state without declaring any, so that
	// each is logged once. It guards itself.
	undeclared sync.Map
	// digests holds a *promptDigest for each agent that was asked. It guards itself.
	digests sync.Map
}

// NewHandler returns a handler.
func NewHandler(cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Usage == nil {
		cfg.Usage = usage.SinkFunc(func(context.Context, usage.Entry) {})
	}
	if cfg.Features == nil {
		cfg.Features = session.Features()
	}
	if cfg.ModelRetries == 0 {
		cfg.ModelRetries = 3
	}
	if cfg.RetryBackoff == 0 {
		cfg.RetryBackoff = time.Second
	}
	if cfg.FlushEvery == 0 {
		cfg.FlushEvery = 25 * time.Millisecond
	}
	if cfg.MaxResult == 0 {
		cfg.MaxResult = 1_000_000
	}
	if cfg.MaxArguments == 0 {
		cfg.MaxArguments = 1 << 20
	}
	if cfg.MaxSession == 0 {
		cfg.MaxSession = defaultMaxSession
	}
	if cfg.HookTimeout == 0 {
		cfg.HookTimeout = 30 * time.Second
	}
	if cfg.RemotePatience == 0 {
		cfg.RemotePatience = 2 * time.Minute
	}
	return &Handler{
		Registry: newRegistry(cfg.Backend.Sessions(), newHookLimit(cfg.HookTimeout), cfg.Logger),
		cfg:      cfg, log: cfg.Logger, owner: session.NewLeaseOwner(cfg.Runtime, cfg.LeaseTTL), turns: map[string]*turn{},
		observers: observers{list: cfg.Observers, log: cfg.Logger}, readResult: newReadResult(), compactions: newCompactions(),
	}
}

// Owner is the token under which the handler holds leases.
func (h *Handler) Owner() string { return h.owner }

// Handle carries out one effect. A failure of the domain is part of the result; after
// an error the effect may be tried again.
func (h *Handler) Handle(ctx context.Context, of machine.Effect) (machine.Result, error) {
	e := newEffect(of)
	t, err := h.turn(ctx, e)
	if err != nil {
		if lostTurn(err) {
			return machine.Result{Next: machine.NextLost}, nil
		}
		return machine.Result{}, err
	}
	var r machine.Result
	ctx = t.inTurn(ctx)
	defer context.AfterFunc(ctx, t.out.Interrupt)()
	err = usercode.Guard(func() (err error) {
		r, err = t.handle(ctx, e)
		return err
	})
	if err != nil && ctx.Err() == nil && !lostTurn(err) && !session.IsRetryable(err) && e.Kind != machine.CloseTurn {
		r, err = t.failEffect(ctx, e, err)
	}
	if err != nil && lostTurn(err) {
		h.lose(ctx, t, err)
		return machine.Result{Next: machine.NextLost}, nil
	}
	if err == nil && e.Kind == machine.CloseTurn {
		h.drop(t)
	}
	return r, err
}

// effect is an effect that is being handled.
type effect struct {
	machine.Effect
	key string // Effect.Key, which is needed many times
}

func newEffect(e machine.Effect) effect { return effect{e, e.Key()} }

// Key identifies the effect among all effects ever.
func (e *effect) Key() string { return e.key }

func (t *turn) handle(ctx context.Context, e effect) (machine.Result, error) {
	switch e.Kind {
	case machine.CallModel:
		if t.remote != nil {
			return t.callRemote(ctx, e)
		}
		return t.callModel(ctx, e)
	case machine.CallTool, machine.CallChild:
		return t.callTool(ctx, e)
	case machine.Gather:
		return t.gather(ctx, e)
	case machine.CommitStep:
		return t.commitStep(ctx, e)
	case machine.CloseTurn:
		return t.closeTurn(ctx)
	}
	return machine.Result{}, fmt.Errorf("engine: unknown effect %q", e.Kind)
}

// failEffect handles an error that a repeat does not help: a call fails, any other
// effect ends the run. No run stays active after an error that the process survived.
func (t *turn) failEffect(ctx context.Context, e effect, fault error) (machine.Result, error) {
	t.h.log.WarnContext(ctx, "effect.failed", t.attrs("effect", e.Key(), "error", fault)...) // a warning: if it ends the run, the run's end is logged as the error
	if e.Kind == machine.CallTool || e.Kind == machine.CallChild {
		return machine.Result{}, t.failCall(ctx, e, fault)
	}
	t.final = nil
	if t.flight != nil {
		t.flight.resultsCommit = nil
	}
	return t.endFailed(ctx, e.Key()+"/failed", bounded(session.AsError(fault)), false)
}

// writeTimeout bounds writes that are made also while the process shuts down.
const writeTimeout = 30 * time.Second

// lostTurn reports whether an error means that another process owns the turn now, or
// that the session was deleted.
func lostTurn(err error) bool {
	return errors.Is(err, session.ErrStale) || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrStreamClosed)
}

// turn returns the turn of an effect: one that the handler holds, or one from the
// store. The turn is lost to the effect if it was taken over since, even by this process.
func (h *Handler) turn(ctx context.Context, e effect) (*turn, error) {
	t, ok := h.held(e.RunID)
	if !ok {
		return h.load(ctx, e.Session(), e.RunID, e.Epoch, nil)
	}
	return t, checkEpoch(e.RunID, t.fence.Epoch, e.Epoch)
}

// checkEpoch returns an error unless a run is still held under an epoch. An epoch of 0 is
// not known.
func checkEpoch(runID string, held, epoch int64) error {
	if epoch == 0 || epoch == held {
		return nil
	}
	return session.ErrStale.WithMessage("run %s is held under epoch %d, no longer under %d", runID, held, epoch)
}

// held returns a turn that this process drives.
func (h *Handler) held(runID string) (*turn, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.turns[runID]
	return t, ok
}

// hold keeps a turn whose effects this process carries out, with the values of ctx.
func (h *Handler) hold(ctx context.Context, t *turn) {
	t.begin(ctx)
	h.mu.Lock()
	old := h.turns[t.run.ID]
	h.turns[t.run.ID] = t
	h.mu.Unlock()
	if old != nil {
		old.finish()
	}
}

func (h *Handler) drop(t *turn) {
	t.out.Discard()
	h.mu.Lock()
	if h.turns[t.run.ID] == t {
		delete(h.turns, t.run.ID)
	}
	h.mu.Unlock()
	t.finish()
}

// lose drops a turn that another process owns now.
func (h *Handler) lose(ctx context.Context, t *turn, why error) {
	h.log.WarnContext(ctx, "turn.lost", t.attrs("error", why)...)
	h.drop(t)
}

// Drop forgets a turn that its driver abandons, and what the turn had not written.
func (h *Handler) Drop(runID string) {
	t, ok := h.held(runID)
	if ok {
		h.drop(t)
	}
}

// maxReason is the longest reason of a stop.
const maxReason = session.MaxSubmissionError

// StopRun requests that a run be stopped, wherever it is driven. It does not stop any
// other run of the session.
func (h *Handler) StopRun(ctx context.Context, key session.Key, stop session.Stop) error {
	if len(stop.Reason) > maxReason {
		return session.ErrTooLarge.WithMessage("reason has %d bytes, at most %d are allowed", len(stop.Reason), maxReason)
	}
	stands, err := h.cfg.Backend.Sessions().Tenant(key.Tenant).RequestStop(ctx, key.ID, stop)
	if err != nil {
		return err
	}
	if !h.Signal(stop.RunID, stands) && h.cfg.NotifyStop != nil {
		h.cfg.NotifyStop(ctx, key, stop.RunID)
	}
	return nil
}

// Signal tells a turn of this process that a stop was requested, so that it stops
// before its next commit. It reports whether this process drives the run.
func (h *Handler) Signal(runID string, stop session.Stop) bool {
	t, ok := h.held(runID)
	if ok {
		t.stops.request(&stop)
	}
	return ok
}

// Renew extends the leases of turns of this process, and notices stops that were
// requested in other processes. For each run that this process works on it returns nil, or
// why the lease was not renewed; the store was not asked for any other.
func (h *Handler) Renew(ctx context.Context, ttl time.Duration, runIDs ...string) map[string]error {
	turns, leases := make([]*turn, 0, len(runIDs)), make([]session.Held, 0, len(runIDs))
	for _, id := range runIDs {
		if t, ok := h.held(id); ok {
			turns, leases = append(turns, t), append(leases, session.Held{Key: t.key, Fence: t.fence})
		}
	}
	answers := map[string]error{}
	for i, renewed := range h.cfg.Backend.RenewLeases(ctx, leases, ttl) {
		t := turns[i]
		err := renewed.Err
		if err != nil && lostTurn(err) && t.hasEnded() { // it may have been released meanwhile
			err = nil
		}
		answers[t.run.ID] = err
		for _, stop := range renewed.Stops {
			h.Signal(stop.RunID, stop)
		}
	}
	return answers
}

// Signalled notices a stop that was requested, perhaps in another process, if this
// process drives the run.
func (h *Handler) Signalled(ctx context.Context, signal session.Signal) error {
	t, ok := h.held(signal.StopOf)
	if !ok {
		return nil
	}
	stop, err := retry.Do(ctx, func() (*session.Stop, error) { return t.sessions.StopRequest(ctx, t.key.ID, signal.StopOf) })
	if err == nil && stop != nil {
		t.stops.request(stop)
	}
	return err
}

// Owns reports whether a lease is this handler's own.
func (h *Handler) Owns(lease session.Lease) bool { return lease.Owner == h.owner }
