package dbos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
)

// driver drives turns with workflows of DBOS.
type driver struct {
	cfg     *Config
	host    *host.Host
	dbos    transact.Context
	silence silence        // of the connections of DBOS's pool
	queue   transact.Queue // nil if turns do not wait in a queue
	loops   sync.WaitGroup // goroutines besides workflows, which end when DBOS is shut down

	mu      sync.Mutex
	running map[string]*execution // workflows that run here, or are about to, by run id
}

// input is the input of a workflow.
type input struct {
	host.Start
	// Again distinguishes this workflow from earlier ones of the same run. It is part of
	// the names of steps, because a process that does not know yet that it has lost the
	// run may still record steps.
	Again string `json:"again,omitempty"`
}

// step returns the recorded name of a step.
func (in *input) step(name string) string {
	if in.Again == "" {
		return name
	}
	return name + "#" + in.Again
}

func (in *input) attrs(more ...any) []any {
	return append([]any{"tenant", in.Tenant, "session", in.SessionID, "run", in.RunID}, more...)
}

// noQueue is the name of a queue that does not exist.
const noQueue = "none"

// listen registers the queue with DBOS and has this process serve it and no other. The
// settings of the process that started last apply.
func (d *driver) listen(q *Queue) (err error) {
	if q == nil {
		transact.ListenQueues(d.dbos, noQueue)
		return nil
	}
	options := []transact.QueueOption{
		transact.WithQueueBasePollingInterval(q.Poll), transact.WithQueueOnConflict(transact.QueueConflictAlwaysUpdate),
	}
	if q.Concurrency > 0 {
		options = append(options, transact.WithGlobalConcurrency(q.Concurrency))
	}
	if q.WorkerConcurrency > 0 {
		options = append(options, transact.WithWorkerConcurrency(q.WorkerConcurrency))
	}
	if q.RateLimit > 0 {
		options = append(options, transact.WithRateLimiter(&transact.RateLimiter{Limit: q.RateLimit, Period: q.RatePeriod}))
	}
	transact.ListenQueues(d.dbos, d.queueName())
	d.queue, err = transact.RegisterQueue(d.dbos, d.queueName(), options...)
	return err
}

// queueName is the name of the queue in which turns wait.
func (d *driver) queueName() string { return d.cfg.Prefix + "-turns" }

// Drive implements [host.Driver]. The turn is open: if it cannot be started now, it
// is as if the process had died, and a sweep will find it.
func (d *driver) Drive(_ context.Context, turn *host.Turn) error {
	in := input{Start: host.StartOf(turn.Opened)}
	d.loops.Go(func() {
		var err error
		if d.queue == nil {
			_, err = d.begin(turn.Context, in)
		} else {
			err = d.enqueue(d.dbos, in) // no process holds the turn meanwhile
		}
		if err != nil {
			d.cfg.Logger.WarnContext(turn.Context, "turn.not_started", in.attrs("error", err)...)
		}
	})
	return nil
}

// Recover implements [host.Driver]. The process that takes the lease starts the workflow
// again in itself: DBOS would choose any process, which may not know the agent.
func (d *driver) Recover(ctx context.Context, due session.Due) error {
	start, err := d.host.LoadStart(ctx, due)
	if err != nil {
		return err
	}
	row, _, err := d.find(ctx, &start)
	if err != nil || d.runs(start.RunID) || (row != nil && d.waits(row)) {
		return err
	}
	return d.host.Recover(ctx, due)
}

// EnsureDriven implements [host.Driver]: the workflow of a turn runs in the process that
// holds the turn.
func (d *driver) EnsureDriven(_ context.Context, due session.Due) error {
	if !d.runs(due.RunID) {
		d.host.Release(due.RunID, errLost)
	}
	return nil
}

// NotifyStop implements [host.Driver]: the process that works on the run reads the
// request when it renews its leases.
func (d *driver) NotifyStop(context.Context, host.Start) {}

// runs reports whether the workflow of a run runs in this process.
func (d *driver) runs(runID string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[runID] != nil
}

// grace is the time within which a process that has dequeued a workflow takes its turn
// over.
const grace = 5 * time.Second

// waits reports whether a workflow waits in a queue, or has just been dequeued. It reports
// false for a workflow of another version, or if turns no longer wait in a queue: there may
// be no process that would dequeue it.
func (d *driver) waits(row *transact.WorkflowStatus) bool {
	if d.queue == nil && row.QueueName == d.queueName() {
		return false
	}
	queued := row.Status == transact.WorkflowStatusEnqueued || row.Status == transact.WorkflowStatusDelayed
	dequeued := row.Status == transact.WorkflowStatusPending && row.QueueName != "" && time.Since(row.StartedAt) < grace
	return (queued || dequeued) && row.ApplicationVersion == d.cfg.AppVersion
}

// runAttribute is the attribute of a workflow that names its run.
const runAttribute = "run"

// find returns the workflow of a run, if it was started, or else the id to start it with.
// The usual id of a run may belong to the workflow of a deleted session with the same id.
func (d *driver) find(ctx context.Context, start *host.Start) (row *transact.WorkflowStatus, id string, err error) {
	within, cancel := transact.WithTimeout(d.dbos, findPatience) // DBOS would try forever
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	id = start.WorkflowID(d.cfg.Prefix)
	other := id + "__" + start.RunID
	rows, err := transact.ListWorkflows(within, transact.WithFilterWorkflowIDs(id, other),
		transact.WithFilterLoadInput(false), transact.WithFilterLoadOutput(false))
	if err != nil {
		return nil, "", fmt.Errorf("look for workflow %s: %w", id, err)
	}
	for i := range rows {
		if rows[i].Attributes[runAttribute] == start.RunID {
			return &rows[i], rows[i].ID, nil
		}
		if rows[i].ID == id {
			id = other
		}
	}
	return nil, id, nil
}

// findPatience is how long DBOS may take to find the workflow of a run.
const findPatience = 10 * time.Second

// clear deletes the workflow that find found, which an earlier attempt at the run has left,
// so that a new one can be started. The caller holds the run's lease, so no other process
// starts one.
func (d *driver) clear(in *input, found *transact.WorkflowStatus) error {
	if found == nil {
		return nil
	}
	if err := transact.DeleteWorkflows(d.dbos, []string{found.ID}); err != nil {
		return fmt.Errorf("delete workflow %s: %w", found.ID, err)
	}
	in.Again = strconv.FormatUint(rand.Uint64(), 36)
	return nil
}

// options returns the options of a new workflow.
func (in *input) options(id string) []transact.WorkflowOption {
	return []transact.WorkflowOption{transact.WithWorkflowID(id), transact.WithWorkflowAttributes(map[string]any{
		runAttribute: in.RunID, "session": in.SessionID, "tenant": in.Tenant, "agent": in.Agent,
	})}
}

// enqueue puts the workflow of a run into the queue. No process holds its turn meanwhile:
// the process that dequeues the workflow takes the turn over.
func (d *driver) enqueue(ctx context.Context, in input) error {
	row, id, err := d.find(ctx, &in.Start)
	if err != nil || (row != nil && d.waits(row)) {
		return err
	}
	if err := d.clear(&in, row); err != nil {
		return err
	}
	in.Position = nil
	_, err = transact.RunWorkflow(d.dbos, d.turn, in, append(in.options(id), transact.WithQueue(d.queue))...)
	return err
}

// beginTries is how often the start of a workflow is tried while DBOS reports that it
// still runs here: DBOS may not have noticed yet that it has ended.
const (
	beginTries = 100
	beginPause = 10 * time.Millisecond
)

// begin starts the workflow of a run in this process, which holds it, unless it
// runs here already.
func (d *driver) begin(ctx context.Context, in input) (*execution, error) {
	d.mu.Lock()
	x, runs := d.running[in.RunID]
	if !runs {
		x = d.add(&in)
		x.held.Store(true)
	}
	d.mu.Unlock()
	if runs {
		return x, nil
	}
	err := errors.New("DBOS reports that the workflow still runs here")
	for range beginTries {
		begun, fault := d.tryBegin(ctx, &in)
		if begun {
			return x, nil
		}
		if fault = cmp.Or(fault, context.Cause(ctx)); fault != nil {
			err = fault
			break
		}
		<-time.After(beginPause)
	}
	d.mu.Lock()
	if x.entered { // DBOS has found it in a queue meanwhile
		d.mu.Unlock()
		return x, nil
	}
	x.fault = err
	d.remove(x)
	d.mu.Unlock()
	close(x.done)
	return nil, err
}

func (d *driver) tryBegin(ctx context.Context, in *input) (begun bool, err error) {
	row, id, err := d.find(ctx, &in.Start)
	if err != nil {
		return false, err
	}
	if err := d.clear(in, row); err != nil {
		return false, err
	}
	starter := &starter{Context: d.dbos}
	_, err = transact.RunWorkflow(starter, d.turn, *in, in.options(id)...)
	return starter.begun, err
}

// starter is a DBOS context that starts one workflow without a handle: a goroutine of DBOS
// would wait on the handle forever if the execution is abandoned.
type starter struct {
	transact.Context
	begun bool
}

// RunWorkflow implements [transact.Context].
func (s *starter) RunWorkflow(_ transact.Context, fn transact.WorkflowFunc, in any, opts ...transact.WorkflowOption) (transact.WorkflowHandle[any], error) {
	handle, err := s.Context.RunWorkflow(s.Context, fn, in, opts...)
	// The handle of a workflow that existed before polls; DBOS reports that in no other way.
	s.begun = err == nil && !strings.Contains(fmt.Sprintf("%T", handle), "Polling")
	return nil, err
}
