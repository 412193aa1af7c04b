package scripted

import (
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/skill"
)

// The names of the framework's tools for calling other agents.
const (
	subAgentPrefix = "subagent__"
	spawnTool      = "companion__spawnAgent"
)

var (
	greeting   = regexp.MustCompile(`(?i)\b(hello|hi|hey|good (morning|afternoon|evening))\b`)
	asksTime   = regexp.MustCompile(`(?i)\b(time|clock|date|today|what day)\b`)
	takesNote  = regexp.MustCompile(`(?is)^\s*(?:please\s+)?(?:remember|note)\b(?:\s+that\b)?[\s:,]*(.+)`)
	forgets    = regexp.MustCompile(`(?i)\bforget\b`)
	chooses    = regexp.MustCompile(`(?is)\b(?:choose|decide)\b(?:\s+between\b)?\s+(.+?)\s+(?:or|and)\s+(.+?)[\s.?!]*$`)
	commas     = regexp.MustCompile(`\s*,\s*`)
	asksNotes  = regexp.MustCompile(`(?i)\b(recall|notes|remembers?|told|knows?)\b`)
	expression = regexp.MustCompile(`[-(\s]*\d[\d\s.()*/%^+-]*`)
	asksStory  = regexp.MustCompile(`(?i)\b(story|tale|poem)\b`)
	orders     = regexp.MustCompile(`(?is)^\s*(?:please\s+)?order\s+(.+?)[\s.!]*$`)
	addresses  = regexp.MustCompile(`(?is)^\s*(?:please\s+)?(?:ask|tell|have|let)\s+(?:the\s+|my\s+)?([\w-]+)[\s,:]+(?:to\s+|that\s+)?(.+?)\s*$`)
	companion  = regexp.MustCompile(`(?m)^- ([\w.-]+) \(`)
	operation  = regexp.MustCompile(`[\d)]\s*[-+*/%^]\s*[-(\s]*\d`)
)

// offers are the tools of an agent.
type offers struct {
	tools map[string]*llm.Tool
}

func offersOf(request *llm.Request) offers {
	o := offers{tools: map[string]*llm.Tool{}}
	if request.ToolChoice.Mode == llm.ToolNone {
		return o
	}
	for i := range request.Tools {
		o.tools[request.Tools[i].Name] = &request.Tools[i]
	}
	return o
}

func (o offers) has(tool string) bool { return o.tools[tool] != nil }

// calls returns the calls that the user's words request, as far as the agent has the tools.
func (o offers) calls(words string) []Part {
	if call, ok := o.addressed(words); ok {
		return []Part{call}
	}
	if name, ok := o.skill(words); ok {
		return []Part{Calling(skill.LoadTool, map[string]string{"name": name})}
	}
	var out []Part
	for _, call := range wanted(words) {
		if o.has(call.content.Tool) {
			out = append(out, o.fit(call, words))
		}
	}
	if call, ok := o.named(words); ok && len(out) == 0 {
		return []Part{call}
	}
	return out
}

// addressed returns the call of another agent that the user's words name.
func (o offers) addressed(words string) (Part, bool) {
	m := addresses.FindStringSubmatch(words)
	if m == nil {
		return Part{}, false
	}
	name, task := strings.ToLower(m[1]), m[2]
	if o.has(subAgentPrefix + name) {
		return Calling(subAgentPrefix+name, map[string]string{"task": task}), true
	}
	if slices.Contains(o.companions(), name) {
		return Calling(spawnTool, map[string]string{"agent": name, "name": name, "initialMessage": task}), true
	}
	return Part{}, false
}

// companions returns the agents in the description of the companion tool.
func (o offers) companions() []string {
	var names []string
	if tool := o.tools[spawnTool]; tool != nil {
		for _, m := range companion.FindAllStringSubmatch(tool.Description, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// wanted returns the calls that the user's words request.
func wanted(words string) []Part {
	if note := takesNote.FindStringSubmatch(words); note != nil {
		return []Part{Calling(DemoRemember, map[string]string{"note": strings.TrimSpace(note[1])})}
	}
	if order := orders.FindStringSubmatch(words); order != nil {
		return []Part{Calling(DemoOrder, map[string]string{"note": order[1]})}
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

// introduction describes the demo and what to try with the agent's tools.
func (o offers) introduction() string {
	var tries, agents []string
	for _, try := range []struct{ tool, words string }{
		{DemoClock, `"What time is it?"`},
		{DemoCalculate, `"What is 6 * 7?"`},
		{DemoChoose, `"Choose between tea and coffee."`},
		{DemoRemember, `"Remember that the compass points north."`},
		{DemoOrder, `"Order ten pencils."`},
		{DemoForget, `"Forget everything."`},
		{DemoRecall, `"What do you remember?"`},
		{DemoWork, `"Bake a loaf of bread."`},
	} {
		if o.has(try.tool) {
			tries = append(tries, try.words)
		}
	}
	for tool := range o.tools {
		if name, ok := strings.CutPrefix(tool, subAgentPrefix); ok {
			agents = append(agents, name)
		}
	}
	for _, name := range o.skills() {
		tries = append(tries, `"Use the skill `+name+`."`)
	}
	for _, tool := range o.others() {
		verb, _ := splitName(tool)
		if try := `"` + strings.ToUpper(verb[:1]) + verb[1:] + ` …"`; !slices.Contains(tries, try) {
			tries = append(tries, try)
		}
	}
	slices.Sort(agents)
	for _, name := range append(agents, o.companions()...) {
		tries = append(tries, `"Ask the `+name+` what it can do."`)
	}
	text := "I am a scripted demo, not a language model: I know a few words, and the tools I call for them are real."
	if len(tries) > 0 {
		text += " Try " + strings.Join(tries, ", ") + "."
	}
	return text
}

// story is long enough to watch it stream.
const story = `Once there was a lighthouse keeper who wrote every ship that passed into a book. One night the wind blew the ` +
	`lamp out, the stairs away and the keeper off his feet. In the morning he could not say where he had been in his work. ` +
	`But the book lay open where it always lay, and the last line in it was the last ship he had seen. So he lit the lamp, ` +
	`dipped the pen, and began the next.`
