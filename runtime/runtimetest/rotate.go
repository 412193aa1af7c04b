package runtimetest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// rotation names the variable that says which part of the scenarios is played.
const rotation = "HELIX_SCENARIOS"

// Rotate says which of so many parts of the scenarios a test plays that plays one only:
// another one each day, so that all of them are played in time. The environment variable
// HELIX_SCENARIOS, a number, overrides the day; the log of the test says what it was, to
// play the same part again.
func Rotate(t testing.TB, of int) int {
	t.Helper()
	return rotate(t, of, os.Getenv(rotation), time.Now())
}

func rotate(t testing.TB, of int, given string, now time.Time) int {
	t.Helper()
	seed := int(now.UTC().Unix() / int64((24 * time.Hour).Seconds()))
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
