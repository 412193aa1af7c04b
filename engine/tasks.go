package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// tasksAdded has this process look for tasks that it has stored.
func (h *Handler) tasksAdded(tasks []session.Task) {
	if len(tasks) > 0 && h.cfg.TasksAdded != nil {
		h.cfg.TasksAdded()
	}
}

// TaskKinds lists the tasks that this process can carry out: those of the extensions of
// registered agents, those of agents that factories make, as far as they were met, and the
// framework's own.
func (h *Handler) TaskKinds() []session.TaskKind {
	h.Registry.mu.Lock()
	agents := make([]*helix.Agent, 0, len(h.agents))
	for _, agent := range h.agents {
		agents = append(agents, agent)
	}
	out := append(h.ownKinds(), h.learned...)
	h.Registry.mu.Unlock()
	for _, agent := range agents {
		for _, extension := range agent.Extensions {
			for _, kind := range kindsOf(extension) {
				out = append(out, session.TaskKind{Agent: agent.Name, Kind: kind})
			}
		}
	}
	return out
}

// MayCleanUp reports whether an extension of some agent may return tasks that clean up
// after a session: only then a deletion needs to read what it deletes.
func (h *Handler) MayCleanUp() bool {
	h.Registry.mu.Lock()
	defer h.Registry.mu.Unlock()
	if len(h.factories) > 0 {
		return true
	}
	for _, agent := range h.agents {
		if slices.ContainsFunc(agent.Extensions, func(x helix.Extension) bool { _, ok := x.(helix.Deleter); return ok }) {
			return true
		}
	}
	return false
}

// kindsOf returns the kinds of tasks that an extension carries out.
func kindsOf(extension helix.Extension) (kinds []string) {
	handler, ok := extension.(helix.TaskHandler)
	if !ok {
		return nil
	}
	_ = usercode.Guard(func() error { // it did not panic when the agent was registered
		kinds = handler.TaskKinds()
		return nil
	})
	return kinds
}

// maxLearned is how many kinds of tasks of agents that factories make are remembered.
const maxLearned = 1000

// LearnTask finds out whether this process can carry out a task whose agent is not
// registered: one that a factory makes, or that such an agent calls. If so, it is among
// the [Handler.TaskKinds] from then on.
func (h *Handler) LearnTask(ctx context.Context, task *session.Task) {
	if task.Agent == "" || h.registered(task.Agent) {
		return
	}
	if _, err := h.taskHandler(ctx, task, tasksLimit); err == nil {
		h.learn(task.OfKind())
	}
}

// learnKinds remembers the kinds of tasks of an agent that has tasks, unless it is
// registered.
func (h *Handler) learnKinds(agent *helix.Agent) {
	if h.registered(agent.Name) {
		return
	}
	for _, extension := range agent.Extensions {
		for _, kind := range kindsOf(extension) {
			h.learn(session.TaskKind{Agent: agent.Name, Kind: kind})
		}
	}
}

// learn remembers a kind of tasks. If there are too many, it forgets the one that it has
// known longest, which is found again if there are such tasks.
func (h *Handler) learn(kind session.TaskKind) {
	h.Registry.mu.Lock()
	defer h.Registry.mu.Unlock()
	if slices.Contains(h.learned, kind) {
		return
	}
	if len(h.learned) >= maxLearned {
		h.learned = slices.Delete(h.learned, 0, 1)
	}
	h.learned = append(h.learned, kind)
}

// hasLearned reports whether a kind of tasks is among those that were learned.
func (h *Handler) hasLearned(kind session.TaskKind) bool {
	h.Registry.mu.Lock()
	defer h.Registry.mu.Unlock()
	return slices.Contains(h.learned, kind)
}

// hasFactories reports whether a factory is registered.
func (h *Handler) hasFactories() bool {
	h.Registry.mu.Lock()
	defer h.Registry.mu.Unlock()
	return len(h.factories) > 0
}

// HandleTask carries out a task. It returns [session.ErrUnknownAgent] if this process
// cannot. A handler that panics or takes longer than limit has failed.
func (h *Handler) HandleTask(ctx context.Context, task *session.Task, limit time.Duration) error {
	var seen *observation
	if len(h.observers.list) > 0 {
		ctx, seen = h.observers.begin(ctx, &helix.Activity{
			Kind: helix.ActivityTask, ID: task.ID + "/" + strconv.Itoa(task.Attempts), Name: task.Kind, Attempt: task.Attempts, Began: time.Now().UTC(),
			Scope: helix.Scope{Tenant: task.Tenant, SessionID: task.SessionID, RunID: task.RunID, Agent: task.Agent, Key: task.ID},
		})
	}
	err := h.carryOut(ctx, task, limit)
	seen.end(endingOf(err))
	return err
}

func (h *Handler) carryOut(ctx context.Context, task *session.Task, limit time.Duration) error {
	if task.Agent == "" {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return usercode.Guard(func() error { return h.ownTask(ctx, task) })
	}
	handler, err := h.taskHandler(ctx, task, limit)
	if err != nil {
		if errors.Is(err, session.ErrUnknownAgent) && h.hasLearned(task.OfKind()) {
			// The factories make the agent for other sessions, but not for this one: the
			// attempt counts, because it would be the same each time.
			err = errors.New(err.Error())
		}
		return err
	}
	_, err = usercode.CallOnce(ctx, limit, func(ctx context.Context) (struct{}, error) {
		own := *task
		own.Body = slices.Clone(task.Body)
		return struct{}{}, handler.HandleTask(ctx, &own)
	})
	if errors.Is(err, session.ErrUnknownAgent) { // the handler's own error does not say that it is missing
		err = errors.New(err.Error())
	}
	return err
}

// taskHandler finds the extension that carries out a task. The error is
// [session.ErrUnknownAgent] if this process does not have the agent. A factory that fails,
// or makes an agent without such an extension, is another error: the task has failed then.
func (h *Handler) taskHandler(ctx context.Context, task *session.Task, limit time.Duration) (helix.TaskHandler, error) {
	registered := h.registered(task.Agent)
	if !registered && !h.hasFactories() {
		return nil, session.UnknownAgent(task.Agent) // without a read
	}
	agent, err := usercode.CallOnce(ctx, limit, func(ctx context.Context) (*helix.Agent, error) { // a factory may hang
		state := &session.State{ID: task.SessionID, Tenant: task.Tenant, Agent: task.Agent}
		if task.SessionID != "" && !registered {
			var err error
			if state, err = h.cfg.Backend.Sessions().Tenant(task.Tenant).Load(ctx, task.SessionID); err != nil {
				return nil, err
			}
		}
		return h.Agent(ctx, state)
	})
	if err != nil {
		if unknown := session.AsError(err); unknown.Code == session.CodeUnknownAgent && unknown.Cause != nil {
			err = errors.New(err.Error())
		}
		return nil, err
	}
	for _, extension := range agent.Extensions {
		if slices.Contains(kindsOf(extension), task.Kind) {
			return extension.(helix.TaskHandler), nil //nolint:forcetypeassert // only handlers have kinds
		}
	}
	if !registered {
		return nil, fmt.Errorf("the agent %q, which a factory made, has no extension that handles tasks of the kind %q", task.Agent, task.Kind)
	}
	return nil, session.ErrUnknownAgent.WithMessage("the agent %q has no extension that handles tasks of the kind %q", task.Agent, task.Kind)
}
