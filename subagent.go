package helix

import (
	"encoding/json"
	"fmt"
)

// Names of the tools with which agents call others.
const (
	// SubAgentPrefix is the prefix of a sub-agent's tool; the agent's name follows.
	SubAgentPrefix = "subagent__"

	CompanionPrefix    = "companion__"
	SpawnAgentTool     = CompanionPrefix + "spawnAgent"
	SendMessageTool    = CompanionPrefix + "sendMessage"
	ListChildrenTool   = CompanionPrefix + "listChildren"
	GetChildStatusTool = CompanionPrefix + "getChildStatus"
	TerminateChildTool = CompanionPrefix + "terminateChild"
	// WaitForResultTool is available if a companion is [Blocking].
	WaitForResultTool = CompanionPrefix + "waitForResult"
)

// SubAgent is an agent that another agent calls as the tool subagent__<name>. Each call has
// its own session. The call's result is that session's output or, without one, its reply.
type SubAgent struct {
	// Set either Agent or, for an agent on another server, Remote.
	Agent  *Agent
	Remote Remote
	// Name is the local name of a remote agent. It must be unique among all agents that the
	// process knows.
	Name string
	// Description tells the model when to call the agent. Defaults to the agent's.
	Description string
	// Input declares the call's arguments; see [InputOf]. Defaults to one string, "task".
	Input *InputType
	// Prompt builds the sub-agent's first message from the arguments. Defaults to the task
	// or, with an Input, to the arguments as JSON.
	Prompt func(input json.RawMessage) (string, error)
}

// CompanionMode determines whether an agent waits for its companion.
type CompanionMode string

// The modes of companions.
const (
	// Blocking: a call that spawns the companion or sends it a message waits for its answer.
	Blocking CompanionMode = "blocking"
	// NonBlocking: the companion works in the background, in its own stream, and its answer
	// arrives as a notice.
	NonBlocking CompanionMode = "non_blocking"
)

// Companion is an agent whose session outlives a call: it is spawned under a name, receives
// messages and remembers them.
type Companion struct {
	Agent *Agent
	// Mode defaults to Blocking.
	Mode CompanionMode
	// Description tells the model what the companion is for. Defaults to the agent's.
	Description string
}

// InputType declares a typed input.
type InputType struct {
	schema *Schema
	err    error
}

// InputOf declares input of type T, a struct or a map.
func InputOf[T any]() *InputType {
	schema, err := SchemaFor[T]()
	if err == nil && !schema.IsObject() {
		err = fmt.Errorf("%T must be a struct or a map, so that its arguments have names", *new(T))
	}
	return &InputType{schema: schema, err: err}
}

// RawInput is [InputOf] with an explicit JSON Schema.
func RawInput(schema json.RawMessage) *InputType {
	parsed, err := parseObjectSchema(schema)
	if err == nil {
		_, err = parsed.declared()
	}
	return &InputType{schema: parsed, err: err}
}

// Schema returns the input's schema.
func (i *InputType) Schema() *Schema { return i.schema }

// AgentName returns the name of the local or remote agent.
func (s *SubAgent) AgentName() string {
	if s.Agent == nil {
		return s.Name
	}
	return s.Agent.Name
}

// Reaches returns the agent and all agents that it may call, directly or indirectly, each
// once.
func (a *Agent) Reaches() []*Agent {
	found := []*Agent{a}
	seen := map[*Agent]bool{a: true}
	for i := 0; i < len(found); i++ {
		for _, next := range found[i].children() {
			if next != nil && !seen[next] {
				seen[next] = true
				found = append(found, next)
			}
		}
	}
	return found
}

func (a *Agent) children() []*Agent {
	var out []*Agent
	for i := range a.SubAgents {
		out = append(out, a.SubAgents[i].Agent)
	}
	for i := range a.Companions {
		out = append(out, a.Companions[i].Agent)
	}
	return out
}

func (a *Agent) checkChildren() error {
	seen := map[string]bool{}
	for i := range a.SubAgents {
		s := &a.SubAgents[i]
		if s.Agent == nil && s.Remote == nil {
			return a.invalid("SubAgents", "has an entry with neither an Agent nor a Remote")
		}
		name := s.AgentName()
		field := "sub-agent " + name
		switch {
		case s.Agent != nil && s.Remote != nil:
			return a.invalid(field, "has both an Agent and a Remote: choose one")
		case s.Agent != nil && s.Name != "":
			return a.invalid(field, "has the Name %q, which is only for a Remote: an Agent has its own", s.Name)
		case s.Agent == nil && !agentName.MatchString(name):
			return a.invalid(field, "has the Name %q, which must begin with a letter", name)
		case !agentToolName.MatchString(name):
			return a.invalid(field, "has a name that cannot be part of a tool's name: use up to 50 letters, digits, _ or -")
		case seen[name]:
			return a.invalid("SubAgents", "contains %q twice", name)
		case s.Input != nil && s.Input.err != nil:
			return a.invalid(field, "has an invalid Input: %v", s.Input.err)
		}
		if remote, ok := s.Remote.(interface{ Check() error }); ok {
			if err := remote.Check(); err != nil {
				return a.invalid(field, "has an invalid Remote: %v", err)
			}
		}
		seen[name] = true
	}
	seen = map[string]bool{}
	for i := range a.Companions {
		c := &a.Companions[i]
		if c.Agent == nil {
			return a.invalid("Companions", "has an entry without an Agent")
		}
		field := "companion " + c.Agent.Name
		switch {
		case c.Mode != "" && c.Mode != Blocking && c.Mode != NonBlocking:
			return a.invalid(field, "has the Mode %q, which is neither %s nor %s", c.Mode, Blocking, NonBlocking)
		case seen[c.Agent.Name]:
			return a.invalid("Companions", "contains %q twice", c.Agent.Name)
		}
		seen[c.Agent.Name] = true
	}
	return nil
}
