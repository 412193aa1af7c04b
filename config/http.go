package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// Defaults of a tool over HTTP.
const (
	defaultTimeout     = 30 * time.Second
	defaultRetries     = 2
	defaultMaxResponse = 256 << 10
)

// Limits of a call.
const (
	maxRedirects = 5
	maxErrorBody = 2 << 10
	firstPause   = 250 * time.Millisecond
	longestPause = 10 * time.Second
)

// idempotencyKey is the header by which a service recognizes a repeated call.
const idempotencyKey = "Idempotency-Key"

func (t *Tool) method() string { return cmp.Or(t.Method, http.MethodGet) }

func (t *Tool) readOnly() bool {
	if t.ReadOnly != nil {
		return *t.ReadOnly
	}
	return (t.Idempotent == nil || !*t.Idempotent) && (t.method() == http.MethodGet || t.method() == http.MethodHead)
}

func (t *Tool) idempotent() bool { return t.Idempotent != nil && *t.Idempotent }

// mayRepeat reports whether a call may be repeated.
func (t *Tool) mayRepeat() bool { return t.readOnly() || t.idempotent() }

// service runs the calls of a tool over HTTP.
type service struct {
	tool    *Tool
	client  *http.Client
	timeout time.Duration
	retries int
	limited int64
	input   *helix.Schema
	inURL   []string          // the placeholders of the address
	fixed   []string          // the parameters in the address itself
	hide    *strings.Replacer // hides secrets in errors
	hideOut *strings.Replacer // hides secrets in results
	log     *slog.Logger
}

func newService(t *Tool, input *helix.Schema, secrets []string, log *slog.Logger) *service {
	s := &service{
		tool: t, timeout: cmp.Or(t.Timeout.Std(), defaultTimeout), limited: int64(cmp.Or(t.MaxResponse, defaultMaxResponse)),
		input: input, inURL: placeholders(t.URL), fixed: queryNames(t.URL),
		hide: hidingErrors(t, secrets), hideOut: hidingResults(t, secrets), log: log,
	}
	if t.mayRepeat() {
		s.retries = defaultRetries
	}
	if t.Retries != nil {
		s.retries = *t.Retries
	}
	s.client = &http.Client{Transport: transport(t.AllowPrivate), CheckRedirect: s.redirect}
	return s
}

// limit is the timeout of a call with all its attempts.
func (s *service) limit() time.Duration {
	return max(helix.DefaultToolTimeout, time.Duration(s.retries+1)*(s.timeout+longestPause))
}

// call sends the request and retries it if that is allowed and may help.
func (s *service) call(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
	request, err := s.request(call, input)
	if err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		result, failure := s.attempt(ctx, call, request)
		if failure == nil {
			return result, nil
		}
		if !failure.again || attempt >= s.retries || ctx.Err() != nil {
			return nil, failure.err
		}
		if err := pause(ctx, attempt, failure.after); err != nil {
			return nil, failure.err
		}
	}
}

// request is what all attempts of a call send.
type request struct {
	address string
	headers map[string]string
	body    []byte
}

// request builds the request of a call. The input was validated when the model made the
// call; it is validated again, because the schema may have changed since.
func (s *service) request(call *helix.Call, input json.RawMessage) (*request, error) {
	if err := s.input.ValidateInput(input); err != nil {
		return nil, (&helix.Error{Code: session.CodeToolInput}).WithMessage("the input of %s does not fit: %v", call.Tool, err)
	}
	in := &values{call: call}
	if err := json.Unmarshal(input, &in.arguments); err != nil {
		return nil, (&helix.Error{Code: session.CodeToolInput}).WithCause(err, "the input does not fit")
	}
	out := &request{headers: map[string]string{}}
	var err error
	if out.address, err = s.address(in); err != nil {
		return nil, err
	}
	if out.body, err = s.body(in); err != nil {
		return nil, err
	}
	for name, value := range s.tool.Headers {
		if out.headers[name], err = fillHeader(in, value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// failure is an attempt that failed.
type failure struct {
	err   error
	again bool
	after time.Duration // the wait that the service requested
}

// pause waits before the next attempt: a random time that doubles with each attempt, or the
// time that the service requested if that is short enough.
func pause(ctx context.Context, attempt int, asked time.Duration) error {
	wait := min(firstPause<<attempt, longestPause)
	wait = wait/2 + rand.N(wait/2+1)
	if asked > longestPause {
		return errors.New("the service requested a wait that is longer than the call's timeout")
	}
	timer := time.NewTimer(max(wait, asked))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *service) attempt(ctx context.Context, call *helix.Call, made *request) (json.RawMessage, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var content io.Reader
	if made.body != nil {
		content = bytes.NewReader(made.body)
	}
	request, err := http.NewRequestWithContext(ctx, s.tool.method(), made.address, content)
	if err != nil {
		return nil, &failure{err: s.failed(ctx, "cannot make the request", err)}
	}
	request.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	if s.tool.mayRepeat() {
		request.Header.Set(idempotencyKey, call.IdempotencyKey())
	} else {
		// With the usual spelling net/http would treat the request as one that it may repeat.
		request.Header[strings.ToLower(idempotencyKey)] = []string{call.IdempotencyKey()}
	}
	if made.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range made.headers {
		request.Header.Set(name, value)
	}
	var sent atomic.Bool
	request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	response, err := s.client.Do(request)
	switch {
	case err != nil && sent.Load() && !permanent(err) && !s.tool.mayRepeat():
		return nil, &failure{err: s.unknown(ctx, "the request was sent, but no response arrived", err), again: true}
	case err != nil:
		return nil, &failure{err: s.failed(ctx, "the service cannot be reached", err), again: !permanent(err)}
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, s.refused(response)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, s.limited+1))
	switch {
	case err != nil && !s.tool.mayRepeat():
		return nil, &failure{err: s.unknown(ctx, fmt.Sprintf("the service answered %d, but the response was cut off", response.StatusCode), err), again: true}
	case err != nil:
		return nil, &failure{err: s.failed(ctx, "the response was cut off", err), again: true}
	case int64(len(raw)) > s.limited:
		return nil, &failure{err: s.failed(ctx, fmt.Sprintf("the response has more than %d bytes", s.limited), nil)}
	}
	return s.result(response, raw)
}

// failed returns a tool's error. It contains neither the address, which may contain a
// secret, nor resolved addresses, which would reveal the network's layout to the model. The
// log has both.
func (s *service) failed(ctx context.Context, what string, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	message := what
	if err != nil {
		level := slog.LevelDebug
		if permanent(err) {
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "tool.request_failed", "tool", s.tool.Name, "error", s.hide.Replace(err.Error()))
		message += ": " + s.hide.Replace(reason(err))
	}
	return &helix.Error{Code: session.CodeToolFailed, Message: message}
}

// unknown returns the error of a request that may have had its effect. The model must not
// mistake it for one that never arrived and repeat the call.
func (s *service) unknown(ctx context.Context, what string, err error) error {
	out := session.AsError(s.failed(ctx, what, err))
	return (&helix.Error{Code: session.CodeToolOutcome}).WithMessage("%s; whether it took effect is unknown", out.Message)
}

// refused returns the error for a status other than success.
func (s *service) refused(response *http.Response) *failure {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody)) // best effort
	text := strings.TrimSpace(strings.ToValidUTF8(string(raw), ""))
	message := fmt.Sprintf("the service answered %s", strings.TrimSpace(strconv.Itoa(response.StatusCode)+" "+http.StatusText(response.StatusCode)))
	if response.Header.Get("Location") != "" && response.StatusCode >= 300 && response.StatusCode <= 399 {
		message += fmt.Sprintf(", and a %s request is not redirected there", s.tool.method())
	}
	if text != "" {
		message += ": " + s.hide.Replace(text)
	}
	out := &failure{err: &helix.Error{Code: session.CodeToolFailed, StatusCode: response.StatusCode, Message: message}}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		out.again = true
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			out.after = time.Duration(min(seconds, 3600)) * time.Second
		}
	}
	return out
}

// result converts a response to JSON: JSON stays as it is, other text becomes a string.
// Secrets that were sent to the service are hidden.
func (s *service) result(response *http.Response, raw []byte) (json.RawMessage, *failure) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return json.RawMessage(`null`), nil
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if (kind == "application/json" || strings.HasSuffix(kind, "+json")) && json.Valid(raw) {
		return hideJSON(raw, s.hideOut), nil
	}
	if !utf8.Valid(raw) {
		return nil, &failure{err: &helix.Error{
			Code: session.CodeToolOutput, Message: fmt.Sprintf("the response of type %q is neither JSON nor text", kind),
		}}
	}
	var out bytes.Buffer
	write(&out, s.hideOut.Replace(string(raw)))
	return out.Bytes(), nil
}

// redirect decides whether to follow a redirection. A request with side effects is repeated
// only at the same server and only for 307 and 308, because an approval for one server does
// not cover another. A reading request is followed: the connection guard checks the next
// address like the first, no Referer reveals an address that may contain a secret, another
// server receives neither the tool's headers nor the call's key, and https stays https.
func (s *service) redirect(request *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) >= maxRedirects:
		return refusal(fmt.Sprintf("more than %d redirections", maxRedirects))
	case first.URL.Scheme == "https" && request.URL.Scheme != "https":
		return refusal("a redirection from https to " + request.URL.Scheme)
	case first.Method != http.MethodGet && first.Method != http.MethodHead && !(request.Method == first.Method && sameServer(request.URL, first.URL)):
		return http.ErrUseLastResponse
	}
	request.Header.Del("Referer")
	elsewhere := func(r *http.Request) bool { return r.URL.Host != first.URL.Host }
	if elsewhere(request) || slices.ContainsFunc(via, elsewhere) {
		request.Header.Del(idempotencyKey)
		delete(request.Header, strings.ToLower(idempotencyKey))
		for name := range s.tool.Headers {
			request.Header.Del(name)
		}
	}
	return nil
}

// sameServer reports whether two addresses have the same scheme, host and port.
func sameServer(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// address returns the tool's address with the call's values.
func (s *service) address(in *values) (string, error) {
	path, query, _ := strings.Cut(s.tool.URL, "?")
	path, err := in.fill(path, pathSegment)
	if err != nil {
		return "", err
	}
	query, err = in.fill(query, inQuery)
	if err != nil {
		return "", err
	}
	if !s.tool.inQuery() {
		return withQuery(path, query), nil
	}
	rest := url.Values{}
	for name, value := range s.others(in.arguments) {
		if inNames(s.fixed, name) { // for declared arguments the file's check reports it
			return "", (&helix.Error{Code: session.CodeToolInput}).WithMessage("the argument %q is not allowed: the address already sets it", name)
		}
		for _, text := range texts(value) {
			rest.Add(name, text)
		}
	}
	return withQuery(path, query, rest.Encode()), nil
}

// withQuery appends queries to a path.
func withQuery(path string, queries ...string) string {
	queries = slices.DeleteFunc(queries, func(q string) bool { return q == "" })
	if len(queries) == 0 {
		return path
	}
	return path + "?" + strings.Join(queries, "&")
}

// inQuery reports whether arguments are sent in the query.
func (t *Tool) inQuery() bool {
	switch t.method() {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodDelete:
		return t.Body == nil
	}
	return false
}

// others returns the arguments that the address does not use.
func (s *service) others(arguments map[string]json.RawMessage) map[string]json.RawMessage {
	rest := map[string]json.RawMessage{}
	for name, value := range arguments {
		if isIdentity(name) || !slices.Contains(s.inURL, name) {
			rest[name] = value
		}
	}
	return rest
}

// body returns the request body, or nil.
func (s *service) body(in *values) ([]byte, error) {
	if s.tool.inQuery() {
		return nil, nil
	}
	if s.tool.Body == nil {
		return session.Encode(s.others(in.arguments))
	}
	template, err := decodeTemplate(s.tool.Body)
	if err != nil {
		return nil, err
	}
	filled, err := in.fillValue(template)
	if err != nil {
		return nil, err
	}
	return session.Encode(filled)
}

// identity matches a placeholder that the server fills in. All other text in a header stays
// as it is.
var identity = regexp.MustCompile(`\{(?:user|session)\.[^{}]*\}`)

// fillHeader replaces the placeholders in a header's value.
func fillHeader(in *values, value string) (string, error) {
	var failed error
	out := identity.ReplaceAllStringFunc(value, func(found string) string {
		filled, err := in.fill(found, inHeader)
		if err != nil && failed == nil {
			failed = err
		}
		return filled
	})
	return out, failed
}
