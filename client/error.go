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

// RetryAfter is how long the server asks to be left alone before the request that
// failed is repeated.
func RetryAfter(err error) (after time.Duration, ok bool) {
	if later, ok := errors.AsType[*laterError](err); ok {
		return later.after, true
	}
	return 0, false
}

// laterError is the cause of a refusal that names a time.
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

// maxAfter bounds what a server may ask for.
const maxAfter = time.Hour

func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds <= 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxAfter)
}

// broken is the failure of a request that was not answered.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return session.ErrUnavailable.WithMessage("the server has not answered within %s", c.cfg.Timeout)
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

// refused is the failure that an answer is, nil if it is a success.
func (c *Client) refused(answer *http.Response, body []byte) error {
	if err := checkVersion(answer); err != nil {
		return err
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return nil
	}
	var told wire.Error
	if json.Unmarshal(body, &told) != nil || told.Code == "" {
		return unreadable(answer)
	}
	out := &session.Error{
		Code: told.Code, Message: c.redact(told.Message), Field: told.Field, Retryable: told.Retryable, Calls: told.Calls,
		StatusCode: answer.StatusCode,
	}
	detail := c.redact(told.Detail)
	if after := retryAfter(answer.Header); after > 0 {
		out.Cause = &laterError{after, detail}
	} else if detail != "" {
		out.Cause = errors.New(detail)
	}
	return out
}

// checkVersion refuses what is not a server of this version. What stands before a
// server and cannot reach it speaks no version.
func checkVersion(answer *http.Response) error {
	switch version := answer.Header.Get(wire.HeaderVersion); {
	case version == wire.ProtocolVersion:
		return nil
	case version != "":
		return &session.Error{
			Code: wire.CodeVersion, StatusCode: answer.StatusCode,
			Message: "the server speaks version " + strconv.Quote(clip(version)) + ", not " + wire.ProtocolVersion,
		}
	case answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests:
		return unreadable(answer)
	}
	return &session.Error{
		Code: wire.CodeVersion, StatusCode: answer.StatusCode,
		Message: "what answers there is not an agent server: it has no " + wire.HeaderVersion + ", and its status is " + strconv.Itoa(answer.StatusCode),
	}
}

// unreadable is the failure of an answer that does not say more than its status.
func unreadable(answer *http.Response) error {
	out := session.ErrUnavailable.WithMessage("the server answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if out.StatusCode = answer.StatusCode; answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests {
		out.Code, out.Retryable = session.CodeInternal, false
	}
	if after := retryAfter(answer.Header); after > 0 {
		out.Cause = &laterError{after: after}
	}
	return out
}

// clip shortens what a server says of itself.
func clip(text string) string { return text[:min(len(text), 40)] }
