package helix

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// Observer receives the start and the end of each activity of a runtime, for traces and
// metrics. It is safe for concurrent use and must not block. A panic is logged and changes
// nothing.
//
// See [RuntimeOptions.Observers].
type Observer interface {
	// Begin is called when an activity begins. The activity gets the context that Begin
	// returns, which must be ctx or derived from it, so that what a model, a tool or a hook
	// begins with it belongs to the activity. The function that Begin returns, if any, is
	// called once, when this process is done with the activity.
	Begin(ctx context.Context, activity *Activity) (context.Context, func(*Ending))
}

// ActivityKind is the kind of an activity.
type ActivityKind string

// The kinds of activities.
const (
	// ActivityRun is a run while this process works on it. Another process that takes it
	// over reports it again, under the same ID and with the same times.
	ActivityRun ActivityKind = "run"
	// ActivityModel is one attempt of a model call.
	ActivityModel ActivityKind = "model"
	// ActivityTool is one call of a tool that runs here.
	ActivityTool ActivityKind = "tool"
	// ActivitySubAgent is one call of a sub-agent or a companion, while this process
	// works on it.
	ActivitySubAgent ActivityKind = "subagent"
	// ActivityPrepare is one call of a [Preparer], whose name the activity has.
	ActivityPrepare ActivityKind = "prepare"
	// ActivityCompaction is one compaction of the conversation, with the summary's model call
	// if there is one. Its name is the kind of the compaction.
	ActivityCompaction ActivityKind = "compaction"
	// ActivityTask is one attempt to carry out a task, whose kind the activity has as its name.
	ActivityTask ActivityKind = "task"
	// ActivityCommit is one write that advances the session.
	ActivityCommit ActivityKind = "commit"
	// ActivityTakeover is the takeover of a run whose process was lost.
	ActivityTakeover ActivityKind = "takeover"
)

// Activity is something that a runtime does for a run.
type Activity struct {
	Kind ActivityKind
	// ID is derived from what is done. An activity that is repeated by the process that takes
	// the run over has another ID, except the run itself.
	ID string
	// Scope identifies the run. Its Emit and RecordUsage do nothing.
	Scope
	// Name is the name of the agent, the tool or the effect.
	Name string
	// CallID is the call that the activity carries out.
	CallID string
	// Attempt counts the attempts of a model call or a task, and the takeovers of a run without
	// progress.
	Attempt int
	// Epoch is that of the lease under which the process works on the run.
	Epoch int64
	Began time.Time
}

// Ending is how an activity ended.
type Ending struct {
	Ended time.Time
	// Error is why it failed.
	Error *Error
	// Lost says that this process no longer works on it: another process may repeat it or
	// report its end.
	Lost bool
	// Waits says that the call waits for a person, because its tool asked a question or its
	// sub-agent waits: it is reported again when it continues.
	Waits bool
	// Status is how a run ended.
	Status session.RunStatus
	// Model is the model that replied to a model call, or wrote a summary, as it names itself.
	Model string
	// Usage is what a model call, a compaction or a run has consumed.
	Usage session.Usage
}
