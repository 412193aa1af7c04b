package server

import (
	"net/http"

	"github.com/helixagents/helix/session"
)

func cleanupRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/cleanup", summary: "Fail expired sessions and return the result. For operators.",
		answers: ok(session.Cleanup{}), handle: (*exchange).cleanup,
	}}
}

func (x *exchange) cleanup() error {
	if !x.who.Operator {
		return session.ErrNotAllowed.WithMessage("only an operator may run the cleanup")
	}
	if x.server.cfg.Cleanup == nil {
		return session.ErrUnavailable.WithMessage("this server has no cleanup")
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
