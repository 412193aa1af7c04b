package scripted

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Tools that the demo model can call, if the agent has them. A tool may return a string, or
// any other value, which is shown as JSON.
const (
	DemoClock     = "clock"     // {}
	DemoCalculate = "calculate" // {"expression": "2 * (3 + 4)"}
	DemoRemember  = "remember"  // {"note": "…"}
	DemoRecall    = "recall"    // {}
	DemoForget    = "forget"    // {}
	DemoChoose    = "choose"    // {"question": "…", "options": ["…", "…"]}
	DemoOrder     = "order"     // {"note": "…"}
	DemoWork      = "work"      // {"task": "…", "seconds": 5}
)

// DemoConfig configures [Demo].
type DemoConfig struct {
	// Delay is the pause before every word. Defaults to none.
	Delay time.Duration
}

// Demo is a model for trying Helix without an API key. It understands a few
// words, calls the agent's tools for them, and says what it is otherwise. What it
// answers depends on the request alone.
//
//	Tell me a story.                           a longer text, to see it stream
//	What time is it?                           clock
//	What is 6 * 7?                             calculate; both, and several, at once
//	Remember that the compass points north.    remember
//	What do you remember?                      recall
//	Forget everything.                         forget
//	Choose between tea and coffee.             choose
//	Order ten pencils.                         order
//	Bake a loaf of bread.                      work, six times, one after the other
//	Ask the buyer to order ten pencils.        the sub-agent or companion called buyer
//	What have we talked about?                 how much of the conversation it was sent
//	Write a haiku.                             load_skill, if there is a skill called haiku
//	Lend Dune to Bob.                          lend, or lend_book: a tool whose name begins like the sentence
//
// Arguments are made of the user's words, by the types of the tool's schema.
//
// Asked by the framework, it summarises the conversation. It reports about as many tokens as
// a provider would.
//
// An agent with an output finishes with a value that fits the schema, made of the
// user's words.
func Demo(config DemoConfig) llm.Model { return demo{config} }

type demo struct{ config DemoConfig }

// Generate implements [llm.Model].
func (d demo) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	step := d.answer(request).WithPace(d.config.Delay)
	step.byWord = true
	reply, err := step.play(ctx, emit, 1)
	if reply != nil {
		reply.Usage = usage(request, reply)
	}
	return reply, err
}

// answer chooses the reply to the end of the transcript.
func (d demo) answer(request *llm.Request) Step {
	offers := offersOf(request)
	words := lastWords(request.Messages)
	if text, ok := summary(words); ok {
		return Text(text)
	}
	if offers.has(DemoWork) && asksWork.MatchString(words) {
		return d.work(request.Messages)
	}
	results := latestResults(request.Messages)
	finish, finishes := offers.tools[session.FinishTool]
	if step, ok := offers.useSkill(results); ok {
		return step
	}
	if len(results) > 0 && !finishes {
		return Text(report(request.Messages, results))
	}
	if len(results) == 0 {
		if calls := offers.calls(words); len(calls) > 0 {
			return Reply(append([]Part{Say("Let me see. ")}, calls...)...)
		}
	}
	switch {
	case finishes:
		return Finish(fitting(finish.Schema, words))
	case asksStory.MatchString(words):
		return Text(story)
	case asksTalk.MatchString(words):
		return Text(talk(request.Messages))
	case greeting.MatchString(words):
		return Text("Hello! " + offers.introduction())
	}
	return Text("I did not understand that. " + offers.introduction())
}

// lastWords returns the latest visible text of the user.
func lastWords(messages []session.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := &messages[i]; m.Role == session.RoleUser && !m.Hidden() {
			return m.Content()
		}
	}
	return ""
}

// latestResults returns the tool results at the end of the transcript.
func latestResults(messages []session.Message) []session.Part {
	var results []session.Part
	for i := len(messages) - 1; i >= 0 && messages[i].Role == session.RoleTool; i-- {
		results = append(results, messages[i].Parts...)
	}
	slices.Reverse(results)
	return results
}

// report describes tool results.
func report(messages []session.Message, results []session.Part) string {
	var lines []string
	for i := range results {
		result := &results[i]
		shown := show(result)
		switch {
		case result.Error != nil:
			lines = append(lines, result.Tool+" did not work: "+result.Error.Message)
		case strings.HasPrefix(result.Tool, subAgentPrefix):
			lines = append(lines, "The "+strings.TrimPrefix(result.Tool, subAgentPrefix)+" says: "+shown)
		case result.Tool == spawnTool:
			lines = append(lines, companionSaid(result, shown))
		case result.Tool == DemoClock:
			lines = append(lines, "It is "+shown+".")
		case result.Tool == DemoCalculate:
			lines = append(lines, asked(messages, result.CallID)+" = "+shown)
		case result.Tool == DemoRemember:
			lines = append(lines, "I will remember that.")
		case result.Tool == DemoOrder:
			lines = append(lines, "It is ordered.")
		case result.Tool == DemoForget:
			lines = append(lines, "It is all forgotten.")
		case result.Tool == DemoChoose:
			lines = append(lines, "So it is "+shown+".")
		case result.Tool == DemoRecall && shown == "":
			lines = append(lines, "I remember nothing yet.")
		case result.Tool == DemoRecall:
			lines = append(lines, "I remember: "+shown)
		default:
			lines = append(lines, result.Tool+" says: "+shown)
		}
	}
	return strings.Join(lines, "\n")
}

// asked returns the expression of a calculator call.
func asked(messages []session.Message, callID string) string {
	var in struct {
		Expression string `json:"expression"`
	}
	for i := len(messages) - 1; i >= 0; i-- {
		for _, call := range messages[i].Calls() {
			if call.CallID == callID && json.Unmarshal(call.Input, &in) == nil {
				return in.Expression
			}
		}
	}
	return "The result"
}

// companionSaid describes a companion's answer.
func companionSaid(result *session.Part, shown string) string {
	var said struct {
		Agent  string          `json:"agent"`
		Status string          `json:"status"`
		Output json.RawMessage `json:"output"`
		Error  string          `json:"error"`
	}
	if err := json.Unmarshal(result.ResultJSON(), &said); err != nil || said.Agent == "" {
		return shown
	}
	switch {
	case said.Error != "":
		return "The " + said.Agent + " could not do it: " + said.Error
	case len(said.Output) == 0:
		return "The " + said.Agent + " is at it."
	}
	return "The " + said.Agent + " says: " + showJSON(said.Output)
}

// show formats a result for people: a list of strings one by one, a string as it is, "" for
// null, anything else as JSON.
func show(result *session.Part) string { return showJSON(result.ResultJSON()) }

func showJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, "; ")
	}
	return string(raw)
}
