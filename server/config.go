package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// Config says what a server offers, and to whom.
type Config struct {
	// Executor runs the agents, Backend is where it keeps them. Both are needed.
	Executor helix.Executor
	Backend  store.Backend
	// Agents lists the agents that are offered; the first is that of a chat which
	// names none. It is called for every request that needs an agent, so that they may
	// be exchanged while the server runs.
	Agents func() []*helix.Agent
	// Authenticate tells who sent a request. An error refuses it with 401, or, when it
	// is retryable as [session.IsRetryable] says, with 503; it is not shown to the
	// client. See [Tokens].
	Authenticate func(*http.Request) (Identity, error)
	// AllowUnauthenticated serves everybody as an operator of the default tenant. It
	// must be set if Authenticate is not.
	AllowUnauthenticated bool
	Limits               Limits
	// RateLimit bounds the requests of one identity, on this server; where everybody is
	// served without signing in, those of all together. Defaults to 10 a second with
	// bursts of 50.
	RateLimit RateLimit
	// Hosts lists the names that the server goes by; a request for another is refused.
	// [AnyHost] is every name. Defaults to every name, but to those of this machine
	// where AllowUnauthenticated is set.
	Hosts []string
	// CORS lists origins, such as "https://app.example.com", whose pages may call the
	// server. By default none may.
	CORS []string
	// Verbose puts what led to an error into the answer.
	Verbose bool
	// KeepAlive is the time between comments on a stream that has nothing else to
	// say. Defaults to 15 seconds.
	KeepAlive time.Duration
	// Logger gets a line per request. Defaults to [slog.Default].
	Logger *slog.Logger
	// Cleanup fails the expired sessions of a tenant; see the runtime's method of that
	// name. Without it, /cleanup is not offered.
	Cleanup func(ctx context.Context, tenant string) (*session.Cleanup, error)
	// Ready says whether the server can do its work. Defaults to that of the Backend.
	Ready func(ctx context.Context) error
}

// Limits bound what one request may take.
type Limits struct {
	// Body is the largest body in bytes. Defaults to 4 MiB.
	Body int64
	// ReadTimeout is how long a body may take to arrive. Defaults to 30 seconds.
	ReadTimeout time.Duration
	// WriteTimeout is how long the reader of a stream may take no bytes. Defaults to
	// 10 seconds.
	WriteTimeout time.Duration
	// Operation is how long a change may take. It goes on when the client that asked
	// for it is gone. Defaults to 30 seconds.
	Operation time.Duration
	// Streams is how many streams may be open at once. Defaults to 10,000.
	Streams int
	// StreamsPerUser is how many of them one identity may have open; it does not
	// count where there are no users. Defaults to 100.
	StreamsPerUser int
	// RunsPerUser is how many runs one identity may have at once, over all servers of
	// the store; where everybody is served without signing in, how many there may be.
	// Defaults to 20; a negative number is no limit.
	RunsPerUser int
	// PageBytes bounds a page of messages: it ends before the message that would take it
	// over so many bytes, but has at least one. Defaults to 4 MiB.
	PageBytes int64
}

// RateLimit is a token bucket: so many requests a second, after a burst.
type RateLimit struct {
	// PerSecond defaults to 10; a negative number is no limit.
	PerSecond float64
	// Burst defaults to what five seconds allow, and at least 1.
	Burst int
}

func (c *Config) check() error {
	switch {
	case c.Executor == nil:
		return session.Invalid("Executor", "is not set")
	case c.Backend == nil:
		return session.Invalid("Backend", "is not set")
	case c.Agents == nil:
		return session.Invalid("Agents", "is not set")
	case c.Authenticate == nil && !c.AllowUnauthenticated:
		return session.Invalid("Authenticate", "is not set; set AllowUnauthenticated to serve everybody")
	case c.Authenticate != nil && c.AllowUnauthenticated:
		return session.Invalid("AllowUnauthenticated", "is set, and so is Authenticate: choose one")
	case c.RateLimit.Burst < 0:
		return session.Invalid("RateLimit.Burst", "is negative")
	case c.Limits.Body < 0 || c.Limits.ReadTimeout < 0 || c.Limits.WriteTimeout < 0 || c.Limits.Operation < 0 || c.Limits.Streams < 0 ||
		c.Limits.StreamsPerUser < 0 || c.Limits.PageBytes < 0:
		return session.Invalid("Limits", "must not be negative")
	case c.KeepAlive < 0:
		return session.Invalid("KeepAlive", "is negative")
	}
	for _, origin := range c.CORS {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	return nil
}

func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return session.Invalid("CORS", "%q is not an origin such as https://app.example.com", origin)
	}
	return nil
}

func (c *Config) fill() {
	c.Limits.Body = cmp.Or(c.Limits.Body, 4<<20)
	c.Limits.ReadTimeout = cmp.Or(c.Limits.ReadTimeout, 30*time.Second)
	c.Limits.WriteTimeout = cmp.Or(c.Limits.WriteTimeout, 10*time.Second)
	c.Limits.Operation = cmp.Or(c.Limits.Operation, 30*time.Second)
	c.Limits.Streams = cmp.Or(c.Limits.Streams, 10_000)
	c.Limits.StreamsPerUser = cmp.Or(c.Limits.StreamsPerUser, 100)
	c.Limits.RunsPerUser = cmp.Or(c.Limits.RunsPerUser, 20)
	c.Limits.PageBytes = cmp.Or(c.Limits.PageBytes, 4<<20)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.RateLimit.PerSecond = cmp.Or(c.RateLimit.PerSecond, 10)
	if c.RateLimit.PerSecond > 0 {
		c.RateLimit.Burst = cmp.Or(c.RateLimit.Burst, max(1, int(5*c.RateLimit.PerSecond)))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Ready == nil {
		c.Ready = c.Backend.Ready
	}
}
