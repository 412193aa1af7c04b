package server

import (
	"strings"
	"testing"
)

func TestTitleOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		" \n\t ":                               "",
		"Hello":                                "Hello",
		"  Hello\n\n  there \x00\x1b[31m ":     "Hello there [31m",
		strings.Repeat("a", 79):                strings.Repeat("a", 79),
		strings.Repeat("b", 80):                strings.Repeat("b", 80),
		strings.Repeat("c", 81):                strings.Repeat("c", 79) + "…",
		strings.Repeat("ä", 200):               strings.Repeat("ä", 79) + "…",
		strings.Repeat("word ", 40):            strings.TrimSpace(strings.Repeat("word ", 40)[:79]) + "…",
		strings.Repeat(" ", 1<<20) + "at last": "at last",
	} {
		if got := titleOf(text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}
