package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/helixagents/helix/session"
)

// Call is a request to a provider. The engine retries it, because it discards the chunks of a failed attempt.
type Call struct {
	Provider string
	Client   *http.Client
	URL      string
	Header   http.Header
	Body     []byte
	Secrets  Secrets
	// Failure reads the provider's error from an answer that refuses the request. The caller adds status, headers and body.
	Failure func(header http.Header, body []byte) Failure
}

// Post sends the request and returns an answer that accepts it, whose body the caller closes. Every failure is classified.
func (c *Call) Post(ctx context.Context) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, Broken(c.Provider, err, c.Secrets)
	}
	request.Header = c.Header
	answer, err := c.Client.Do(request)
	if err != nil {
		return nil, Broken(c.Provider, err, c.Secrets)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{&limited{from: answer.Body, left: maxAnswer}, answer.Body}
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, c.refused(answer)
}

// PostJSON sends the request and decodes an answer that is one JSON value. Every failure is classified.
func (c *Call) PostJSON(ctx context.Context, into any) error {
	answer, err := c.Post(ctx)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxErrorBody)).Decode(into); err != nil {
		return Broken(c.Provider, err, c.Secrets)
	}
	return nil
}

// refused classifies an answer that is an error.
func (c *Call) refused(answer *http.Response) *session.Error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	if err != nil {
		body = nil // it broke off, and the status says enough
	}
	f := c.Failure(answer.Header, body)
	f.Provider, f.Status, f.Header, f.Body = c.Provider, answer.StatusCode, answer.Header, string(body)
	return f.Error(c.Secrets)
}

const (
	// maxErrorBody is more than any error needs.
	maxErrorBody = 1 << 20
	// maxAnswer bounds a whole answer: the reply is kept in memory.
	maxAnswer = 64 << 20
	// maxEvent bounds one event of a stream. Images come in one.
	maxEvent = 32 << 20
	// maxValues bounds the values in one event, or in an answer that is not a stream: decoded,
	// each takes about fifty bytes, even an empty one.
	maxValues = 250_000
)

var errTooLarge = errors.New("the answer is too large")

// CheckValues refuses JSON that is to be decoded if it has too many values.
func CheckValues(data []byte) error {
	if bytes.Count(data, []byte(",")) < maxValues { // nearly always
		return nil
	}
	quoted, values := false, 1
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == ',':
			values++
		}
	}
	if values > maxValues {
		return errTooLarge
	}
	return nil
}

// limited fails when more is read than is allowed.
type limited struct {
	from io.Reader
	left int64
}

// Read implements [io.Reader].
func (b *limited) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// userAgent is the User-Agent header. A configured header replaces it.
const userAgent = "helix"

// Header returns the headers of a request: the provider's own, then each set on top of those before it.
func Header(own map[string]string, sets ...map[string]string) http.Header {
	h := http.Header{"User-Agent": {userAgent}, "Content-Type": {"application/json"}}
	for _, set := range append([]map[string]string{own}, sets...) {
		for name, value := range set {
			h.Set(name, value)
		}
	}
	return h
}

// Join returns the address of a path below a base URL, which [CheckBaseURL] has accepted. The query of a base URL is left
// out.
func Join(baseURL, path string) string {
	base, err := url.Parse(baseURL)
	if err != nil {
		return ""
	}
	if base.Path != "" && !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	return base.ResolveReference(&url.URL{Path: path}).String()
}
