package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExtend tests the module in examples/extend as its owner would: a store and a
// runtime outside this module, which can import only what is public, pass the published
// suites.
func TestExtend(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-timeout=60m", "./...") // the linter vets
	cmd.Dir = "extend"
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test: %v\n%s\nIf go.mod or go.sum is out of date, run `go mod tidy` in examples/extend.", err, out)
	}
}

// TestExtendingShowsTheModule checks that the code in docs/extending.md is from the
// module.
func TestExtendingShowsTheModule(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "extending.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("extend", "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files found: %v", err)
	}
	var source strings.Builder
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(code)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the page has no code")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(source.String(), code) {
			t.Errorf("examples/extend does not contain\n%s", code)
		}
	}
}
