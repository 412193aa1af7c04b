package session

import (
	"slices"
)

// Status is the status of a session.
type Status string

// The statuses of a session. A session that waits for a person stays active;
// [State.Suspension] returns what it waits for.
const (
	Active      Status = "active"
	Completed   Status = "completed"
	Failed      Status = "failed"
	Interrupted Status = "interrupted"
	// Paused means that an operator holds the session: nothing runs, sweeps or
	// recovers it until it is resumed.
	Paused Status = "paused"
)

// transitions is the complete table. A status may always be replaced by itself.
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

// CanBecome reports whether a session may change from s to next.
func (s Status) CanBecome(next Status) bool {
	return s.Valid() && next.Valid() && (s == next || slices.Contains(transitions[s], next))
}

// Transition returns an error if the table does not allow the change of status.
func Transition(from, to Status) error {
	if from.CanBecome(to) {
		return nil
	}
	return ErrTransition.WithMessage("a session cannot change from %q to %q", from, to)
}

// RunStatus is the state of one run.
type RunStatus string

// The statuses of a run. All but running are final: a resume starts a new run.
const (
	RunRunning     RunStatus = "running"
	RunCompleted   RunStatus = "completed"
	RunFailed      RunStatus = "failed"
	RunInterrupted RunStatus = "interrupted"
	// RunSuspendedClientTool means that the run waits only for its own calls.
	RunSuspendedClientTool RunStatus = "suspended_client_tool"
	// RunSuspendedChildren means that the run waits only for sub-agents.
	RunSuspendedChildren RunStatus = "suspended_awaiting_children"
	// RunSuspendedPartial means that the run waits for both, or that results of the
	// same step are already kept.
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

// Ended reports whether the run has ended.
func (s RunStatus) Ended() bool { return s.Valid() && s != RunRunning }

// Suspended reports whether the run ended in order to wait.
func (s RunStatus) Suspended() bool {
	return s == RunSuspendedClientTool || s == RunSuspendedChildren || s == RunSuspendedPartial
}

// CanBecome reports whether a run may change from s to next.
func (s RunStatus) CanBecome(next RunStatus) bool {
	return s == next || (s == RunRunning && next.Valid())
}

// SessionStatus returns the session's status after a run that ended with s.
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

// SuspensionStatus returns the run status of a turn that waits for its own calls,
// for children or for both; keptResults says whether finished results of the same
// step are kept.
func SuspensionStatus(ownCalls, children, keptResults bool) RunStatus {
	switch {
	case ownCalls && !children && !keptResults:
		return RunSuspendedClientTool
	case children && !ownCalls && !keptResults:
		return RunSuspendedChildren
	}
	return RunSuspendedPartial
}

// Reasons for which a session was failed from outside its own runs.
const (
	// FailureParentSuspended marks a sub-agent that was discarded because its parent
	// suspended. It is started again when the parent resumes.
	FailureParentSuspended = "parent_suspended"
	// FailureExpired marks a session whose ExpiresAt has passed.
	FailureExpired = "session_expired"
	// FailureAbandoned marks a sub-agent whose parent continues without it.
	FailureAbandoned = "abandoned"
)
