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
	// Chat changes what pages of chats are shown, while a reply is streamed and when they
	// are opened.
	Chat aisdk.Options
	// SubmitSchema, if set, is a schema that answers to waiting calls must match, whichever
	// route they come by, beside the checks that the server makes itself. It is given
	// {"kind":"client-tool-result","toolCallId",…} with result or error, or
	// {"kind":"approval-response","toolCallId","approvalId","approved","reason"}.
	SubmitSchema *helix.Schema
	// ServiceName is what the server calls itself: in its log, as "service" in the answers
	// of /healthz and /readyz, and as the title of /openapi.json.
	ServiceName string
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
	// Buffered is how many bytes of bodies the server holds at once, over all requests,
	// while they arrive and are decoded; at least one body must fit. One identity's
	// requests hold at most a quarter of it, or one body. A request that finds no room
	// waits, for ReadTimeout at most, and is then refused with 503. Bodies of up to 64
	// KiB do not count. Defaults to 64 MiB, or to one body if that is more.
	Buffered int64
	// Tags and Metadata are how many tags and metadata entries a session may be given.
	// Both default to 64, which is the most that a session can have; see
	// [session.MaxTags] and [session.MaxMetadata].
	Tags     int
	Metadata int
	// StateKeys is how many keys the initial state of a session may be given. Defaults
	// to 1,000.
	StateKeys int
	// Messages and Parts are how many messages, and parts in all of them, a turn may
	// begin with. Messages does not count for chats, whose clients send the whole
	// conversation: of that the server decodes the last message alone, which has at
	// most so many parts. They default to 100 and 1,000.
	Messages int
	Parts    int
	// RefuseRemoteFiles refuses files in messages that are not sent along as data URLs:
	// whoever runs the model would fetch them. By default those with a URL that begins
	// with https are allowed, too.
	RefuseRemoteFiles bool
	// ReadTimeout is how long a body may take to arrive. Defaults to 30 seconds.
	ReadTimeout time.Duration
	// WriteTimeout is how long the reader of a stream may take to read what it is sent: if
	// it takes longer, it is told so and cut. One that takes nothing is cut after three
	// times as long. Defaults to 10 seconds.
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
	case c.KeepAlive < 0:
		return session.Invalid("KeepAlive", "is negative")
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
		return session.Invalid("Limits.Tags", "is %d, and a session has at most %d", l.Tags, session.MaxTags)
	case l.Metadata > session.MaxMetadata:
		return session.Invalid("Limits.Metadata", "is %d, and a session has at most %d", l.Metadata, session.MaxMetadata)
	case l.Buffered > 0 && l.Buffered < cmp.Or(l.Body, defaultBody):
		return session.Invalid("Limits.Buffered", "is %d, in which a body of %d bytes has no room", l.Buffered, cmp.Or(l.Body, defaultBody))
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
