package scripted

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// demoTools are the tools that the demo knows by name.
var demoTools = []string{DemoClock, DemoCalculate, DemoRemember, DemoRecall, DemoForget, DemoChoose, DemoOrder, DemoWork}

// frameworkTools are called for other reasons than a word of the user.
var frameworkTools = []string{skill.LoadTool, skill.ReadTool, "read_result"}

// toolAndRest is a sentence that begins with what is to be done.
var toolAndRest = regexp.MustCompile(`(?is)^\s*(?:please\s+)?(\pL[\w-]*)\s*(.*?)[\s.!?]*$`)

// named returns the call of the tool whose name begins with the first word of the user, with
// arguments that fit its schema: "Lend Dune to Bob." calls lend, or else lend_book.
func (o offers) named(words string) (Part, bool) {
	m := toolAndRest.FindStringSubmatch(words)
	if m == nil {
		return Part{}, false
	}
	for _, tool := range o.others() {
		if verbOf(tool) != strings.ToLower(m[1]) {
			continue
		}
		rest := m[2]
		if rest == "" {
			rest = m[1]
		}
		return Calling(tool, fitting(o.tools[tool].Schema, rest)), true
	}
	return Part{}, false
}

// others returns the names of the tools that are the agent's own and that the demo does not
// know, shortest first.
func (o offers) others() []string {
	var names []string
	for name := range o.tools {
		if name != session.FinishTool && !strings.Contains(name, "__") && !slices.Contains(demoTools, name) && !slices.Contains(frameworkTools, name) {
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

// verbOf returns the first word of a tool's name: lend of lend_book, lendBook and lend-book.
func verbOf(tool string) string {
	end := strings.IndexFunc(tool, func(r rune) bool { return r == '_' || r == '-' })
	if end < 0 {
		end = len(tool)
	}
	for i, r := range tool[:end] {
		if i > 0 && unicode.IsUpper(r) {
			end = i
			break
		}
	}
	return strings.ToLower(tool[:end])
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
	for _, required := range want.Required {
		if _, ok := given[required]; !ok {
			return Calling(tool.Name, fitting(tool.Schema, words))
		}
	}
	for name := range given {
		if want.Properties != nil && want.Properties[name] == nil {
			return Calling(tool.Name, fitting(tool.Schema, words))
		}
	}
	return call
}
