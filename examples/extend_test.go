package examples_test

import (
	"os/exec"
	"testing"
)

// TestExtend tests the module in examples/extend as its owner would: a store and a
// runtime outside this module, which can import only what is public, pass the published
// suites.
func TestExtend(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "-timeout=60m", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = "extend"
		cmd.Env = append(cmd.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s\nIf go.mod or go.sum is out of date, run `go mod tidy` in examples/extend.", args, err, out)
		}
	}
}
