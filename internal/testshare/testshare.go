// Package testshare divides the repetitions of a test among the runs of "make test".
//
// A test that repeats one check for many inputs need not do all of them every time: each
// commit does another share, and "make soak" does all.
package testshare

import (
	"hash/fnv"
	"os"
	"strconv"
	"testing"
)

// variable names the environment variable that selects the share.
const variable = "HELIX_SCENARIOS"

// Soak reports whether every test runs at full length ("make soak").
func Soak() bool { return os.Getenv("HELIX_SOAK") != "" }

// Part returns which of so many parts of its repetitions a test does, for a test that
// does only one of them. The environment variable HELIX_SCENARIOS, a number, selects it.
// "make test" derives the number from the commit's hash and prints it, so that later
// commits do other parts and a run can be repeated. Without it, the first part is done.
func Part(tb testing.TB, of int) int {
	tb.Helper()
	return part(tb, of, os.Getenv(variable))
}

// Has returns a function that reports whether a repetition is in the share of this run:
// in one of so many parts, or in any if HELIX_SOAK is set.
func Has(tb testing.TB, of int) func(repetition int) bool {
	tb.Helper()
	if Soak() {
		return func(int) bool { return true }
	}
	mine := Part(tb, of)
	return func(repetition int) bool { return repetition%of == mine }
}

// HasTurn reports whether the n-th of several repetitions, of which each commit does one in so
// many, is in the share of this run. Which those are depends on the test's name, so that
// tests with the same repetitions do not all do the same ones.
func HasTurn(tb testing.TB, n, of int) bool {
	tb.Helper()
	name := fnv.New32a()
	_, _ = name.Write([]byte(tb.Name()))
	return Has(tb, of)(n + int(name.Sum32()%uint32(of)))
}

// SkipUnless skips a test that takes turns with others, unless it is its turn: it is the
// n-th of so many. With HELIX_SOAK it is never skipped.
func SkipUnless(tb testing.TB, n, of int) {
	tb.Helper()
	if !Has(tb, of)(n) {
		tb.Skipf("not in this commit's share of the tests (%s)", variable)
	}
}

func part(tb testing.TB, of int, given string) int {
	tb.Helper()
	seed := 0
	if given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 {
			tb.Fatalf("%s is %q, and must be a number that is not negative", variable, given)
		}
		seed = n
	}
	tb.Logf("this is part %d of %d (%s=%d)", seed%of+1, of, variable, seed)
	return seed % of
}
