package host

import (
	"context"
	"errors"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
)

// executor implements [helix.Executor] for one tenant.
type executor struct {
	h      *Host
	tenant string
	scoped bool // made by Tenant: an input cannot name another tenant
}

// Tenant implements [helix.Executor].
func (x *executor) Tenant(tenant string) helix.Executor {
	if tenant == "" {
		tenant = session.DefaultTenant
	}
	return &executor{h: x.h, tenant: tenant, scoped: true}
}

// Execute implements [helix.Executor].
func (x *executor) Execute(ctx context.Context, agent *helix.Agent, in helix.Input) (helix.Run, error) {
	minted := in.SessionID == ""
	if minted {
		in.SessionID = session.NewID()
	}
	tenant := x.tenant
	if in.User.Tenant != "" && in.User.Tenant != tenant {
		if x.scoped {
			return nil, session.Invalid("User.Tenant", "%q is not the executor's tenant, which is %q", in.User.Tenant, tenant)
		}
		tenant = in.User.Tenant
	}
	return x.start(ctx, engine.OpenRequest{
		Kind: session.RunExecute, Agent: agent, Tenant: tenant, SessionID: in.SessionID, New: minted,
		RequestID: in.RequestID, Input: in, Hooks: in.Hooks,
	}, in.EphemeralHooks)
}

// Resume implements [helix.Executor].
func (x *executor) Resume(ctx context.Context, sessionID string, opts helix.ResumeOptions) (helix.Run, error) {
	return x.start(ctx, engine.OpenRequest{
		Kind: session.RunResume, Agent: opts.Agent, Tenant: x.tenant, SessionID: sessionID,
		RequestID: opts.RequestID, Resume: opts, Hooks: opts.Hooks,
	}, opts.EphemeralHooks)
}

// Retry implements [helix.Executor].
func (x *executor) Retry(ctx context.Context, sessionID string, opts helix.RetryOptions) (helix.Run, error) {
	return x.start(ctx, engine.OpenRequest{
		Kind: session.RunRetry, Agent: opts.Agent, Tenant: x.tenant, SessionID: sessionID,
		RequestID: opts.RequestID, Hooks: opts.Hooks,
	}, opts.EphemeralHooks)
}

func (x *executor) start(ctx context.Context, req engine.OpenRequest, ephemeral bool) (helix.Run, error) {
	h := x.h
	if req.Hooks != nil && h.cfg.ReleaseOpened {
		return nil, session.Invalid("Hooks", "of one run would not be called: this process releases the turns that it opens; put them on the agent")
	}
	if req.Hooks != nil && !ephemeral && !h.cfg.NoRecovery {
		return nil, session.Invalid("Hooks", "of one run would be lost if another process continued it; "+
			"set EphemeralHooks to accept that, or put them on the agent")
	}
	agent, err := x.definition(ctx, &req)
	if err != nil {
		return nil, err
	}
	req.Agent = agent
	req.RunID = session.NewRunID()
	done, err := h.open(req.RunID)
	if err != nil {
		return nil, err
	}
	defer done()
	opened, err := h.handler.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	if opened.Existing {
		return engine.NewHandle(h.cfg.Backend, h.handler, opened, h.doneChan(opened.Run.ID)), nil
	}
	return engine.NewHandle(h.cfg.Backend, h.handler, opened, h.drive(ctx, opened)), nil
}

// definition returns the agent of a request: the given one, or, if that is only a name
// or nil, the agent of the session.
func (x *executor) definition(ctx context.Context, req *engine.OpenRequest) (*helix.Agent, error) {
	agent := req.Agent
	if agent != nil && !access.IsNamed(agent) || agent == nil && req.Kind == session.RunExecute {
		return x.h.handler.Register(agent)
	}
	if err := session.CheckID(req.SessionID); err != nil {
		return nil, err
	}
	state, err := x.h.cfg.Backend.Sessions().Tenant(req.Tenant).Load(ctx, req.SessionID)
	switch {
	case errors.Is(err, session.ErrNotFound) && req.Kind == session.RunExecute:
		in := &req.Input
		state = &session.State{
			ID: req.SessionID, Tenant: req.Tenant, Agent: agent.Name, UserID: in.User.ID, Tags: in.Tags, Metadata: in.Metadata,
		}
	case err != nil:
		return nil, err
	case agent != nil && agent.Name != state.Agent:
		return agent, nil // Open refuses it, if the user may see the session
	case req.Input.User.ID != "" && state.UserID != "" && req.Input.User.ID != state.UserID:
		// Before a factory is asked: it would act for the session's user.
		return nil, session.ErrNotFound.WithMessage("user %s has no such session", req.Input.User.ID)
	}
	return x.h.handler.Agent(ctx, state)
}

// resumeRun implements Resume of a handle.
func (h *Host) resumeRun(ctx context.Context, key session.Key, opts helix.ResumeOptions) (helix.Run, error) {
	return (&executor{h: h, tenant: key.Tenant, scoped: true}).Resume(ctx, key.ID, opts)
}

// retryRun implements Retry of a handle.
func (h *Host) retryRun(ctx context.Context, key session.Key, opts helix.RetryOptions) (helix.Run, error) {
	return (&executor{h: h, tenant: key.Tenant, scoped: true}).Retry(ctx, key.ID, opts)
}

// CanResume implements [helix.Executor].
func (x *executor) CanResume(ctx context.Context, sessionID string) (*helix.Resumability, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	return x.h.handler.CanResume(ctx, session.Key{Tenant: x.tenant, ID: sessionID})
}

// Interrupt implements [helix.Executor].
func (x *executor) Interrupt(ctx context.Context, sessionID, reason string) error {
	return x.requestStop(ctx, sessionID, "", session.StopInterrupt, reason)
}

// Abort implements [helix.Executor].
func (x *executor) Abort(ctx context.Context, sessionID, reason string) error {
	return x.requestStop(ctx, sessionID, "", session.StopAbort, reason)
}

// abortRun aborts a run, if it is the current one of its session.
func (h *Host) abortRun(ctx context.Context, key session.Key, runID, reason string) error {
	x := &executor{h: h, tenant: key.Tenant}
	return x.requestStop(ctx, key.ID, runID, session.StopAbort, reason)
}

// requestStop stops the run of a session that runID names, or, if that is empty, its
// current run.
func (x *executor) requestStop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error {
	if err := session.CheckID(sessionID); err != nil {
		return err
	}
	var err error
	for range stopTries {
		var again bool
		if again, err = x.tryStop(ctx, sessionID, runID, kind, reason); !again {
			break
		}
	}
	return err
}

// stopTries is how often a stop is tried because the session suspended, or was resumed,
// between being read and being stopped.
const stopTries = 8

// tryStop stops the session's run once. It reports whether to try again.
func (x *executor) tryStop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) (again bool, err error) {
	run, err := x.h.cfg.Backend.Sessions().Tenant(x.tenant).CurrentRun(ctx, sessionID)
	if err != nil {
		return false, err
	}
	if runID != "" && run.ID != runID {
		return false, session.ErrStale.WithMessage("run %s is over; the session is at run %s", runID, run.ID)
	}
	key := session.Key{Tenant: x.tenant, ID: sessionID}
	if !run.Status.Suspended() || kind != session.StopAbort {
		err = x.h.handler.StopRun(ctx, key, session.Stop{RunID: run.ID, Kind: kind, Reason: reason})
		if err == nil && kind == session.StopAbort {
			err = x.h.unpauseAborted(ctx, key)
		}
		return run.Status == session.RunRunning && errors.Is(err, session.ErrStale), err
	}
	head, err := x.h.handler.Head(ctx, key)
	if err != nil {
		return false, err
	}
	if head.ID != sessionID {
		return x.h.abortChild(ctx, key, *head, reason)
	}
	err = x.h.abortWaiting(ctx, *head, session.Stop{Kind: kind, Reason: reason})
	return errors.Is(err, session.ErrAlreadyRunning) || errors.Is(err, session.ErrNotResumable) || errors.Is(err, session.ErrStale), err
}

// Attach implements [helix.Executor].
func (x *executor) Attach(ctx context.Context, sessionID string) (helix.Run, error) {
	if err := session.CheckID(sessionID); err != nil {
		return nil, err
	}
	return engine.Attach(ctx, x.h.cfg.Backend, x.h.handler, session.Key{Tenant: x.tenant, ID: sessionID}, x.h.doneChan)
}
