package helix

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/helixagents/helix/session"
)

// MaxExtensions is how many extensions an agent may have.
const MaxExtensions = 32

// Extension gives an agent abilities that are only known when a turn begins: the tools of
// a server, the skills of a directory, what is remembered of a user. It is safe for
// concurrent use, because the turns of many sessions use it at the same time.
//
// An extension may also implement [Required], [Preparer], [Preserver], [Stepper],
// [Finisher], [Gate], [ResultFilter], [Deleter], [TaskHandler], [ToolFinder] and
// [ToolLister]. Sub-agents have extensions of their own; they inherit none.
//
// All methods may read custom state and emit events through the [Scope] that they are
// given. What they write to the state is dropped. A panic counts as an error, and a method
// that does not return in time is left behind.
type Extension interface {
	// Name identifies the extension within its agent. It is part of the ids of messages and
	// tasks, so it must not change: a letter, then up to 63 letters, digits or _.-
	Name() string
	// Attach returns what the extension adds to a turn; nil is nothing. It is called once per run, by the
	// first effect that needs it, and again by a process that takes the run over. It has 10
	// seconds.
	//
	// Equal circumstances must give equal bytes, because a provider's prompt cache compares
	// them: sort what comes from a map.
	//
	// If it fails, the turn goes on without the extension: the log and a [WarningEvent] say
	// so. An extension that depends on something that may be away returns what it last knew,
	// with a warning. See [Required] for one without which no turn may run.
	Attach(ctx context.Context, turn *Turn) (*Attachment, error)
}

// Turn is the turn that an extension is asked about.
type Turn struct {
	Scope
	// Input is what the run began with, also if View no longer has it. It is empty if the run
	// continues without a new message.
	Input []session.Message
	// View is the conversation as the model is sent it, up to the last reply. The messages
	// must not be changed.
	View []session.Message
}

// Attachment is what an extension adds to a turn.
type Attachment struct {
	// Instructions follow those of the agent and of the extensions before, after an empty
	// line. They have at most 256 KiB.
	Instructions string
	// Tools follow those of the agent and of the extensions before; at most 256. An
	// attachment with a name that is taken is refused. If a tool has an Approver, the
	// extension must be a [ToolFinder], because answers arrive outside of turns.
	Tools []Tool
	// Warnings are logged and shown to the readers of the stream as a [WarningEvent] each;
	// at most 16 of 1 KiB.
	Warnings []string
}

// WarningEvent is the name of the custom event that shows the readers of the stream a
// [Warning].
const WarningEvent = "warning"

// Warning is a warning of an extension, or says that the extension is missing.
type Warning struct {
	Extension string `json:"extension"`
	Message   string `json:"message"`
}

// Required is implemented by an extension without which no turn may run: if Required
// reports true and Attach fails, the run fails. A retryable error is retried first, as
// often as that of a model.
type Required interface {
	Required() bool
}

// Preparer adds messages to the conversation before the first model call of a turn, for
// example what is remembered of the user. They are hidden user messages that follow the
// user's own and are stored together with the model's reply. If a process is lost before
// that, Prepare is called again, and may return others.
//
// Prepare is not called when a run only takes in answers, or continues a turn for which
// the extension has added messages. It is called once more in a turn after a summary has
// taken the place of the conversation's beginning (see [session.CompactionSummary]), before
// the next model call, because the messages that it added may be gone from the view. It has
// 2 seconds. At most 16 messages of text and files with together 256 KiB are accepted; a
// failure is logged, and the turn goes on without the messages.
type Preparer interface {
	Prepare(ctx context.Context, turn *Turn) ([]session.Message, error)
}

// Preserver says what must survive when the framework itself replaces the beginning of a
// conversation by a summary: the text follows the summary in what the model is sent instead
// of the dropped messages, and the tasks are stored by the commit that drops them. A later
// summary drops the text as well: the marker that has it is among the dropped messages, and
// [session.Message.Preserved] returns what all extensions kept in it.
//
// room is how many bytes the text may have: at most 128 KiB, and what the extensions before
// have left of a quarter of the size that triggers a compaction. It may be 0. More is cut in
// its middle. Preserve has 5 seconds; a failure is logged, and the compaction is made without
// the extension. It is called again if the commit was lost.
//
// Ids of tasks are those of [Stepper] with the number of messages in place of the step, and,
// between runs, with a name of its own in place of the run.
// Markers that an application adds with [session.AppendMessages] do not call it.
type Preserver interface {
	Preserve(ctx context.Context, turn *Turn, dropped []session.Message, room int) (text string, tasks []session.Task, err error)
}

// Stepper returns tasks that follow a step: they are stored by the commit that completes
// the step, together with its results.
//
// The engine fills in a task's tenant, agent, session and run, and puts the run, the step
// and the extension's name in front of the id. The id defaults to the kind, so a second
// task of a kind needs one. A task that is returned again because its commit was lost is
// stored once. AfterStep has 5 seconds; a failure is logged, and the step is committed
// without the tasks.
type Stepper interface {
	AfterStep(ctx context.Context, turn *Turn, step *Step) ([]session.Task, error)
}

// Finisher returns tasks that follow a run: they are stored by the commit that ends it,
// whatever the outcome and whoever ends it. A run that suspends ends as well; the one that
// resumes the session is another. Ids are those of [Stepper] without the step. Finish has
// 5 seconds; a failure is logged, and the run ends without the tasks.
type Finisher interface {
	Finish(ctx context.Context, turn *Turn, outcome *session.Outcome) ([]session.Task, error)
}

// Gate refuses calls. Check is called for each call when the model makes it, before a
// person is asked to approve it and before a client or another agent sees it. The model
// sees the error as the call's result. A gate that panics, or that does not answer within 5
// seconds, refuses the call.
type Gate interface {
	Check(ctx context.Context, call *Call) error
}

// ResultFilter replaces the results of calls before they are stored, and before large ones are
// evicted. The filters of an agent are called in their order, each with what the one before
// returned. A filter that fails, panics or does not answer within 10 seconds withholds the
// result: the call fails.
//
// Calls that the framework itself answers, because they were refused, stopped or lost, are
// not filtered, nor are answers of people to a step that is abandoned.
type ResultFilter interface {
	Filter(ctx context.Context, call *Call, result CallResult) (CallResult, error)
}

// CallResult is what a call led to: Output or, if the call failed, Error.
type CallResult struct {
	Output json.RawMessage
	Error  *Error
}

// Deleter returns tasks that clean up after a session that is about to be deleted. They
// are stored before the session is deleted and belong to no session: the engine fills in
// their tenant and agent, and puts the session's id, a name of the deletion and the
// extension's name in front of the id. Delete has 5 seconds.
//
// A task may be carried out although the session still exists: a deletion that has just
// stored its tasks may not have come further, or may have failed because the store could not
// be reached. So the handler reads the session first and returns an error if it exists, to
// be called again later. A deletion that is repeated has tasks of its own.
type Deleter interface {
	Delete(ctx context.Context, key session.Key) ([]session.Task, error)
}

// TaskHandler carries out tasks that extensions of the agent have returned, in any process
// that has the agent. A kind is handled by one extension of an agent. HandleTask may be
// called more than once for a task, and recognises that by the task's ID.
type TaskHandler interface {
	// TaskKinds returns the kinds of tasks that HandleTask carries out.
	TaskKinds() []string
	HandleTask(ctx context.Context, task *session.Task) error
}

// ToolFinder finds a tool of the extension outside of a turn: to decide who may answer a
// call that waits, and how a call is answered that was left open.
type ToolFinder interface {
	FindTool(ctx context.Context, name string) (*Tool, bool)
}

// ToolLister lists the tools of the extension outside of a turn, for those who ask which
// tools an agent has. There is no session and no caller: the context has no values, and what
// is listed is remembered for a while and shown to everybody who may see the agent.
type ToolLister interface {
	ListTools(ctx context.Context) []Tool
}

// checkExtensions checks the names of extensions and the kinds of tasks that they handle.
func (a *Agent) checkExtensions() error {
	if len(a.Extensions) > MaxExtensions {
		return a.invalid("Extensions", "are %d, at most %d are allowed", len(a.Extensions), MaxExtensions)
	}
	names, kinds := map[string]bool{}, map[string]string{}
	for i, x := range a.Extensions {
		if v := reflect.ValueOf(x); x == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return a.invalid("Extensions", "has a nil extension at index %d", i)
		}
		name := x.Name()
		switch {
		case !agentName.MatchString(name):
			return a.invalid("Extensions", "has an extension named %q; a name is a letter followed by up to 63 letters, digits or _.-", name)
		case names[name]:
			return a.invalid("Extensions", "contains %q twice", name)
		}
		names[name] = true
		handler, ok := x.(TaskHandler)
		if !ok {
			continue
		}
		for _, kind := range handler.TaskKinds() {
			if err := session.CheckKeyID("task kind", kind); err != nil {
				return a.invalid("extension "+name, "handles tasks of an invalid kind: %v", err)
			}
			if other, taken := kinds[kind]; taken {
				return a.invalid("Extensions", "%s and %s both handle tasks of the kind %q", other, name, kind)
			}
			kinds[kind] = name
		}
	}
	return nil
}
