package files_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// The rules of the format, and what is accepted although it breaks them.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, path string
		want       skill.Metadata
		body       string
		warnings   []string
	}{
		"minimal": {
			text: "---\nname: pdf\ndescription: Reads PDFs.\n---\nRead it.\n", want: skill.Metadata{Name: "pdf", Description: "Reads PDFs."}, body: "Read it.",
		},
		"everything": {
			text: "---\nname: pdf\ndescription: >-\n  Reads PDFs.\n  All of them.\nlicense: MIT\ncompatibility: Needs git.\nallowed-tools: Bash(git:*) Read\n" +
				"metadata:\n  author: ada\n  version: \"1.0\"\n---\n\n# Title\n\n    code\n\n\n",
			want: skill.Metadata{
				Name: "pdf", Description: "Reads PDFs. All of them.", License: "MIT", Compatibility: "Needs git.", AllowedTools: []string{"Bash(git:*)", "Read"},
				Metadata: map[string]string{"author": "ada", "version": "1.0"},
			}, body: "# Title\n\n    code",
		},
		"a body that begins with code": {
			text: "---\nname: pdf\ndescription: D\n---\n\n    code\ntext", want: skill.Metadata{Name: "pdf", Description: "D"}, body: "    code\ntext",
		},
		"no body": {text: "---\nname: pdf\ndescription: D\n---", want: skill.Metadata{Name: "pdf", Description: "D"}},
		"a rule in the body": {
			text: "---\nname: pdf\ndescription: D\n---\na\n---\nb", want: skill.Metadata{Name: "pdf", Description: "D"}, body: "a\n---\nb",
		},
		"windows": {
			text: "\xef\xbb\xbf---\r\nname: pdf\r\ndescription: D\r\n---\r\na\r\nb\r\n", want: skill.Metadata{Name: "pdf", Description: "D"}, body: "a\nb",
		},
		"spaces behind the fences": {text: "---  \nname: pdf\ndescription: D\n--- \nx", want: skill.Metadata{Name: "pdf", Description: "D"}, body: "x"},
		"a colon in the description": {
			text: "---\nname: pdf\ndescription: Use this skill when: the user \"asks\" about PDFs\nlicense: a: b\n---\nx",
			want: skill.Metadata{Name: "pdf", Description: `Use this skill when: the user "asks" about PDFs`, License: "a: b"}, body: "x",
		},
		"a colon in a description of two lines": {
			text: "---\nname: pdf\ndescription: Use this when: the user\n  asks: please\nlicense: MIT\n---\nx",
			want: skill.Metadata{Name: "pdf", Description: "Use this when: the user asks: please", License: "MIT"}, body: "x",
		},
		"a description that begins with a special character": {
			text: "---\nname: pdf\ndescription: `pdf` is read, at 100%: fully\n---\nx",
			want: skill.Metadata{Name: "pdf", Description: "`pdf` is read, at 100%: fully"}, body: "x",
		},
		"tools with commas": {
			text: "---\nname: pdf\ndescription: D\nallowed-tools: Read, Bash(git add:*), Grep\n---\n",
			want: skill.Metadata{Name: "pdf", Description: "D", AllowedTools: []string{"Read", "Bash(git add:*)", "Grep"}},
		},
		"tools as a list": {
			text: "---\nname: pdf\ndescription: D\nallowed-tools:\n  - Read\n  - [x]\n  - Bash(git:*)\n---\n",
			want: skill.Metadata{Name: "pdf", Description: "D", AllowedTools: []string{"Read", "Bash(git:*)"}}, warnings: []string{"skills/pdf/SKILL.md:6:5: "},
		},
		"unknown fields": {
			text: "---\nname: pdf\ndescription: D\nmodel: x\nhooks: {a: [1]}\n---\n", want: skill.Metadata{Name: "pdf", Description: "D"},
		},
		"metadata of other types": {
			text: "---\nname: pdf\ndescription: D\nmetadata: {version: 1.0, on: true, deep: {a: b}}\n---\n",
			want: skill.Metadata{Name: "pdf", Description: "D", Metadata: map[string]string{"version": "1.0", "on": "true"}}, warnings: []string{"SKILL.md:4:36: metadata"},
		},
		"metadata that is a text": {
			text: "---\nname: pdf\ndescription: D\nmetadata: x\n---\n", want: skill.Metadata{Name: "pdf", Description: "D"}, warnings: []string{"SKILL.md:4:11: metadata"},
		},
		"a name that is a number": {text: "---\nname: 123\ndescription: D\n---\n", path: "123/SKILL.md", want: skill.Metadata{Name: "123", Description: "D"}},
		"another directory": {
			text: "---\nname: pdf\ndescription: D\n---\n", path: "skills/other/SKILL.md", want: skill.Metadata{Name: "pdf", Description: "D"},
			warnings: []string{"skills/other/SKILL.md:2:7: the name pdf is not that of the directory, other"},
		},
		"a description as the format forbids it": {
			text: "---\nname: pdf\ndescription: " + strings.Repeat("d", 1025) + "\n---\n", want: skill.Metadata{Name: "pdf", Description: strings.Repeat("d", 1025)},
			warnings: []string{"skills/pdf/SKILL.md:3:14: description has 1025 characters, and the format allows 1024"},
		},
		"an alias": {
			text: "---\nname: &n pdf\ndescription: *n\n---\n", want: skill.Metadata{Name: "pdf", Description: "pdf"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.path
			if path == "" {
				path = "skills/pdf/SKILL.md"
			}
			got, warnings, err := files.Parse(path, []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !equal(got.Metadata, c.want) || got.Body != c.body {
				t.Errorf("%+v\n%q", got.Metadata, got.Body)
			}
			if len(warnings) != len(c.warnings) {
				t.Fatalf("%d warnings: %v", len(warnings), warnings)
			}
			for i, w := range warnings {
				if !strings.Contains(w.Error(), c.warnings[i]) || w.Refused {
					t.Errorf("%v", w)
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const at = "skills/pdf/SKILL.md"
	for name, c := range map[string]struct{ text, want string }{
		"empty":                {"", at + ":1:1: does not begin with"},
		"no frontmatter":       {"# Title\n", at + ":1:1: does not begin with"},
		"no end":               {"---\nname: pdf\n", at + ":1:1: the frontmatter has no end"},
		"no fields":            {"---\n---\n", at + ":2:1: the frontmatter has no fields"},
		"a list":               {"---\n- a\n---\n", at + ":2:1: the frontmatter has no fields"},
		"no name":              {"---\ndescription: D\n---\n", at + ":1:1: name is missing"},
		"no description":       {"---\nname: pdf\n---\n", at + ":1:1: description is missing"},
		"an empty description": {"---\nname: pdf\ndescription: \"  \"\n---\n", at + ":3:14: description is missing"},
		"a long description":   {"---\nname: pdf\ndescription: " + strings.Repeat("d", 4097) + "\n---\n", at + ":3:14: description has 4097 characters; at most 4096"},
		"a long compatibility": {"---\nname: pdf\ndescription: D\ncompatibility: " + strings.Repeat("d", 501) + "\n---\n", at + ":4:16: compatibility has 501"},
		"a name with a slash":  {"---\ndescription: D\nname: a/b\n---\n", at + `:3:7: name "a/b" contains '/'`},
		"a name in capitals":   {"---\nname: PDF\ndescription: D\n---\n", at + `:2:7: name "PDF" contains 'P'`},
		"a long name":          {"---\nname: " + strings.Repeat("a", 65) + "\ndescription: D\n---\n", at + ":2:7: name"},
		"a field twice":        {"---\nname: pdf\nname: pdf\ndescription: D\n---\n", at + ":3:1: name is given twice"},
		"not YAML":             {"---\nname: pdf\ndescription: D\nother: [\n---\n", at + ":4:8: the frontmatter is not valid YAML"},
		"a tab":                {"---\nname: pdf\n\tdescription: D\n---\n", at + ":3:"},
		"a zero byte":          {"---\nname: pdf\ndescription: D\n---\na\x00b", at + ":5:2: contains a zero byte"},
		"not UTF-8":            {"---\nname: pdf\ndescription: \xff\n---\n", at + ":3:14: is not UTF-8"},
		"1 MB":                 {"---\nname: pdf\ndescription: D\n---\n" + strings.Repeat("x", 1<<20), at + ": has 1048609 bytes; at most 524288"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := files.Parse(at, []byte(c.text))
			p, ok := errors.AsType[*skill.Problem](err)
			if !ok || !p.Refused || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A text that continues on very many lines takes time and memory that grow with its length. Not parallel, because it counts
// what the process allocates.
func TestParseManyLines(t *testing.T) {
	text := []byte("---\nname: pdf\ndescription: when: this\n" + strings.Repeat(" a\n", 170_000) + "---\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := files.Parse("pdf/SKILL.md", text)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "description has") {
		t.Error(err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > uint64(100*len(text)) {
		t.Errorf("%d bytes were allocated for %d", made, len(text))
	}
}

// Characters that nobody sees but the model are a warning, unless emoji and scripts need them.
func TestInvisible(t *testing.T) {
	t.Parallel()
	const front = "---\nname: pdf\ndescription: D\n---\n"
	for body, want := range map[string]string{
		"plain, ünï, 日本語":                       "",
		"👩\u200d🚀 ❤\ufe0f 👁\ufe0f\u200d🗨\ufe0f": "",
		"می\u200cخواهم":                         "",
		"a\nb\u200bc":                           "pdf/SKILL.md:6:2: contains the character U+200B",
		"\U000e0049\U000e0067":                  "pdf/SKILL.md:5:1: contains the character U+E0049",
		"a\u202eb":                              "pdf/SKILL.md:5:2: contains the character U+202E",
		"a\ufeff":                               "pdf/SKILL.md:5:2: contains the character U+FEFF",
		"❤\ufe0f\ufe0e\ufe0f\ufe0e":             "pdf/SKILL.md:5:4: contains the character U+FE0F",
		"\U000e0101":                            "pdf/SKILL.md:5:1: contains the character U+E0101",
	} {
		s, warnings, err := files.Parse("pdf/SKILL.md", []byte(front+body))
		if err != nil || s.Body != body {
			t.Errorf("%q: %v", body, err)
			continue
		}
		if want == "" && len(warnings) != 0 || want != "" && (len(warnings) != 1 || !strings.HasPrefix(warnings[0].Error(), want)) {
			t.Errorf("%q: %v", body, warnings)
		}
	}
	_, warnings, err := files.Parse("pdf/SKILL.md", []byte("\xef\xbb\xbf---\nname: pdf\ndescription: D\u2066x\n---\n"))
	if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0].Error(), "pdf/SKILL.md:3:15: ") || warnings[0].Refused {
		t.Errorf("%v, %v", warnings, err)
	}
}

func equal(a, b skill.Metadata) bool {
	if len(a.Metadata) != len(b.Metadata) || strings.Join(a.AllowedTools, "\n") != strings.Join(b.AllowedTools, "\n") {
		return false
	}
	for key, value := range a.Metadata {
		if b.Metadata[key] != value {
			return false
		}
	}
	return a.Name == b.Name && a.Description == b.Description && a.License == b.License && a.Compatibility == b.Compatibility
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("---\nname: pdf\ndescription: a: b\n---\nx"))
	f.Add([]byte("---\nname: &a [*a]\ndescription: |\n  x\n---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := files.Parse("skills/pdf/SKILL.md", data)
		if err != nil {
			if _, ok := errors.AsType[*skill.Problem](err); !ok {
				t.Errorf("the error is a %T", err)
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
