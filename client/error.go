package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// RetryAfter returns how long the server asks the client to wait before it repeats the
// failed request.
func RetryAfter(err error) (after time.Duration, ok bool) {
	if later, ok := errors.AsType[*laterError](err); ok {
		return later.after, true
	}
	return 0, false
}

// laterError is the cause of a refusal with a Retry-After.
type laterError struct {
	after  time.Duration
	detail string
}

// Error implements error.
func (e *laterError) Error() string {
	text := "the server asks to wait " + e.after.String()
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

// maxAfter limits the wait that a server may request.
const maxAfter = time.Hour

func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxAfter)
}

// broken returns the error of a request without a response.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return session.ErrUnavailable.WithMessage("the server did not respond within %s", c.cfg.Timeout)
	}
	return session.ErrUnavailable.WithCause(errors.New(c.redact(err.Error())), "the server cannot be reached")
}

// redact removes the token from a text.
func (c *Client) redact(text string) string {
	if c.cfg.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, c.cfg.Token, "[redacted]")
}

// refused returns the error of a response, or nil for a success.
func (c *Client) refused(answer *http.Response, body []byte) error {
	if err := checkVersion(answer); err != nil {
		return err
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return nil
	}
	var refusal wire.Error
	if json.Unmarshal(body, &refusal) != nil || refusal.Code == "" {
		return unreadable(answer)
	}
	out := &session.Error{
		Code: refusal.Code, Message: c.redact(refusal.Message), Field: refusal.Field, Retryable: refusal.Retryable, Calls: refusal.Calls,
		StatusCode: answer.StatusCode,
	}
	detail := c.redact(refusal.Detail)
	if after := retryAfter(answer.Header); after > 0 {
		out.Cause = &laterError{after, detail}
	} else if detail != "" {
		out.Cause = errors.New(detail)
	}
	return out
}

// checkVersion refuses servers of another version. A proxy that cannot reach its server
// sends no version.
func checkVersion(answer *http.Response) error {
	switch version := answer.Header.Get(wire.HeaderVersion); {
	case version == wire.ProtocolVersion:
		return nil
	case version != "":
		return &session.Error{
			Code: wire.CodeVersion, StatusCode: answer.StatusCode,
			Message: "the server has the API version " + strconv.Quote(clip(version)) + ", not " + wire.ProtocolVersion,
		}
	case mayPass(answer.StatusCode):
		return unreadable(answer)
	}
	return &session.Error{
		Code: wire.CodeVersion, StatusCode: answer.StatusCode,
		Message: "the response is not from an agent server: it has no " + wire.HeaderVersion + ", and its status is " + strconv.Itoa(answer.StatusCode),
	}
}

// unreadable returns the error of a response that contains only a status.
func unreadable(answer *http.Response) error {
	out := session.ErrUnavailable.WithMessage("the server responded %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if out.StatusCode = answer.StatusCode; !mayPass(answer.StatusCode) {
		out.Code, out.Retryable = session.CodeInternal, false
	}
	if after := retryAfter(answer.Header); after > 0 {
		out.Cause = &laterError{after: after}
	}
	return out
}

// mayPass reports whether a status that a proxy may have sent says that the same request can succeed later.
func mayPass(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// clip shortens a text of the server.
func clip(text string) string { return text[:min(len(text), 40)] }
