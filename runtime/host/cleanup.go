package host

import (
	"context"
	"errors"

	"github.com/helixagents/helix/session"
)

// Cleanup fails the expired sessions of a tenant, or of all tenants if tenant is empty.
// The sweep does so for the agents that are registered here; Cleanup is for operators,
// does so now and for every agent, and returns what it did.
func (h *Host) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	done := &session.Cleanup{Errors: []string{}}
	request := session.SweepRequest{Limit: sweepPage}
	for {
		page, err := h.cfg.Backend.Sessions().ExpiredSessions(ctx, request)
		if err != nil {
			return done, err
		}
		for i := range page {
			if tenant == "" || page[i].Tenant == tenant {
				h.clean(ctx, page[i], done)
			}
		}
		if len(page) < sweepPage {
			return done, nil
		}
		request.After = &page[len(page)-1]
	}
}

func (h *Host) clean(ctx context.Context, due session.Due, done *session.Cleanup) {
	done.Detected++
	failed, err := h.handler.Expire(ctx, due)
	switch {
	case errors.Is(err, session.ErrAlreadyRunning):
		done.Running++
	case errors.Is(err, session.ErrNotFound), err == nil && !failed:
		done.AlreadyTerminal++
	case err != nil:
		done.Errors = append(done.Errors, due.ID+": "+err.Error())
	default:
		done.Marked++
	}
}
