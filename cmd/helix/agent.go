package main

import (
	"github.com/helixagents/helix"
	"github.com/helixagents/helix/builtin"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

// demoAgent returns the agent of the demo chat.
func demoAgent(model llm.Model) *helix.Agent {
	return &helix.Agent{
		Name:         "demo",
		Description:  "Tells the time, calculates, remembers, and asks before it forgets.",
		Instructions: "You are a friendly assistant. Use the tools for the time, for arithmetic and for notes.",
		Model:        model,
		Tools: []helix.Tool{
			called(scripted.DemoClock, builtin.Time()), called(scripted.DemoCalculate, builtin.Calculator()),
			called(scripted.DemoRemember, builtin.Remember()), called(scripted.DemoRecall, builtin.Recall()),
			called(scripted.DemoForget, builtin.Forget()), choose,
		},
	}
}

// called returns a tool under the name that the demo model uses.
func called(name string, tool helix.Tool) helix.Tool {
	tool.Name = name
	return tool
}

type choice struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

// choose is answered by the person at the terminal.
var choose = helix.Tool{
	Name: scripted.DemoChoose, Description: "Let the user choose one of several options.", Execute: helix.OnClient[choice](),
}
