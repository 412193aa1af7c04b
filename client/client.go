package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Config configures a client.
type Config struct {
	// URL is the server's address, with the path prefix of its routes, if any.
	URL string
	// Token is sent as a bearer token. Defaults to none.
	Token string
	// HTTP sends the requests. Defaults to [http.DefaultClient]. Its timeout and redirection
	// policy are ignored.
	HTTP *http.Client
	// Timeout limits a request that is not a stream. Defaults to one minute.
	Timeout time.Duration
	// Silence is how long a stream may be silent before it counts as dropped. The server
	// sends something every 15 seconds. Defaults to 45 seconds.
	Silence time.Duration
	// Attempts is how often to reconnect to a dropped stream while nothing new arrives and
	// connections do not last. Defaults to 10; a negative number disables reconnecting.
	// Backoff is the first wait; it doubles up to 5 seconds. Defaults to 200 milliseconds.
	Attempts int
	Backoff  time.Duration
	// MaxBody is the maximum size of a response, or of an event of a stream, in bytes.
	// Defaults to 64 MiB.
	MaxBody int64
	// Logger receives a line when a stream is dropped. Defaults to none.
	Logger *slog.Logger
}

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
	log  *slog.Logger
}

// New returns a client. It sends nothing yet.
func New(cfg Config) (*Client, error) {
	base, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.IndexFunc(cfg.Token, isNotToken) >= 0:
		return nil, session.Invalid("Token", "has a character that a header must not have")
	case cfg.Timeout < 0:
		return nil, session.Invalid("Timeout", "must not be negative")
	case cfg.Silence < 0:
		return nil, session.Invalid("Silence", "must not be negative")
	case cfg.Backoff < 0:
		return nil, session.Invalid("Backoff", "must not be negative")
	case cfg.MaxBody < 0:
		return nil, session.Invalid("MaxBody", "must not be negative")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.Silence = cmp.Or(cfg.Silence, 45*time.Second)
	cfg.Attempts = cmp.Or(cfg.Attempts, 10)
	cfg.Backoff = cmp.Or(cfg.Backoff, 200*time.Millisecond)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 64<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, base: base, http: &http.Client{}, log: cfg.Logger}
	if cfg.HTTP != nil {
		*c.http = *cfg.HTTP
	}
	c.http.Timeout = 0 // it would limit a whole stream
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

func parseURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil: // its text may hold a password
		return nil, session.Invalid("URL", "is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, session.Invalid("URL", "must be a URL such as https://agents.example.com")
	case base.User != nil:
		return nil, session.Invalid("URL", "must not contain a user or a password; use Token")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, session.Invalid("URL", "must not have a query or a fragment")
	}
	return base, nil
}

func isNotToken(r rune) bool { return r <= ' ' || r > '~' }

// String returns the server's address without secrets.
func (c *Client) String() string { return "client of " + c.base.String() }

// GoString is String, so that printing a client does not reveal its token.
func (c *Client) GoString() string { return c.String() }

// address returns the URL of a route. Its path is escaped.
func (c *Client) address(path string, query url.Values) string {
	return strings.TrimSuffix(c.base.String(), "/") + path + encodeQuery(query)
}

func encodeQuery(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// get sends a GET request.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	return ask[T](ctx, c, http.MethodGet, path, query, nil)
}

// post sends a POST request with a JSON body.
func post[T any](ctx context.Context, c *Client, path string, body any) (*T, error) {
	raw, err := session.Encode(body)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "encode the request")
	}
	return ask[T](ctx, c, http.MethodPost, path, nil, raw)
}

// ask sends a request and decodes the response.
func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, body []byte) (*T, error) {
	raw, err := c.exchange(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, session.ErrInternal.WithCause(err, "decode the server's response")
	}
	return out, nil
}

// A request that was refused because of a limit had no effect. It is retried a few times if
// the server names a time that is soon.
const (
	limitedTries = 5
	limitedWait  = 5 * time.Second
)

// exchange sends a request and returns the body of a success. A request that was sent too
// early is retried.
func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	for try := 1; ; try++ {
		raw, err := c.exchangeOnce(ctx, method, path, query, body)
		refused, ok := errors.AsType[*session.Error](err)
		if !ok || refused.StatusCode != http.StatusTooManyRequests || try == limitedTries {
			return raw, err
		}
		after, ok := RetryAfter(err)
		if !ok || after > limitedWait {
			return raw, err
		}
		// Jitter, so that clients that were refused together do not return together.
		if err := sleep(ctx, after/2+rand.N(after)); err != nil {
			return nil, err
		}
	}
}

// patient returns a client that waits for a request that takes long, such as one for which
// the server asks a model.
func (c *Client) patient(least time.Duration) *Client {
	out := *c
	out.cfg.Timeout = max(out.cfg.Timeout, least)
	return &out
}

func (c *Client) exchangeOnce(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answer, err := c.send(limited, method, path, query, body, nil)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, c.cfg.MaxBody+1))
	switch {
	case err != nil:
		return nil, c.broken(ctx, err)
	case int64(len(raw)) > c.cfg.MaxBody:
		return nil, session.ErrTooLarge.WithMessage("the server's response has more than %d bytes", c.cfg.MaxBody)
	}
	if err := c.refused(answer, raw); err != nil {
		return raw, err
	}
	return raw, nil
}

// send sends a request.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.address(path, query), reader)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	r.Header.Set(wire.HeaderVersion, wire.ProtocolVersion)
	if body != nil {
		r.Header.Set("Content-Type", wire.ContentJSON)
	}
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	answer, err := c.http.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // removes the address
	}
	return answer, err
}

// checkID refuses an id that no session can have and that might address another route.
func checkID(id string) error {
	if err := session.CheckID(id); err != nil {
		out := session.AsError(err)
		return session.Invalid("sessionId", "%s", strings.TrimPrefix(out.Message, out.Field+" "))
	}
	return nil
}
