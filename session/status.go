package session

import (
	"slices"
)

// Status is a session's state of life.
type Status string

// The statuses of a session. One that waits for a person stays active; what it
// waits for is told by [State.Suspension].
const (
	Active      Status = "active"
	Completed   Status = "completed"
	Failed      Status = "failed"
	Interrupted Status = "interrupted"
	// Paused is held by an operator: nothing runs, sweeps or recovers it until it
	// is resumed.
	Paused Status = "paused"
)

// transitions is the whole table; a status may always be written over itself.
var transitions = map[Status][]Status{
	Active:      {Completed, Failed, Interrupted, Paused},
	Completed:   {Active, Failed, Paused},
	Failed:      {Active, Paused},
	Interrupted: {Active, Failed, Paused},
	Paused:      {Active, Failed, Interrupted},
}

// Statuses lists every session status, in the order of the table.
func Statuses() []Status { return []Status{Active, Completed, Failed, Interrupted, Paused} }

// Valid reports whether s is a known status.
func (s Status) Valid() bool { _, ok := transitions[s]; return ok }

// CanBecome reports whether a session may go from s to next.
func (s Status) CanBecome(next Status) bool {
	return s.Valid() && next.Valid() && (s == next || slices.Contains(transitions[s], next))
}

// Transition refuses a change of status that the table does not hold.
func Transition(from, to Status) error {
	if from.CanBecome(to) {
		return nil
	}
	return ErrTransition.WithMessage("a session cannot go from %q to %q", from, to)
}

// RunStatus is the state of one run.
type RunStatus string

// The statuses of a run. All but running are final: resuming starts a new run.
const (
	RunRunning     RunStatus = "running"
	RunCompleted   RunStatus = "completed"
	RunFailed      RunStatus = "failed"
	RunInterrupted RunStatus = "interrupted"
	// RunSuspendedClientTool waits only for its own calls.
	RunSuspendedClientTool RunStatus = "suspended_client_tool"
	// RunSuspendedChildren waits only for sub-agents.
	RunSuspendedChildren RunStatus = "suspended_awaiting_children"
	// RunSuspendedPartial waits for a mixture, or with finished results kept.
	RunSuspendedPartial RunStatus = "suspended_step_partial"
)

// RunStatuses lists every run status.
func RunStatuses() []RunStatus {
	return []RunStatus{
		RunRunning, RunCompleted, RunFailed, RunInterrupted,
		RunSuspendedClientTool, RunSuspendedChildren, RunSuspendedPartial,
	}
}

// Valid reports whether s is a known run status.
func (s RunStatus) Valid() bool { return slices.Contains(RunStatuses(), s) }

// Ended reports whether the run is over.
func (s RunStatus) Ended() bool { return s.Valid() && s != RunRunning }

// Suspended reports whether the run ended waiting for somebody.
func (s RunStatus) Suspended() bool {
	return s == RunSuspendedClientTool || s == RunSuspendedChildren || s == RunSuspendedPartial
}

// CanBecome reports whether a run may go from s to next.
func (s RunStatus) CanBecome(next RunStatus) bool {
	return s == next || (s == RunRunning && next.Valid())
}

// SessionStatus is the status of the session after a run that ended with s.
func (s RunStatus) SessionStatus() Status {
	switch s {
	case RunCompleted:
		return Completed
	case RunFailed:
		return Failed
	case RunInterrupted:
		return Interrupted
	}
	return Active
}

// SuspensionStatus is the run status of a turn that waits: for own calls, for
// children, or both, with or without finished results of the same step kept.
func SuspensionStatus(ownCalls, children, keptResults bool) RunStatus {
	switch {
	case ownCalls && !children && !keptResults:
		return RunSuspendedClientTool
	case children && !ownCalls && !keptResults:
		return RunSuspendedChildren
	}
	return RunSuspendedPartial
}

// Reasons for which a session was failed from outside of its own runs.
const (
	// FailureParentSuspended is a sub-agent that was given up because its parent
	// suspended: it is started again when the parent goes on.
	FailureParentSuspended = "parent_suspended"
	// FailureExpired is a session whose ExpiresAt passed.
	FailureExpired = "session_expired"
	// FailureAbandoned is a sub-agent whose parent goes on without it.
	FailureAbandoned = "abandoned"
)
