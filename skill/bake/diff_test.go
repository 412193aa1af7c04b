package bake

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	numbers := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintln(&b, i)
		}
		return b.String()
	}
	for _, test := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a\n", ""},
		{"", "a\nb\n", "@@ -1 +1 @@\n+a\n+b\n"},
		{"a\n", "", "@@ -1 +1 @@\n-a\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "@@ -1 +1 @@\n a\n-b\n+x\n c\n"},
		{numbers(1, 20), numbers(1, 9) + numbers(11, 20), "@@ -7 +7 @@\n 7\n 8\n 9\n-10\n 11\n 12\n 13\n"},
		{
			numbers(1, 30), strings.Replace(strings.Replace(numbers(1, 30), "5\n", "", 1), "25\n", "x\n", 1),
			"@@ -2 +2 @@\n 2\n 3\n 4\n-5\n 6\n 7\n 8\n@@ -22 +21 @@\n 22\n 23\n 24\n-25\n+x\n 26\n 27\n 28\n",
		},
	} {
		if got := diff(test.before, test.after); got != test.want {
			t.Errorf("%q to %q: got\n%swant\n%s", test.before, test.after, got, test.want)
		}
	}
}

// The lines that stay and go are the old text, those that stay and come the new one.
func TestCompareLines(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 12)
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		var old, now []string
		for _, l := range compareLines(a, b) {
			if l.sign != '+' {
				old = append(old, l.text)
			}
			if l.sign != '-' {
				now = append(now, l.text)
			}
		}
		if strings.Join(old, " ") != strings.Join(a, " ") || strings.Join(now, " ") != strings.Join(b, " ") {
			t.Errorf("%v to %v: %v, %v", a, b, old, now)
		}
	})
}

// A text that is too long to compare is shown as replaced.
func TestDiffOfLongTexts(t *testing.T) {
	t.Parallel()
	long := func(word string) string { return strings.Repeat(word+"\n", 3000) }
	got := diff(long("a"), long("b"))
	if strings.Count(got, "-a\n") != 3000 || strings.Count(got, "+b\n") != 3000 {
		t.Errorf("%d bytes", len(got))
	}
}
