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

// driver starts the workflows that drive turns, and carries out their activities.
type driver struct {
	client   client.Client
	host     *host.Host
	settings settings
	queue    string        // the task queue of this process
	slots    chan struct{} // limits effects in flight
	noWorker bool
}

// startTimeout is how long the start of a workflow may take. A turn whose workflow was not
// started is recovered.
const startTimeout = 10 * time.Second

// memoRun is the key of the memo that has the id of the run which a workflow drives.
const memoRun = "helixRun"

// Drive implements [host.Driver].
func (d *driver) Drive(ctx context.Context, turn *host.Turn) error {
	in := input{Start: host.StartOf(turn.Opened), Queue: d.queue}
	if d.noWorker {
		in.Position, in.Queue = nil, ""
	}
	return d.start(ctx, in)
}

// Recover implements [host.Driver]. A run that has a workflow needs nothing: the workflow
// has a process take the turn over.
func (d *driver) Recover(ctx context.Context, due session.Due) error {
	start, err := d.host.LoadStart(ctx, due)
	if err != nil {
		return err
	}
	return d.start(ctx, input{Start: start})
}

// EnsureDriven implements [host.Driver].
func (d *driver) EnsureDriven(ctx context.Context, due session.Due) error { return d.Recover(ctx, due) }

// NotifyStop implements [host.Driver].
func (d *driver) NotifyStop(ctx context.Context, start host.Start) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	in := input{Start: start, Settings: d.settings}
	for _, id := range []string{in.id(), in.otherID()} {
		err := d.client.SignalWorkflow(ctx, id, "", stopSignal, nil)
		if _, notFound := errors.AsType[*serviceerror.NotFound](err); err != nil && !notFound {
			d.host.Log().WarnContext(ctx, "stop.not_delivered", "session", start.SessionID, "workflow", id, "error", err)
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
	// The workflow belongs to a session that was deleted and created again under the same
	// id, or to a session whose id looks like a turn of this one.
	options.ID = in.otherID()
	_, err = d.client.ExecuteWorkflow(ctx, options, workflowName, in)
	if _, started := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); started {
		return nil
	}
	return err
}

// drives reports whether the workflow with the given id drives a run.
func (d *driver) drives(ctx context.Context, id, runID string) (bool, error) {
	described, err := d.client.DescribeWorkflow(ctx, id, "")
	if err != nil {
		return false, err
	}
	var drives string
	err = described.GetMemoValue(memoRun, &drives)
	return drives == runID, err
}

// effect and the methods after it are the activities of the process that holds a turn.
func (d *driver) effect(ctx context.Context, effect machine.Effect) (host.EffectResult, error) {
	return d.inTurn(ctx, effect, d.host.Do)
}

func (d *driver) openChild(ctx context.Context, effect machine.Effect) (host.EffectResult, error) {
	return d.inTurn(ctx, effect, d.host.DoOpenChild)
}

// inTurn calls do when an effect slot is free, and sends heartbeats until it returns.
func (d *driver) inTurn(
	ctx context.Context, effect machine.Effect, do func(context.Context, machine.Effect) (host.EffectResult, error),
) (host.EffectResult, error) {
	beat := func() {
		if !d.host.LeaseLost(effect.RunID) {
			activity.RecordHeartbeat(ctx)
		}
	}
	return withHeartbeat(ctx, beat, func() (host.EffectResult, error) {
		select {
		case d.slots <- struct{}{}:
			defer func() { <-d.slots }()
			return do(ctx, effect)
		case <-ctx.Done():
			return host.EffectResult{}, context.Cause(ctx)
		}
	})
}

func (d *driver) renew(ctx context.Context, runID string) error { return d.host.Renew(ctx, runID) }

// takeOver is an activity of any process: it takes a turn over.
func (d *driver) takeOver(ctx context.Context, start host.Start) (takeover, error) {
	info := activity.GetInfo(ctx)
	var asked askings // of all attempts; nothing yet, if an older program passed on something else
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &asked) != nil {
		asked = askings{}
	}
	asked.note(d.queue, info.StartedTime)
	// If this process holds the turn, and waits for its effects, others that are asked later are
	// not to lose patience with it: they begin anew.
	beat := func() {
		if d.host.Holds(start.RunID) {
			activity.RecordHeartbeat(ctx, askings{})
		} else {
			activity.RecordHeartbeat(ctx, asked)
		}
	}
	beat()
	return withHeartbeat(ctx, beat, func() (takeover, error) {
		taken, err := d.host.TakeOver(ctx, start, asked.inVain())
		again := time.Duration(0)
		switch {
		case errors.Is(err, session.ErrUnknownAgent), errors.Is(err, session.ErrUnavailable):
			again = takeOverRetry // another process may be able to
		case errors.Is(err, host.ErrHolderLives):
			again = holderRetry
			if info.Attempt > manyAttempts {
				again = takeOverRetry
			}
		}
		if again > 0 {
			err = temporal.NewApplicationErrorWithOptions(err.Error(), "", temporal.ApplicationErrorOptions{NextRetryDelay: again})
		}
		return takeover{Takeover: taken, Queue: d.queue}, err
	})
}

// cancel is an activity of any process: it aborts the run of a workflow that was
// cancelled on the server.
func (d *driver) cancel(ctx context.Context, start host.Start) error {
	beat := func() { activity.RecordHeartbeat(ctx) }
	_, err := withHeartbeat(ctx, beat, func() (struct{}, error) {
		return struct{}{}, d.host.Handler().StopRun(ctx, start.Key(), session.Stop{
			RunID: start.RunID, Kind: session.StopAbort, Reason: "the workflow was cancelled",
		})
	})
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrStale) {
		return nil // it has ended
	}
	return err
}

// takeOverRetry is the delay before another process is asked to take a turn over, and holderRetry
// for manyAttempts if that has to be the one that holds it, of all that may be asked.
const (
	takeOverRetry = 200 * time.Millisecond
	holderRetry   = 50 * time.Millisecond
	manyAttempts  = 40
)

// withHeartbeat calls do, which may take long, and calls beat three times per the longest
// silence, until do returns.
func withHeartbeat[V any](ctx context.Context, beat func(), do func() (V, error)) (V, error) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(activity.GetInfo(ctx).HeartbeatTimeout / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				beat()
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
