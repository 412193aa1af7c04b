package helix

import "context"

// Registry holds the agents that a runtime knows by name. A runtime recovers, resumes and
// calls only agents that it knows.
type Registry interface {
	// Register adds agents and all agents that they may call. It refuses a second definition
	// of the same name; use Replace for that.
	Register(agents ...*Agent) error
	// RegisterFactory adds an agent that a function builds for each turn. Run it with
	// [Named].
	RegisterFactory(name string, factory Factory) error
	// Replace replaces the definitions of agents and of all agents that they may call. If
	// one of them is invalid, it replaces none. Running turns keep the definitions they
	// began with; turns that begin, resume or are recovered later use the new ones. All
	// other agents stay registered, because their sessions need them.
	Replace(agents ...*Agent) error
	// Unregister removes agents. Running turns keep their definitions; other sessions of the
	// agents wait until they are registered again.
	Unregister(names ...string)
	// UnregisterAll removes all agents.
	UnregisterAll()
	// HasAgent reports whether an agent is registered.
	HasAgent(name string) bool
	// Agents returns the names of the registered agents, sorted.
	Agents() []string
}

// Factory builds the agent of one turn, for example with the tools that the user may use.
// It is called when a turn begins, resumes or is recovered, in whichever process that
// happens, and must return equal definitions for equal requests. Agents that the built
// agent calls need not be registered, except remote ones and non-blocking companions. An
// unregistered one must not have the name of a registered one. The context ends when the
// factory returns. A factory that takes longer than [RuntimeOptions].HookTimeout has failed.
type Factory func(ctx context.Context, request FactoryRequest) (*Agent, error)

// FactoryRequest identifies the turn that a [Factory] builds an agent for.
type FactoryRequest struct {
	// Agent is the name that the agent must have.
	Agent     string
	SessionID string
	// User is whose session it is. Its tenant is always set.
	User User
}

// Named returns a reference to a registered agent, or to one that a factory builds.
// Executors accept it in place of a definition.
func Named(name string) *Agent { return &Agent{Name: name, named: true} }
