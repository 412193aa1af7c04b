package server

import (
	"net/http"

	"github.com/helixagents/helix/session"
)

func cleanupRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/cleanup", summary: "Fail the sessions whose time is up, and tell what that came to. For operators.",
		answers: ok(session.Cleanup{}), handle: (*exchange).cleanup,
	}}
}

func (x *exchange) cleanup() error {
	if !x.who.Operator {
		return session.ErrNotAllowed.WithMessage("only an operator may clean up")
	}
	if x.server.cfg.Cleanup == nil {
		return session.ErrUnavailable.WithMessage("this server does not clean up")
	}
	ctx, cancel := x.change()
	defer cancel()
	done, err := x.server.cfg.Cleanup(ctx, x.who.Tenant)
	if err != nil {
		return err
	}
	x.json(http.StatusOK, done)
	return nil
}
