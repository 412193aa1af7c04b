package server

import (
	"context"
	"net/http"
	"time"

	"github.com/helixagents/helix/internal/version"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

func healthRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/healthz", summary: "Report whether the server is running.",
			answers: ok(wire.Health{}), open: true,
			handle: func(x *exchange) error { x.json(http.StatusOK, x.health("ok")); return nil },
		},
		{
			method: http.MethodGet, path: "/readyz", summary: "Report whether the server is ready: 503 if not.",
			answers: ok(wire.Health{}), open: true, handle: (*exchange).ready,
		},
		{
			method: http.MethodGet, path: "/metrics", summary: "Return metrics in the text format of Prometheus. For operators.",
			answers: []answer{{status: http.StatusOK, media: mediaMetrics}}, handle: (*exchange).showMetrics,
		},
	}
}

func (x *exchange) health(status string) wire.Health {
	return wire.Health{Status: status, Service: x.server.cfg.ServiceName, Version: version.Helix()}
}

// readyTimeout is how long the store may take to respond.
const readyTimeout = 2 * time.Second

func (x *exchange) ready() error {
	ctx, cancel := context.WithTimeout(x.r.Context(), readyTimeout)
	defer cancel()
	if err := x.server.cfg.Ready(ctx); err != nil {
		return session.ErrUnavailable.WithCause(err, "not ready")
	}
	select {
	case <-x.server.closing:
		return refuse(http.StatusServiceUnavailable, wire.CodeShuttingDown, "the server is shutting down").retry(time.Second)
	default:
	}
	x.json(http.StatusOK, x.health("ready"))
	return nil
}
