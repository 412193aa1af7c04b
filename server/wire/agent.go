package wire

import "encoding/json"

// Agents answers GET /agents.
type Agents struct {
	Items []Agent `json:"items"`
}

// Agent is an agent as the server offers it.
type Agent struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Tools        []Tool          `json:"tools"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	// SubAgents and Companions are the names of agents that it may call.
	SubAgents  []string `json:"subAgents"`
	Companions []string `json:"companions"`
}

// ToolKind says where a tool is carried out.
type ToolKind string

// The kinds of tools.
const (
	// ToolServer runs in the server.
	ToolServer ToolKind = "server"
	// ToolClient is carried out by whoever answers the call.
	ToolClient ToolKind = "client"
	// ToolApproval runs in the server; calls of it may wait for approval.
	ToolApproval ToolKind = "approval"
)

// Tool is something that the agent's model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Kind        ToolKind        `json:"kind"`
	InputSchema json.RawMessage `json:"inputSchema"`
}
