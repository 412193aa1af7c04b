package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// refusal is an error with the status it is answered with.
type refusal struct {
	status int
	after  time.Duration // Retry-After
	over   string        // the limit that was reached
	err    *session.Error
}

func refuse(status int, code session.Code, message string) *refusal {
	return &refusal{status: status, err: &session.Error{Code: code, Message: message}}
}

func (f *refusal) Error() string { return f.err.Error() }

func (f *refusal) Unwrap() error { return f.err }

// because adds what led to the refusal: it is logged, and told by a verbose server.
func (f *refusal) because(err error) *refusal {
	f.err = f.err.WithCause(err, "%s", f.err.Message)
	return f
}

func (f *refusal) field(name string) *refusal {
	f.err.Field = name
	return f
}

// limit names the limit that was reached.
func (f *refusal) limit(name string) *refusal {
	f.over = name
	return f
}

// retry says that the same request may succeed after some time.
func (f *refusal) retry(after time.Duration) *refusal {
	f.err.Retryable, f.after = true, after
	return f
}

// statuses are those of codes that their category alone does not tell.
var statuses = map[session.Code]int{
	session.CodeNotFound:     http.StatusNotFound,
	session.CodeUnavailable:  http.StatusServiceUnavailable,
	session.CodeCorrupt:      http.StatusInternalServerError,
	session.CodeTooLarge:     http.StatusRequestEntityTooLarge,
	session.CodeNotAllowed:   http.StatusForbidden,
	session.CodeClosed:       http.StatusServiceUnavailable,
	session.CodeUnknownAgent: http.StatusConflict,
	session.CodeNotSupported: http.StatusBadRequest,
	session.CodeTruncated:    http.StatusConflict,
	session.CodeStreamClosed: http.StatusConflict,
	session.CodeCancelled:    http.StatusConflict,
}

// asRefusal finds the answer to an error.
func asRefusal(err error) *refusal {
	if f, ok := errors.AsType[*refusal](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return tooLong(err)
	}
	told := *session.AsError(err)
	f := &refusal{status: statuses[told.Code], err: &told, over: limitOf(&told)}
	if f.status == 0 {
		f.status = http.StatusInternalServerError
		switch category(told.Code) {
		case "validation":
			f.status = http.StatusBadRequest
		case "state":
			f.status = http.StatusConflict
		}
	}
	switch f.status {
	case http.StatusInternalServerError: // what it says is for the log
		told.Message, told.Cause = "something went wrong on the server", err
		if _, ok := errors.AsType[*session.Error](err); !ok {
			told.Code = session.CodeInternal
		}
	case http.StatusServiceUnavailable:
		told.Message, told.Cause = "the server cannot do this now; try again", err
		told.Retryable, f.after = true, time.Second
	}
	return f
}

func tooLong(err error) *refusal {
	return refuse(http.StatusServiceUnavailable, session.CodeUnavailable, "the server took too long").retry(time.Second).because(err)
}

func category(code session.Code) string {
	for i := range len(code) {
		if code[i] == '_' {
			return string(code[:i])
		}
	}
	return string(code)
}

// body is what the client is told.
func (f *refusal) body(verbose bool) *wire.Error {
	out := &wire.Error{
		Message: f.err.Message, Code: f.err.Code, Field: f.err.Field, Retryable: f.err.Retryable, Calls: f.err.Calls,
		Limit: f.over,
	}
	if verbose && f.err.Cause != nil {
		out.Detail = f.err.Cause.Error()
	}
	return out
}

// shown is the error of a run as the identity may see it. What a provider says, or
// the server's own trouble, is for operators.
func (x *exchange) shown(err *session.Error) *session.Error {
	if err == nil || x.server.cfg.Verbose || x.who.Operator || asRefusal(err).status < http.StatusInternalServerError {
		return err
	}
	return &session.Error{Code: err.Code, Message: x.userText(err), Retryable: err.Retryable}
}

// shownChunk is a chunk with its error as [exchange.shown] has it. Those of tools
// are part of the conversation.
func (x *exchange) shownChunk(c *stream.Chunk) *stream.Chunk {
	if c == nil || x.server.cfg.Verbose || x.who.Operator {
		return c
	}
	switch {
	case c.Kind == stream.Failure:
		other := *c
		other.Error = x.shown(c.Error)
		return &other
	case c.Kind == stream.StepDiscarded && c.Attempt > 0: // by the model: the reason is what its provider said
		other := *c
		other.Reason = ""
		return &other
	}
	return c
}

// fail answers with an error, unless an answer has begun or the client has gone.
func (x *exchange) fail(err error) {
	f := asRefusal(err)
	x.failure = err
	if x.w.status != 0 || (x.gone() && !errors.Is(err, os.ErrDeadlineExceeded)) { // of whom nothing came in time is there
		return
	}
	if x.late() {
		f = tooLong(err)
	}
	if f.over != "" {
		x.server.metrics.limited(f.over)
	}
	header := x.w.Header()
	if f.after > 0 {
		header.Set("Retry-After", strconv.Itoa(max(1, int(f.after.Round(time.Second)/time.Second))))
	}
	if f.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	x.json(f.status, f.body(x.server.cfg.Verbose))
}
