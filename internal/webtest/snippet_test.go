package webtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/testserver"
)

// The snippets of docs/react.md name nothing that the versions of the AI SDK which they
// are said to be for do not have.
func TestReactSnippets(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/react.md")
	if err != nil {
		t.Fatal(err)
	}
	snippets := regexp.MustCompile("(?s)```jsx\n// AI SDK ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(snippets) != strings.Count(string(page), "```jsx") || len(snippets) == 0 {
		t.Fatalf("%d snippets say which versions they are for", len(snippets))
	}
	imported := regexp.MustCompile(`(?s)import \{([^}]*)\} from 'ai'`)
	used := regexp.MustCompile(`const \{([^}]*)\} = useChat`)
	said := map[string]bool{}
	for _, s := range snippets {
		for _, version := range regexp.MustCompile(`\d`).FindAllString(s[1], -1) {
			said[version] = true
			modules := testserver.NodePackages(t, "ai"+version, os.DirFS(filepath.Join("testdata", "ai"+version)))
			types, err := os.ReadFile(filepath.Join(modules, "node_modules", "ai", "dist", "index.d.ts"))
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range append(imported.FindAllStringSubmatch(s[2], -1), used.FindAllStringSubmatch(s[2], -1)...) {
				for name := range strings.SplitSeq(list[1], ",") {
					if name = strings.TrimSpace(name); name != "" && !regexp.MustCompile(`\b`+name+`\b`).Match(types) {
						t.Errorf("AI SDK %s has no %s", version, name)
					}
				}
			}
		}
	}
	if len(said) != 3 {
		t.Errorf("the snippets are for the versions %v", said)
	}
}
