package session

import "slices"

// Activity is what a session is doing now, as a person would say it. It is derived
// from the session's status and that of its latest run, and never stored.
type Activity string

// The activities of a session.
const (
	// ActivityNew has not run yet: it was created or branched, and has its first turn
	// before it.
	ActivityNew Activity = "new"
	// ActivityRunning has a run in progress, or one that a process left and another
	// takes over.
	ActivityRunning Activity = "running"
	// ActivityWaiting waits for people, or for an agent below it that does, or to be
	// resumed with the answers that it has got.
	ActivityWaiting Activity = "waiting"
	// ActivityStopped was interrupted or paused, and can be resumed.
	ActivityStopped Activity = "stopped"
	// ActivityFailed ended with an error, was aborted or has expired.
	ActivityFailed Activity = "failed"
	// ActivityDone has completed its latest turn.
	ActivityDone Activity = "done"
)

// Activities lists every activity.
func Activities() []Activity {
	return []Activity{ActivityNew, ActivityRunning, ActivityWaiting, ActivityStopped, ActivityFailed, ActivityDone}
}

// Valid reports whether a is a known activity.
func (a Activity) Valid() bool { return slices.Contains(Activities(), a) }

// ActivityOf is the activity of a session with a status whose latest run has the
// status run, which is empty if there was none. Stores that select by it repeat the
// rule in their own language; the store suite compares them with this function.
func ActivityOf(status Status, run RunStatus) Activity {
	switch status {
	case Completed:
		return ActivityDone
	case Failed:
		return ActivityFailed
	case Active:
	default:
		return ActivityStopped
	}
	switch run {
	case "":
		return ActivityNew
	case RunRunning:
		return ActivityRunning
	case RunCompleted: // an operator has let a paused session go on
		return ActivityDone
	case RunFailed:
		return ActivityFailed
	case RunInterrupted:
		return ActivityStopped
	}
	return ActivityWaiting
}
