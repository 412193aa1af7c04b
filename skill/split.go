package skill

import (
	"bytes"
	"strings"
)

// Split divides the content of SKILL.md into its frontmatter, which begins on line 2, and
// its body. It ignores a byte order mark, makes line ends "\n", and removes empty lines
// around the body. The error is a [*Problem] without a path.
func Split(data []byte) (frontmatter, body string, err error) {
	text := string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	first, rest, _ := strings.Cut(text, "\n")
	if !isFence(first) {
		return "", "", &Problem{Line: 1, Column: 1, Message: "does not begin with a line --- and frontmatter", Refused: true}
	}
	var front strings.Builder
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if isFence(line) {
			return front.String(), trimBody(rest), nil
		}
		front.WriteString(line)
		front.WriteByte('\n')
	}
	return "", "", &Problem{Line: 1, Column: 1, Message: "the frontmatter has no end; a line --- closes it", Refused: true}
}

func isFence(line string) bool { return strings.TrimRight(line, " \t") == "---" }

// trimBody removes empty lines at both ends. Spaces in front of the first text stay,
// because they may make it code.
func trimBody(body string) string {
	body = strings.TrimRight(body, " \t\n")
	for {
		line, rest, more := strings.Cut(body, "\n")
		if !more || strings.TrimSpace(line) != "" {
			return body
		}
		body = rest
	}
}
