package scripted

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// The tools that the demo model knows how to call, if the agent has them. A tool
// may answer with a string, or with any other value, which is shown as JSON.
const (
	DemoClock     = "clock"     // {}
	DemoCalculate = "calculate" // {"expression": "2 * (3 + 4)"}
	DemoRemember  = "remember"  // {"note": "…"}
	DemoRecall    = "recall"    // {}
	DemoForget    = "forget"    // {}
	DemoChoose    = "choose"    // {"question": "…", "options": ["…", "…"]}
)

// DemoConfig configures [Demo].
type DemoConfig struct {
	// Delay is the pause before every word. Defaults to none.
	Delay time.Duration
}

// Demo is a model for trying Helix without an API key. It understands a few
// words, calls the demo tools for them, and says what it is otherwise. What it
// answers depends on the request alone.
func Demo(config DemoConfig) llm.Model { return demo{config} }

type demo struct{ config DemoConfig }

// Generate implements [llm.Model].
func (d demo) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	step := answer(request).WithPace(d.config.Delay)
	step.byWord = true
	return step.play(ctx, emit, 1)
}

// answer decides what to say to the end of the transcript.
func answer(request *llm.Request) Step {
	if results := latestResults(request.Messages); len(results) > 0 {
		return Text(report(request.Messages, results))
	}
	words := lastWords(request.Messages)
	offered := func(tool string) bool {
		return request.ToolChoice.Mode != llm.ToolNone &&
			slices.ContainsFunc(request.Tools, func(t llm.Tool) bool { return t.Name == tool })
	}
	var parts []Part
	for _, call := range wanted(words) {
		if offered(call.content.Tool) {
			parts = append(parts, call)
		}
	}
	if len(parts) > 0 {
		return Reply(append([]Part{Say("Let me see. ")}, parts...)...)
	}
	if greeting.MatchString(words) {
		return Text("Hello! " + introduction(offered))
	}
	return Text("I did not understand that. " + introduction(offered))
}

var (
	greeting   = regexp.MustCompile(`(?i)\b(hello|hi|hey|good (morning|afternoon|evening))\b`)
	asksTime   = regexp.MustCompile(`(?i)\b(time|clock|date|today|what day)\b`)
	takesNote  = regexp.MustCompile(`(?is)^\s*(?:please\s+)?(?:remember|note)\b(?:\s+that\b)?[\s:,]*(.+)`)
	forgets    = regexp.MustCompile(`(?i)\bforget\b`)
	chooses    = regexp.MustCompile(`(?is)\b(?:choose|decide)\b(?:\s+between\b)?\s+(.+?)\s+(?:or|and)\s+(.+?)[\s.?!]*$`)
	commas     = regexp.MustCompile(`\s*,\s*`)
	asksNotes  = regexp.MustCompile(`(?i)\b(recall|notes|remember|told)\b`)
	expression = regexp.MustCompile(`[-(\s]*\d[\d\s.()*/%^+-]*`)
	operation  = regexp.MustCompile(`[\d)]\s*[-+*/%^]\s*[-(\s]*\d`)
)

// wanted lists the calls that the user's words ask for.
func wanted(words string) []Part {
	if note := takesNote.FindStringSubmatch(words); note != nil {
		return []Part{Calling(DemoRemember, map[string]string{"note": strings.TrimSpace(note[1])})}
	}
	if forgets.MatchString(words) {
		return []Part{Calling(DemoForget, nil)}
	}
	if choice := chooses.FindStringSubmatch(words); choice != nil {
		options := append(commas.Split(choice[1], -1), choice[2])
		return []Part{Calling(DemoChoose, map[string]any{"question": "Which one?", "options": options})}
	}
	if asksNotes.MatchString(words) {
		return []Part{Calling(DemoRecall, nil)}
	}
	var calls []Part
	if asksTime.MatchString(words) {
		calls = append(calls, Calling(DemoClock, nil))
	}
	for _, found := range expression.FindAllString(words, -1) {
		if operation.MatchString(found) {
			found = strings.TrimRight(strings.TrimSpace(found), ". ")
			calls = append(calls, Calling(DemoCalculate, map[string]string{"expression": found}))
		}
	}
	return calls
}

// introduction says what this is and what may be tried with the agent's tools.
func introduction(offered func(string) bool) string {
	var tries []string
	for _, try := range []struct{ tool, words string }{
		{DemoClock, `"What time is it?"`},
		{DemoCalculate, `"What is 6 * 7?"`},
		{DemoChoose, `"Choose between tea and coffee."`},
		{DemoRemember, `"Remember that the compass points north."`},
		{DemoForget, `"Forget everything."`},
		{DemoRecall, `"What do you remember?"`},
	} {
		if offered(try.tool) {
			tries = append(tries, try.words)
		}
	}
	text := "I am a scripted demo, not a language model: I know a few words, and the tools I call for them are real."
	if len(tries) > 0 {
		text += " Try " + strings.Join(tries, ", ") + "."
	}
	return text
}

// lastWords is the latest visible text of the user.
func lastWords(messages []session.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := &messages[i]; m.Role == session.RoleUser && !m.Hidden() {
			return m.Content()
		}
	}
	return ""
}

// latestResults lists the tool results that the transcript ends with.
func latestResults(messages []session.Message) []session.Part {
	var results []session.Part
	for i := len(messages) - 1; i >= 0 && messages[i].Role == session.RoleTool; i-- {
		results = append(results, messages[i].Parts...)
	}
	slices.Reverse(results)
	return results
}

// report puts tool results into words.
func report(messages []session.Message, results []session.Part) string {
	var lines []string
	for i := range results {
		result := &results[i]
		shown := show(result)
		switch {
		case result.Error != nil:
			lines = append(lines, result.Tool+" did not work: "+result.Error.Message)
		case result.Tool == DemoClock:
			lines = append(lines, "It is "+shown+".")
		case result.Tool == DemoCalculate:
			lines = append(lines, asked(messages, result.CallID)+" = "+shown)
		case result.Tool == DemoRemember:
			lines = append(lines, "I will remember that.")
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

// asked is the expression that a calculation was called with.
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

// show is a result in a form for people: a list of strings one by one, a string
// as it is, nothing for nothing, anything else as JSON.
func show(result *session.Part) string {
	raw := result.ResultJSON()
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
