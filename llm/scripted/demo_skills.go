package scripted

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

var (
	skillFile = regexp.MustCompile(`<file path="([^"]+)"`)
	noLetter  = regexp.MustCompile(`[^a-z0-9]+`)
)

// skills returns the names of the agent's skills.
func (o offers) skills() []string {
	tool := o.tools[skill.LoadTool]
	if tool == nil {
		return nil
	}
	var schema struct {
		Properties struct {
			Name struct{ Enum []string }
		}
	}
	if json.Unmarshal(tool.Schema, &schema) != nil {
		return nil
	}
	return schema.Properties.Name.Enum
}

// skill returns the skill whose name is in the user's words.
func (o offers) skill(words string) (string, bool) {
	padded := " " + noLetter.ReplaceAllString(strings.ToLower(words), " ") + " "
	for _, name := range o.skills() {
		if strings.Contains(padded, " "+strings.ReplaceAll(name, "-", " ")+" ") {
			return name, true
		}
	}
	return "", false
}

// useSkill continues after a skill was loaded: it reads the skill's first file, if there is
// one, and then shows what the instructions give as an example.
func (o offers) useSkill(results []session.Part) (Step, bool) {
	if len(results) != 1 || results[0].Error != nil {
		return Step{}, false
	}
	text := results[0].Text
	switch results[0].Tool {
	case skill.LoadTool:
		name := skill.ContentName(text)
		if name == "" {
			return Text(text), true
		}
		if file := skillFile.FindStringSubmatch(text); file != nil && o.has(skill.ReadTool) {
			return Reply(Say("The skill has a file. "), Calling(skill.ReadTool, map[string]string{"name": name, "path": file[1]})), true
		}
	case skill.ReadTool:
	default:
		return Step{}, false
	}
	return Text("The skill says how:\n\n" + example(text)), true
}

// example returns the lines of a text that are indented as code.
func example(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			out = append(out, code)
		} else if len(out) > 0 && line == "" {
			out = append(out, "")
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}
