// Package redis stores sessions, streams and locks in Redis 7 or newer, or Valkey
// 8, on a single node or a cluster.
//
// # Layout
//
// All keys of a session and of its stream share one hash tag, so that everything
// that must be atomic is one script on one slot. A script makes all its checks
// before its first write: it never leaves a write half done.
//
// Operations on several sessions are split into steps that may be repeated:
// deleting a tree goes from the leaves to the root, a tree's lease is the root's
// and its children follow, and a wake stays in the slot of the child whose commit
// wrote it until it is moved to the parent's.
//
// Listings and sweeps read indexes on other slots. Index entries are hints: an
// entry is added before the change that makes it true, verified against the
// session whenever it is read, and removed lazily. A commit in the middle of a
// turn does not touch them.
//
// Readers of streams are notified of changes through one connection of their
// process. On a cluster each append is published to every node, as with plain
// publishing.
//
// # Expiry
//
// Sessions do not expire unless [Config.SessionTTL] is set; see [session.Sweeps]
// for sessions that fail after a time. The chunks of a stream expire
// [Config.StreamTTL] after it has ended; its header, and with it the numbering, is
// kept as long as the session.
//
// # Durability
//
// The durability of Redis depends on its configuration. Without an append-only
// file a restart loses everything since the last snapshot; with appendfsync
// everysec, a loss of power loses up to two seconds; with always, nothing. An
// eviction policy other than noeviction may drop any key. [Config.RequireDurable]
// refuses such a server; otherwise the backend logs one warning.
//
// Replication is asynchronous: a failover loses the writes that the primary had
// confirmed and the replica had not received, which may be commits. Fences keep
// the rest consistent, but the work of those commits is done again. With
// [Config.WaitReplicas] a write is confirmed only once that many replicas have it.
//
// On a cluster the node that fails may be one that has indexes, and may lose
// entries of sessions on another node. Every renewal of a lease restores its
// entry, and a change of a session restores the entries that it makes true.
// Anything else is missing from listings or sweeps until its session changes: a
// session at rest, a deadline, the close of a stream, a wake. Where this matters
// set WaitReplicas, which also applies to entries.
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

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/internal/ready"
	"github.com/helixagents/helix/stream"
)

// Config says where and how a backend stores its data.
type Config struct {
	// URL is the server's URL: redis://user:password@host:port/db, or rediss:// for
	// TLS. Several nodes of a cluster are given with ?addr=host:port&addr=…; one node
	// of a cluster is enough. Required unless Client is set.
	//
	// The client's package logs connection faults to the standard error of the whole
	// process. The errors of operations already contain what matters, so the first
	// backend that is opened by URL disables this logging; an application that wants
	// it calls goredis.SetLogger afterwards.
	URL string
	// Client is used instead of URL, if set. Close leaves it open, and the logging of
	// its package is not changed.
	Client goredis.UniversalClient
	// Prefix begins every key, so that several deployments can share a server.
	// Defaults to "helix".
	Prefix string
	// Clock is the store's clock, which leases, deadlines and locks use. Defaults to
	// the server's.
	Clock func() time.Time
	// Logger receives faults that no caller sees. Defaults to none.
	Logger *slog.Logger
	// MaxChunk is the largest encoded chunk of a stream, in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
	// StreamTTL is how long the chunks of a stream are kept after it has ended or
	// failed. A later reader gets a truncated frame; the numbering continues if the
	// session does. Defaults to 24 hours; a negative value keeps them for ever.
	StreamTTL time.Duration
	// SessionTTL is how long a conversation at rest is kept: its session with those of
	// the agents below it, their messages and streams, after the last change of any of
	// them. Nothing expires while one of its sessions runs or waits for people.
	// Defaults to 0, which keeps everything. Programs that do not know the setting
	// must not use the store while it is set: they would start runs of sessions that
	// are about to expire.
	SessionTTL time.Duration
	// RequireDurable refuses to open a server that may lose data, see above. Without
	// it the backend only logs a warning.
	RequireDurable bool
	// WaitReplicas is how many replicas must have a write before it is confirmed; this
	// includes a repeated write whose first answer was lost. If they do not have it
	// within WaitTimeout, by default one second, the write fails with
	// session.ErrUnavailable although it was applied. Defaults to 0.
	WaitReplicas int
	WaitTimeout  time.Duration
	// ConnectTimeout is how long opening may take. Defaults to 5 seconds.
	ConnectTimeout time.Duration
	// PollInterval is how often a reader that follows a stream polls, in case a
	// notification was lost. Defaults to 500 milliseconds.
	PollInterval time.Duration

	// settling is how long an index entry is considered true after it was added.
	settling time.Duration
	// late is the delay after which a process trusts neither the entries that it has
	// added nor those that it has read.
	late time.Duration
}

// Backend stores everything in Redis. It implements [store.Backend].
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
	seen    atomic.Int64 // the store's time, as a script has last returned it
	blobs   atomic.Bool  // programs that do not know blobs are kept from the store

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

// complete checks the configuration and fills in defaults.
func (c *Config) complete() error {
	if c.URL == "" && c.Client == nil {
		return session.Invalid("redis url", "must not be empty, such as redis://localhost:6379/0")
	}
	if c.Prefix == "" {
		c.Prefix = "helix"
	}
	if strings.ContainsAny(c.Prefix, "{}\x00") {
		return session.Invalid("key prefix", "%q must not contain braces", c.Prefix)
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

// Blobs implements [store.Backend].
func (b *Backend) Blobs() blob.Store { return &blobs{b, session.DefaultTenant} }

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

// begin returns an error if the backend is closed or the caller's context has
// ended.
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

// stamp returns the time that scripts are passed: empty for the server's.
func (b *Backend) stamp() string {
	if b.config.Clock == nil {
		return ""
	}
	return micros(b.config.Clock())
}

// notAfter returns a time that is not after the store's.
func (b *Backend) notAfter(ctx context.Context) (time.Time, error) {
	if seen := b.seen.Load(); seen != 0 && b.config.Clock == nil {
		return time.UnixMicro(seen).UTC(), nil
	}
	return b.now(ctx)
}

// now returns the store's time: of a cluster always that of the same node, as long as a slot
// stays there. If the nodes' clocks differ, another one each time would seem to jump.
func (b *Backend) now(ctx context.Context) (time.Time, error) {
	if b.config.Clock != nil {
		return b.config.Clock().UTC().Truncate(time.Microsecond), nil
	}
	node, err := b.nodeOf(ctx, b.config.Prefix)
	if err != nil {
		return time.Time{}, failure("find the server with the clock", err)
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return now, failure("read the server's clock", err)
	}
	return now.UTC().Truncate(time.Microsecond), nil
}
