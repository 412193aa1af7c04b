package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// architectureRows is how many questions "Where to look for what" answers at least.
const architectureRows = 40

// TestWhereToLook holds the table of ARCHITECTURE.md to the tree: every path in it exists.
func TestWhereToLook(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "## Where to look for what\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("ARCHITECTURE.md has no section that says where to look for what")
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| to …") {
			continue
		}
		rows++
		paths := 0
		for _, match := range quoted.FindAllStringSubmatch(line, -1) {
			if !strings.Contains(match[1], "/") && !strings.HasSuffix(match[1], ".go") && match[1] != "builtin" {
				continue // a name in the code
			}
			if !strings.Contains(match[1], "/") && match[1] != "tool.go" && match[1] != "builtin" {
				continue // a file that several packages have
			}
			paths++
			if files, err := filepath.Glob("../" + match[1]); err != nil || len(files) == 0 {
				t.Errorf("%s: there is no %s", strings.TrimSpace(line), match[1])
			}
		}
		if paths == 0 {
			t.Errorf("this row names no path: %s", line)
		}
	}
	if rows < architectureRows {
		t.Errorf("the table has %d rows; it had at least %d", rows, architectureRows)
	}
}
