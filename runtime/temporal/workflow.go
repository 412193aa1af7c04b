package temporal

import (
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/host"
)

// Names of the workflow, its activities and its signal on the server. Workflows in flight
// have recorded them.
const (
	workflowName      = "helix.turn"
	effectActivity    = "helix.effect"
	openChildActivity = "helix.openChild"
	takeOverActivity  = "helix.take"
	renewActivity     = "helix.look"
	cancelActivity    = "helix.cancel"
	stopSignal        = "helix.stop"
)

// input is the input of a workflow. It has ids and small values only.
type input struct {
	host.Start
	// Queue is the task queue of the process that holds the turn; empty if a process has
	// to take the turn over first.
	Queue string `json:"queue,omitempty"`
	// Child is set if another workflow waits for this one.
	Child    bool     `json:"child,omitempty"`
	Settings settings `json:"settings"`
	// Machine and Wave are the state of a workflow that continues as a new one because its
	// history became too long.
	Machine *machine.Machine `json:"machine,omitempty"`
	Wave    []machine.Effect `json:"wave,omitempty"`
}

// id returns the id of the workflow.
func (in *input) id() string { return in.WorkflowID(in.Settings.Prefix) }

// otherID returns the id of the workflow if another session's workflow has the first.
func (in *input) otherID() string { return in.id() + "__" + in.RunID }

// settings are the settings of the process that started the workflow, so that the workflow
// is replayed with the settings that it started with.
type settings struct {
	TaskQueue  string        `json:"taskQueue"`
	Prefix     string        `json:"prefix"`
	Silence    time.Duration `json:"silence"` // after which a process is taken for dead
	MaxHistory int           `json:"maxHistory,omitempty"`
}

// taskTimeout returns how long a process may take for a workflow task.
func (s *settings) taskTimeout() time.Duration { return min(s.Silence, 10*time.Second) }

// takeOverSilence returns how long a process may be silent that was asked to take a turn over.
// One that is stopped, and keeps its connections, is asked once for each of its polls, and the
// turn waits for so long each time. If one that is only slow is given up, another is asked, and
// judges by the same rule.
func (s *settings) takeOverSilence() time.Duration { return min(s.Silence, 6*time.Second) }

// takeover is the result of a takeover: Queue is the task queue of the process that now
// holds the turn.
type takeover struct {
	host.Takeover
	Queue string `json:"queue"`
}

// ended is the result of a workflow.
type ended struct {
	machine.Outcome
	// NotHeld is set if no process holds the turn of a child: the turn that waits for it
	// has to be taken over.
	NotHeld bool `json:"left,omitempty"`
	// Released is set if the process that held the turn has reported that it does not any
	// more.
	Released bool `json:"byItself,omitempty"`
}

// turn is a workflow that runs.
type turn struct {
	input
	sent       int    // effects so far; makes the activity ids of repeated effects differ
	losses     int    // how often the turn was lost since its last wave
	lastHolder string // the task queue of the process that held the turn before
	released   bool   // lastHolder has reported that it does not hold the turn any more
}

// turnWorkflow drives one turn.
func turnWorkflow(ctx workflow.Context, in input) (ended, error) {
	t := &turn{input: in}
	// The workflow waits for effects in flight also when it is cancelled: a cancellation
	// becomes a stop request in the store.
	cancelled := ctx
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	workflow.Go(ctx, t.listen)
	workflow.Go(ctx, func(ctx workflow.Context) { t.watch(ctx, cancelled) })
	m, wave := in.Machine, in.Wave
	if m == nil && in.Position != nil {
		m, wave = machine.New(in.Key(), in.RunID, *in.Position)
	}
	for {
		if t.Queue == "" {
			if t.long(ctx) {
				in.Queue, in.Position, in.Machine, in.Wave = "", nil, nil, nil
				return ended{}, workflow.NewContinueAsNewError(ctx, workflowName, in)
			}
			taken, err := t.takeOver(ctx)
			if err != nil {
				return ended{}, err
			}
			if taken.End != nil {
				return ended{Outcome: *taken.End}, nil
			}
			m, wave = machine.New(in.Key(), in.RunID, *taken.Position)
		}
		results, done := t.run(ctx, wave)
		if !done {
			t.lastHolder, t.Queue = t.Queue, ""
			if in.Child {
				return ended{NotHeld: true, Released: t.released}, nil
			}
			continue
		}
		t.losses = 0
		next, end := m.Next(results)
		if end != nil {
			return ended{Outcome: *end}, nil
		}
		wave = next
		if t.long(ctx) {
			in.Queue, in.Machine, in.Wave = t.Queue, m, wave
			return ended{}, workflow.NewContinueAsNewError(ctx, workflowName, in)
		}
	}
}

// long reports whether the workflow's history is so long that it should continue as a new
// workflow.
func (t *turn) long(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	if t.Settings.MaxHistory > 0 {
		return info.GetCurrentHistoryLength() > t.Settings.MaxHistory
	}
	return info.GetContinueAsNewSuggested()
}

// listen has the process that holds the turn read the stop request when a signal
// announces one.
func (t *turn) listen(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, stopSignal)
	for signals.Receive(ctx, nil) {
		if t.Queue != "" {
			// If that process has died, the one that takes the turn over reads the request.
			_ = workflow.ExecuteActivity(t.onHolder(ctx, ""), renewActivity, t.RunID).Get(ctx, nil)
		}
	}
}

// watch turns a cancellation on the server into a stop request.
func (t *turn) watch(ctx, cancelled workflow.Context) {
	cancelled.Done().Receive(ctx, nil)
	if err := workflow.ExecuteActivity(t.onAnyProcess(ctx), cancelActivity, t.Start).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("run.not_stopped", "run", t.RunID, "error", err)
	}
}

// takeOver has a process take the turn over.
func (t *turn) takeOver(ctx workflow.Context) (host.Takeover, error) {
	if t.losses > 0 {
		if err := workflow.Sleep(ctx, min(50*time.Millisecond<<min(t.losses, 10), 30*time.Second)); err != nil {
			return host.Takeover{}, err
		}
	}
	t.losses++
	var by takeover
	if t.lastHolder != "" && !t.released && t.losses == 1 {
		// The process may still be alive, and only the server have been unreachable. Then its
		// effects in flight are not lost.
		if workflow.ExecuteActivity(t.onLastHolder(ctx), takeOverActivity, t.Start).Get(ctx, &by) == nil {
			t.Queue = by.Queue
			return by.Takeover, nil
		}
	}
	t.released = false
	err := workflow.ExecuteActivity(t.onAnyProcess(ctx), takeOverActivity, t.Start).Get(ctx, &by)
	t.Queue = by.Queue
	return by.Takeover, err
}

// run carries out a wave, all its effects at the same time. It reports false if one could
// not be carried out, because no process holds the turn.
func (t *turn) run(ctx workflow.Context, wave []machine.Effect) ([]machine.Result, bool) {
	results := make([]machine.Result, len(wave))
	if len(wave) == 1 {
		result, done := t.do(ctx, wave[0])
		results[0] = result
		return results, done
	}
	all := true
	wg := workflow.NewWaitGroup(ctx)
	for i, effect := range wave {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			result, done := t.do(ctx, effect)
			results[i] = result
			all = all && done
		})
	}
	wg.Wait(ctx)
	return results, all
}

// do carries out one effect. If the effect calls another agent, do runs that agent's
// workflow first.
func (t *turn) do(ctx workflow.Context, effect machine.Effect) (machine.Result, bool) {
	if effect.Kind == machine.CallChild {
		opened, done := t.call(ctx, openChildActivity, "/open", effect)
		if !done || (opened.Child != nil && !t.child(ctx, opened.Child)) {
			return machine.Result{}, false
		}
	}
	result, done := t.call(ctx, effectActivity, "", effect)
	return result.Result, done
}

// call runs an activity on the process that holds the turn. It reports false if that
// process has died or does not hold the turn any more.
func (t *turn) call(ctx workflow.Context, activity, part string, effect machine.Effect) (host.EffectResult, bool) {
	t.sent++
	id := effect.Key() + part + "#" + strconv.Itoa(t.sent)
	var result host.EffectResult
	err := workflow.ExecuteActivity(t.onHolder(ctx, id), activity, effect).Get(ctx, &result)
	if err != nil {
		workflow.GetLogger(ctx).Warn("effect.not_carried_out", "effect", id, "error", err)
	}
	t.released = t.released || result.NotHeld
	return result, err == nil && !result.NotHeld
}

// child starts the workflow of another agent's turn, and waits for its end unless the
// agent is detached. It reports false if no process holds the turn any more.
func (t *turn) child(ctx workflow.Context, start *host.Start) bool {
	in := input{Start: *start, Queue: t.Queue, Child: !start.Detached, Settings: t.Settings}
	// The other id is for the case that another session's workflow has the first.
	for _, id := range []string{in.id(), in.otherID()} {
		end, err := t.childUnder(ctx, id, &in)
		switch {
		case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		case start.Detached:
			if err != nil {
				workflow.GetLogger(ctx).Warn("companion.not_started", "workflow", id, "error", err)
			}
			return true
		default:
			if err != nil {
				workflow.GetLogger(ctx).Warn("subagent.workflow_failed", "workflow", id, "error", err)
			}
			t.released = t.released || end.Released
			return err == nil && !end.NotHeld
		}
	}
	return start.Detached
}

func (t *turn) childUnder(ctx workflow.Context, id string, in *input) (end ended, err error) {
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: t.Settings.TaskQueue, WorkflowTaskTimeout: t.Settings.taskTimeout(),
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		// The child is not terminated with this workflow: that would leave its session open.
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		Memo:              map[string]any{memoRun: in.RunID},
	}), workflowName, *in)
	if in.Detached {
		return end, future.GetChildWorkflowExecution().Get(ctx, nil)
	}
	err = future.Get(ctx, &end)
	return end, err
}

// effectTimeout is long, because tools and models have limits of their own, and missing
// heartbeats show that a process has died.
const effectTimeout = 30 * 24 * time.Hour

// onHolder returns a context for activities on the process that holds the turn. They are
// tried once, because no other process can carry them out.
func (t *turn) onHolder(ctx workflow.Context, id string) workflow.Context {
	return t.at(ctx, t.Queue, id, t.Settings.Silence, t.Settings.Silence)
}

// onLastHolder returns a context for activities on the process that held the turn before.
func (t *turn) onLastHolder(ctx workflow.Context) workflow.Context {
	return t.at(ctx, t.lastHolder, "", min(t.Settings.Silence, 2*time.Second), t.Settings.takeOverSilence())
}

// at returns a context for activities on the process of a task queue, which has to start
// them within the time begin, and is then not to be silent for longer than silence.
func (t *turn) at(ctx workflow.Context, queue, id string, begin, silence time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID: id, TaskQueue: queue, ScheduleToStartTimeout: begin, StartToCloseTimeout: effectTimeout,
		HeartbeatTimeout: silence, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// onAnyProcess returns a context for activities on any process of the deployment. They are
// tried until one succeeds.
func (t *turn) onAnyProcess(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: t.Settings.TaskQueue, StartToCloseTimeout: time.Hour, HeartbeatTimeout: t.Settings.takeOverSilence(),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
}
