package server

import (
	"net/http"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
)

// Agents returns a function for [Config.Agents] that returns these agents.
func Agents(agents ...*helix.Agent) func() []*helix.Agent {
	return func() []*helix.Agent { return agents }
}

func agentRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/agents", summary: "List the agents of the server.",
		answers: ok(wire.Agents{}), handle: (*exchange).agents,
	}, {
		method: http.MethodGet, path: "/agents/{name}/skills", summary: "List the skills that an agent has for the user.",
		answers: ok(wire.Skills{}), handle: (*exchange).skills,
	}}
}

func (x *exchange) agents() error {
	out := wire.Agents{Items: []wire.Agent{}, MaxBody: x.server.cfg.Limits.Body}
	offered := x.server.offered()
	listed := x.server.listings.list(x.r.Context(), offered, x.server.cfg.Logger)
	for i, agent := range offered {
		described, err := describe(agent)
		if err != nil {
			return err
		}
		described.Tools = append(described.Tools, listed[i]...)
		out.Items = append(out.Items, described)
	}
	x.json(http.StatusOK, out)
	return nil
}

// describe describes an agent, without the tools of its extensions.
func describe(agent *helix.Agent) (wire.Agent, error) {
	out := wire.Agent{
		Name: agent.Name, Description: agent.Description, Tools: []wire.Tool{}, SubAgents: []string{}, Companions: []string{},
	}
	tools, err := describeTools(agent.Tools)
	if err != nil {
		return out, err
	}
	out.Tools = append(out.Tools, tools...)
	if agent.Output != nil {
		out.OutputSchema = agent.Output.Schema().JSON()
	}
	for i := range agent.SubAgents {
		out.SubAgents = append(out.SubAgents, agent.SubAgents[i].AgentName())
	}
	for i := range agent.Companions {
		out.Companions = append(out.Companions, agent.Companions[i].Agent.Name)
	}
	return out, nil
}

func describeTools(tools []helix.Tool) ([]wire.Tool, error) {
	out := make([]wire.Tool, len(tools))
	for i := range tools {
		tool := &tools[i]
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return nil, err
		}
		out[i] = wire.Tool{Name: tool.Name, Description: tool.Description, Kind: kindOf(tool), InputSchema: schema.JSON()}
	}
	return out, nil
}

func kindOf(tool *helix.Tool) wire.ToolKind {
	switch {
	case tool.OnClient():
		return wire.ToolClient
	case tool.Approval != nil:
		return wire.ToolApproval
	}
	return wire.ToolServer
}
