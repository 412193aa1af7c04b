// Package redis keeps sessions, streams and locks in Redis 7 or newer, or Valkey
// 8, on a single node or a cluster.
//
// # Layout
//
// All keys of a session and of its stream share one hash tag, so that everything
// which must be atomic is one script on one slot. A script makes all its checks
// before its first write: nothing can be left half done.
//
// What touches several sessions is split into steps, each of which may be made
// again: deleting a tree goes from the leaves to the root, a tree's lease is the
// root's and its children follow, a wake waits in the slot of the child whose
// commit wrote it until it was moved to the parent's.
//
// Listings and sweeps read indexes on other slots. They are hints: an entry is
// added before the change that makes it true, verified against the session
// whenever it is read, and removed lazily. A commit in the middle of a turn
// touches none.
//
// Readers of streams are told of changes through one connection of their process.
// On a cluster each append is told to every node, as plain publishing does.
//
// # Expiry
//
// Sessions do not expire by themselves unless [Config.SessionTTL] is set; see
// [session.Sweeps] for those that are to fail after a time.
// The chunks of a stream go [Config.StreamTTL] after it has ended, its header and
// with it the numbering stay as long as the session.
//
// # Durability
//
// What Redis promises is what its configuration promises. Without an append-only
// file a restart loses everything since the last snapshot; with appendfsync
// everysec, the loss of power loses up to two seconds; with always, nothing. An
// eviction policy other than noeviction may drop any key. [Config.RequireDurable]
// refuses such a server, otherwise one line of the log says so.
//
// Replication is asynchronous: a failover loses the writes that the primary had
// answered and the replica had not seen, which may be commits. Fences keep what is
// left consistent, but the work of those commits is done again. With
// [Config.WaitReplicas] a write is answered only once that many replicas have it.
//
// On a cluster the node that fails may be one that has indexes, and lose entries of
// sessions that are on another. Every renewal of a lease puts its entry back, and a
// change of a session those that it makes true; what has none to come stays out of
// a listing, or is not swept, until then: a session that rests, a deadline, the
// close that a run owes, a wake. Where this matters set WaitReplicas, which holds
// for entries, too.
package redis

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/internal/ready"
	"github.com/helixagents/helix/stream"
)

// Config says where a backend keeps its data and how.
type Config struct {
	// URL is the server's: redis://user:password@host:port/db, or rediss:// for TLS.
	// Several nodes of a cluster are given with ?addr=host:port&addr=…; one that
	// says it belongs to a cluster is enough. Required unless Client is set.
	//
	// The client's package prints faults of connections to the standard error, for
	// the whole process. What matters of them is in the errors of operations, so the
	// first backend that is opened by URL has it print nothing; an application that
	// wants to see them sets its own with goredis.SetLogger afterwards.
	URL string
	// Client is used instead of URL, if set. Close leaves it open, and what its
	// package prints is left alone.
	Client goredis.UniversalClient
	// Prefix begins every key, so that several deployments can share a server.
	// Defaults to "helix".
	Prefix string
	// Clock is the store's clock, on which leases, deadlines and locks run. Defaults
	// to the server's.
	Clock func() time.Time
	// Logger is told of what no caller sees. Defaults to none.
	Logger *slog.Logger
	// MaxChunk is the largest encoded chunk of a stream, in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
	// StreamTTL is how long the chunks of a stream stay after it has ended or
	// failed. A reader that comes later is told that they are gone; the numbering
	// goes on if the session does. Defaults to 24 hours; negative keeps them.
	StreamTTL time.Duration
	// SessionTTL is how long a conversation stays that is at rest: its session with
	// those of the agents below it, their messages and streams, after the last change
	// of any of them. Nothing expires while a session of it runs or waits for people.
	// Defaults to 0, which keeps everything. Programs that do not know the setting
	// must not use the store while it is set: they would start runs of sessions that
	// are about to go.
	SessionTTL time.Duration
	// RequireDurable refuses to open a server that may lose data, see above.
	// Otherwise that is a warning in the log.
	RequireDurable bool
	// WaitReplicas is how many replicas must have a write before it is answered,
	// also one that turns out to have been made before, by a request whose answer was
	// lost. If they do not within WaitTimeout, by default one second, the write fails with
	// session.ErrUnavailable, though it has been made. Defaults to 0.
	WaitReplicas int
	WaitTimeout  time.Duration
	// ConnectTimeout is how long opening may take. Defaults to 5 seconds.
	ConnectTimeout time.Duration
	// PollInterval is how often a reader that follows a stream looks by itself, in
	// case a notification was lost. Defaults to 500 milliseconds.
	PollInterval time.Duration

	// settling is how long after it was added an index entry is taken for true.
	settling time.Duration
	// late is after how long somebody who was held up trusts neither the entries he
	// has added nor those he has read.
	late time.Duration
}

// Backend keeps everything in Redis. It implements [store.Backend].
type Backend struct {
	config  Config
	client  goredis.UniversalClient
	cluster *goredis.ClusterClient // the same, if it is one
	keys    keyspace
	watch   *watch
	places  placeCache
	fills   *fills
	tokens  tokens
	guard   *migrate.Guard
	writes  *ready.Writes
	seen    atomic.Int64 // the store's time, as a script has told it last

	closing sync.RWMutex
	closed  bool
}

var _ store.Backend = (*Backend)(nil)

// Open connects to the server at url, with default settings.
func Open(url string) (*Backend, error) { return OpenConfig(Config{URL: url}) }

// OpenConfig connects to a server and checks that it can be used.
func OpenConfig(config Config) (*Backend, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.ConnectTimeout)
	defer cancel()
	client, err := connect(ctx, &config)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		config: config, client: client, keys: keyspace{config.Prefix}, tokens: newTokens(),
		guard: migrate.NewGuard(format), writes: ready.NewWrites(),
	}
	b.cluster, _ = client.(*goredis.ClusterClient)
	if err := b.askFormat(ctx); err != nil {
		if config.Client == nil {
			err = errors.Join(err, client.Close())
		}
		return nil, failure("open redis", err)
	}
	b.watch, b.fills = newWatch(b), newFills(b)
	return b, nil
}

// complete checks the configuration and fills in what was left out.
func (c *Config) complete() error {
	if c.URL == "" && c.Client == nil {
		return session.Invalid("redis url", "must not be empty, such as redis://localhost:6379/0")
	}
	if c.Prefix == "" {
		c.Prefix = "helix"
	}
	if strings.ContainsAny(c.Prefix, "{}\x00") {
		return session.Invalid("key prefix", "%q must not hold braces", c.Prefix)
	}
	if c.SessionTTL < 0 || (c.SessionTTL > 0 && c.SessionTTL < time.Millisecond) {
		return session.Invalid("session time to live", "%s is neither 0 nor at least a millisecond", c.SessionTTL)
	}
	if c.WaitReplicas < 0 {
		return session.Invalid("replicas to wait for", "%d is negative", c.WaitReplicas)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxChunk <= 0 {
		c.MaxChunk = stream.DefaultMaxChunk
	}
	if c.StreamTTL == 0 {
		c.StreamTTL = 24 * time.Hour
	}
	if c.WaitTimeout <= 0 {
		c.WaitTimeout = time.Second
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.PollInterval <= 0 {
		c.PollInterval = 500 * time.Millisecond
	}
	if c.settling <= 0 {
		c.settling = time.Minute
	}
	if c.late <= 0 {
		c.late = c.settling / 2
	}
	return nil
}

// Sessions implements [store.Backend].
func (b *Backend) Sessions() session.Store { return &sessions{b, session.DefaultTenant} }

// Streams implements [store.Backend].
func (b *Backend) Streams() stream.Manager { return &streams{b, session.DefaultTenant} }

// Locks implements [store.Backend].
func (b *Backend) Locks() lock.Manager { return &locks{b} }

// Close implements [store.Backend].
func (b *Backend) Close() error {
	b.fills.close() // which uses the backend until then
	b.closing.Lock()
	defer b.closing.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.watch.close()
	if b.config.Client != nil {
		return nil
	}
	return b.client.Close()
}

// begin refuses an operation on a backend that is closed, or whose caller has
// given up.
func (b *Backend) begin(ctx context.Context, what string) error {
	if err := ctx.Err(); err != nil {
		return failure(what, err)
	}
	b.closing.RLock()
	defer b.closing.RUnlock()
	if b.closed {
		return session.ErrClosed.WithMessage("%s: the store is closed", what)
	}
	return b.guard.Err()
}

// stamp is the time that scripts are given: empty for the server's.
func (b *Backend) stamp() string {
	if b.config.Clock == nil {
		return ""
	}
	return micros(b.config.Clock())
}

// notAfter is a time that is not after the store's.
func (b *Backend) notAfter(ctx context.Context) (time.Time, error) {
	if seen := b.seen.Load(); seen != 0 && b.config.Clock == nil {
		return time.UnixMicro(seen).UTC(), nil
	}
	return b.now(ctx)
}

// now is the store's time.
func (b *Backend) now(ctx context.Context) (time.Time, error) {
	if b.config.Clock != nil {
		return b.config.Clock().UTC().Truncate(time.Microsecond), nil
	}
	now, err := b.client.Time(ctx).Result()
	if err != nil {
		return now, failure("read the server's clock", err)
	}
	return now.UTC().Truncate(time.Microsecond), nil
}
