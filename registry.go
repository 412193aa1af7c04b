package helix

import "context"

// Registry is the agents that a runtime knows by their names. A runtime recovers,
// resumes and calls only agents that it knows.
type Registry interface {
	// Register makes agents, and all that they may call, known. It refuses a second
	// definition of a name: use Replace for that.
	Register(agents ...*Agent) error
	// RegisterFactory makes an agent known that a function makes for each turn. Run it
	// with [Named].
	RegisterFactory(name string, factory Factory) error
	// Replace makes agents, and all that they may call, known in place of others of the
	// same names, or none of them if one cannot be used. Turns that are under way go on
	// with the definitions they began with; those that begin, are resumed or taken over
	// have the new ones. Agents that are not replaced stay known, for the sake of their
	// sessions.
	Replace(agents ...*Agent) error
	// Unregister makes agents unknown. Turns that are under way continue with the
	// definitions they have; sessions of the agents are left alone until they are
	// registered again.
	Unregister(names ...string)
	// UnregisterAll is Unregister for every agent.
	UnregisterAll()
	// HasAgent reports whether an agent is known.
	HasAgent(name string) bool
	// Agents lists the names of the agents that are known, in order.
	Agents() []string
}

// Factory makes the agent of one turn, for example with the tools that the user may
// use. It is called whenever a turn begins, is resumed or is taken over, in whichever
// process that is, and must give equal definitions for equal requests. The agents that
// the made one may call need not be registered, except for remote ones and for
// companions that work by themselves; those that are not must not have the name of one
// that is.
type Factory func(ctx context.Context, request FactoryRequest) (*Agent, error)

// FactoryRequest says whose turn an agent is made for.
type FactoryRequest struct {
	// Agent is the name that the agent must have.
	Agent     string
	SessionID string
	// User is whose session it is. Its tenant is always set.
	User User
}

// Named stands for the agent that a runtime knows by a name: one that was registered,
// or that a factory makes. It is accepted wherever an executor takes an agent.
func Named(name string) *Agent { return &Agent{Name: name, named: true} }

// IsNamed reports whether the agent is one that [Named] gave: a name, and no definition.
func (a *Agent) IsNamed() bool { return a != nil && a.named }
