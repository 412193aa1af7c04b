package helix

import "time"

// TaskOptions are the settings with which a process carries out tasks: the work that
// extensions have follow a commit, see [Finisher] and [TaskHandler]. The zero value is
// usable.
type TaskOptions struct {
	// Workers is how many tasks this process carries out at the same time. There is one worker
	// more for a tenant that has none, so that slow tasks of one tenant do not hold up those
	// of the others. Defaults to 4; a negative number leaves all tasks to other processes.
	Workers int
	// Poll is about how often this process looks for tasks that are due. It finds those that
	// it has stored itself at once. Defaults to 2 seconds.
	Poll time.Duration
	// Hold is how long a task stays with a process that no longer works on it. Defaults to
	// 30 seconds.
	Hold time.Duration
	// Limit is how long a handler may take. Defaults to 10 minutes.
	Limit time.Duration
	// Backoff is the wait after the first attempt that failed; it doubles with each further
	// one, up to MaxBackoff. They default to 5 seconds and 1 hour.
	Backoff    time.Duration
	MaxBackoff time.Duration
	// MaxAttempts is how often a task is tried before it is given up. Defaults to 20.
	MaxAttempts int
	// KeepGivenUp is how long tasks that were given up are kept, so that an operator can see
	// and retry them. Defaults to 30 days.
	KeepGivenUp time.Duration
	// Abandon is after how long a task is given up that no process can carry out, because
	// its agent or the agent's extension no longer exists. Defaults to 7 days.
	Abandon time.Duration
	// TrimStreams is how long the chunks of a session's stream are kept after a run has
	// ended; then a task removes them, unless the session runs or waits. A client that opens
	// the session later is shown its messages. Defaults to 0, which keeps them.
	TrimStreams time.Duration
	// CleanCalls is how old rows of calls must be that no step will use any more, because
	// their run was ended from outside. A task removes them, once a day for each tenant
	// whose sessions run here. Defaults to 0, which keeps them.
	CleanCalls time.Duration
	// Grace is how long Shutdown leaves running handlers alone after its context has ended.
	// Then they are cancelled, and their tasks handed back. Defaults to 5 seconds; Close
	// gives none.
	Grace time.Duration
}

// TaskStats counts the tasks of one process.
type TaskStats struct {
	// Running is how many handlers run now.
	Running int64
	// Done, Failed, GivenUp and Returned count attempts by their outcome.
	Done, Failed, GivenUp, Returned int64
}
