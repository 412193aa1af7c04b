package scripted

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/helixagents/helix/skill"
)

// demoTools are the tools that the demo knows by name.
var demoTools = []string{DemoClock, DemoCalculate, DemoRemember, DemoRecall, DemoForget, DemoChoose, DemoOrder, DemoWork}

// frameworkTools are called for other reasons than a word of the user.
var frameworkTools = []string{
	skill.LoadTool, skill.ReadTool, "read_result", "session_list", "session_search", "session_history", "search_memory", "save_memory", "forget_memory",
}

// toolAndRest is a sentence that begins with what is to be done.
var toolAndRest = regexp.MustCompile(`(?is)^\s*(?:please\s+)?(\pL[\w-]*)\s*(.*?)[\s.!?]*$`)

// named returns the call of the tool whose name begins with the first word of the user, with
// arguments that fit its schema: "Lend Dune to Bob." calls lend, or else lend_book.
func (o offers) named(words string) (Part, bool) {
	m := toolAndRest.FindStringSubmatch(words)
	if m == nil {
		return Part{}, false
	}
	best, most := "", -1
	for _, tool := range o.others() {
		verb, rest := splitName(tool)
		if n := countMentioned(rest, words); verb == strings.ToLower(m[1]) && n > most {
			best, most = tool, n
		}
	}
	if best == "" {
		return Part{}, false
	}
	return Calling(best, fitting(o.tools[best].Schema, cmp.Or(m[2], m[1]))), true
}

// countMentioned returns how many of the words of a tool's name a sentence has.
func countMentioned(names []string, sentence string) int {
	n := 0
	for _, word := range strings.FieldsFunc(strings.ToLower(sentence), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if slices.Contains(names, word) || slices.Contains(names, strings.TrimSuffix(word, "s")) {
			n++
		}
	}
	return n
}

// others returns the names of the tools that are the agent's own and that the demo does not
// know, shortest first.
func (o offers) others() []string {
	var names []string
	for name := range o.tools {
		framework := strings.Contains(name, "__") || strings.HasPrefix(name, "workspace_") || slices.Contains(frameworkTools, name)
		if verb, _ := splitName(name); verb != "" && !framework && !slices.Contains(demoTools, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names
}

// splitName divides a tool's name into its first word and the others: lend and book of
// lend_book, lendBook and lend-book.
func splitName(tool string) (verb string, rest []string) {
	var words []string
	begin := 0
	for i, r := range tool + "_" {
		separates := r == '_' || r == '-'
		if (separates || unicode.IsUpper(r)) && i > begin {
			words = append(words, strings.ToLower(tool[begin:i]))
			begin = i
		}
		if separates {
			begin = i + 1
		}
	}
	if len(words) == 0 {
		return "", nil
	}
	return words[0], words[1:]
}

// fit returns the call of a tool that the demo knows by name, with other arguments if the
// agent's tool of this name takes others.
func (o offers) fit(call Part, words string) Part {
	var want shape
	var given map[string]json.RawMessage
	tool := o.tools[call.content.Tool]
	if json.Unmarshal(tool.Schema, &want) != nil || json.Unmarshal(call.content.Input, &given) != nil {
		return call
	}
	missing := func(required string) bool { return given[required] == nil }
	undeclared := func(name string) bool { return want.Properties != nil && want.Properties[name] == nil }
	if slices.ContainsFunc(want.Required, missing) || slices.ContainsFunc(slices.Collect(maps.Keys(given)), undeclared) {
		return Calling(tool.Name, fitting(tool.Schema, words))
	}
	return call
}
