package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// The input of the companion tools.
type (
	spawnInput struct {
		Agent   string `json:"agent" jsonschema:"which agent to spawn"`
		Name    string `json:"name,omitempty" jsonschema:"what to call it from now on; one is made up if you give none"`
		Message string `json:"initialMessage" jsonschema:"what it shall do, with everything needed to do it"`
	}
	sendInput struct {
		Name    string `json:"name" jsonschema:"the companion's name"`
		Message string `json:"message" jsonschema:"what to tell it"`
	}
	nameInput struct {
		Name string `json:"name" jsonschema:"the companion's name"`
	}
	terminateInput struct {
		Name   string `json:"name" jsonschema:"the companion's name"`
		Reason string `json:"reason,omitempty" jsonschema:"why"`
	}
	noInput struct{}
)

// companionSchemas are the inputs of the companion tools, by tool.
var companionSchemas = map[string]*helix.Schema{
	helix.SpawnAgentTool:     helix.InputOf[spawnInput]().Schema(),
	helix.SendMessageTool:    helix.InputOf[sendInput]().Schema(),
	helix.ListChildrenTool:   helix.InputOf[noInput]().Schema(),
	helix.GetChildStatusTool: helix.InputOf[nameInput]().Schema(),
	helix.TerminateChildTool: helix.InputOf[terminateInput]().Schema(),
	helix.WaitForResultTool:  helix.InputOf[nameInput]().Schema(),
}

// companionSchema is the input of a companion tool, or nil if the agent has no such
// tool.
func (r *toolResolver) companionSchema(tool string) *helix.Schema {
	if len(r.agent.Companions) == 0 || (tool == helix.WaitForResultTool && !waitable(r.agent)) {
		return nil
	}
	return companionSchemas[tool]
}

// waitable reports whether an agent has a companion whose result it may wait for.
func waitable(agent *helix.Agent) bool {
	return slices.ContainsFunc(agent.Companions, func(c helix.Companion) bool { return blocks(&c) })
}

// companionTools are the tools through which an agent reaches its companions.
func (r *toolResolver) companionTools() []llm.Tool {
	agent := r.agent
	if len(agent.Companions) == 0 {
		return nil
	}
	var who strings.Builder
	for i := range agent.Companions {
		c := &agent.Companions[i]
		how := "answers at once"
		if !blocks(c) {
			how = "works in the background; a notice tells you when it is done"
		}
		fmt.Fprintf(&who, "\n- %s (%s): %s", c.Agent.Name, how, describeCompanion(c))
	}
	var tools []llm.Tool
	for _, tool := range [...]struct{ name, about string }{
		{helix.SpawnAgentTool, "Spawn an agent, or call one again: a name that is in use reaches the same agent, which remembers. Agents:" + who.String()},
		{helix.SendMessageTool, "Send a message to an agent that you have spawned."},
		{helix.ListChildrenTool, "List the agents that you have spawned, with their status."},
		{helix.GetChildStatusTool, "Return the status of an agent that you have spawned, and its last reply."},
		{helix.TerminateChildTool, "End an agent that you have spawned. Its name is then free for a new one."},
		{helix.WaitForResultTool, "Wait until an agent that you have spawned is done, and return its result."},
	} {
		if schema := r.companionSchema(tool.name); schema != nil {
			tools = append(tools, llm.Tool{Name: tool.name, Description: tool.about, Schema: schema.JSON()})
		}
	}
	return tools
}

var companionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// bindCompanion finds the companion that a call names, among the references that the
// session has, or what is wrong with the call.
func (r *toolResolver) bindCompanion(c *call, refs []session.ChildRef) *session.Error {
	switch c.Tool {
	case helix.ListChildrenTool:
		return nil
	case helix.SpawnAgentTool:
		return r.bindSpawned(c, refs)
	}
	var in struct{ Name string }
	_ = json.Unmarshal(c.part.Input, &in) // it was validated
	ref := findRef(refs, func(r *session.ChildRef) bool { return r.Name == in.Name })
	if ref == nil {
		return toolError(session.CodeToolInput, "you have spawned no agent named %q; see %s", in.Name, helix.ListChildrenTool)
	}
	c.Child, c.Name = ref.SessionID, ref.Name
	c.companion = readCompanionCall(c, ref.Agent, ref.Blocking)
	c.companion.status = ref.Status
	return nil
}

// bindSpawned does the same for a call that spawns a companion, or calls one again by
// its name.
func (r *toolResolver) bindSpawned(c *call, refs []session.ChildRef) *session.Error {
	var in spawnInput
	_ = json.Unmarshal(c.part.Input, &in) // it was validated
	companion := companionByName(r.agent, in.Agent)
	if companion == nil {
		return toolError(session.CodeToolInput, "there is no agent named %q to spawn", in.Agent)
	}
	if in.Name == "" {
		in.Name = freeName(in.Agent, refs)
	}
	if !companionName.MatchString(in.Name) {
		return toolError(session.CodeToolInput, "the name %q does not fit: use up to 64 letters, digits, _ or -", in.Name)
	}
	known := findRef(refs, func(r *session.ChildRef) bool { return r.Name == in.Name })
	if known != nil && known.Agent != in.Agent {
		return toolError(session.CodeToolInput, "%q is the name of another agent, %s", in.Name, known.Agent)
	}
	c.Name = in.Name
	if known != nil { // its id may have been made by an earlier version
		c.Child = known.SessionID
	} else {
		c.Child = session.NewChildID(r.sessionID, "agent", in.Name)
	}
	c.companion = readCompanionCall(c, in.Agent, blocks(companion))
	return nil
}

// freeName makes a name for a companion that was given none.
func freeName(agent string, refs []session.ChildRef) string {
	for n := 1; ; n++ {
		name := agent + "-" + strconv.Itoa(n)
		if findRef(refs, func(r *session.ChildRef) bool { return r.Name == name }) == nil {
			return name
		}
	}
}

// findRef finds a companion. One that a rewind has undone does not count, and its name
// is free.
func findRef(refs []session.ChildRef, is func(*session.ChildRef) bool) *session.ChildRef {
	for i := range refs {
		if refs[i].Mode == session.ChildPersistent && refs[i].Status != session.ChildSuperseded && is(&refs[i]) {
			return &refs[i]
		}
	}
	return nil
}

// readCompanionCall reads the input of a call.
func readCompanionCall(c *call, agent string, blocking bool) *companionCall {
	cc := &companionCall{agent: agent, blocking: blocking}
	switch c.Tool {
	case helix.SpawnAgentTool:
		var in spawnInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.message, cc.spawns, cc.consults = in.Message, true, true
	case helix.SendMessageTool:
		var in sendInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.message, cc.consults = in.Message, true
	case helix.TerminateChildTool:
		var in terminateInput
		_ = json.Unmarshal(c.part.Input, &in) // it was validated
		cc.reason = in.Reason
	}
	return cc
}
