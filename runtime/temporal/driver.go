package temporal

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/runtime/internal/host"
	"github.com/helixagents/helix/session"
)

// driver has turns driven by workflows, and carries out what those ask for.
type driver struct {
	client   client.Client
	host     *host.Host
	settings settings
	queue    string // this process's own
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
	id := start.WorkflowID(d.settings.Prefix)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	err := d.client.SignalWorkflow(ctx, id, "", stopSignal, nil)
	if _, gone := errors.AsType[*serviceerror.NotFound](err); err != nil && !gone {
		d.host.Log().WarnContext(ctx, "workflow not told of a stop", "session", start.SessionID, "workflow", id, "error", err)
	}
}

// start starts the workflow of a run, unless it has one.
func (d *driver) start(ctx context.Context, in input) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	in.Settings = d.settings
	options := client.StartWorkflowOptions{
		ID: in.WorkflowID(d.settings.Prefix), TaskQueue: d.settings.TaskQueue, WorkflowTaskTimeout: d.settings.taskTimeout(),
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
	// That of a session which was deleted, and made again under the same id.
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
	_, err = d.client.ExecuteWorkflow(ctx, options, workflowName, in)
	return err
}

// drives reports whether the workflow with an id drives a run.
func (d *driver) drives(ctx context.Context, id, runID string) (bool, error) {
	described, err := d.client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return false, err
	}
	payload := described.GetWorkflowExecutionInfo().GetMemo().GetFields()[memoRun]
	if payload == nil { // it is another workflow's child, or nobody's of ours
		return true, nil
	}
	var drives string
	err = converter.GetDefaultDataConverter().FromPayload(payload, &drives)
	return drives == runID, err
}

// The activities of a process that holds a turn.

func (d *driver) effect(ctx context.Context, effect engine.Effect) (host.Answer, error) {
	return beating(ctx, d.alive(effect), func() (host.Answer, error) { return d.host.Do(ctx, effect) })
}

func (d *driver) openChild(ctx context.Context, effect engine.Effect) (host.Answer, error) {
	return beating(ctx, d.alive(effect), func() (host.Answer, error) { return d.host.OpenChild(ctx, effect) })
}

func (d *driver) alive(effect engine.Effect) func() bool {
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
