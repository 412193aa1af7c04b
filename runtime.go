package helix

import (
	"context"
	"log/slog"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/usage"
)

// Runtime is implemented by every runtime: runtime/local runs agents in this process,
// runtime/temporal and runtime/dbos run them as workflows.
type Runtime interface {
	Executor // of the default tenant
	Registry

	// Cleanup fails the expired sessions of a tenant or, if tenant is empty, of all tenants.
	// The runtime does this by itself for the agents that it knows; operators can call
	// Cleanup to do it now, for every agent.
	Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error)
	// TaskStats returns the counts of the tasks that this process has carried out.
	TaskStats() TaskStats
	// Shutdown stops the runtime. It accepts no new work and waits for running turns.
	// When ctx ends first, it hands the remaining turns over, as Close does, and returns
	// the context's error.
	Shutdown(ctx context.Context) error
	// Close stops the runtime without waiting. Running turns stop where they are and
	// release their leases; another process, or this one after a restart, continues them
	// from their last commit.
	Close() error
}

// RuntimeOptions are the settings that all runtimes share. Only Backend is required.
type RuntimeOptions struct {
	// Backend stores the sessions and their streams.
	Backend store.Backend
	// Agents are the agents whose sessions this process runs and recovers. An agent that
	// is executed for the first time is added to them.
	Agents []*Agent
	// Features are the abilities that this process has, such as asking people questions. It
	// leaves sessions alone whose runs require others; see [session.Run.Requires]. Defaults to
	// all that this version has; a test sets it to be an older one.
	Features []string
	// Hooks are called for every run, before the agent's own.
	Hooks *Hooks
	// Usage receives usage entries. Defaults to none.
	Usage usage.Sink
	// Observers receive the start and the end of each activity of this process.
	Observers []Observer
	// LeaseTTL is how long a session stays, at least, with a process that no longer renews
	// its lease, and for how long another process must have reached the store before it takes
	// the session over. Defaults to 5 seconds.
	LeaseTTL time.Duration
	// Heartbeat is how often leases are renewed. At most half of LeaseTTL; defaults to a
	// third of it.
	Heartbeat time.Duration
	// Sweep is about how often a process looks for expired deadlines and other work that is
	// due. Of the processes that share a backend and know the same agents, one handles it.
	// Runs whose process died are found sooner; see LeaseTTL. Defaults to 2 seconds.
	Sweep time.Duration
	// NoRecovery keeps this process from recovering orphaned runs. It still handles
	// deadlines, expired sessions and everything else that is due.
	NoRecovery bool
	// ModelRetries is how often a retryable model error is retried. Defaults to 3; a
	// negative number disables retries.
	ModelRetries int
	// RetryBackoff is the wait before the first retry; it doubles with each further one.
	// Defaults to 1 second.
	RetryBackoff time.Duration
	// MaxResult is the largest tool result in bytes, unless the agent evicts larger ones; see
	// [MaxEvicted]. Defaults to 1,000,000.
	MaxResult int
	// MaxArguments is how many bytes the arguments of all calls of a reply may have. The model is
	// told that a call with more is refused, and sees only the beginning of its arguments from
	// then on. Defaults to 1 MiB.
	MaxArguments int
	// MaxSession is the largest size of a session in bytes, messages, stream and blobs together.
	// A session that has reached it accepts no new message, and its run fails before the
	// next model call. Defaults to 64 MiB; a negative number disables the limit.
	MaxSession int64
	// MaxChunks is how many chunks a stream keeps. When a step is committed, the oldest
	// chunks beyond that number are removed; those of a step in progress stay, because a
	// client that reloads needs them. A reader that is behind gets the same error as after
	// stream.Manager.Trim. Defaults to 0, which keeps all.
	MaxChunks int64
	// Tasks says how this process carries out the tasks of extensions.
	Tasks TaskOptions
	// HookTimeout is how long each hook may take, and each function that belongs to the
	// definition of an agent: its factory, InstructionsFunc, ModelFunc, SettingsFunc, StopWhen,
	// and Approval and Approver of its tools. Its context ends then, and a little later the
	// runtime goes on without it: what a hook was to be told is over, and what it was to decide
	// is refused. Defaults to 30 seconds.
	HookTimeout time.Duration
	// RemotePatience is how long a remote agent may be unreachable before the call that
	// waits for it fails. Defaults to 2 minutes.
	RemotePatience time.Duration
	// Logger receives the runtime's log, which has one ERROR line for each failed run.
	// Defaults to [slog.Default], for errors only.
	Logger *slog.Logger
}
