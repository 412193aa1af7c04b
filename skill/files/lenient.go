package files

import (
	"regexp"
	"strconv"
	"strings"
)

// textLine is a line of the frontmatter with a field that is a text.
var textLine = regexp.MustCompile(`^(name|description|license|compatibility|allowed-tools):[ \t]+(\S.*)$`)

// maxQuoted is how many bytes of a text that continues are put together: more than any field
// may have, so that what is cut off is refused.
const maxQuoted = 64 << 10

// quoteValues puts the texts of the frontmatter in quotes that are not. Many skills have a
// colon in their description, which YAML takes for another key. Lines keep their numbers: a
// text that continues on the next lines is put on its first.
func quoteValues(front string) string {
	lines := strings.Split(front, "\n")
	for i := 0; i < len(lines); i++ {
		found := textLine.FindStringSubmatch(lines[i])
		if len(found) == 0 || strings.ContainsAny(found[2][:1], `"'|>[{&*!`) {
			continue
		}
		at := i
		var text strings.Builder
		text.WriteString(strings.TrimSpace(found[2]))
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], " ") && strings.TrimSpace(lines[i+1]) != "" {
			i++
			if text.Len() < maxQuoted {
				text.WriteString(" " + strings.TrimSpace(lines[i]))
			}
			lines[i] = ""
		}
		lines[at] = found[1] + ": " + strconv.Quote(text.String())
	}
	return strings.Join(lines, "\n")
}
