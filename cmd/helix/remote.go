package main

import (
	"cmp"
	"encoding/json"
	"log/slog"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/remote"
)

// buildOptions returns the options for building the agents of a file, including remote
// ones.
func buildOptions(log *slog.Logger) config.BuildOptions {
	return config.BuildOptions{Logger: log, Skills: demoSkills(), Remote: func(r config.Remote) (helix.SubAgent, error) {
		agent := &remote.Agent{
			URL: r.URL, Token: r.Token, Agent: cmp.Or(r.Agent, r.Name), Name: r.Name, Description: r.Description,
			Timeout: r.Timeout.Std(), Reach: r.Reach.Std(), Logger: log,
		}
		if r.Input != nil {
			agent.Input = helix.RawInput(json.RawMessage(r.Input))
		}
		return agent.SubAgent(), agent.Check()
	}}
}
