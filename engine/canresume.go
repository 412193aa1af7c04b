package engine

import (
	"context"
	"errors"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// CanResume reports whether a session can be resumed, and if not, the error with
// which a resume fails.
func (h *Handler) CanResume(ctx context.Context, key session.Key) (*helix.Resumability, error) {
	sessions := h.cfg.Backend.Sessions().Tenant(key.Tenant)
	state, err := sessions.Load(ctx, key.ID)
	if err != nil {
		return nil, err
	}
	out := &helix.Resumability{Activity: state.Activity}
	err = h.mayResume(ctx, sessions, state)
	var why *session.Error
	switch {
	case err == nil:
		out.OK = true
	case errors.As(err, &why) && !session.IsRetryable(err):
		out.Reason = why
	default:
		return nil, err
	}
	return out, nil
}

// mayResume returns the error with which a plain resume of a session would fail.
func (h *Handler) mayResume(ctx context.Context, sessions session.Store, state *session.State) error {
	agent, err := h.Agent(ctx, state)
	if err != nil {
		return err
	}
	req := &OpenRequest{Kind: session.RunResume, Agent: agent, Tenant: state.Tenant, SessionID: state.ID}
	if state.Status == session.Paused && state.CurrentRunID != "" {
		return gateCaller(req, state) // it is unpaused, whatever its run does
	}
	if state.CurrentRunID != "" {
		run, err := sessions.Run(ctx, state.ID, state.CurrentRunID)
		if err != nil {
			return err
		}
		if to := settledStatus(state, run); to != "" { // a resume corrects the status; CanResume changes nothing
			state.Status = to
		}
	}
	if err := h.opening(sessions, req, state, nil).gate(ctx); err != nil {
		return err
	}
	if state.MessageCount == 0 {
		return errNoMessages
	}
	return nil
}
