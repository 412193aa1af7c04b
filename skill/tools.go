package skill

import "strings"

// SplitTools splits a list of tools as the frontmatter has it: at spaces, as the format
// says, and at commas, as many do, but not in parentheses: "Bash(git add:*)" is one.
func SplitTools(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		case ' ', '\t', '\n', ',':
			return depth == 0
		}
		return false
	})
}
