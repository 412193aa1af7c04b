package runtimetest

import (
	"testing"

	"github.com/helixagents/helix/internal/testshare"
)

// Rotate returns the index of the part of the scenarios to run, for a test that runs one of
// several parts. The environment variable HELIX_SCENARIOS, a number, selects it.
// "make test" derives the number from the commit's hash and prints it, so that later
// commits play other parts and a run can be repeated. Without it, the first part is played.
func Rotate(t testing.TB, of int) int {
	t.Helper()
	return testshare.Part(t, of)
}
