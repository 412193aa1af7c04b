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

	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
	"github.com/helixagents/helix/store/internal/ready"
	"github.com/helixagents/helix/stream"
)

// Config says which database a backend keeps its data in and how.
type Config struct {
	// URL is the database, as a connection URL or a keyword=value string. Required
	// unless Pool is set.
	URL string
	// Pool is a pool of connections to use instead of one of the backend's own. It
	// stays open when the backend is closed. Its connections should have the setting
	// plan_cache_mode at force_generic_plan, without which commits are slower; a pool
	// that is to work behind a pooler must have been configured for that.
	Pool *pgxpool.Pool
	// Schema is the schema that holds the backend's tables, made if it does not
	// exist. Defaults to helix.
	Schema string
	// MaxConns is the number of connections the pool may open, not counting the one
	// that listens. Defaults to what the URL says, else to 16.
	MaxConns int
	// Pooler says that the URL leads to a pooler, such as PgBouncer in transaction
	// mode, that gives a connection of the server to a client for a transaction only.
	// Statements are then not kept prepared, and nothing is listened for.
	Pooler bool
	// NoListen has readers of streams poll for what other processes wrote, instead of
	// being told by LISTEN.
	NoListen bool
	// PollInterval is how often readers of streams look for what other processes
	// wrote while nothing is listened for. Defaults to 100 milliseconds.
	PollInterval time.Duration
	// ConnectTimeout is how long opening waits for the server. Bringing the tables up to
	// date, or waiting for another process that does, may take longer. Defaults to 5
	// seconds.
	ConnectTimeout time.Duration
	// Clock is the store's clock, on which leases and deadlines run. Defaults to that
	// of the database server, which all processes share.
	Clock func() time.Time
	// NoMigrate refuses a database whose tables are not up to date instead of bringing
	// them there: "helix migrate up" then does, perhaps as a user with more rights.
	NoMigrate bool
	// Logger is told of faults that no caller sees. Defaults to none.
	Logger *slog.Logger
	// MaxChunk is the largest encoded chunk of a stream, in bytes. Defaults to
	// stream.DefaultMaxChunk.
	MaxChunk int
}

// Backend keeps everything in one schema of a database. It implements
// [store.Backend].
type Backend struct {
	config    Config
	pool      *pgxpool.Pool
	renewed   atomic.Int64 // when all its connections were last made anew
	queries   sync.Map     // as they are written here → for the configured schema
	texts     sync.Map     // shape → the text of its statement, for the configured schema
	watch     *watch
	notifier  *notifier
	snapshots *snapshots
	known     *known
	lanes     lanes
	guard     *migrate.Guard
	writes    *ready.Writes
}

var _ store.Backend = (*Backend)(nil)

// Open opens the database at a URL, with default settings.
func Open(url string) (*Backend, error) { return OpenConfig(Config{URL: url}) }

// OpenConfig opens a database and brings its tables up to date.
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

// connect makes a backend that can be used once first has prepared it.
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
		config: config, pool: config.Pool, known: newKnown(), guard: migrate.NewGuard(len(steps)), writes: ready.NewWrites(),
	}
	b.lanes.b = b
	if b.pool == nil {
		pool, err := newPool(ctx, &config)
		if err != nil {
			return nil, err
		}
		b.pool = pool
	}
	if err := first(b, ctx); err != nil {
		b.closePool()
		return nil, openFailure(&config, err)
	}
	return b, nil
}

// complete checks the configuration and fills in what was left out.
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
	c.NoListen = c.NoListen || c.Pooler
	return nil
}

// maxSchema is how long the name of a schema may be: with what goes before it, it
// names a channel, for which the server takes 63 bytes.
const maxSchema = 63 - len(channelPrefix)

// checkSchema holds a schema to what needs no escaping between quotes, in an
// identifier or a text.
func checkSchema(name string) error {
	if len(name) > maxSchema || strings.HasPrefix(name, "pg_") {
		return session.Invalid("schema", "%q must have at most %d bytes and not begin with pg_", name, maxSchema)
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return session.Invalid("schema", "%q may hold only letters, digits, _ and -", name)
		}
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
	if !b.watch.close() {
		return nil // closed before
	}
	b.snapshots.close()
	b.notifier.close()
	b.closePool()
	return nil
}

func (b *Backend) closePool() {
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

// sql is a query for the configured schema. Queries are written for one called
// helix.
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

// clock is the parameter for the store's time: what the configured clock says, or
// nil, for which queries use the server's.
func (b *Backend) clock() any {
	if b.config.Clock == nil {
		return nil
	}
	return b.config.Clock().Truncate(time.Microsecond)
}

// errClosed is what calls are told once the backend is closed.
func errClosed(what string) error {
	return session.ErrClosed.WithMessage("%s: the database is closed", what)
}

var errAgain = errors.New("the operation has to be made again")
