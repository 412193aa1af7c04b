package engine

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// This file reads an agent's definition: defaults applied, tools and agents found by name.

// stepLimit returns the limit of model calls per turn, or helix.Unlimited.
func stepLimit(a *helix.Agent) int {
	if a.MaxSteps == 0 {
		return helix.DefaultMaxSteps
	}
	return a.MaxSteps
}

// modelTimeout returns the timeout of one attempt of a model call, or 0 for none.
func modelTimeout(a *helix.Agent) time.Duration {
	return limitOr(a.ModelTimeout, helix.DefaultModelTimeout)
}

// callTimeout returns the timeout of one call of a tool, or 0 for none.
func callTimeout(t *helix.Tool) time.Duration { return limitOr(t.Timeout, helix.DefaultToolTimeout) }

// waitLimit returns how long a call waits for a person, or 0 for no limit.
func waitLimit(t *helix.Tool) time.Duration { return limitOr(t.Deadline, helix.DefaultDeadline) }

// limitOr applies a default to a limit: 0 means the default, and a negative limit means
// none, which it returns as 0.
func limitOr(limit, byDefault time.Duration) time.Duration {
	if limit == 0 {
		return byDefault
	}
	return max(limit, 0)
}

// mayWait reports whether calls of the tool may wait for a person.
func mayWait(t *helix.Tool) bool { return t.Approval != nil || t.OnClient() }

// blocks reports whether calls wait for the companion.
func blocks(c *helix.Companion) bool { return c.Mode != helix.NonBlocking }

// noHooks reports whether no hook is set.
func noHooks(h *helix.Hooks) bool { return h == nil || reflect.ValueOf(h).Elem().IsZero() }

// toolByName returns the agent's tool with the given name, or nil.
func toolByName(a *helix.Agent, name string) *helix.Tool {
	for i := range a.Tools {
		if a.Tools[i].Name == name {
			return &a.Tools[i]
		}
	}
	return nil
}

// subAgentTool returns the name of the tool that calls a sub-agent.
func subAgentTool(s *helix.SubAgent) string { return helix.SubAgentPrefix + s.AgentName() }

// subAgentByTool returns the agent's sub-agent with the given tool name, or nil.
func subAgentByTool(a *helix.Agent, tool string) *helix.SubAgent {
	for i := range a.SubAgents {
		if subAgentTool(&a.SubAgents[i]) == tool {
			return &a.SubAgents[i]
		}
	}
	return nil
}

// companionByName returns the agent's companion with the given agent name, or nil.
func companionByName(a *helix.Agent, name string) *helix.Companion {
	for i := range a.Companions {
		if a.Companions[i].Agent.Name == name {
			return &a.Companions[i]
		}
	}
	return nil
}

// task is the default input of a sub-agent.
type task struct {
	Task string `json:"task" jsonschema:"what to do, with everything needed to do it"`
}

var taskSchema = helix.InputOf[task]().Schema()

// subAgentInput returns the schema of the arguments of a sub-agent's tool.
func subAgentInput(s *helix.SubAgent) *helix.Schema {
	if s.Input == nil {
		return taskSchema
	}
	return s.Input.Schema()
}

// firstMessage returns the message with which a call begins a sub-agent's session.
func firstMessage(s *helix.SubAgent, input json.RawMessage) (session.Message, error) {
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

// describeSubAgent returns a sub-agent's description for the model.
func describeSubAgent(s *helix.SubAgent) string {
	if s.Agent == nil {
		return describe(s.Description, "", s.Name)
	}
	return describe(s.Description, s.Agent.Description, s.Agent.Name)
}

// describeCompanion returns a companion's description for the model.
func describeCompanion(c *helix.Companion) string {
	return describe(c.Description, c.Agent.Description, c.Agent.Name)
}

// describe chooses between the description for this caller and the agent's own.
func describe(here, own, name string) string {
	switch {
	case here != "":
		return here
	case own != "":
		return own
	}
	return "Hand a task to the agent " + name + "."
}
