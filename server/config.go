package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// Config configures a server.
type Config struct {
	// Executor runs the agents, and Backend stores their sessions. Both are required.
	Executor helix.Executor
	Backend  store.Backend
	// Agents returns the agents of the server. A chat that names none gets the first. It is
	// called for every request that needs an agent, so the agents may change while the
	// server runs. [Agents] makes it of agents that do not change.
	Agents func() []*helix.Agent
	// Authenticate returns the identity of a request's sender. An error refuses the request
	// with 401, or with 503 if it is retryable (see [session.IsRetryable]); the client does
	// not see it. See [Tokens].
	Authenticate func(*http.Request) (Identity, error)
	// AllowUnauthenticated serves everybody as an operator of the default tenant. It is
	// required if Authenticate is not set.
	AllowUnauthenticated bool
	Limits               Limits
	// RateLimit limits the requests of one identity to this server. Without authentication
	// it limits all requests together. Defaults to 10 per second with bursts of 50.
	RateLimit RateLimit
	// Hosts are the host names of the server. A request for another name is refused.
	// [AnyHost] allows every name. Defaults to every name, or to the names of this machine
	// if AllowUnauthenticated is set.
	Hosts []string
	// CORS are the origins, such as "https://app.example.com", whose pages may call the
	// server. Defaults to none.
	CORS []string
	// Chat configures what pages of chats show, while a reply is streamed and when they are
	// opened.
	Chat aisdk.Options
	// SubmitSchema, if set, is a schema that all answers to waiting calls must match, in
	// addition to the server's own checks. It validates
	// {"kind":"client-tool-result","toolCallId",…} with result or error, or
	// {"kind":"approval-response","toolCallId","approvalId","approved","reason"}, or
	// {"kind":"question","toolCallId","answer"} or "declined" and "reason".
	SubmitSchema *helix.Schema
	// ServiceName is the name of the server in its log, as "service" in the responses of
	// /healthz and /readyz, and as the title of /openapi.json.
	ServiceName string
	// Verbose includes the cause of an error in the response.
	Verbose bool
	// KeepAlive is the interval between comments on an idle stream. Defaults to 15 seconds.
	KeepAlive time.Duration
	// Logger receives a line per request; of one that only reads and succeeds at the level
	// debug. Defaults to [slog.Default].
	Logger *slog.Logger
	// Cleanup fails the expired sessions of a tenant; see [helix.Runtime]. Without it,
	// /cleanup is unavailable.
	Cleanup func(ctx context.Context, tenant string) (*session.Cleanup, error)
	// TaskStats returns the counts of the tasks of this process; see [helix.Runtime]. Without
	// it, /metrics does not have them.
	TaskStats func() helix.TaskStats
	// Ready returns an error if the server is not ready. Defaults to the check of the
	// Backend.
	Ready func(ctx context.Context) error
}

// Limits limit the resources of a request.
type Limits struct {
	// Body is the maximum size of a body in bytes. Defaults to 4 MiB.
	Body int64
	// Buffered is the maximum number of bytes of all bodies that are being received and
	// decoded at the same time; at least one body must fit. The requests of one identity may
	// use a quarter of it, or one body. A request that exceeds it waits for up to
	// ReadTimeout and is then refused with 503. Bodies of up to 64 KiB do not count.
	// Defaults to 64 MiB, or to one body if that is more.
	Buffered int64
	// Tags and Metadata are the maximum numbers of tags and metadata entries in a request.
	// Both default to 64, the maximum of a session; see [session.MaxTags] and
	// [session.MaxMetadata].
	Tags     int
	Metadata int
	// StateKeys is the maximum number of keys of initial state in a request. Defaults to
	// 1,000.
	StateKeys int
	// Messages and Parts are the maximum numbers of messages, and of parts in all of them,
	// that start a turn. Messages does not apply to chats, whose clients send the whole
	// conversation: the server decodes only the last message, with at most this many parts.
	// They default to 100 and 1,000.
	Messages int
	Parts    int
	// RefuseRemoteFiles refuses files in messages that are not data URLs, because the
	// model's provider would fetch them. By default https URLs are allowed, too.
	RefuseRemoteFiles bool
	// ReadTimeout is how long a body may take to arrive. A request that takes longer is
	// refused with 408. Defaults to 30 seconds.
	ReadTimeout time.Duration
	// WriteTimeout is how long the reader of a stream may take to read a write; a slower one
	// gets an error and is disconnected. One that reads nothing is disconnected after three
	// times as long. Defaults to 10 seconds.
	WriteTimeout time.Duration
	// Operation is how long a write operation may take; one that asks a model for a summary
	// may take 7 minutes. It continues if the client disconnects. Defaults to 30 seconds.
	Operation time.Duration
	// Streams is the maximum number of open streams. Defaults to 10,000.
	Streams int
	// StreamsPerUser is the maximum number of open streams per identity; it does not apply
	// without authentication. Defaults to 100.
	StreamsPerUser int
	// RunsPerUser is the maximum number of concurrent runs per identity, over all servers of
	// the store. Without authentication it applies to all runs together. Defaults to 20; a
	// negative number disables the limit.
	RunsPerUser int
	// PageBytes limits a page of messages: it ends before the message that would exceed this
	// size, but has at least one. Defaults to 4 MiB.
	PageBytes int64
}

// RateLimit configures a token bucket.
type RateLimit struct {
	// PerSecond is the refill rate. Defaults to 10; a negative number disables the limit.
	PerSecond float64
	// Burst is the bucket's size. Defaults to the requests of five seconds, and at least 1.
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
		return session.Invalid("AllowUnauthenticated", "and Authenticate are both set: choose one")
	case c.RateLimit.Burst < 0:
		return session.Invalid("RateLimit.Burst", "must not be negative")
	case c.KeepAlive < 0:
		return session.Invalid("KeepAlive", "must not be negative")
	}
	if err := session.CheckText("ServiceName", c.ServiceName); err != nil {
		return err
	}
	if n := len(c.ServiceName); n > session.MaxIDBytes {
		return session.Invalid("ServiceName", "has %d bytes, at most %d are allowed", n, session.MaxIDBytes)
	}
	if err := c.Limits.check(); err != nil {
		return err
	}
	for _, origin := range c.CORS {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limits) check() error {
	if l.ReadTimeout < 0 || l.WriteTimeout < 0 || l.Operation < 0 {
		return session.Invalid("Limits", "must not be negative")
	}
	for _, n := range []int64{
		l.Body, l.Buffered, int64(l.Tags), int64(l.Metadata), int64(l.StateKeys), int64(l.Messages), int64(l.Parts), int64(l.Streams),
		int64(l.StreamsPerUser), l.PageBytes,
	} {
		if n < 0 {
			return session.Invalid("Limits", "must not be negative")
		}
	}
	switch {
	case l.Tags > session.MaxTags:
		return session.Invalid("Limits.Tags", "is %d, but a session has at most %d", l.Tags, session.MaxTags)
	case l.Metadata > session.MaxMetadata:
		return session.Invalid("Limits.Metadata", "is %d, but a session has at most %d", l.Metadata, session.MaxMetadata)
	case l.Buffered > 0 && l.Buffered < cmp.Or(l.Body, defaultBody):
		return session.Invalid("Limits.Buffered", "is %d, which is less than a body of %d bytes", l.Buffered, cmp.Or(l.Body, defaultBody))
	}
	return nil
}

// The defaults of bodies, in bytes.
const (
	defaultBody     = 4 << 20
	defaultBuffered = 64 << 20
)

func (l *Limits) fill() {
	l.Body = cmp.Or(l.Body, defaultBody)
	l.Buffered = cmp.Or(l.Buffered, max(defaultBuffered, l.Body))
	l.ReadTimeout = cmp.Or(l.ReadTimeout, 30*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.Operation = cmp.Or(l.Operation, 30*time.Second)
	l.Tags = cmp.Or(l.Tags, session.MaxTags)
	l.Metadata = cmp.Or(l.Metadata, session.MaxMetadata)
	l.StateKeys = cmp.Or(l.StateKeys, 1000)
	l.Messages = cmp.Or(l.Messages, 100)
	l.Parts = cmp.Or(l.Parts, 1000)
	l.Streams = cmp.Or(l.Streams, 10_000)
	l.StreamsPerUser = cmp.Or(l.StreamsPerUser, 100)
	l.RunsPerUser = cmp.Or(l.RunsPerUser, 20)
	l.PageBytes = cmp.Or(l.PageBytes, 4<<20)
}

func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return session.Invalid("CORS", "%q is not an origin such as https://app.example.com", origin)
	}
	return nil
}

func (c *Config) fill() {
	c.Limits.fill()
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.RateLimit.PerSecond = cmp.Or(c.RateLimit.PerSecond, 10)
	if c.RateLimit.PerSecond > 0 {
		c.RateLimit.Burst = cmp.Or(c.RateLimit.Burst, max(1, int(5*c.RateLimit.PerSecond)))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ServiceName != "" {
		c.Logger = c.Logger.With("service", c.ServiceName)
	}
	if c.Ready == nil {
		c.Ready = c.Backend.Ready
	}
}
