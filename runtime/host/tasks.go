package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// tasks carries out the tasks that follow commits. The store is the queue, the same for
// all runtimes: a task is claimed only when a worker is free for it, so that no hold runs
// out in a queue.
type tasks struct {
	h    *Host
	opts helix.TaskOptions

	added   chan struct{} // receives when this process has stored tasks, or a worker is free
	learn   chan struct{} // receives when there is another factory of agents
	working sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the lifetime of handlers, which Shutdown ends
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	tenants map[string]string // those whose sessions run here, each with the day of its last clean-up
	busy    map[string]int    // how many tasks are carried out now, of each tenant that has any

	// These are used by the loop alone.
	page  []session.Task // that were due, and not claimed yet
	after string         // the tenant that was served last
	ended bool           // no page follows

	// looked is the task at which the last search for kinds has stopped, and passed is how
	// many tasks of each kind that is not known were tried by the searches before. The
	// upkeep alone uses them.
	looked *session.Task
	passed map[session.TaskKind]int

	running, done, failed, givenUp, returned atomic.Int64
}

// The rest of a worker's settings.
const (
	taskPage = 100
	// finishLimit is how long the result of a task is tried to be stored.
	finishLimit = 15 * time.Second
	// closeLimit is the same for a process that closes.
	closeLimit = 2 * time.Second
	// maxUpkeep is the time between two looks for tasks that nobody carries out.
	maxUpkeep = time.Minute
)

func (h *Host) newTasks(opts helix.TaskOptions) (*tasks, error) {
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		or    time.Duration
	}{
		{"Poll", &opts.Poll, 2 * time.Second},
		{"Hold", &opts.Hold, 30 * time.Second},
		{"Limit", &opts.Limit, 10 * time.Minute},
		{"Backoff", &opts.Backoff, 5 * time.Second},
		{"MaxBackoff", &opts.MaxBackoff, time.Hour},
		{"KeepGivenUp", &opts.KeepGivenUp, 30 * 24 * time.Hour},
		{"Abandon", &opts.Abandon, 7 * 24 * time.Hour},
		{"Grace", &opts.Grace, 5 * time.Second},
		{"TrimStreams", &opts.TrimStreams, 0},
		{"CleanCalls", &opts.CleanCalls, 0},
	} {
		if *d.value < 0 {
			return nil, session.Invalid("Tasks."+d.name, "%s is negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if opts.Workers == 0 {
		opts.Workers = 4
	}
	if opts.MaxAttempts < 0 {
		return nil, session.Invalid("Tasks.MaxAttempts", "%d is negative", opts.MaxAttempts)
	}
	if opts.MaxAttempts == 0 {
		opts.MaxAttempts = 20
	}
	t := &tasks{h: h, opts: opts, added: make(chan struct{}, 1), learn: make(chan struct{}, 1), busy: map[string]int{}}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t, nil
}

// notify has the loop look for tasks now.
func (t *tasks) notify() { signal(t.added) }

// factoryAdded has the upkeep look for tasks of agents that factories make.
func (t *tasks) factoryAdded() { signal(t.learn) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// start starts the loops, which run until ctx ends.
func (t *tasks) start(ctx context.Context) {
	if t.opts.Workers < 0 {
		return
	}
	t.h.loops.Go(func() { t.loop(ctx) })
	t.h.loops.Go(func() { t.upkeepLoop(ctx) })
}

// loop carries out tasks.
func (t *tasks) loop(ctx context.Context) {
	next := func() time.Duration { return t.opts.Poll*3/4 + rand.N(t.opts.Poll/2+1) }
	timer := time.NewTimer(rand.N(t.opts.Poll/2 + 1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			t.claimDue(ctx)
			timer.Reset(next())
		case <-t.added:
			t.claimDue(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// upkeepLoop is apart from the loop, because factories may be slow.
func (t *tasks) upkeepLoop(ctx context.Context) {
	ticker := time.NewTicker(max(min(maxUpkeep, t.opts.KeepGivenUp/2, t.opts.Abandon/2), time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-t.learn:
		case <-ctx.Done():
			return
		}
		t.upkeep(ctx)
	}
}

// claimDue starts a handler for each task that is due, as long as workers are free. One
// worker more than configured is there for a tenant that has none, so that the slow tasks
// of one tenant do not hold up those of the others.
func (t *tasks) claimDue(ctx context.Context) {
	for ctx.Err() == nil && !t.h.isClosing() {
		busy := int(t.running.Load()) // others only make it less
		if busy > t.opts.Workers {
			return // the worker that is free next calls notify
		}
		task := t.claimNext(ctx, busy == t.opts.Workers)
		if task == nil {
			return
		}
		t.occupy(task.Tenant, 1)
		t.working.Go(func() {
			defer func() {
				t.occupy(task.Tenant, -1)
				t.notify()
			}()
			t.carryOut(task)
		})
	}
}

// occupy counts the workers of a tenant.
func (t *tasks) occupy(tenant string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running.Add(int64(n))
	if t.busy[tenant] += n; t.busy[tenant] == 0 {
		delete(t.busy, tenant)
	}
}

// occupies reports whether a tenant has a worker.
func (t *tasks) occupies(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy[tenant] > 0
}

// maxLost is how many tasks in a row may be lost to other processes before the next look.
const maxLost = 8

// claimNext claims the next task that is due, or returns nil. It takes the tenants in
// turns. With newcomer, it passes over those that have a worker.
func (t *tasks) claimNext(ctx context.Context, newcomer bool) *session.Task {
	kinds := t.h.handler.TaskKinds()
	if len(kinds) == 0 {
		return nil // without a read
	}
	passes := 1 // that are left until every tenant was seen
	if len(t.page) > 0 || t.after != "" {
		passes = 2
	}
	for lost := 0; passes > 0 && lost < maxLost; {
		due, err := t.nextDue(ctx, kinds)
		if err != nil {
			t.h.sweepFailed(ctx, "due tasks", err)
			return nil
		}
		if due == nil {
			passes--
			continue
		}
		if newcomer && t.occupies(due.Tenant) || !slices.Contains(kinds, due.OfKind()) { // the agent may have been unregistered
			continue
		}
		task, err := t.claim(ctx, due)
		switch {
		case err == nil:
			return task
		case !gone(err):
			t.h.sweepFailed(ctx, "claim task "+due.Ref().String(), err)
			return nil
		}
		lost, passes = lost+1, 2
	}
	return nil
}

// nextDue returns the next tenant's task, or nil after the last tenant. Then it begins
// anew.
func (t *tasks) nextDue(ctx context.Context, kinds []session.TaskKind) (*session.Task, error) {
	if len(t.page) == 0 && !t.ended {
		page, err := t.h.cfg.Backend.Sessions().DueTasks(ctx, session.TaskRequest{Kinds: kinds, After: t.after, Limit: taskPage})
		if err != nil {
			return nil, err
		}
		t.page, t.ended = page, len(page) < taskPage
	}
	if len(t.page) == 0 {
		t.after, t.ended = "", false
		return nil, nil
	}
	due := &t.page[0]
	t.page, t.after = t.page[1:], due.Tenant
	return due, nil
}

// claim takes hold of a task, under a name that no other hold has.
func (t *tasks) claim(ctx context.Context, task *session.Task) (*session.Task, error) {
	return t.h.cfg.Backend.Sessions().Tenant(task.Tenant).ClaimTask(ctx, session.TaskClaim{
		TaskRef: task.Ref(), Owner: session.NewOwner(t.h.cfg.Name), TTL: t.opts.Hold,
	})
}

// gone reports whether an error says that somebody else has the task, or that it does not
// exist any more.
func gone(err error) bool {
	return errors.Is(err, session.ErrStale) || errors.Is(err, session.ErrNotFound)
}

// errLost ends a handler whose task is no longer held by this process.
var errLost = session.ErrStale.WithMessage("the task is no longer held by this process")

// carryOut runs the handler of a task that is held, and stores the result.
func (t *tasks) carryOut(task *session.Task) {
	if task.Attempts > t.opts.MaxAttempts { // the process was lost each time, or could not store the result
		t.finish(task, session.TaskResult{Outcome: session.TaskGivenUp, Error: lastError(task)})
		return
	}
	ctx, cancel := context.WithCancelCause(t.ctx)
	held := make(chan struct{})
	go func() {
		defer close(held)
		t.keep(ctx, task, cancel)
	}()
	err := t.h.handler.HandleTask(ctx, task, t.opts.Limit)
	lost := context.Cause(ctx) == errLost //nolint:errorlint // the very value
	cancel(nil)
	<-held
	if lost {
		t.h.log.WarnContext(t.ctx, "task.lost", attrs(task, "error", err)...)
		return
	}
	t.finish(task, t.result(task, err))
}

// lastError says why a task that was never finished is given up.
func lastError(task *session.Task) string {
	if task.LastError != "" {
		return task.LastError
	}
	return "no process that began to carry it out has reported the result"
}

// result decides what follows from an attempt.
func (t *tasks) result(task *session.Task, err error) session.TaskResult {
	switch {
	case err == nil:
		return session.TaskResult{Outcome: session.TaskDone}
	case t.ctx.Err() != nil:
		return session.TaskResult{Outcome: session.TaskReturned}
	case errors.Is(err, session.ErrUnknownAgent): // it was unregistered since the task was listed
		return session.TaskResult{Outcome: session.TaskReturned, After: t.opts.Backoff}
	case task.Attempts >= t.opts.MaxAttempts:
		return session.TaskResult{Outcome: session.TaskGivenUp, Error: err.Error()}
	}
	after := t.opts.Backoff
	for range task.Attempts - 1 {
		if after >= t.opts.MaxBackoff {
			break
		}
		after *= 2
	}
	return session.TaskResult{Outcome: session.TaskFailed, Error: err.Error(), After: min(after, t.opts.MaxBackoff)}
}

// keep renews the hold of a task until ctx ends. It cancels the handler once the hold is
// lost, or may be, because it could not be renewed in time.
func (t *tasks) keep(ctx context.Context, task *session.Task, cancel context.CancelCauseFunc) {
	sessions := t.h.cfg.Backend.Sessions().Tenant(task.Tenant)
	every := max(t.opts.Hold/3, time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		renewing, done := context.WithTimeout(ctx, min(t.opts.Hold/2, t.opts.Hold-time.Since(renewed)))
		err := sessions.RenewTask(renewing, task.Ref(), task.Fence(), t.opts.Hold)
		done()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			renewed = began
		case gone(err), time.Since(renewed) >= t.opts.Hold:
			cancel(errLost)
			return
		default:
			t.h.log.Log(ctx, t.h.retryLevel(err), "task.not_renewed", attrs(task, "error", err)...)
		}
	}
}

// finish stores the result of a task. If that fails, the hold expires and the task is
// carried out again.
func (t *tasks) finish(task *session.Task, result session.TaskResult) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), finishLimit)
	defer cancel()
	defer context.AfterFunc(t.ctx, func() { time.AfterFunc(closeLimit, cancel) })()
	sessions := t.h.cfg.Backend.Sessions().Tenant(task.Tenant)
	writes := 0
	_, err := retry.Do(ctx, func() (struct{}, error) {
		writes++
		return struct{}{}, sessions.FinishTask(ctx, task.Ref(), task.Fence(), result)
	})
	switch {
	case err != nil && !gone(err):
		t.h.log.WarnContext(ctx, "task.not_finished", attrs(task, "outcome", result.Outcome, "error", err)...)
		return
	case err != nil && writes == 1: // a repeated write finds the task finished or gone
		t.h.log.WarnContext(ctx, "task.lost", attrs(task, "outcome", result.Outcome, "error", err)...)
		return
	}
	switch result.Outcome {
	case session.TaskDone:
		t.done.Add(1)
	case session.TaskFailed:
		t.failed.Add(1)
		t.h.log.WarnContext(ctx, "task.failed", attrs(task, "again_in", result.After, "error", result.Error)...)
	case session.TaskGivenUp:
		t.givenUp.Add(1)
		t.h.log.ErrorContext(ctx, "task.given_up", attrs(task, "error", result.Error)...)
	case session.TaskReturned:
		t.returned.Add(1)
	}
}

func attrs(task *session.Task, more ...any) []any {
	return append([]any{
		"tenant", task.Tenant, "session", task.SessionID, "task", task.ID, "kind", task.Kind, "agent", task.Agent, "attempt", task.Attempts,
	}, more...)
}

// upkeep removes tasks that were given up long ago, gives up those that no process can carry
// out, and finds the kinds of tasks of agents that factories make.
func (t *tasks) upkeep(ctx context.Context) {
	sessions := t.h.cfg.Backend.Sessions()
	now, err := sessions.Now(ctx)
	if err != nil {
		t.h.sweepFailed(ctx, "old tasks", err)
		return
	}
	t.cleanCalls(ctx, now)
	before := now.Add(-t.opts.KeepGivenUp)
	t.eachOld(ctx, session.OldTaskRequest{Before: before, GivenUp: true}, func(task *session.Task) {
		if err := sessions.Tenant(task.Tenant).DropTask(ctx, task.Ref(), before); err != nil && !gone(err) {
			t.h.sweepFailed(ctx, "drop task "+task.Ref().String(), err)
		}
	})
	t.search(ctx, now) // it comes last, because factories may be slow
}

// maxLearn is how many tasks of one agent and kind a search tries to learn from: each costs
// a read and a call of a factory, which may hang.
const maxLearn = 3

// search finds the kinds of tasks of agents that factories make, and gives up old tasks of
// other agents that are not known.
func (t *tasks) search(ctx context.Context, now time.Time) {
	kinds, found := t.h.handler.TaskKinds(), false
	seen := map[session.TaskKind]int{}
	// It goes on where it stopped last, so that no task is hidden behind too many others.
	t.looked = t.eachOld(ctx, session.OldTaskRequest{Before: now, After: t.looked}, func(task *session.Task) {
		kind := task.OfKind()
		if slices.Contains(kinds, kind) {
			return
		}
		seen[kind]++
		if n := seen[kind] - t.passed[kind]; n > 0 && n <= maxLearn {
			t.h.handler.LearnTask(ctx, task)
			kinds = t.h.handler.TaskKinds()
		}
		switch {
		case slices.Contains(kinds, kind):
			found = true
		case now.Sub(task.DueAt) >= t.opts.Abandon:
			t.abandon(ctx, task)
		}
	})
	// The next search tries the tasks after these: a factory may make the agent for the
	// sessions of some only.
	for kind, n := range seen {
		if seen[kind] = t.passed[kind] + maxLearn; seen[kind] >= n {
			delete(seen, kind)
		}
	}
	t.passed = seen
	if found {
		t.notify()
	}
}

// maxTenants is how many tenants are remembered for the clean-up of calls.
const maxTenants = 10_000

// sees remembers a tenant whose sessions run here.
func (t *tasks) sees(tenant string) {
	if t.opts.CleanCalls <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.tenants[tenant]; !known && len(t.tenants) < maxTenants {
		if t.tenants == nil {
			t.tenants = map[string]string{}
		}
		t.tenants[tenant] = ""
	}
}

// cleanCalls stores today's task that cleans up after calls, for each tenant that was seen,
// unless another process has stored it.
func (t *tasks) cleanCalls(ctx context.Context, now time.Time) {
	today := now.UTC().Format(time.DateOnly)
	t.mu.Lock()
	var missing []string
	for tenant, day := range t.tenants {
		if day != today {
			missing = append(missing, tenant)
		}
	}
	t.mu.Unlock()
	for _, tenant := range missing {
		if err := t.cleanCallsOf(ctx, tenant, now); err != nil {
			t.h.sweepFailed(ctx, "clean calls", err)
			return
		}
		t.mu.Lock()
		t.tenants[tenant] = today
		t.mu.Unlock()
	}
	if len(missing) > 0 {
		t.notify()
	}
}

// cleanCallsOf stores the task of one tenant. The lock, which expires with the day, keeps
// other processes from storing it again after it was done and removed. Its name is the same
// every day, because stores keep locks.
func (t *tasks) cleanCallsOf(ctx context.Context, tenant string, now time.Time) error {
	const day = 24 * time.Hour
	left := now.UTC().Truncate(day).Add(day).Sub(now)
	locks := t.h.cfg.Backend.Locks()
	held, ours, err := locks.TryAcquire(ctx, "clean_calls/"+tenant, session.NewOwner(t.h.cfg.Name), max(left-maxUpkeep, 1))
	if err != nil || !ours {
		return err
	}
	err = t.h.cfg.Backend.Sessions().Tenant(tenant).PutTasks(ctx, []session.Task{t.h.handler.CleanCallsTask(tenant, now)})
	if err != nil {
		return errors.Join(err, locks.Release(context.WithoutCancel(ctx), held))
	}
	return nil
}

// eachOld calls do for each task that is selected, up to a bound. It returns the last one
// if there are more.
func (t *tasks) eachOld(ctx context.Context, request session.OldTaskRequest, do func(*session.Task)) *session.Task {
	for range sweepPages {
		page, err := t.h.cfg.Backend.Sessions().OldTasks(ctx, request)
		if err != nil {
			t.h.sweepFailed(ctx, "old tasks", err)
			return nil
		}
		for i := range page {
			do(&page[i])
		}
		if len(page) < request.Size() || ctx.Err() != nil {
			return nil
		}
		request.After = &page[len(page)-1]
	}
	return request.After
}

// abandon gives up a task that no process has carried out.
func (t *tasks) abandon(ctx context.Context, task *session.Task) {
	held, err := t.claim(ctx, task)
	if err == nil {
		why := "no process has an agent " + task.Agent + " that handles tasks of the kind " + task.Kind
		if task.Agent == "" {
			why = "no process is configured for tasks of the kind " + task.Kind
		}
		t.finish(held, session.TaskResult{Outcome: session.TaskGivenUp, Error: why})
	} else if !gone(err) {
		t.h.sweepFailed(ctx, "give up task "+task.Ref().String(), err)
	}
}

// shutdown waits for handlers, until ctx ends and for a grace after that, if ctx had not
// ended before. Then it cancels them.
func (t *tasks) shutdown(ctx context.Context, grace time.Duration) {
	finished := make(chan struct{})
	go func() {
		t.working.Wait()
		close(finished)
	}()
	defer func() {
		t.cancel(errClosing)
		<-finished
	}()
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
	}
}

// TaskStats returns the counts of the tasks of this process.
func (h *Host) TaskStats() helix.TaskStats {
	t := h.tasks
	return helix.TaskStats{
		Running: t.running.Load(), Done: t.done.Load(), Failed: t.failed.Load(), GivenUp: t.givenUp.Load(), Returned: t.returned.Load(),
	}
}
