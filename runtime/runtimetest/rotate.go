package runtimetest

import (
	"os"
	"strconv"
	"testing"
)

// rotation names the environment variable that selects the part of the scenarios to play.
const rotation = "HELIX_SCENARIOS"

// Rotate returns the index of the part of the scenarios to run, for a test that runs one of
// several parts. The environment variable HELIX_SCENARIOS, a number, selects it.
// "make test" derives the number from the commit's hash and prints it, so that later
// commits play other parts and a run can be repeated. Without it, the first part is played.
func Rotate(t testing.TB, of int) int {
	t.Helper()
	return rotate(t, of, os.Getenv(rotation))
}

func rotate(t testing.TB, of int, given string) int {
	t.Helper()
	seed := 0
	if given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 {
			t.Fatalf("%s is %q, and must be a number that is not negative", rotation, given)
		}
		seed = n
	}
	t.Logf("this is part %d of %d of the scenarios (%s=%d)", seed%of+1, of, rotation, seed)
	return seed % of
}
