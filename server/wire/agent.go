package wire

import (
	"encoding/json"

	"github.com/helixagents/helix/skill"
)

// Agents answers GET /agents.
type Agents struct {
	Items []Agent `json:"items"`
	// MaxBody is how many bytes the body of a request may have.
	MaxBody int64 `json:"maxBody"`
}

// Agent describes an agent of the server.
type Agent struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Tools        []Tool          `json:"tools"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	// SubAgents and Companions are the names of the agents that it may call.
	SubAgents  []string `json:"subAgents"`
	Companions []string `json:"companions"`
}

// ToolKind is where a tool runs.
type ToolKind string

// The kinds of tools.
const (
	// ToolServer runs in the server.
	ToolServer ToolKind = "server"
	// ToolClient runs on the client, which submits the result.
	ToolClient ToolKind = "client"
	// ToolApproval runs in the server; its calls may wait for approval.
	ToolApproval ToolKind = "approval"
)

// Tool describes a tool of an agent.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Kind        ToolKind        `json:"kind"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

// Skills answers GET /agents/{name}/skills.
type Skills struct {
	// Items are the skills that the agent has for the user, sorted by name.
	Items []Skill `json:"items"`
}

// Skill describes a skill of an agent.
type Skill skill.Metadata
