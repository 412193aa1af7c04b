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

// The names under which the server knows what is ours.
const (
	workflowName      = "helix.turn"
	effectActivity    = "helix.effect"
	openChildActivity = "helix.openChild"
	takeActivity      = "helix.take"
	lookActivity      = "helix.look"
	cancelActivity    = "helix.cancel"
	stopSignal        = "helix.stop"
)

// input is what a workflow is started with. It has no content, only ids and small
// values.
type input struct {
	host.Start
	// Queue is that of the process which holds the turn; empty if it has to be taken
	// over first.
	Queue string `json:"queue,omitempty"`
	// Child is set if another workflow waits for this one.
	Child    bool     `json:"child,omitempty"`
	Settings settings `json:"settings"`
	// Machine and Wave are where a workflow goes on that has become too long.
	Machine *machine.Machine `json:"machine,omitempty"`
	Wave    []machine.Effect `json:"wave,omitempty"`
}

// id is the workflow's.
func (in *input) id() string { return in.WorkflowID(in.Settings.Prefix) }

// otherID is the workflow's if another session's has its id.
func (in *input) otherID() string { return in.id() + "__" + in.RunID }

// settings are those of the process that started the workflow, so that a workflow is
// replayed with the settings that it began with.
type settings struct {
	TaskQueue  string        `json:"taskQueue"`
	Prefix     string        `json:"prefix"`
	Silence    time.Duration `json:"silence"` // after which a process is given up
	MaxHistory int           `json:"maxHistory,omitempty"`
}

// taskTimeout is how long a process may take over a workflow's next decision.
func (s *settings) taskTimeout() time.Duration { return min(s.Silence, 10*time.Second) }

// taken is the answer of a process that has taken a turn over.
type taken struct {
	host.Standing
	Queue string `json:"queue"`
}

// ended is what a workflow comes to.
type ended struct {
	machine.Outcome
	// Left is set when an agent that works for another is not held by any process: the
	// turn that waits for it has to be taken over.
	Left bool `json:"left,omitempty"`
	// ByItself is set when the process has said so that held it.
	ByItself bool `json:"byItself,omitempty"`
}

// turn is a workflow at work.
type turn struct {
	input
	sent int    // effects, to tell one that is sent again from the first
	lost int    // how often the turn was lost since it got on
	last string // the queue of the process that held it before
	left bool   // by that process itself
}

// turnWorkflow drives one turn.
func turnWorkflow(ctx workflow.Context, in input) (ended, error) {
	t := &turn{input: in}
	// What is under way is waited for, whatever happens to the workflow: a stop goes
	// through the store.
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
			standing, err := t.takeOver(ctx)
			if err != nil {
				return ended{}, err
			}
			if standing.End != nil {
				return ended{Outcome: *standing.End}, nil
			}
			m, wave = machine.New(in.Key(), in.RunID, *standing.Position)
		}
		results, done := t.run(ctx, wave)
		if !done {
			t.last, t.Queue = t.Queue, ""
			if in.Child {
				return ended{Left: true, ByItself: t.left}, nil
			}
			continue
		}
		t.lost = 0
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

// long reports whether the workflow's history has grown so much that it had better
// go on as a new one.
func (t *turn) long(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	if t.Settings.MaxHistory > 0 {
		return info.GetCurrentHistoryLength() > t.Settings.MaxHistory
	}
	return info.GetContinueAsNewSuggested()
}

// listen has the process that holds the turn look for a stop whenever somebody
// requested one.
func (t *turn) listen(ctx workflow.Context) {
	signals := workflow.GetSignalChannel(ctx, stopSignal)
	for signals.Receive(ctx, nil) {
		if t.Queue != "" {
			// If nobody is there, whoever takes the turn over sees the stop.
			_ = workflow.ExecuteActivity(t.there(ctx, ""), lookActivity, t.RunID).Get(ctx, nil)
		}
	}
}

// watch makes a stop of a cancellation that comes from the server.
func (t *turn) watch(ctx, cancelled workflow.Context) {
	cancelled.Done().Receive(ctx, nil)
	if err := workflow.ExecuteActivity(t.anywhere(ctx), cancelActivity, t.Start).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("run not stopped", "run", t.RunID, "error", err)
	}
}

// takeOver has some process take the turn over.
func (t *turn) takeOver(ctx workflow.Context) (host.Standing, error) {
	if t.lost > 0 {
		if err := workflow.Sleep(ctx, min(50*time.Millisecond<<min(t.lost, 10), 30*time.Second)); err != nil {
			return host.Standing{}, err
		}
	}
	t.lost++
	var by taken
	if t.last != "" && !t.left && t.lost == 1 {
		// It may be there after all, and only the server have been away. Then nothing that
		// is under way there is cut off.
		if workflow.ExecuteActivity(t.stillThere(ctx), takeActivity, t.Start).Get(ctx, &by) == nil {
			t.Queue = by.Queue
			return by.Standing, nil
		}
	}
	t.left = false
	err := workflow.ExecuteActivity(t.anywhere(ctx), takeActivity, t.Start).Get(ctx, &by)
	t.Queue = by.Queue
	return by.Standing, err
}

// run has all effects of a wave carried out at the same time. It reports false if one
// was not, because the process that holds the turn is gone.
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

// do has one effect carried out. That of a call of another agent includes the
// agent's workflow.
func (t *turn) do(ctx workflow.Context, effect machine.Effect) (machine.Result, bool) {
	if effect.Kind == machine.CallChild {
		answer, done := t.ask(ctx, openChildActivity, "/open", effect)
		if !done || (answer.Child != nil && !t.child(ctx, answer.Child)) {
			return machine.Result{}, false
		}
	}
	answer, done := t.ask(ctx, effectActivity, "", effect)
	return answer.Result, done
}

// ask asks the process that holds the turn.
func (t *turn) ask(ctx workflow.Context, activity, part string, effect machine.Effect) (host.Answer, bool) {
	t.sent++
	id := effect.Key() + part + "#" + strconv.Itoa(t.sent)
	var answer host.Answer
	err := workflow.ExecuteActivity(t.there(ctx, id), activity, effect).Get(ctx, &answer)
	if err != nil {
		workflow.GetLogger(ctx).Warn("effect not carried out, the turn has to be taken over", "effect", id, "error", err)
	}
	t.left = t.left || answer.Left
	return answer, err == nil && !answer.Left
}

// child has the turn of another agent driven by a workflow of its own, and waits for
// its end unless it works by itself.
func (t *turn) child(ctx workflow.Context, start *host.Start) bool {
	in := input{Start: *start, Queue: t.Queue, Child: !start.Detached, Settings: t.Settings}
	// The other id is for the case that another session's workflow has the first.
	for _, id := range []string{in.id(), in.otherID()} {
		end, err := t.childUnder(ctx, id, &in)
		switch {
		case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		case start.Detached:
			if err != nil {
				workflow.GetLogger(ctx).Warn("companion left to a sweep", "workflow", id, "error", err)
			}
			return true
		default:
			if err != nil {
				workflow.GetLogger(ctx).Warn("sub-agent's workflow ended", "workflow", id, "error", err)
			}
			t.left = t.left || end.ByItself
			return err == nil && !end.Left
		}
	}
	return start.Detached
}

func (t *turn) childUnder(ctx workflow.Context, id string, in *input) (end ended, err error) {
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: t.Settings.TaskQueue, WorkflowTaskTimeout: t.Settings.taskTimeout(),
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		// It ends by itself, whatever becomes of this workflow: a child that is ended in
		// the middle would leave its session open.
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_ABANDON,
		Memo:              map[string]any{memoRun: in.RunID},
	}), workflowName, *in)
	if in.Detached {
		return end, future.GetChildWorkflowExecution().Get(ctx, nil)
	}
	err = future.Get(ctx, &end)
	return end, err
}

// An effect takes as long as it takes: tools and models have their own limits, and
// a process that dies is noticed by its silence.
const effectTimeout = 30 * 24 * time.Hour

// there is where the process works that holds the turn. It is asked once: nobody
// else can answer.
func (t *turn) there(ctx workflow.Context, id string) workflow.Context {
	return t.at(ctx, t.Queue, id, t.Settings.Silence)
}

// stillThere is where the process would work that held the turn.
func (t *turn) stillThere(ctx workflow.Context) workflow.Context {
	return t.at(ctx, t.last, "", min(t.Settings.Silence, 2*time.Second))
}

// at is the queue of one process, which has so long to begin.
func (t *turn) at(ctx workflow.Context, queue, id string, begin time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID: id, TaskQueue: queue, ScheduleToStartTimeout: begin, StartToCloseTimeout: effectTimeout,
		HeartbeatTimeout: t.Settings.Silence, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// anywhere is where all processes of the deployment work. They are asked until one
// answers.
func (t *turn) anywhere(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: t.Settings.TaskQueue, StartToCloseTimeout: time.Hour, HeartbeatTimeout: t.Settings.Silence,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second},
	})
}
