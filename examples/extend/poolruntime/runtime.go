package poolruntime

import (
	"context"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// Name is the name of the runtime. Runs record it, and only a runtime of the same name
// recovers them.
const Name = "pool"

// Config configures a [Runtime]. Only Backend is required.
type Config struct {
	helix.RuntimeOptions
	// Workers is how many effects are carried out at the same time. A worker is busy
	// for as long as a model or a tool takes, but not while a turn waits for another
	// agent. Defaults to 64.
	Workers int
}

// Runtime runs agents in this process, on a pool of workers. It implements
// [helix.Runtime].
type Runtime struct {
	helix.Executor // of the default tenant
	helix.Registry

	host *host.Host
	pool *pool
}

var _ helix.Runtime = (*Runtime)(nil)

// New starts a runtime. Stop it with Shutdown or Close.
func New(config Config) (*Runtime, error) {
	if config.Workers <= 0 {
		config.Workers = 64
	}
	d := &driver{}
	h, err := host.New(host.Config{RuntimeOptions: config.RuntimeOptions, Name: Name}, d)
	if err != nil {
		return nil, err
	}
	d.host, d.pool = h, newPool(config.Workers)
	h.Start()
	return &Runtime{Executor: h.Executor(), Registry: h, host: h, pool: d.pool}, nil
}

// Cleanup implements [helix.Runtime].
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// TaskStats implements [helix.Runtime].
func (r *Runtime) TaskStats() helix.TaskStats { return r.host.TaskStats() }

// Shutdown implements [helix.Runtime]. The host waits for the turns, or hands them
// over, so the workers have nothing left to do afterwards.
func (r *Runtime) Shutdown(ctx context.Context) error {
	err := r.host.Shutdown(ctx)
	r.pool.close()
	return err
}

// Close implements [helix.Runtime].
func (r *Runtime) Close() error { return host.CloseNow(r.Shutdown) }
