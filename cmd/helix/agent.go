package main

import (
	"context"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

// notebook is the demo agent's state.
type notebook struct {
	Notes []string `json:"notes"`
}

// demoAgent is who one talks to.
func demoAgent(model llm.Model) *helix.Agent {
	return &helix.Agent{
		Name:         "demo",
		Description:  "Tells the time, calculates, remembers, and asks before it forgets.",
		Instructions: "You are a friendly assistant. Use the tools for the time, for arithmetic and for notes.",
		Model:        model,
		State:        helix.StateOf(notebook{}),
		Tools:        []helix.Tool{clock, calculate, remember, recall, forget, choose},
	}
}

var clock = helix.Tool{
	Name: scripted.DemoClock, Description: "Tell the date and time.", ReadOnly: true,
	Execute: helix.Func(func(context.Context, *helix.Call, struct{}) (string, error) {
		return time.Now().Format("Monday, 2 January 2006, 15:04:05 MST"), nil
	}),
}

type sum struct {
	Expression string `json:"expression" jsonschema:"such as 2 * (3 + 4)"`
}

var calculate = helix.Tool{
	Name: scripted.DemoCalculate, Description: "Calculate an arithmetic expression of + - * / % ^ and parentheses.", ReadOnly: true,
	Execute: helix.Func(func(_ context.Context, _ *helix.Call, in sum) (float64, error) {
		return evaluate(in.Expression)
	}),
}

type note struct {
	Note string `json:"note"`
}

// remember may run again after a crash: a note is only kept when the step is
// committed, and then once.
var remember = helix.Tool{
	Name: scripted.DemoRemember, Description: "Keep a note for later.", Idempotent: true,
	Execute: helix.Func(func(_ context.Context, call *helix.Call, in note) (string, error) {
		helix.Update(call, func(n *notebook) { n.Notes = append(n.Notes, in.Note) })
		return "noted", nil
	}),
}

var recall = helix.Tool{
	Name: scripted.DemoRecall, Description: "List the notes kept so far.", ReadOnly: true,
	Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) ([]string, error) {
		return helix.State[notebook](call).Notes, nil
	}),
}

// forget needs the user's consent: what is forgotten is gone.
var forget = helix.Tool{
	Name: scripted.DemoForget, Description: "Throw away all notes.", Idempotent: true, Approval: helix.ApproveAlways,
	Execute: helix.Func(func(_ context.Context, call *helix.Call, _ struct{}) (string, error) {
		helix.Update(call, func(n *notebook) { n.Notes = []string{} })
		return "forgotten", nil
	}),
}

type choice struct {
	Question string   `json:"question"`
	Options  []string `json:"options"`
}

// choose is carried out by whoever sits at the terminal.
var choose = helix.Tool{
	Name: scripted.DemoChoose, Description: "Let the user choose one of several options.", Execute: helix.OnClient[choice](),
}
