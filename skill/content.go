package skill

import "strings"

// Names of the tools with which an agent reads its skills. They are reserved for the
// extension that has them, so a call of one of them is always about a skill.
const (
	LoadTool = "load_skill"
	ReadTool = "read_skill_file"
)

// The tags around the content of a skill in a conversation. The name is the first
// attribute of the opening one.
const (
	ContentOpening = "<skill_content "
	ContentClosing = "</skill_content>"
)

// ContentName returns the name of the skill whose content a text begins with, such as the
// result of a call of [LoadTool]. It is empty if the text is something else.
func ContentName(text string) string {
	rest, ok := strings.CutPrefix(text, ContentOpening+`name="`)
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(rest, `"`)
	if !ok || CheckName(name) != nil {
		return ""
	}
	return name
}
