package provider

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Failure is an error response of a provider, instead of a reply or in the middle of one.
type Failure struct {
	// Provider is the name of the provider, for messages.
	Provider string
	// Status is the HTTP status, 0 for an error within a stream that began well.
	Status int
	// Type and Code are the provider's own names for what went wrong.
	Type, Code string
	Message    string
	// Header has the headers of the response, which may contain a retry-after.
	Header http.Header
	// Body is the response's body, in case it is not in the provider's format.
	Body string
	// After is how long the provider asks to wait, if the body says so.
	After time.Duration
}

// The maximum lengths of what a provider says, which is stored and streamed with every
// failed attempt: of its message, of a body in another format, and of a name or an id.
const (
	maxMessage = 1000
	maxBody    = 200
	maxName    = 100
)

// Error returns the failure as a classified error without secrets.
func (f *Failure) Error(secrets Secrets) *session.Error {
	code, retryable := f.class()
	switch f.Header.Get("X-Should-Retry") { // what both large APIs tell their SDKs
	case "true":
		retryable = true
	case "false":
		retryable = false
	}
	e := llm.Error(code, retryable, "%s", f.text(secrets))
	e.StatusCode = f.Status
	if after := f.after(); after > 0 {
		e.Cause = &llm.RetryAfterError{After: after}
	}
	return e
}

func (f *Failure) text(secrets Secrets) string {
	var b strings.Builder
	b.WriteString(f.Provider)
	b.WriteString(" answered")
	if f.Status != 0 {
		b.WriteString(" " + strconv.Itoa(f.Status))
	}
	for _, name := range []string{f.Type, f.Code} {
		if name != "" && name != strconv.Itoa(f.Status) {
			b.WriteString(" " + secrets.Clip(name, maxName))
		}
	}
	message := f.Message
	if message == "" {
		message = secrets.Clip(plain(f.Body), maxBody)
	}
	if message == "" && f.Status >= 300 && f.Status < 400 {
		message = "a redirection, which is not followed"
	}
	if message == "" {
		message = http.StatusText(f.Status)
	}
	if message != "" {
		b.WriteString(": " + secrets.Clip(message, maxMessage))
	}
	for _, name := range []string{"Request-Id", "X-Request-Id"} {
		if id := f.Header.Get(name); id != "" {
			b.WriteString(" (request " + secrets.Clip(id, maxName) + ")")
			break
		}
	}
	return b.String()
}

// plain returns a body as one line, or nothing for a proxy's web page.
func plain(body string) string {
	if strings.HasPrefix(strings.TrimSpace(body), "<") {
		return "" // a page: its status says as much
	}
	return strings.Join(strings.Fields(body), " ")
}

// Clip shortens text to at most n bytes, between runes.
func Clip(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// class returns the error code of a failure and whether a retry may help. The provider's
// name for it takes precedence over the status, which several kinds share.
func (f *Failure) class() (code session.Code, retryable bool) {
	names := strings.ToLower(f.Type + " " + f.Code)
	words := strings.ToLower(f.Message)
	switch {
	case containsAny(names, "context_length", "request_too_large", "string_above_max_length") || containsAny(words, tooLong...):
		return session.CodeContextLength, false
	case containsAny(names, "content_filter", "_policy", "responsibleai", "safety") || containsAny(words, filtered...):
		return session.CodeContentFilter, false
	case containsAny(names, "insufficient_quota", "billing_hard_limit", "billing_error") ||
		containsAny(words, "credit balance is too low"): // told with status 400
		return session.CodeQuota, false // waiting does not pay the bill
	case containsAny(names, "authentication", "permission", "invalid_api_key", "unauthenticated"):
		return session.CodeAuth, false
	case containsAny(words, "api key not valid", "api key expired"):
		return session.CodeAuth, false // told with status 400
	case containsAny(names, "overloaded", "slow_down") || f.Status == 529:
		return session.CodeOverloaded, true
	case containsAny(names, "rate_limit", "resource_exhausted"):
		return session.CodeRateLimited, true
	}
	if f.Status != 0 {
		return classOf(f.Status, words)
	}
	switch {
	case containsAny(words, "overloaded"):
		return session.CodeOverloaded, true
	case containsAny(names, "invalid_", "not_found", "failed_precondition", "unsupported_"):
		return session.CodeBadRequest, false
	case containsAny(names, "api_error", "server_error", "timeout", "internal", "unavailable", "deadline_exceeded"):
		return session.CodeProviderDown, true
	}
	// An error in the middle of a stream is more often temporary than permanent.
	return session.CodeProvider, true
}

func classOf(status int, words string) (code session.Code, retryable bool) {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return session.CodeAuth, false
	case status == http.StatusPaymentRequired:
		return session.CodeQuota, false
	case status == http.StatusRequestEntityTooLarge:
		return session.CodeContextLength, false
	case status == http.StatusTooManyRequests:
		return session.CodeRateLimited, true
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly:
		return session.CodeProviderDown, true
	case status == http.StatusServiceUnavailable && containsAny(words, "overloaded", "high demand"):
		return session.CodeOverloaded, true
	case status >= 500:
		return session.CodeProviderDown, true
	case status >= 300: // a redirection: what is asked is not there
		return session.CodeBadRequest, false
	}
	return session.CodeProvider, false
}

// Phrases by which providers report, under a general error type, that a prompt is too long.
var tooLong = []string{
	"prompt is too long", "maximum context length", "context window", "context limit", "context length",
	"input is too long", "exceeds the maximum number of tokens",
}

var filtered = []string{"content filtering policy", "content management policy", "flagged as potentially violating"}

func containsAny(text string, of ...string) bool {
	for _, s := range of {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// Broken classifies an error without a response: a connection that could not be made or
// broke, or events that could not be read.
func Broken(provider string, err error, secrets Secrets) *session.Error {
	if errors.Is(err, errTooLarge) || errors.Is(err, bufio.ErrTooLong) {
		// Another attempt would most likely read as much again.
		return llm.Error(session.CodeMalformed, false, "the answer of %s is too large: at most %d MiB and %d parts are read, and of one event %d MiB and %d values",
			provider, maxAnswer>>20, MaxParts, maxEvent>>20, maxValues)
	}
	text := secrets.Clip(err.Error(), maxMessage)
	if isDecoding(err) {
		return llm.Error(session.CodeMalformed, true, "%s sent what cannot be read: %s", provider, text)
	}
	return llm.Error(session.CodeProviderDown, true, "the connection to %s broke: %s", provider, text)
}

func isDecoding(err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return false
	}
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || kind
}

// Malformed returns the error for a malformed response.
func Malformed(provider, format string, args ...any) *session.Error {
	return llm.Error(session.CodeMalformed, true, provider+" "+format, args...)
}

// Stopped returns the error for a stream that ended before its last event.
func Stopped(provider string) *session.Error {
	return llm.Error(session.CodeProviderDown, true, "the stream of %s stopped before the reply was complete", provider)
}
