package dbos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// Name is the runtime's name, as runs record it.
const Name = "dbos"

// Config configures a [Runtime]. Backend and one of DatabaseURL and Pool are
// required.
type Config struct {
	helix.RuntimeOptions
	// DatabaseURL is where DBOS keeps its workflows: a Postgres URL, or "sqlite:" and
	// the path of a file, for which the application imports DBOS's driver/sqlite.
	DatabaseURL string
	// Pool may be given instead of DatabaseURL: the runtime opens a pool of its own with
	// the same configuration, because DBOS closes the pool that it is given.
	Pool *pgxpool.Pool
	// CallTimeout is how long the server may take to begin its answer to a statement of DBOS on
	// Postgres: then the connection is closed, and DBOS repeats the statement on another one. It
	// must be longer than any of them takes. Defaults to 15 seconds.
	CallTimeout time.Duration
	// Schema is the database schema of DBOS's tables on Postgres. Defaults to "dbos".
	Schema string
	// Prefix begins the ids of workflows and is the application's name for DBOS:
	// processes with the same one, in the same schema, work together. It has 3 to 64
	// lower-case letters, digits, dashes and underscores. Defaults to "helix".
	Prefix string
	// ExecutorID identifies this process among all that run. A process that is started
	// with the id of one that has died continues its turns 5 s later; turns of other ids
	// are recovered when their leases have expired. Defaults to a new id. The environment
	// variable DBOS__VMID, if set, must have the same value, because DBOS would use it
	// instead; the same holds for DBOS__APPVERSION and AppVersion.
	ExecutorID string
	// AppVersion keeps processes of different versions from taking each other's workflows
	// from DBOS's queues. Defaults to a version that changes only when earlier workflows
	// cannot be continued.
	AppVersion string
	// Queue, if set, makes turns wait in a queue that all processes serve. All of them
	// must then know the same agents, and hooks cannot be given for one run. Without a
	// queue, a turn runs at once in the process that was asked for it.
	Queue *Queue
	// Retention is how long DBOS keeps the record of a turn that has ended. Defaults
	// to 7 days; a negative number keeps it forever.
	Retention time.Duration
}

// Queue limits how many turns run at the same time. Agents that a turn calls are
// part of it.
type Queue struct {
	// Concurrency is how many turns run at most in all processes, WorkerConcurrency
	// in each. 0 means no limit.
	Concurrency       int
	WorkerConcurrency int
	// RateLimit is how many turns begin at most within RatePeriod, in all processes.
	// 0 means no limit.
	RateLimit  int
	RatePeriod time.Duration
	// Poll is how often a process looks for turns that wait. Defaults to 100
	// milliseconds.
	Poll time.Duration
}

// workflowName is the name of the workflow of a turn in DBOS.
const workflowName = "turn"

// appVersion is the version of what workflows record, and in what order.
const appVersion = "2"

var prefixes = regexp.MustCompile(`^[a-z0-9_-]{3,64}$`)

// check sets defaults and validates the configuration.
func (c *Config) check() error {
	c.Schema = cmp.Or(c.Schema, "dbos")
	c.Prefix = cmp.Or(c.Prefix, "helix")
	c.ExecutorID = cmp.Or(c.ExecutorID, session.NewOwner(Name))
	c.AppVersion = cmp.Or(c.AppVersion, c.Prefix+"-"+appVersion) // unique in the schema
	c.Retention = cmp.Or(c.Retention, 7*24*time.Hour)
	c.CallTimeout = cmp.Or(c.CallTimeout, 15*time.Second)
	if c.Logger == nil {
		c.Logger = host.DefaultLogger()
	}
	switch {
	case c.DatabaseURL == "" && c.Pool == nil:
		return session.Invalid("DatabaseURL", "is not set, and neither is Pool")
	case c.DatabaseURL != "" && c.Pool != nil:
		return session.Invalid("Pool", "is set, and so is DatabaseURL; set one of them")
	case c.CallTimeout < 0:
		return session.Invalid("CallTimeout", "%s is negative", c.CallTimeout)
	case !prefixes.MatchString(c.Prefix):
		return session.Invalid("Prefix", "%q must have 3 to 64 lower-case letters, digits, dashes and underscores", c.Prefix)
	}
	if err := c.checkEnvironment(); err != nil || c.Queue == nil {
		return err
	}
	q := *c.Queue
	q.Poll = cmp.Or(q.Poll, 100*time.Millisecond)
	c.Queue = &q
	switch {
	case q.Concurrency < 0:
		return session.Invalid("Queue.Concurrency", "%d is negative", q.Concurrency)
	case q.WorkerConcurrency < 0 || (q.Concurrency > 0 && q.WorkerConcurrency > q.Concurrency):
		return session.Invalid("Queue.WorkerConcurrency", "%d is negative, or more than Queue.Concurrency %d", q.WorkerConcurrency, q.Concurrency)
	case q.RateLimit < 0:
		return session.Invalid("Queue.RateLimit", "%d is negative", q.RateLimit)
	case q.RateLimit > 0 && q.RatePeriod <= 0:
		return session.Invalid("Queue.RatePeriod", "%s must be positive when RateLimit is set", q.RatePeriod)
	case q.Poll < 0:
		return session.Invalid("Queue.Poll", "%s is negative", q.Poll)
	}
	return nil
}

// Runtime runs agents as workflows of DBOS. It implements [helix.Runtime].
type Runtime struct {
	helix.Executor // the default tenant's
	helix.Registry

	host   *host.Host
	driver *driver
}

// New starts a runtime. Stop it with Shutdown or Close.
func New(cfg Config) (_ *Runtime, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &driver{cfg: &cfg, silence: silence{log: cfg.Logger}, running: map[string]*execution{}}
	h, err := host.New(host.Config{RuntimeOptions: cfg.RuntimeOptions, Name: Name, WorkflowEngine: true, ReleaseOpened: cfg.Queue != nil}, d)
	if err != nil {
		return nil, err
	}
	d.host = h
	if d.dbos, err = connect(&cfg, &d.silence); err != nil {
		return nil, err
	}
	transact.RegisterWorkflow(d.dbos, d.turn, transact.WithWorkflowName(workflowName),
		transact.WithMaxRecoveryAttempts(-1)) // the engine decides when a run fails
	if err = d.listen(cfg.Queue); err == nil {
		err = transact.Launch(d.dbos)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start DBOS: %w", err), transact.Shutdown(d.dbos, shutdownPatience))
	}
	h.Start()
	if cfg.Retention > 0 {
		d.loops.Go(d.clean)
	}
	return &Runtime{Executor: h.Executor(), Registry: h, host: h, driver: d}, nil
}

// connectPatience is how long it may take to open DBOS's database, and to wait for another
// process that creates its tables.
const connectPatience = 2 * time.Minute

// connect opens DBOS's database and creates its tables, under a lock: DBOS does not expect
// two processes to create them at the same time.
func connect(cfg *Config, s *silence) (_ transact.Context, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectPatience)
	defer cancel()
	unlock, err := lockTables(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("wait for DBOS's tables: %w", err)
	}
	defer unlock()
	makePrivate(cfg.DatabaseURL)
	pool, err := openPool(ctx, cfg, s)
	if err != nil {
		return nil, fmt.Errorf("connect to DBOS's database: %w", err)
	}
	dbos, err := transact.NewContext(context.Background(), transact.Config{
		AppName: cfg.Prefix, DatabaseURL: cfg.DatabaseURL, SystemDBPool: pool, DatabaseSchema: cfg.Schema,
		ExecutorID: cfg.ExecutorID, ApplicationVersion: cfg.AppVersion, SystemDBStartupTimeout: connectPatience, Logger: cfg.Logger,
	})
	if err != nil {
		if pool != nil {
			pool.Close()
		}
		return nil, fmt.Errorf("open DBOS's database: %w", err)
	}
	s.setLimit(cfg.CallTimeout) // not before: to change tables may take long
	return dbos, nil
}

// lockTables waits until no other process creates DBOS's tables, or ctx ends. If the store
// fails in a way that may pass, it asks again: the owner of a lock may take it once more.
func lockTables(ctx context.Context, cfg *Config) (unlock func(), err error) {
	locks, owner := cfg.Backend.Locks(), session.NewOwner(Name)
	for failures := 0; ; {
		held, ours, err := locks.TryAcquire(ctx, "dbos/tables/"+cfg.Schema, owner, 2*connectPatience)
		if session.IsRetryable(err) && ctx.Err() == nil && failures < lockTries {
			failures++
		} else if err = cmp.Or(err, ctx.Err()); err != nil || ours {
			return func() { _ = locks.Release(context.WithoutCancel(ctx), held) }, err // or it expires
		}
		<-time.After(50 * time.Millisecond)
	}
}

// lockTries is how often a lock is asked for again after the store has failed.
const lockTries = 20

// Cleanup implements [helix.Runtime].
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// TaskStats implements [helix.Runtime].
func (r *Runtime) TaskStats() helix.TaskStats { return r.host.TaskStats() }

// shutdownPatience is how long each part of DBOS may take to stop.
const shutdownPatience = 10 * time.Second

// Shutdown implements [helix.Runtime].
func (r *Runtime) Shutdown(ctx context.Context) error {
	d := r.driver
	transact.ListenQueues(d.dbos, noQueue)
	err := r.host.Shutdown(ctx)
	d.silence.setLimit(min(d.cfg.CallTimeout, shutdownPatience/2)) // a connection to a server that has vanished takes that long to close
	if stopped := transact.Shutdown(d.dbos, shutdownPatience); stopped != nil {
		err = errors.Join(err, stopped)
	}
	d.loops.Wait()
	return err
}

// Close implements [helix.Runtime].
func (r *Runtime) Close() error { return host.CloseNow(r.Shutdown) }
