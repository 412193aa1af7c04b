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

// exchange is a request being answered. Its stores and executor are those of the
// identity's tenant: a handler has no others.
type exchange struct {
	server *Server
	w      *recorder
	r      *http.Request
	route  *route
	began  time.Time

	who      Identity
	sessions session.Store
	streams  stream.Manager
	executor helix.Executor

	// For the log.
	requestID, sessionID, runID string
	failure                     error
}

// recorder remembers the status that was answered.
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

// maxRequestID bounds the id that a client may give its request.
const maxRequestID = 128

// identifyRequest sets what every answer says: the version, and which request it
// belongs to.
func (x *exchange) identifyRequest() {
	x.requestID = x.r.Header.Get(wire.HeaderRequestID)
	if len(x.requestID) > maxRequestID || session.CheckKeyID("request id", x.requestID) != nil {
		x.requestID = rand.Text()
	}
	header := x.w.Header()
	header.Set(wire.HeaderVersion, wire.ProtocolVersion)
	header.Set(wire.HeaderRequestID, x.requestID)
}

// change is the context of a change: once begun it is not given up when the client
// goes away.
func (x *exchange) change() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(x.r.Context()), x.server.cfg.Limits.Operation)
}

// gone reports whether the client has gone.
func (x *exchange) gone() bool { return errors.Is(x.r.Context().Err(), context.Canceled) }

// late reports whether the request's time is over. The server sets none, but
// whatever it is mounted in may.
func (x *exchange) late() bool { return errors.Is(x.r.Context().Err(), context.DeadlineExceeded) }

// answerTimeout is how long a client may take to read an answer that is not a
// stream.
const answerTimeout = time.Minute

// json answers with a body.
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

// write answers with bytes of a media type.
func (x *exchange) write(status int, media string, body []byte) {
	control := http.NewResponseController(x.w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout)) // not every connection can
	header := x.w.Header()
	header.Set("Content-Type", media)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the client may be gone
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{}) // the connection's next request may be somebody else's
}

// finish logs and counts the request.
func (x *exchange) finish() {
	level := slog.LevelInfo
	status := x.w.status
	switch {
	case x.gone() && status == 0:
		status = statusGone
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	}
	took := time.Since(x.began)
	x.server.metrics.request(knownMethod(x.r.Method), x.routeName(), status, took)
	attrs := x.attrs("status", status, "duration", took)
	if x.failure != nil {
		attrs = append(attrs, "error", x.failure)
	}
	x.server.cfg.Logger.Log(context.WithoutCancel(x.r.Context()), level, "request", attrs...)
}

// statusGone is logged for a client that left before it was answered.
const statusGone = 499

func (x *exchange) routeName() string {
	if x.route == nil {
		return "none"
	}
	return x.route.path
}

// knownMethod is the method as a metric has it: clients may invent others.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead:
		return method
	}
	return "other"
}

// attrs are what a line of the log says of a request, never its body or token.
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
