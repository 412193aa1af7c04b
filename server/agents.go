package server

import (
	"net/http"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
)

func agentRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/agents", summary: "List the agents of the server.",
		answers: ok(wire.Agents{}), handle: (*exchange).agents,
	}}
}

func (x *exchange) agents() error {
	out := wire.Agents{Items: []wire.Agent{}}
	for _, agent := range x.server.offered() {
		described, err := describe(agent)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, described)
	}
	x.json(http.StatusOK, out)
	return nil
}

func describe(agent *helix.Agent) (wire.Agent, error) {
	out := wire.Agent{
		Name: agent.Name, Description: agent.Description, Tools: []wire.Tool{}, SubAgents: []string{}, Companions: []string{},
	}
	for i := range agent.Tools {
		tool := &agent.Tools[i]
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, wire.Tool{
			Name: tool.Name, Description: tool.Description, Kind: kindOf(tool), InputSchema: schema.JSON(),
		})
	}
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

func kindOf(tool *helix.Tool) wire.ToolKind {
	switch {
	case tool.OnClient():
		return wire.ToolClient
	case tool.Approval != nil:
		return wire.ToolApproval
	}
	return wire.ToolServer
}
