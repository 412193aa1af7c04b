package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// This file collects the tasks that extensions want to follow a commit.

// stepTasks asks the extensions for tasks that follow a step.
func (t *turn) stepTasks(ctx context.Context, key string, f *flight) []session.Task {
	if !haveMethod[helix.Stepper](t.tools.extensions) {
		return nil
	}
	answers := ask(ctx, t.tools.extensions, key, tasksLimit, func(ctx context.Context, of helix.Stepper, turn *helix.Turn) ([]session.Task, error) {
		step := &helix.Step{Scope: turn.Scope, Reply: f.reply, Results: f.results()}
		return of.AfterStep(ctx, turn, step)
	})
	return t.follow(ctx, nil, answers, t.run.ID+"/"+strconv.Itoa(f.step))
}

// finishTasks adds the tasks that follow the run, if a change ends it.
func (t *turn) finishTasks(ctx context.Context, key string, change *session.Change) {
	t.trimLater(change)
	if t.tools.extensions == nil || change.Outcome == nil {
		return
	}
	answers := ask(ctx, t.tools.extensions, key, tasksLimit, func(ctx context.Context, of helix.Finisher, turn *helix.Turn) ([]session.Task, error) {
		outcome := *change.Outcome
		return of.Finish(ctx, turn, &outcome)
	})
	change.Tasks = t.follow(ctx, change.Tasks, answers, t.run.ID)
}

// follow adds the tasks of extensions to those of a change. Their ids begin with prefix.
func (t *turn) follow(ctx context.Context, tasks []session.Task, answers []answer[[]session.Task], prefix string) []session.Task {
	for i := range answers {
		a := &answers[i]
		name := a.from.Name()
		var more []session.Task
		if a.err == nil {
			more, a.err = newTasks(session.Task{
				Tenant: t.key.Tenant, Agent: t.agent.Name, SessionID: t.key.ID, RunID: t.run.ID,
			}, prefix+"/"+name, a.value, session.MaxTasks-len(tasks))
		}
		if a.err != nil {
			if ctx.Err() == nil { // else it is asked again
				t.h.log.WarnContext(ctx, "extension.tasks_failed", t.tools.extensions.failure(name, a.err, "its tasks are left out")...)
			}
			continue
		}
		tasks = append(tasks, more...)
		if len(more) > 0 {
			t.h.learnKinds(t.agent)
		}
	}
	return tasks
}

// newTasks completes the tasks that an extension returned, of which at most so many may
// follow. of has what the engine fills in. The ids begin with prefix, so that no extension
// can take that of another.
func newTasks(of session.Task, prefix string, given []session.Task, most int) ([]session.Task, error) {
	if len(given) > most {
		return nil, session.Invalid("tasks", "are %d more, but only %d more may follow the commit", len(given), most)
	}
	now := time.Now().UTC()
	tasks := make([]session.Task, 0, len(given))
	for i := range given {
		task := of
		task.Kind, task.Body, task.DueAt, task.CreatedAt = given[i].Kind, given[i].Body, given[i].DueAt, now
		task.ID = given[i].ID
		if task.ID == "" {
			task.ID = task.Kind
		}
		if err := session.CheckKeyID("task id", task.ID); err != nil {
			return nil, err
		}
		task.ID = taskID(prefix + "/" + task.ID)
		if err := task.Check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(tasks, func(other session.Task) bool { return other.ID == task.ID }) {
			return nil, session.Invalid("task id", "%q is that of two tasks", task.ID)
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// taskID shortens an id that is too long: it keeps its beginning and ends in a hash.
func taskID(id string) string {
	if len(id) <= session.MaxIDBytes {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return strings.ToValidUTF8(id[:session.MaxIDBytes-33], "") + "~" + hex.EncodeToString(sum[:16])
}

// followsRuns reports whether tasks may have to follow the runs of an agent. A process that
// does not know the agent cannot ask its extensions.
func (c *closer) followsRuns(agent *helix.Agent) bool {
	return c.h.cfg.TrimStreams > 0 || slices.ContainsFunc(agent.Extensions, func(x helix.Extension) bool { _, ok := x.(helix.Finisher); return ok })
}

// endTasks adds the tasks that follow a run which is ended from outside, by a process that
// does not drive it.
func (c *closer) endTasks(
	ctx context.Context, agent *helix.Agent, state *session.State, run session.Run, transcript *session.Transcript, change *session.Change,
) {
	t := c.h.newTurn(agent, nil, state, run, state.Lease.Fence(), new(atomic.Int64))
	defer t.finish()
	defer t.out.Discard()
	t.transcript, t.step = transcript, run.StepCount
	var err error
	if t.resumes, err = resumesStep(ctx, c.sessions, state.ID, &run); err == nil {
		err = t.readInput(ctx)
	}
	if err != nil { // the run must end
		c.h.log.WarnContext(ctx, "extension.input_unknown", t.attrs("error", err)...)
	}
	t.finishTasks(ctx, run.ID+"/end", change)
}

// lostTasks adds the tasks that follow a run which cannot be continued. What cannot be
// read of it must not keep it from ending.
func (c *closer) lostTasks(ctx context.Context, state *session.State, runID string, change *session.Change) {
	agent, err := c.h.agentOr(ctx, state)
	if err == nil && !c.followsRuns(agent) {
		return
	}
	var run *session.Run
	if err == nil {
		run, err = c.sessions.Run(ctx, state.ID, runID)
	}
	if err != nil {
		c.h.log.WarnContext(ctx, "extension.tasks_failed", "session", state.ID, "run", runID, "error", err, "effect", "the run ends without tasks")
		return
	}
	transcript := &session.Transcript{}
	if history, err := session.ReadView(ctx, c.sessions, state); err == nil {
		if read, err := history.Transcript(); err == nil {
			transcript = read
		}
	}
	c.endTasks(ctx, agent, state, *run, transcript, change)
}

// DeletionTasks asks the extensions of a session's agent for the tasks that clean up after
// the session. They belong to no session and are to be stored before it is deleted. An
// extension that fails does not keep the others from being asked. If the agent is not
// registered here, there are no tasks.
func (h *Handler) DeletionTasks(ctx context.Context, state *session.State) ([]session.Task, error) {
	agent, err := h.Agent(ctx, state)
	if err != nil {
		if unknown := session.AsError(err); unknown.Code == session.CodeUnknownAgent && unknown.Cause == nil {
			return nil, nil
		}
		return nil, err
	}
	// A session of the same id may be made and deleted again, and a deletion that failed is
	// repeated, maybe after its tasks were given up.
	prefix := state.ID + "/" + session.NewOwner("deleted")
	var tasks []session.Task
	var failed []error
	for _, extension := range agent.Extensions {
		deleter, ok := extension.(helix.Deleter)
		if !ok {
			continue
		}
		given, err := usercode.CallOnce(ctx, tasksLimit, func(ctx context.Context) ([]session.Task, error) {
			return deleter.Delete(ctx, session.Key{Tenant: state.Tenant, ID: state.ID})
		})
		var more []session.Task
		if err == nil {
			more, err = newTasks(session.Task{Tenant: state.Tenant, Agent: agent.Name}, prefix+"/"+extension.Name(), given, session.MaxTasks-len(tasks))
		}
		if err != nil {
			failed = append(failed, (&session.Error{Code: session.CodeExtension}).WithCause(late(err, tasksLimit), "extension %s could not clean up after session %s", extension.Name(), state.ID))
			continue
		}
		tasks = append(tasks, more...)
	}
	if len(tasks) > 0 {
		h.learnKinds(agent)
	}
	return tasks, errors.Join(failed...)
}
