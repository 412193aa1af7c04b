package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/session"
)

// Register checks an agent and all that it may call, and makes them known by their
// names. It gives the definition to use: the agent, or, if that was replaced, the one
// in its place.
func (h *Handler) Register(agent *helix.Agent) (*helix.Agent, error) {
	given, err := collect(agent)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outdated(agent) {
		return h.agents[agent.Name], nil
	}
	// Those that it calls are found by name, too.
	maps.DeleteFunc(given, func(_ string, a *helix.Agent) bool { return h.outdated(a) })
	remotes, err := h.addStandIns(given)
	if err != nil {
		return nil, err
	}
	for name, a := range given {
		if known, ok := h.agents[name]; ok && known != a {
			return nil, twice(name)
		}
		if h.factories[name] != nil {
			return nil, session.Invalid("agent "+name, "is made by a factory here; run it with helix.Named, or unregister it first")
		}
	}
	h.warn(given)
	maps.Copy(h.agents, given)
	maps.Copy(h.remotes, remotes)
	return agent, nil
}

// warn logs what is allowed, and hardly what was meant, in agents that are new. The
// handler's lock is held.
func (h *Handler) warn(given map[string]*helix.Agent) {
	for name, a := range given {
		if h.agents[name] == a {
			continue
		}
		for i := range a.Tools {
			if tool := &a.Tools[i]; tool.Description == "" {
				h.log.Warn("tool without a description: the model has only its name to go by", "agent", name, "tool", tool.Name)
			}
		}
	}
}

// Replace makes agents, and all that they may call, known in place of others of
// the same names, or none of them if one cannot be used. Turns that are under way
// go on with the definitions they began with; those that begin, are resumed or
// taken over have the new ones. Agents that are not replaced stay known, for the
// sake of their sessions.
func (h *Handler) Replace(agents ...*helix.Agent) error {
	given, err := collect(agents...)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	remotes, err := h.addStandIns(given)
	if err != nil {
		return err
	}
	for name, a := range given {
		if known, ok := h.agents[name]; ok && known != a {
			h.displaced[weak.Make(known)] = true
		}
		delete(h.displaced, weak.Make(a)) // it is back
		delete(h.factories, name)
	}
	maps.DeleteFunc(h.displaced, func(p weak.Pointer[helix.Agent], _ bool) bool { return p.Value() == nil })
	h.warn(given)
	maps.Copy(h.agents, given)
	maps.Copy(h.remotes, remotes)
	return nil
}

// outdated reports whether an agent was displaced. The handler's lock is held.
func (h *Handler) outdated(agent *helix.Agent) bool {
	return len(h.displaced) > 0 && h.displaced[weak.Make(agent)]
}

// collect checks agents and all that they may call, and gives them by their names.
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
	return session.Invalid("agent "+name, "is registered already, as another definition; use the same *Agent for every run, or put the new one in its place with Replace")
}

// RegisterFactory makes an agent known that a function makes for each turn.
func (h *Handler) RegisterFactory(name string, factory helix.Factory) error {
	if err := helix.CheckAgentName(name); err != nil {
		return err
	}
	if factory == nil {
		return session.Invalid("factory", "of agent %s is nil", name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agents[name] != nil || h.factories[name] != nil {
		return twice(name)
	}
	h.factories[name] = factory
	return nil
}

// Unregister makes agents unknown. Turns that are under way go on; sessions of the
// agents are left alone until they are registered again.
func (h *Handler) Unregister(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		delete(h.agents, name)
		delete(h.factories, name)
		delete(h.remotes, name)
	}
}

// Agents lists the names of the agents that are known, in order.
func (h *Handler) Agents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names()
}

// names lists the known agents. The handler's lock is held.
func (h *Handler) names() []string {
	names := slices.Collect(maps.Keys(h.agents))
	names = slices.AppendSeq(names, maps.Keys(h.factories))
	slices.Sort(names)
	return names
}

// Knows reports whether an agent is registered, or made by a factory.
func (h *Handler) Knows(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agents[name] != nil || h.factories[name] != nil
}

// registered reports whether an agent is registered with its definition.
func (h *Handler) registered(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agents[name] != nil
}

// Agent finds the agent of a session, or has it made for the session. One that is not
// known by its name may be among those that the session's caller may call, if a factory
// made the caller.
func (h *Handler) Agent(ctx context.Context, state *session.State) (*helix.Agent, error) {
	name := state.Agent
	agent, err := h.agentNamed(ctx, name, state)
	for range maxDepth {
		if agent != nil || err != nil || state.ParentID == "" {
			break
		}
		if state, err = h.cfg.Backend.Sessions().Tenant(state.Tenant).Load(ctx, state.ParentID); err != nil {
			return nil, err
		}
		caller, err := h.agentNamed(ctx, state.Agent, state)
		if err != nil {
			return nil, err
		}
		if caller != nil {
			agent = reached(caller, name)
			break
		}
	}
	if agent == nil && err == nil {
		err = unknownAgent(name)
	}
	return agent, err
}

func unknownAgent(name string) error {
	return session.ErrUnknownAgent.WithMessage("no agent named %q is registered here", name)
}

// reached finds an agent among those that another may call, at any depth.
func reached(from *helix.Agent, name string) *helix.Agent {
	all := from.Reaches()
	if at := slices.IndexFunc(all, func(a *helix.Agent) bool { return a.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// callee is the agent of a session that the turn opens or goes on with.
func (t *turn) callee(ctx context.Context, name, id string) (*helix.Agent, error) {
	state := t.state
	state.ID = id
	agent, err := t.h.agentNamed(ctx, name, &state)
	if agent == nil && err == nil {
		agent = reached(t.agent, name)
	}
	if agent == nil && err == nil {
		err = unknownAgent(name)
	}
	return agent, err
}

// agentNamed finds an agent that is registered, or has it made for a session; nil if it
// is not known.
func (h *Handler) agentNamed(ctx context.Context, name string, of *session.State) (*helix.Agent, error) {
	h.mu.Lock()
	agent, factory := h.agents[name], h.factories[name]
	h.mu.Unlock()
	if agent != nil || factory == nil {
		return agent, nil
	}
	request := helix.FactoryRequest{
		Agent: name, SessionID: of.ID, User: helix.User{ID: of.UserID, Tenant: of.Tenant},
	}
	var made *helix.Agent
	err := usercode.Guard(func() (err error) {
		made, err = factory(ctx, request)
		return err
	})
	switch {
	case err != nil:
		return nil, session.ErrUnknownAgent.WithCause(err, "the agent %q could not be made", name)
	case made == nil || made.Name != name:
		return nil, session.ErrUnknownAgent.WithMessage("the factory of agent %q made another one", name)
	}
	if err := h.checkMade(made); err != nil {
		return nil, err
	}
	return made, nil
}

// checkMade checks an agent that a factory made, and all that it may call. Agents are
// found by their names, so a name must not mean one thing in it and another here, and
// remote agents, whose stops may be owed long after the turn, are known to the process.
func (h *Handler) checkMade(made *helix.Agent) error {
	given, err := collect(made)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, a := range given {
		if known := h.agents[name]; (known != nil && known != a) || (h.factories[name] != nil && a != made) {
			return session.Invalid("agent "+made.Name, "calls another agent %q than the one that is registered; rename it", name)
		}
		for i := range a.SubAgents {
			sub := &a.SubAgents[i]
			if sub.Remote == nil {
				continue
			}
			if at := h.remotes[sub.Name]; at == nil || !sameRemote(at.remote, sub.Remote) {
				return session.Invalid("agent "+made.Name, "calls the remote agent %q, which is not registered as it is; "+
					"register an agent that calls it", sub.Name)
			}
		}
	}
	return nil
}

// AgentSet identifies the agents that are registered: the same names, in whatever
// order, have the same.
func (h *Handler) AgentSet() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := sha256.Sum256([]byte(strings.Join(h.names(), "\n")))
	return hex.EncodeToString(sum[:8])
}
