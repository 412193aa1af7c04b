package skill

import (
	"slices"
	"strings"
)

// MaxCatalogue is how many bytes the entries of a catalogue have at most before
// descriptions are left out.
const MaxCatalogue = 96 << 10

// guide precedes the entries of a catalogue. Models take the names of skills for those of
// tools unless they are told otherwise.
const guide = `## Skills

A skill is a set of instructions for a kind of task. A skill is NOT a tool: its name cannot be called. When a task matches the description of a skill, call ` + LoadTool + ` with the name of the skill before you do anything else about the task, and follow what it returns. A skill with loaded="true" is loaded already: follow it without calling ` + LoadTool + `.
`

// Catalogue returns the part of an agent's instructions that names and describes its
// skills, sorted by name; it is empty if there are none. Skills in preloaded are marked as
// loaded. Equal skills give equal bytes.
//
// Entries beyond [MaxCatalogue] have a name but no description; undescribed is how many.
func Catalogue(skills []Metadata, preloaded ...string) (text string, undescribed int) {
	if len(skills) == 0 {
		return "", 0
	}
	sorted := slices.Clone(skills)
	slices.SortFunc(sorted, byName)
	var b strings.Builder
	b.WriteString(guide)
	b.WriteString("\n<available_skills>\n")
	start := b.Len()
	for _, s := range sorted {
		described := s.Description
		if b.Len()-start+len(described) > MaxCatalogue {
			described = ""
			undescribed++
		}
		b.WriteString(`<skill name="` + Escape(s.Name) + `"`)
		if slices.Contains(preloaded, s.Name) {
			b.WriteString(` loaded="true"`)
		}
		if described == "" {
			b.WriteString("/>\n")
			continue
		}
		b.WriteString(">" + Escape(strings.Join(strings.Fields(described), " ")) + "</skill>\n")
	}
	b.WriteString("</available_skills>")
	return b.String(), undescribed
}

// Escape escapes text for use between tags and in attributes of XML.
func Escape(text string) string { return escaper.Replace(text) }

// escaper leaves apostrophes as they are: attributes are in double quotes.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
