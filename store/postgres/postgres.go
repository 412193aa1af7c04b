package postgres

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/coldsql"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/internal/ready"
	"github.com/helixagents/helix/stream"
)

// Config says where and how a backend stores its data.
type Config struct {
	// URL is the database, as a connection URL or a keyword=value string. Required
	// unless Pool is set.
	URL string
	// Pool is a pool of connections to use instead of one that the backend opens. It
	// stays open when the backend is closed. Its connections should set
	// plan_cache_mode to force_generic_plan; without it commits are slower. A pool
	// behind a pooler must be configured for that. Leases are renewed on up to two
	// connections besides, which are opened with the pool's configuration.
	Pool *pgxpool.Pool
	// Schema is the schema of the backend's tables, which is created if it does not
	// exist. Defaults to helix.
	Schema string
	// MaxConns is the number of connections that the pool may open, not counting the
	// one that listens and up to two that renew leases. Defaults to the value in the
	// URL, or to 16.
	MaxConns int
	// Pooler says that the URL addresses a pooler that gives clients a server
	// connection only for a transaction, such as PgBouncer in transaction mode.
	// Statements are then not prepared, and LISTEN is not used.
	Pooler bool
	// NoListen makes readers of streams poll for writes of other processes instead of
	// using LISTEN.
	NoListen bool
	// PollInterval is how often readers of streams check for writes of other processes
	// while LISTEN is not used. Defaults to 100 milliseconds.
	PollInterval time.Duration
	// ConnectTimeout is how long opening waits for the server. Migrating the tables,
	// or waiting for another process that does, may take longer. Defaults to 5
	// seconds.
	ConnectTimeout time.Duration
	// CallTimeout bounds each call: one that is not done by then fails as unavailable, which may
	// be retried, and connections on which the server is silent are replaced. It must be
	// longer than any write takes. Deleting a session or a stream, and trimming one, may take
	// four times as long. Defaults to 15 seconds.
	CallTimeout time.Duration
	// Clock is the store's clock, which leases and deadlines use. Defaults to that of
	// the database server, which all processes share.
	Clock func() time.Time
	// NoMigrate refuses a database whose tables are not up to date instead of
	// migrating them; run "helix migrate up" instead, if necessary as a user with more
	// privileges.
	NoMigrate bool
	// Logger receives faults that no caller sees. Defaults to none.
	Logger *slog.Logger
	// MaxChunk is the largest encoded chunk of a stream, in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
}

// Backend stores everything in one schema of a database. It implements
// [store.Backend].
type Backend struct {
	config    Config
	pool      *pgxpool.Pool
	leasePool *pgxpool.Pool // renews leases, and does nothing else
	renewed   atomic.Int64  // when all its connections were last renewed
	answered  atomic.Int64  // when an operation was last done
	queries   sync.Map      // query text → query for the configured schema
	texts     sync.Map      // shape → the text of its statement, for the configured schema
	watch     *watch
	notifier  *notifier
	snapshots *snapshots
	known     *known
	writers   *writers
	lanes     lanes
	guard     *migrate.Guard
	writes    *ready.Writes
}

var _ store.Backend = (*Backend)(nil)

// Open opens the database at a URL, with default settings.
func Open(url string) (*Backend, error) { return OpenConfig(Config{URL: url}) }

// OpenConfig opens a database and migrates its tables if necessary.
func OpenConfig(config Config) (*Backend, error) {
	b, err := connect(config, (*Backend).prepare)
	if err != nil {
		return nil, err
	}
	b.watch = newWatch(b)
	b.notifier = newNotifier(b)
	b.snapshots = newSnapshots(b)
	return b, nil
}

// connect returns a backend after first has prepared it.
func connect(config Config, first func(*Backend, context.Context) error) (*Backend, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), config.ConnectTimeout)
	defer cancel()
	steps, err := migrations()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		config: config, pool: config.Pool, known: newKnown(), writers: newWriters(), guard: migrate.NewGuard(len(steps)), writes: ready.NewWrites(),
	}
	b.lanes.b = b
	if b.pool == nil {
		pool, err := newPool(ctx, &config)
		if err != nil {
			return nil, err
		}
		b.pool = pool
	}
	if b.leasePool, err = newLeasePool(ctx, b.pool); err != nil {
		b.closePools()
		return nil, openFailure(&config, err)
	}
	if err := first(b, ctx); err != nil {
		b.closePools()
		return nil, openFailure(&config, err)
	}
	return b, nil
}

// complete checks the configuration and fills in defaults.
func (c *Config) complete() error {
	if c.URL == "" && c.Pool == nil {
		return session.Invalid("database URL", "must not be empty")
	}
	if c.Schema == "" {
		c.Schema = "helix"
	}
	if err := checkSchema(c.Schema); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxChunk <= 0 {
		c.MaxChunk = stream.DefaultMaxChunk
	}
	if c.PollInterval <= 0 {
		c.PollInterval = 100 * time.Millisecond
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	switch {
	case c.CallTimeout < 0:
		return session.Invalid("CallTimeout", "%s is negative", c.CallTimeout)
	case c.CallTimeout == 0:
		c.CallTimeout = 15 * time.Second
	}
	c.NoListen = c.NoListen || c.Pooler
	return nil
}

// maxSchema is the maximum length of a schema's name: with its prefix it names a
// channel, for which the server allows 63 bytes.
const maxSchema = 63 - len(channelPrefix)

// checkSchema returns an error if the name would need escaping in a quoted
// identifier or a text.
func checkSchema(name string) error {
	if len(name) > maxSchema || strings.HasPrefix(name, "pg_") {
		return session.Invalid("schema", "%q must have at most %d bytes and not begin with pg_", name, maxSchema)
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return session.Invalid("schema", "%q may contain only letters, digits, _ and -", name)
		}
	}
	return nil
}

// Sessions implements [store.Backend].
func (b *Backend) Sessions() session.Store { return b.tenantStore(session.DefaultTenant) }

// Streams implements [store.Backend].
func (b *Backend) Streams() stream.Manager { return &streams{b, session.DefaultTenant} }

// Blobs implements [store.Backend].
func (b *Backend) Blobs() blob.Store {
	return coldsql.Blobs{Database: b, Name: session.DefaultTenant}
}

// Locks implements [store.Backend].
func (b *Backend) Locks() lock.Manager { return &locks{b} }

// Close implements [store.Backend].
func (b *Backend) Close() error {
	if !b.watch.close() {
		return nil // closed before
	}
	b.snapshots.close()
	b.notifier.close()
	b.closePools()
	return nil
}

func (b *Backend) closePools() {
	if b.leasePool != nil {
		b.leasePool.Close()
	}
	if b.config.Pool == nil {
		b.pool.Close()
	}
}

// closed reports whether Close was called.
func (b *Backend) closed() bool {
	select {
	case <-b.watch.hub.Closing():
		return true
	default:
		return false
	}
}

// sql returns a query for the configured schema. Queries are written for a schema
// called helix.
func (b *Backend) sql(query string) string {
	if b.config.Schema == "helix" {
		return query
	}
	if cached, ok := b.queries.Load(query); ok {
		return cached.(string)
	}
	out := strings.ReplaceAll(query, "helix.", `"`+b.config.Schema+`".`)
	b.queries.Store(query, out)
	return out
}

// clock returns the parameter for the store's time: the time of the configured
// clock, or nil, for which queries use the server's time.
func (b *Backend) clock() any {
	if b.config.Clock == nil {
		return nil
	}
	return b.config.Clock().Truncate(time.Microsecond)
}

// errClosed returns the error of calls after the backend was closed.
func errClosed(what string) error {
	return session.ErrClosed.WithMessage("%s: the database is closed", what)
}

var errAgain = errors.New("the operation must be repeated")
