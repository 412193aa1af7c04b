package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// What a tool over HTTP does unless the file says otherwise.
const (
	defaultTimeout     = 30 * time.Second
	defaultRetries     = 2
	defaultMaxResponse = 256 << 10
)

// Bounds of a call.
const (
	maxRedirects = 5
	maxErrorBody = 2 << 10
	firstPause   = 250 * time.Millisecond
	longestPause = 10 * time.Second
)

// idempotencyKey is the header by which a service knows a call again.
const idempotencyKey = "Idempotency-Key"

func (t *Tool) method() string { return cmp.Or(t.Method, http.MethodGet) }

func (t *Tool) readOnly() bool {
	if t.ReadOnly != nil {
		return *t.ReadOnly
	}
	return (t.Idempotent == nil || !*t.Idempotent) && (t.method() == http.MethodGet || t.method() == http.MethodHead)
}

func (t *Tool) idempotent() bool { return t.Idempotent != nil && *t.Idempotent }

// mayRepeat reports whether a call may be made again.
func (t *Tool) mayRepeat() bool { return t.readOnly() || t.idempotent() }

// service carries out the calls of a tool over HTTP.
type service struct {
	tool    *Tool
	client  *http.Client
	timeout time.Duration
	retries int
	limited int64
	hide    *strings.Replacer
}

func newService(t *Tool, secrets []string) *service {
	s := &service{
		tool: t, timeout: cmp.Or(t.Timeout.Std(), defaultTimeout), limited: int64(cmp.Or(t.MaxResponse, defaultMaxResponse)),
		hide: hiding(t, secrets),
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

// limit bounds a whole call with all its attempts.
func (s *service) limit() time.Duration {
	return max(helix.DefaultToolTimeout, time.Duration(s.retries+1)*(s.timeout+longestPause))
}

// minSecret is the shortest text that is hidden as a secret: a shorter one would
// make errors unreadable and is none.
const minSecret = 6

// hiding makes a replacer of what must not show in errors: headers, and what
// environment variables put into the file.
func hiding(t *Tool, secrets []string) *strings.Replacer {
	hidden := slices.Clone(secrets)
	for _, value := range t.Headers {
		hidden = append(hidden, value)
		hidden = append(hidden, strings.Fields(value)...)
	}
	var pairs []string
	slices.SortFunc(hidden, func(a, b string) int { return len(b) - len(a) }) // the longest first
	for _, value := range slices.Compact(hidden) {
		if len(value) >= minSecret {
			pairs = append(pairs, value, "***")
		}
		if escaped := url.QueryEscape(value); len(value) >= minSecret && escaped != value {
			pairs = append(pairs, escaped, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// call makes the request, again if it may be and that may help.
func (s *service) call(ctx context.Context, call *helix.Call, input json.RawMessage) (json.RawMessage, error) {
	var arguments map[string]json.RawMessage
	if err := json.Unmarshal(input, &arguments); err != nil {
		return nil, (&helix.Error{Code: session.CodeToolInput}).WithCause(err, "the input does not fit")
	}
	address, err := s.address(arguments)
	if err != nil {
		return nil, err
	}
	body, err := s.body(arguments)
	if err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		result, failure := s.attempt(ctx, call, address, body)
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

// failure is an attempt that failed.
type failure struct {
	err   error
	again bool
	after time.Duration // that the service asked to wait
}

// pause waits before the next attempt: twice as long each time, at random, or as
// long as the service said, if that is not too long.
func pause(ctx context.Context, attempt int, asked time.Duration) error {
	wait := min(firstPause<<attempt, longestPause)
	wait = wait/2 + rand.N(wait/2+1)
	if asked > longestPause {
		return errors.New("the service asks to wait longer than a call may take")
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

func (s *service) attempt(ctx context.Context, call *helix.Call, address string, body []byte) (json.RawMessage, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, s.tool.method(), address, content)
	if err != nil {
		return nil, &failure{err: s.failed("the request cannot be made", err)}
	}
	request.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	request.Header.Set(idempotencyKey, call.IdempotencyKey())
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range s.tool.Headers {
		request.Header.Set(name, value)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, &failure{err: s.failed("the service cannot be reached", err), again: !permanent(err)}
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, s.refused(response)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, s.limited+1))
	switch {
	case err != nil:
		return nil, &failure{err: s.failed("the response broke off", err), again: true}
	case int64(len(raw)) > s.limited:
		return nil, &failure{err: s.failed(fmt.Sprintf("the response has more than %d bytes", s.limited), nil)}
	}
	return result(response, raw)
}

// failed is a tool's error. The address is not part of it, for it may hold a secret.
func (s *service) failed(what string, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	message := what
	if err != nil {
		message += ": " + s.hide.Replace(err.Error())
	}
	return &helix.Error{Code: session.CodeToolFailed, Message: message}
}

// refused is what a status other than success means.
func (s *service) refused(response *http.Response) *failure {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody)) // as much as there is
	text := strings.TrimSpace(strings.ToValidUTF8(string(raw), ""))
	message := fmt.Sprintf("the service answered %s", strings.TrimSpace(strconv.Itoa(response.StatusCode)+" "+http.StatusText(response.StatusCode)))
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

// result is a response as JSON: what is JSON as it is, any other text as a text.
func result(response *http.Response, raw []byte) (json.RawMessage, *failure) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return json.RawMessage(`null`), nil
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if (kind == "application/json" || strings.HasSuffix(kind, "+json")) && json.Valid(raw) {
		return raw, nil
	}
	if !utf8.Valid(raw) {
		return nil, &failure{err: &helix.Error{
			Code: session.CodeToolOutput, Message: fmt.Sprintf("the response of type %q is neither JSON nor text", kind),
		}}
	}
	var out bytes.Buffer
	write(&out, string(raw))
	return out.Bytes(), nil
}

// redirect decides whether to follow a redirection: the next address is checked like
// the first when it is connected to, no server is told the address that led to it, for
// that may hold a secret, another one does not get the tool's headers nor the call's
// key, and what was encrypted stays so.
func (s *service) redirect(request *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w: more than %d redirections", errRefused, maxRedirects)
	case first.URL.Scheme == "https" && request.URL.Scheme != "https":
		return fmt.Errorf("%w: a redirection from https to %s", errRefused, request.URL.Scheme)
	}
	request.Header.Del("Referer")
	elsewhere := func(r *http.Request) bool { return r.URL.Host != first.URL.Host }
	if elsewhere(request) || slices.ContainsFunc(via, elsewhere) {
		request.Header.Del(idempotencyKey)
		for name := range s.tool.Headers {
			request.Header.Del(name)
		}
	}
	return nil
}

// address is the tool's address with the arguments in it.
func (s *service) address(arguments map[string]json.RawMessage) (string, error) {
	path, query, _ := strings.Cut(s.tool.URL, "?")
	path, err := fill(path, arguments, pathSegment)
	if err != nil {
		return "", err
	}
	query, err = fill(query, arguments, func(_, text string) (string, error) { return url.QueryEscape(text), nil })
	if err != nil {
		return "", err
	}
	if !s.tool.inQuery() {
		return withQuery(path, query), nil
	}
	rest := url.Values{}
	for name, value := range s.others(arguments) {
		for _, text := range texts(value) {
			rest.Add(name, text)
		}
	}
	return withQuery(path, query, rest.Encode()), nil
}

// withQuery puts a query after a path.
func withQuery(path string, queries ...string) string {
	queries = slices.DeleteFunc(queries, func(q string) bool { return q == "" })
	if len(queries) == 0 {
		return path
	}
	return path + "?" + strings.Join(queries, "&")
}

// pathSegment escapes an argument in a path. None may lead to another path.
func pathSegment(name, text string) (string, error) {
	if text == "" || text == "." || text == ".." {
		return "", (&helix.Error{Code: session.CodeToolInput}).WithMessage("%s: %q cannot be part of an address", name, text)
	}
	return url.PathEscape(text), nil
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

// others are the arguments that the address does not have.
func (s *service) others(arguments map[string]json.RawMessage) map[string]json.RawMessage {
	rest := map[string]json.RawMessage{}
	for name, value := range arguments {
		if !strings.Contains(s.tool.URL, "{"+name+"}") {
			rest[name] = value
		}
	}
	return rest
}

// body is what is sent, or nil.
func (s *service) body(arguments map[string]json.RawMessage) ([]byte, error) {
	if s.tool.inQuery() {
		return nil, nil
	}
	if s.tool.Body == nil {
		return session.Encode(s.others(arguments))
	}
	var template any
	if err := json.Unmarshal(s.tool.Body, &template); err != nil {
		return nil, fmt.Errorf("the body cannot be made: %w", err)
	}
	filled, err := fillValue(template, arguments)
	if err != nil {
		return nil, err
	}
	return session.Encode(filled)
}

// fillValue puts arguments into a body. A text that is one argument becomes its
// value, or nothing if the argument is not given.
func fillValue(template any, arguments map[string]json.RawMessage) (any, error) {
	switch template := template.(type) {
	case string:
		if name := placeholder.FindString(template); name != "" && name == template {
			if value, ok := arguments[name[1:len(name)-1]]; ok {
				return value, nil
			}
			return nil, nil
		}
		return fill(template, arguments, func(_, text string) (string, error) { return text, nil })
	case map[string]any:
		out := map[string]any{}
		for key, value := range template {
			filled, err := fillValue(value, arguments)
			if err != nil {
				return nil, err
			}
			if filled != nil || value == nil {
				out[key] = filled
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(template))
		for i, value := range template {
			filled, err := fillValue(value, arguments)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	}
	return template, nil
}

// fill puts arguments into a text.
func fill(template string, arguments map[string]json.RawMessage, escape func(name, text string) (string, error)) (string, error) {
	var failed error
	out := placeholder.ReplaceAllStringFunc(template, func(found string) string {
		name := found[1 : len(found)-1]
		text := strings.Join(texts(arguments[name]), ",")
		escaped, err := escape(name, text)
		if err != nil && failed == nil {
			failed = err
		}
		return escaped
	})
	return out, failed
}

// texts is an argument as texts: a list one by one, any other value by itself.
func texts(value json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		var out []string
		for _, item := range list {
			out = append(out, text(item))
		}
		return out
	}
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return []string{text(value)}
}

func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
