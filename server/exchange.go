package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// exchange is a request and its response. Its stores and executor belong to the identity's
// tenant; handlers have no others.
type exchange struct {
	server *Server
	w      *recorder
	r      *http.Request
	route  *route
	// caller is the context of the request as the server got it: what runs on behalf of
	// the request has its values.
	caller context.Context //nolint:containedctx // like that of the request
	began  time.Time

	who      Identity
	sessions session.Store
	streams  stream.Manager
	executor helix.Executor

	// For the log.
	requestID, sessionID, runID string
	failure                     error
}

// recorder records the status of the response.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// maxRequestID limits the length of a client's request id.
const maxRequestID = 128

// identifyRequest sets the headers of every response: the version and the request id.
func (x *exchange) identifyRequest() {
	x.requestID = x.r.Header.Get(wire.HeaderRequestID)
	if len(x.requestID) > maxRequestID || session.CheckKeyID("request id", x.requestID) != nil {
		x.requestID = rand.Text()
	}
	header := x.w.Header()
	header.Set(wire.HeaderVersion, wire.ProtocolVersion)
	header.Set(wire.HeaderRequestID, x.requestID)
}

// change returns the context of a write operation. A write that has begun continues if the
// client disconnects.
func (x *exchange) change() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(x.caller), x.server.cfg.Limits.Operation)
}

// disconnected reports whether the client has disconnected.
func (x *exchange) disconnected() bool { return errors.Is(x.r.Context().Err(), context.Canceled) }

// late reports whether the request's deadline has passed. The server sets none, but an
// enclosing handler may.
func (x *exchange) late() bool { return errors.Is(x.r.Context().Err(), context.DeadlineExceeded) }

// answerTimeout is how long a client may take to read a response that is not a stream.
const answerTimeout = time.Minute

// json responds with a JSON body.
func (x *exchange) json(status int, body any) {
	raw, err := session.Encode(body)
	if err != nil {
		if x.failure == nil {
			x.fail(err)
		}
		return
	}
	x.write(status, wire.ContentJSON, append(raw, '\n'))
}

// write responds with a body of the given media type.
func (x *exchange) write(status int, media string, body []byte) {
	control := http.NewResponseController(x.w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout)) // not supported by every connection
	header := x.w.Header()
	header.Set("Content-Type", media)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the client may have disconnected
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{}) // the next request on the connection may be another client's
}

// finish logs and counts the request. What only reads and succeeds is logged at the level
// debug: a page that is open reads its lists every few seconds.
func (x *exchange) finish() {
	level := slog.LevelInfo
	status := x.w.status
	switch {
	case x.disconnected() && status == 0:
		status = statusGone
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case status < http.StatusBadRequest && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead):
		level = slog.LevelDebug
	}
	took := time.Since(x.began)
	x.server.metrics.request(knownMethod(x.r.Method), x.routeName(), status, took)
	attrs := x.attrs("status", status, "duration", took)
	if x.failure != nil {
		attrs = append(attrs, "error", x.failure)
	}
	x.server.cfg.Logger.Log(context.WithoutCancel(x.r.Context()), level, "request", attrs...)
}

// statusGone is logged for a client that disconnected before the response.
const statusGone = 499

func (x *exchange) routeName() string {
	if x.route == nil {
		return "none"
	}
	return x.route.path
}

// knownMethod returns the method for metrics. Clients may invent others.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead:
		return method
	}
	return "other"
}

// attrs returns the log attributes of a request, never its body or token.
func (x *exchange) attrs(more ...any) []any {
	attrs := []any{"method", x.r.Method, "route", x.routeName(), "request", x.requestID}
	for _, a := range [...]struct{ name, value string }{
		{"session", x.sessionID}, {"run", x.runID}, {"user", x.who.User}, {"tenant", x.who.Tenant},
	} {
		if a.value != "" {
			attrs = append(attrs, a.name, a.value)
		}
	}
	return append(attrs, more...)
}
