package helix

import (
	"encoding/json"
	"fmt"

	"github.com/helixagents/helix/session"
)

// The names of the tools through which agents reach others.
const (
	// SubAgentPrefix begins the name of a sub-agent's tool; the agent's name follows.
	SubAgentPrefix = "subagent__"

	CompanionPrefix    = "companion__"
	SpawnAgentTool     = CompanionPrefix + "spawnAgent"
	SendMessageTool    = CompanionPrefix + "sendMessage"
	ListChildrenTool   = CompanionPrefix + "listChildren"
	GetChildStatusTool = CompanionPrefix + "getChildStatus"
	TerminateChildTool = CompanionPrefix + "terminateChild"
	// WaitForResultTool is offered where a companion is [Blocking].
	WaitForResultTool = CompanionPrefix + "waitForResult"
)

// SubAgent is an agent that another calls as the tool subagent__<name>. Each call
// is a session of its own; its output, or else its reply, is the call's result.
type SubAgent struct {
	// Agent is the agent, or else Remote is one on another server.
	Agent  *Agent
	Remote Remote
	// Name is what a remote agent is called here. It is an agent's name like any
	// other: no two agents that a process knows share one.
	Name string
	// Description tells the model what to call it for. Defaults to the agent's.
	Description string
	// Input describes the call's arguments; see [InputOf]. Defaults to one text,
	// "task".
	Input *InputType
	// Prompt makes the sub-agent's first message of the arguments. By default it is
	// the task, or, with an Input of your own, the arguments as JSON.
	Prompt func(input json.RawMessage) (string, error)
}

// CompanionMode says whether an agent waits for its companion.
type CompanionMode string

// The modes of companions.
const (
	// Blocking: the call that starts it or sends it a message waits for its answer.
	Blocking CompanionMode = "blocking"
	// NonBlocking: it works on by itself, in a stream of its own, and its answer
	// arrives as a notice.
	NonBlocking CompanionMode = "non_blocking"
)

// Companion is an agent that lives on between calls: it is spawned under a name,
// is sent messages, and remembers.
type Companion struct {
	Agent *Agent
	// Mode defaults to Blocking.
	Mode CompanionMode
	// Description tells the model what it is for. Defaults to the agent's.
	Description string
}

// Blocks reports whether calls wait for the companion.
func (c *Companion) Blocks() bool { return c.Mode != NonBlocking }

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

// RawInput is [InputOf] for input whose schema is not a Go type's.
func RawInput(schema json.RawMessage) *InputType {
	parsed, err := parseObjectSchema(schema)
	if err == nil {
		err = parsed.undeclarable
	}
	return &InputType{schema: parsed, err: err}
}

// Schema describes the input.
func (i *InputType) Schema() *Schema { return i.schema }

// task is the input of a sub-agent that declares none.
type task struct {
	Task string `json:"task" jsonschema:"what to do, with everything needed to do it"`
}

var taskInput = InputOf[task]()

// AgentName is the name of the agent, wherever it is.
func (s *SubAgent) AgentName() string {
	if s.Agent == nil {
		return s.Name
	}
	return s.Agent.Name
}

// Tool is the name of the sub-agent's tool.
func (s *SubAgent) Tool() string { return SubAgentPrefix + s.AgentName() }

// InputSchema describes the arguments of a call.
func (s *SubAgent) InputSchema() *Schema {
	if s.Input == nil {
		return taskInput.schema
	}
	return s.Input.schema
}

// About tells the model what the sub-agent is for.
func (s *SubAgent) About() string {
	if s.Agent == nil {
		return describe(s.Description, &Agent{Name: s.Name})
	}
	return describe(s.Description, s.Agent)
}

// About tells the model what the companion is for.
func (c *Companion) About() string { return describe(c.Description, c.Agent) }

func describe(own string, agent *Agent) string {
	switch {
	case own != "":
		return own
	case agent.Description != "":
		return agent.Description
	}
	return "Hand a task to the agent " + agent.Name + "."
}

// Message is what a call begins the sub-agent's session with.
func (s *SubAgent) Message(input json.RawMessage) (session.Message, error) {
	if s.Prompt != nil {
		text, err := s.Prompt(input)
		return session.UserText(text), err
	}
	if s.Input == nil {
		var in task
		err := json.Unmarshal(input, &in)
		return session.UserText(in.Task), err
	}
	return session.UserText(string(input)), nil
}

// SubAgent finds a sub-agent by its tool.
func (a *Agent) SubAgent(tool string) (*SubAgent, bool) {
	for i := range a.SubAgents {
		if a.SubAgents[i].Tool() == tool {
			return &a.SubAgents[i], true
		}
	}
	return nil, false
}

// Companion finds a companion by its agent's name.
func (a *Agent) Companion(name string) (*Companion, bool) {
	for i := range a.Companions {
		if a.Companions[i].Agent.Name == name {
			return &a.Companions[i], true
		}
	}
	return nil, false
}

// Reaches lists the agent and all agents that it may call, directly or not, each
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
			return a.invalid(field, "has a Name, %q, which is for a Remote: an Agent has its own", s.Name)
		case s.Agent == nil && !agentName.MatchString(name):
			return a.invalid(field, "has the Name %q, which must begin with a letter", name)
		case !agentToolName.MatchString(name):
			return a.invalid(field, "has a name that cannot be part of a tool's: use up to 50 letters, digits, _ or -")
		case seen[name]:
			return a.invalid("SubAgents", "holds %q twice", name)
		case s.Input != nil && s.Input.err != nil:
			return a.invalid(field, "has an Input that cannot be used: %v", s.Input.err)
		}
		if remote, ok := s.Remote.(interface{ Check() error }); ok {
			if err := remote.Check(); err != nil {
				return a.invalid(field, "has a Remote that cannot be used: %v", err)
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
			return a.invalid("Companions", "holds %q twice", c.Agent.Name)
		}
		seen[c.Agent.Name] = true
	}
	return nil
}
