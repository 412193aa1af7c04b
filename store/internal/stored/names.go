package stored

import "strings"

// JoinNames returns the stored form of names, which have no spaces.
func JoinNames(names []string) string { return strings.Join(names, " ") }

// SplitNames returns the names of a stored form; nil if there are none.
func SplitNames(joined string) []string {
	if joined == "" {
		return nil
	}
	return strings.Split(joined, " ")
}
