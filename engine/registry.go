package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// Registry is the agents that a process knows, by name: those that were registered,
// those that factories make, and the remote agents that they call.
type Registry struct {
	sessions session.Store // never changes
	// hookLimit limits factories, and what else belongs to agents. It guards itself.
	hookLimit *hookLimit
	log       *slog.Logger // never changes

	mu        sync.Mutex                         // guards what follows
	agents    map[string]*helix.Agent            // by name; a remote agent has that of its stand-in
	displaced map[weak.Pointer[helix.Agent]]bool // definitions that Replace put others in place of
	factories map[string]helix.Factory
	remotes   map[string]*standIn // by name
	learned   []session.TaskKind  // tasks of agents that are not in agents
}

func newRegistry(sessions session.Store, limit *hookLimit, log *slog.Logger) *Registry {
	return &Registry{
		sessions: sessions, hookLimit: limit, log: log, agents: map[string]*helix.Agent{}, displaced: map[weak.Pointer[helix.Agent]]bool{},
		factories: map[string]helix.Factory{}, remotes: map[string]*standIn{},
	}
}

// Register checks an agent and all agents that it may call, and makes them known by
// their names. It returns the definition to use: the agent, or, if the agent was
// replaced, the definition in its place.
func (r *Registry) Register(agent *helix.Agent) (*helix.Agent, error) {
	given, err := collect(agent)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outdated(agent) {
		return r.agents[agent.Name], nil
	}
	// Agents that it calls are found by name, too.
	maps.DeleteFunc(given, func(_ string, a *helix.Agent) bool { return r.outdated(a) })
	remotes, err := r.addStandIns(given)
	if err != nil {
		return nil, err
	}
	for name, a := range given {
		if known, ok := r.agents[name]; ok && known != a {
			return nil, twice(name)
		}
		if r.factories[name] != nil {
			return nil, session.Invalid("agent "+name, "is made by a factory here; run it with helix.Named, or unregister it first")
		}
	}
	r.warn(given)
	maps.Copy(r.agents, given)
	maps.Copy(r.remotes, remotes)
	return agent, nil
}

// warn logs what is allowed in new agents but is probably a mistake. The lock is held.
func (r *Registry) warn(given map[string]*helix.Agent) {
	for name, a := range given {
		if r.agents[name] == a {
			continue
		}
		for i := range a.Tools {
			if tool := &a.Tools[i]; tool.Description == "" {
				r.log.Warn("tool.description_missing", "agent", name, "tool", tool.Name, "effect", "the model knows only its name")
			}
		}
	}
}

// Replace registers agents, and all agents that they may call, in place of others of
// the same names. If one of them cannot be used, none is replaced. Turns in progress
// keep the definitions they began with; turns that begin, resume or are recovered
// later use the new ones. Agents that are not replaced stay registered, because they
// have sessions.
func (r *Registry) Replace(agents ...*helix.Agent) error {
	given, err := collect(agents...)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	remotes, err := r.addStandIns(given)
	if err != nil {
		return err
	}
	for name, a := range given {
		if known, ok := r.agents[name]; ok && known != a {
			r.displaced[weak.Make(known)] = true
		}
		delete(r.displaced, weak.Make(a)) // a definition may come back
		r.removeFactory(name)
	}
	maps.DeleteFunc(r.displaced, func(p weak.Pointer[helix.Agent], _ bool) bool { return p.Value() == nil })
	r.warn(given)
	maps.Copy(r.agents, given)
	maps.Copy(r.remotes, remotes)
	return nil
}

// outdated reports whether another definition was put in place of an agent. The lock is held.
func (r *Registry) outdated(agent *helix.Agent) bool {
	return len(r.displaced) > 0 && r.displaced[weak.Make(agent)]
}

// collect checks agents and all agents that they may call, and returns them by name.
func collect(agents ...*helix.Agent) (map[string]*helix.Agent, error) {
	given := map[string]*helix.Agent{}
	for _, agent := range agents {
		if agent == nil {
			return nil, agent.Check()
		}
		for _, a := range agent.Reaches() {
			known, ok := given[a.Name]
			switch {
			case ok && known == a:
				continue
			case ok:
				return nil, twice(a.Name)
			}
			if err := a.Check(); err != nil {
				return nil, err
			}
			given[a.Name] = a
		}
	}
	return given, nil
}

func twice(name string) error {
	return session.Invalid("agent "+name, "is already registered with another definition; use the same *Agent for every run, or call Replace")
}

// RegisterFactory registers a function that makes the agent of a name for each turn.
func (r *Registry) RegisterFactory(name string, factory helix.Factory) error {
	if err := helix.CheckAgentName(name); err != nil {
		return err
	}
	if factory == nil {
		return session.Invalid("factory", "of agent %s is nil", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[name] != nil || r.factories[name] != nil {
		return twice(name)
	}
	r.factories[name] = factory
	return nil
}

// Unregister removes agents. Turns in progress continue; sessions of the agents do not run
// until the agents are registered again.
func (r *Registry) Unregister(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		delete(r.agents, name)
		r.removeFactory(name)
		delete(r.remotes, name)
	}
}

// removeFactory removes a factory. The tasks that this process can carry out then are
// learned anew: the factory may have made agents of any name. The lock is held.
func (r *Registry) removeFactory(name string) {
	if r.factories[name] != nil {
		delete(r.factories, name)
		r.learned = nil
	}
}

// Agents lists the names of all agents, sorted.
func (r *Registry) Agents() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names()
}

// names lists the names of all agents, sorted. The lock is held.
func (r *Registry) names() []string {
	names := slices.Collect(maps.Keys(r.agents))
	names = slices.AppendSeq(names, maps.Keys(r.factories))
	slices.Sort(names)
	return names
}

// Knows reports whether an agent is registered or made by a factory.
func (r *Registry) Knows(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents[name] != nil || r.factories[name] != nil
}

// registered reports whether an agent is registered with its definition.
func (r *Registry) registered(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents[name] != nil
}

// Agent returns the agent of a session. If no agent of that name is registered, a
// factory may make it, or it may be one that the session's caller calls, if a factory
// makes the caller.
func (r *Registry) Agent(ctx context.Context, state *session.State) (*helix.Agent, error) {
	name := state.Agent
	agent, err := r.agentNamed(ctx, name, state)
	for range maxDepth {
		if agent != nil || err != nil || state.ParentID == "" {
			break
		}
		if state, err = r.sessions.Tenant(state.Tenant).Load(ctx, state.ParentID); err != nil {
			return nil, err
		}
		caller, err := r.agentNamed(ctx, state.Agent, state)
		if err != nil {
			return nil, err
		}
		if caller != nil {
			agent = reached(caller, name)
			break
		}
	}
	if agent == nil && err == nil {
		err = session.UnknownAgent(name)
	}
	return agent, err
}

// reached finds an agent among those that another may call, at any depth. It returns
// nil if there is none.
func reached(from *helix.Agent, name string) *helix.Agent {
	all := from.Reaches()
	if at := slices.IndexFunc(all, func(a *helix.Agent) bool { return a.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// agentNamed returns a registered agent, or the agent that a factory makes for a
// session. It returns nil if there is neither.
func (r *Registry) agentNamed(ctx context.Context, name string, of *session.State) (*helix.Agent, error) {
	r.mu.Lock()
	agent, factory := r.agents[name], r.factories[name]
	r.mu.Unlock()
	if agent != nil || factory == nil {
		return agent, nil
	}
	request := helix.FactoryRequest{
		Agent: name, SessionID: of.ID, User: helix.User{ID: of.UserID, Tenant: of.Tenant},
	}
	made, err := callLimitedOnce(ctx, r.hookLimit, name, func(ctx context.Context) (*helix.Agent, error) { return factory(ctx, request) })
	switch {
	case errors.Is(err, usercode.ErrTimeout), err != nil && ctx.Err() != nil: // another time it may be made
		r.logFactory(ctx, request, err)
		return nil, session.ErrUnavailable.WithCause(err, "the agent %q could not be made in time", name)
	case err != nil:
		r.logFactory(ctx, request, err)
		return nil, session.ErrUnknownAgent.WithCause(err, "the agent %q could not be made", name)
	case made == nil || made.Name != name:
		return nil, session.ErrUnknownAgent.WithCause(errOtherAgent, "the factory of agent %q returned another agent", name)
	}
	if err := r.checkMade(made); err != nil {
		return nil, err
	}
	return made, nil
}

// logFactory logs the failure of a factory that is a mistake in it: what it returns as an
// error may be the answer that there is no such agent.
func (r *Registry) logFactory(ctx context.Context, request helix.FactoryRequest, err error) {
	p, panicked := errors.AsType[*usercode.PanicError](err)
	if !panicked && !errors.Is(err, usercode.ErrTimeout) {
		return
	}
	attrs := []any{"tenant", request.User.Tenant, "session", request.SessionID, "agent", request.Agent, "error", err}
	if panicked {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	r.log.ErrorContext(ctx, "factory.failed", attrs...)
}

var errOtherAgent = errors.New("the agent is nil or has another name")

// checkMade checks an agent that a factory made, and all agents that it may call. A
// name must not mean one agent in it and another in the registry, because agents are
// found by name. Remote agents must be registered, because a stop may have to be
// delivered to them long after the turn.
func (r *Registry) checkMade(made *helix.Agent) error {
	given, err := collect(made)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, a := range given {
		if known := r.agents[name]; (known != nil && known != a) || (r.factories[name] != nil && a != made) {
			return session.Invalid("agent "+made.Name, "calls an agent %q that differs from the registered one; rename it", name)
		}
		for i := range a.SubAgents {
			sub := &a.SubAgents[i]
			if sub.Remote == nil {
				continue
			}
			if at := r.remotes[sub.Name]; at == nil || !sameRemote(at.remote, sub.Remote) {
				return session.Invalid("agent "+made.Name, "calls the remote agent %q, which is not registered with these settings; "+
					"register an agent that calls it", sub.Name)
			}
		}
	}
	return nil
}

// AgentSet identifies the set of registered names. Equal sets have equal values.
func (r *Registry) AgentSet() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256([]byte(strings.Join(r.names(), "\n")))
	return hex.EncodeToString(sum[:8])
}
