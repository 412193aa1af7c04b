package session

import "slices"

// Activity is what a session is doing now, as a person would say it. It is derived
// from the session's status and that of its latest run, and never stored.
type Activity string

// The activities of a session.
const (
	// ActivityNew means that the session has not run yet: it was created or branched.
	ActivityNew Activity = "new"
	// ActivityRunning means that a run is in progress, or that a process lost or
	// released it and another one will take it over.
	ActivityRunning Activity = "running"
	// ActivityWaiting means that the session waits for people, for a sub-agent that
	// does, or to be resumed with the answers that it has received.
	ActivityWaiting Activity = "waiting"
	// ActivityStopped means that the session was interrupted or paused and can be
	// resumed.
	ActivityStopped Activity = "stopped"
	// ActivityFailed means that the session ended with an error, was aborted or has
	// expired.
	ActivityFailed Activity = "failed"
	// ActivityDone means that the latest turn has completed.
	ActivityDone Activity = "done"
)

// Activities lists every activity.
func Activities() []Activity {
	return []Activity{ActivityNew, ActivityRunning, ActivityWaiting, ActivityStopped, ActivityFailed, ActivityDone}
}

// Valid reports whether a is a known activity.
func (a Activity) Valid() bool { return slices.Contains(Activities(), a) }

// ActivityOf returns the activity of a session from its status and the status of
// its latest run; run is empty if the session has never run. Stores that select by
// activity repeat the rule in their own language; the store suite compares them
// with this function.
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
	case RunCompleted: // an operator has resumed a paused session
		return ActivityDone
	case RunFailed:
		return ActivityFailed
	case RunInterrupted:
		return ActivityStopped
	}
	return ActivityWaiting
}
