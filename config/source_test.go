package config

import "testing"

// The parser of YAML tells no columns, and often the line where something begins that it cannot read to its end.
func TestSyntaxErrorsArePlaced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]position{
		"a: b: c\n":                   {1, 5},
		"x: 1\na: 'x\ny\nz: 1\n":      {2, 4}, // the quote that is never closed
		"a: [1,\n2\nb: 3\n":           {2, 1},
		"a:\n  b: 1\n c: 2\n":         {3, 2},
		"\ta: b\n":                    {1, 1},
		"é: 1\nb: [é, *one, *two]\n":  {2, 8},
		"a: 1\n---\nb: {c: 1\nd: 2\n": {3, 5}, // within the braces that are never closed
		"a: @x":                       {1, 4},
	} {
		s := newSource("helix.yaml", []byte(text), nil)
		s.parse([]byte(text))
		if len(s.problems) != 1 || (position{s.problems[0].Line, s.problems[0].Column}) != want {
			t.Errorf("%q: got %v, want %v", text, s.problems, want)
		}
	}
}
