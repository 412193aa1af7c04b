package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	after  time.Duration // Retry-After
	over   string        // the name of the limit that was reached
	err    *session.Error
	// deep is set if the message comes from a lower layer, not from the server.
	deep bool
}

func refuse(status int, code session.Code, message string) *refusal {
	return &refusal{status: status, err: &session.Error{Code: code, Message: message}}
}

func (f *refusal) Error() string { return f.err.Error() }

func (f *refusal) Unwrap() error { return f.err }

// because adds the cause, which is logged, and shown by a verbose server.
func (f *refusal) because(err error) *refusal {
	f.err = f.err.WithCause(err, "%s", f.err.Message)
	return f
}

func (f *refusal) field(name string) *refusal {
	f.err.Field = name
	return f
}

// limit sets the name of the limit that was reached.
func (f *refusal) limit(name string) *refusal {
	f.over = name
	return f
}

// retry marks the request as one that may succeed later.
func (f *refusal) retry(after time.Duration) *refusal {
	f.err.Retryable, f.after = true, after
	return f
}

// statuses are the statuses of codes whose category does not determine them.
var statuses = map[session.Code]int{
	session.CodeNotFound:     http.StatusNotFound,
	session.CodeUnavailable:  http.StatusServiceUnavailable,
	session.CodeCorrupt:      http.StatusInternalServerError,
	session.CodeTooLarge:     http.StatusRequestEntityTooLarge,
	session.CodeNotAllowed:   http.StatusForbidden,
	session.CodeClosed:       http.StatusServiceUnavailable,
	session.CodeUnknownAgent: http.StatusNotFound,
	session.CodeNotSupported: http.StatusBadRequest,
	session.CodeTruncated:    http.StatusConflict,
	session.CodeStreamClosed: http.StatusConflict,
	session.CodeCancelled:    http.StatusConflict,
}

// conflicts are codes whose messages name runs, versions and owners, which mean nothing to
// the sender of a request. [wire.Explain] replaces their messages.
var conflicts = map[session.Code]bool{
	session.CodeRunning: true, session.CodeStale: true, session.CodeTransition: true, session.CodeAnswered: true,
}

// asRefusal returns the response to an error.
func asRefusal(err error) *refusal {
	if f, ok := errors.AsType[*refusal](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return tooLong(err)
	}
	told := *session.AsError(err)
	if e, ok := errors.AsType[*session.Error](err); ok && told.Message != e.Message {
		told.Message, told.Cause = e.Message, err // the wrapping only names the server's layers
	}
	f := &refusal{status: statuses[told.Code], err: &told, over: limitOf(&told), deep: true}
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
	case http.StatusConflict:
		if conflicts[told.Code] {
			told.Message, told.Cause = wire.Explain(told.Code), err
		}
	case http.StatusInternalServerError: // what it says is for the log
		told.Message, told.Cause = "internal server error", err
		if _, ok := errors.AsType[*session.Error](err); !ok {
			told.Code = session.CodeInternal
		}
	case http.StatusServiceUnavailable:
		told.Message, told.Cause = "the server is unavailable; try again", err
		told.Retryable, f.after = true, time.Second
	}
	return f
}

// pageCodes are codes whose messages mention calls, checkpoints and agents. Pages show
// error messages to people, so the chat routes use [wire.Explain] instead.
var pageCodes = map[session.Code]bool{
	session.CodeNotFound: true, session.CodeSubmission: true, session.CodeNotAllowed: true, session.CodeAwaiting: true,
	session.CodePaused: true, session.CodeNotResumable: true, session.CodeUnknownAgent: true, session.CodeTooLarge: true,
}

// forPages returns the response for a chat route. An error that names a field of the
// request keeps its message.
func (f *refusal) forPages() *refusal {
	if !f.deep || f.err.Field != "" || !pageCodes[f.err.Code] {
		return f
	}
	out, told := *f, *f.err
	if told.Cause == nil {
		told.Cause = f.err
	}
	told.Message = wire.Explain(told.Code)
	out.err = &told
	return &out
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

// body returns the response body.
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

// seesCauses reports whether the identity may see the cause of a failed run, such as a
// provider's message. Without authentication everybody is an operator, so only clients on
// this machine may.
func (x *exchange) seesCauses() bool {
	return x.server.cfg.Verbose || (x.who.Operator && (x.server.cfg.Authenticate != nil || x.local()))
}

// seesTrouble is [exchange.seesCauses] for errors of the server itself, which other tenants
// share.
func (x *exchange) seesTrouble() bool {
	return x.seesCauses() && (x.server.cfg.Verbose || x.who.Tenant == session.DefaultTenant)
}

// local reports whether the request came over this machine's own interface.
func (x *exchange) local() bool {
	address, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(address.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// runFailure returns a run's error as the identity may see it: a code and a sentence for
// everybody, and the cause for operators.
func (x *exchange) runFailure(err *session.Error) *wire.Error {
	if err == nil {
		return nil
	}
	out := &wire.Error{Message: wire.Explain(err.Code), Code: err.Code, Retryable: err.Retryable}
	switch {
	case err.Code == session.CodeCancelled: // it is told why by whoever aborted it
		out.Detail = err.Message
	case x.seesCauses():
		out.Detail = err.Error()
	}
	return out
}

// userText returns the error of a failed run as one text for the user.
func (x *exchange) userText(err *session.Error) string {
	told := x.runFailure(err)
	if told.Detail == "" {
		return told.Message
	}
	return told.Message + " (" + told.Detail + ")"
}

// shown returns the error of a run as the identity may see it.
func (x *exchange) shown(err *session.Error) *session.Error {
	if err == nil || x.seesCauses() || err.Code == session.CodeCancelled {
		return err
	}
	return &session.Error{Code: err.Code, Message: wire.Explain(err.Code), Retryable: err.Retryable}
}

// shownChunk returns a chunk with its error replaced by [exchange.shown]. Errors of tools
// are part of the conversation and stay.
func (x *exchange) shownChunk(c *stream.Chunk) *stream.Chunk {
	if c == nil || x.seesCauses() {
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
	case c.Kind == stream.Custom && c.Name == stream.CompactedName:
		return shownOutcome(c)
	}
	return c
}

// shownOutcome returns the outcome of a compaction without what the model's provider said.
func shownOutcome(c *stream.Chunk) *stream.Chunk {
	var what helix.Compacted
	if json.Unmarshal(c.Data, &what) == nil && what.Code == "" { // the reason is the engine's
		return c
	}
	if what.Code != "" {
		what.Reason = wire.Explain(what.Code)
	}
	other := *c
	other.Data, _ = session.Encode(what) // it has only texts and numbers
	return &other
}

// fail responds with an error, unless a response has begun or the client has disconnected.
func (x *exchange) fail(err error) {
	f := asRefusal(err)
	x.failure = err
	if x.w.status != 0 || (x.disconnected() && !errors.Is(err, os.ErrDeadlineExceeded)) { // a client whose body timed out is still connected
		return
	}
	if x.late() {
		f = tooLong(err)
	}
	if x.route != nil && strings.HasPrefix(x.route.path, "/chat") {
		f = f.forPages()
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
	sees := x.seesCauses()
	if f.status >= http.StatusInternalServerError && f.status != http.StatusBadGateway { // that is the model's provider
		sees = x.seesTrouble()
	}
	body := f.body(sees)
	if x.wantsText() {
		header.Set(wire.HeaderErrorCode, string(body.Code))
		if body.Field != "" {
			header.Set(wire.HeaderErrorField, body.Field)
		}
		x.write(f.status, wire.ContentText, []byte(sentence(body)))
		return
	}
	x.json(f.status, body)
}

// sentence returns an error as a page shows it.
func sentence(e *wire.Error) string {
	text := e.Message
	if e.Field != "" && strings.HasPrefix(text, e.Field) {
		text = "The request was not accepted: " + text
	}
	if first, size := utf8.DecodeRuneInString(text); size > 0 {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// wantsText reports whether an error is sent as plain text. The AI SDK shows the whole body
// of a refused request; clients that want more accept JSON.
func (x *exchange) wantsText() bool {
	return x.route != nil && x.route.forSDK && !strings.Contains(x.r.Header.Get("Accept"), wire.ContentJSON)
}
