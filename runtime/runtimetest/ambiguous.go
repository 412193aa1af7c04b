package runtimetest

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// badTwice has every kind of call made with an argument that is given twice, so that
// programs would read different calls in the same bytes.
func badTwice(s *Stage) {
	var ran tally
	agent := newAgent(scripted.New(
		scripted.Reply(
			scripted.Calling("double", `{"n":1,"n":2}`),
			scripted.Calling("pick", `{"n":1,"\u006e":2}`),
			scripted.Calling("pay", `{"n":5000,"n":5}`),
			scripted.Calling("subagent__child", `{"task":"a","task":"b"}`),
			scripted.Calling(helix.SpawnAgentTool, `{"agent":"friend","name":"f","initialMessage":"a","initialMessage":"b"}`),
			scripted.Calling("raw", `{"order":{"amount":5000,"amount":5}}`),
			scripted.Calling("raw", `{"order":{"text":"\ud800"}}`)),
		scripted.Finish(`{"n":1,"n":2}`), scripted.Finish(`{"n":3}`)),
		double(), onClient("pick"), guarded(&ran, "pay"), helix.Tool{Name: "raw", Execute: helix.RawFunc(json.RawMessage(`{"type":"object"}`), nil)})
	agent.SubAgents = []helix.SubAgent{{Agent: named("child", scripted.New())}}
	agent.Companions = []helix.Companion{{Agent: named("friend", scripted.New())}}
	agent.Output = helix.OutputOf[num]()
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(string(res.Output), `{"n":3}`, "output")
	s.same(s.entries("s-1"), "", "waits")
	s.same(ran.of("pay"), 0, "payments")
	var told []string
	for _, m := range s.messages("s-1") {
		for i := range m.Parts {
			if e := m.Parts[i].Error; e != nil {
				s.refused(e, code(session.CodeToolInput))
				_, why, _ := strings.Cut(e.Message, " does not fit: ")
				told = append(told, m.Parts[i].Tool+": "+why)
			}
		}
	}
	s.same(strings.Join(told, "\n"), strings.Join([]string{
		`double: the argument "n" is given twice`,
		`pick: the argument "n" is given twice`,
		`pay: the argument "n" is given twice`,
		`subagent__child: the argument "task" is given twice`,
		`companion__spawnAgent: the argument "initialMessage" is given twice`,
		`raw: the argument "order.amount" is given twice`,
		`raw: the argument "order.text" holds half of a surrogate pair`,
		`__finish__: the argument "n" is given twice`,
	}, "\n"), "what the model was told")
}

// badUndeclared has calls made with arguments that a schema does not declare, and with
// one that a schema lets pass.
func badUndeclared(s *Stage) {
	var ran tally
	echo := func(name, schema string) helix.Tool {
		return helix.Tool{Name: name, Execute: helix.RawFunc(json.RawMessage(schema), func(_ context.Context, _ *helix.Call, input json.RawMessage) (json.RawMessage, error) {
			ran.add(name)
			return input, nil
		})}
	}
	const order = `"type":"object","properties":{"order":{"type":"object","properties":{"amount":{"type":"number"}}}}`
	tools := []helix.Tool{
		echo("closed", `{`+order+`}`), echo("open", `{`+order+`,"additionalProperties":true}`),
		{Name: "ask", Execute: helix.RawOnClient(json.RawMessage(`{` + order + `}`))},
	}
	agent := newAgent(scripted.New(scripted.Reply(
		scripted.Calling("closed", `{"order":{"amount":5},"Order":{"amount":6}}`),
		scripted.Calling("closed", `{"order":{"amount":5,"Amount":6}}`),
		scripted.Calling("ask", `{"order":{},"to":"x"}`),
		scripted.Calling("subagent__child", `{"order":{"to":"x"}}`),
		scripted.Calling("open", `{"order":{"amount":5},"to":"x"}`),
		scripted.Calling("open", `{"order":{"to":"x"}}`)), scripted.Text("I see.")), tools...)
	agent.SubAgents = []helix.SubAgent{{Agent: named("child", scripted.New()), Input: helix.RawInput(json.RawMessage(`{` + order + `}`))}}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.same(s.entries("s-1"), "", "waits")
	s.same(ran.of("closed"), 0, "calls")
	var told []string
	for _, m := range s.messages("s-1") {
		for i := range m.Parts {
			switch p := &m.Parts[i]; {
			case p.Kind != session.PartToolResult:
			case p.Error != nil:
				s.refused(p.Error, code(session.CodeToolInput))
				told = append(told, p.Error.Message)
			default:
				told = append(told, p.Tool+": "+string(p.ResultJSON()))
			}
		}
	}
	s.same(strings.Join(told, "\n"), strings.Join([]string{
		`the input of closed does not fit: undeclared argument "Order"`,
		`the input of closed does not fit: undeclared argument "order.Amount"`,
		`the input of ask does not fit: undeclared argument "to"`,
		`the input of subagent__child does not fit: undeclared argument "order.to"`,
		`open: {"order":{"amount":5},"to":"x"}`,
		`the input of open does not fit: undeclared argument "order.to"`,
	}, "\n"), "what the model was told")
}
