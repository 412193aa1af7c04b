package temporal

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// driver has turns driven by workflows, and carries out what those ask for.
type driver struct {
	client   client.Client
	host     *host.Host
	settings settings
	queue    string        // this process's own
	slots    chan struct{} // for effects
	noWorker bool
}

// startTimeout is how long the start of a workflow may take before the turn is left
// to a sweep.
const startTimeout = 10 * time.Second

// memoRun is where a workflow names the run that it drives.
const memoRun = "helixRun"

// Drive implements [host.Driver].
func (d *driver) Drive(ctx context.Context, turn *host.Turn) error {
	in := input{Start: host.StartOf(turn.Opened), Queue: d.queue}
	if d.noWorker {
		in.Position, in.Queue = nil, ""
	}
	return d.start(ctx, in)
}

// Revive implements [host.Driver]. A run that has its workflow needs nothing: that
// will find somebody to work on it.
func (d *driver) Revive(ctx context.Context, due session.Due) error {
	start, err := d.host.StartOf(ctx, due)
	if err != nil {
		return err
	}
	return d.start(ctx, input{Start: start})
}

// Check implements [host.Driver].
func (d *driver) Check(ctx context.Context, due session.Due) error { return d.Revive(ctx, due) }

// Nudge implements [host.Driver].
func (d *driver) Nudge(ctx context.Context, start host.Start) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	in := input{Start: start, Settings: d.settings}
	for _, id := range []string{in.id(), in.otherID()} {
		err := d.client.SignalWorkflow(ctx, id, "", stopSignal, nil)
		if _, gone := errors.AsType[*serviceerror.NotFound](err); err != nil && !gone {
			d.host.Log().WarnContext(ctx, "workflow not told of a stop", "session", start.SessionID, "workflow", id, "error", err)
		}
	}
}

// start starts the workflow of a run, unless it has one.
func (d *driver) start(ctx context.Context, in input) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	in.Settings = d.settings
	options := client.StartWorkflowOptions{
		ID: in.id(), TaskQueue: d.settings.TaskQueue, WorkflowTaskTimeout: d.settings.taskTimeout(),
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{memoRun: in.RunID},
	}
	_, err := d.client.ExecuteWorkflow(ctx, options, workflowName, in)
	if _, started := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); !started {
		return err
	}
	ours, err := d.drives(ctx, options.ID, in.RunID)
	if ours || err != nil {
		return err
	}
	// It is that of a session which was deleted, and made again under the same id, or
	// has an id that looks like a turn of this one.
	options.ID = in.otherID()
	_, err = d.client.ExecuteWorkflow(ctx, options, workflowName, in)
	if _, started := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); started {
		return nil
	}
	return err
}

// drives reports whether the workflow with an id drives a run.
func (d *driver) drives(ctx context.Context, id, runID string) (bool, error) {
	described, err := d.client.DescribeWorkflow(ctx, id, "")
	if err != nil {
		return false, err
	}
	var drives string
	err = described.GetMemoValue(memoRun, &drives)
	return drives == runID, err
}

// The activities of a process that holds a turn.

func (d *driver) effect(ctx context.Context, effect machine.Effect) (host.Answer, error) {
	return beating(ctx, d.alive(effect), func() (host.Answer, error) { return d.inTurn(ctx, effect, d.host.Do) })
}

func (d *driver) openChild(ctx context.Context, effect machine.Effect) (host.Answer, error) {
	return beating(ctx, d.alive(effect), func() (host.Answer, error) { return d.inTurn(ctx, effect, d.host.OpenChild) })
}

// inTurn does something about an effect when there is room for it.
func (d *driver) inTurn(
	ctx context.Context, effect machine.Effect, do func(context.Context, machine.Effect) (host.Answer, error),
) (host.Answer, error) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
		return do(ctx, effect)
	case <-ctx.Done():
		return host.Answer{}, context.Cause(ctx)
	}
}

func (d *driver) alive(effect machine.Effect) func() bool {
	return func() bool { return d.host.Alive(effect.RunID) }
}

func (d *driver) look(ctx context.Context, runID string) error { return d.host.Look(ctx, runID) }

// The activities of any process.

func (d *driver) take(ctx context.Context, start host.Start) (taken, error) {
	always := func() bool { return true }
	return beating(ctx, always, func() (taken, error) {
		standing, err := d.host.Take(ctx, start)
		if errors.Is(err, session.ErrUnknownAgent) || errors.Is(err, session.ErrUnavailable) {
			// Another process may be able to.
			err = temporal.NewApplicationErrorWithOptions(err.Error(), "", temporal.ApplicationErrorOptions{NextRetryDelay: askAgain})
		}
		return taken{Standing: standing, Queue: d.queue}, err
	})
}

// cancel ends the run of a workflow that somebody has cancelled on the server.
func (d *driver) cancel(ctx context.Context, start host.Start) error {
	err := d.host.Handler().StopRun(ctx, start.Key(), session.Stop{
		RunID: start.RunID, Kind: session.StopAbort, Reason: "the workflow was cancelled",
	})
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrStale) {
		return nil // it has ended
	}
	return err
}

// askAgain is when another process is asked to take a turn over that one could not.
const askAgain = 200 * time.Millisecond

// beating does something that may take long, and lets the server know as long as
// this process is alive.
func beating[V any](ctx context.Context, alive func() bool, do func() (V, error)) (V, error) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(activity.GetInfo(ctx).HeartbeatTimeout / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if alive() {
					activity.RecordHeartbeat(ctx)
				}
			case <-done:
				return
			}
		}
	}()
	defer func() {
		close(done)
		<-stopped
	}()
	return do()
}
