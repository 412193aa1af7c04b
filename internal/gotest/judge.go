package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// judge returns the failed tests that may have a second try, those below which no other failed, and what has failed for
// good. If anything has, no test has a second try.
func (r *results) judge(most int) (leaves []test, final []string) {
	for _, path := range slices.Sorted(maps.Keys(r.builds)) {
		final = append(final, path+" does not build")
	}
	failed := map[string]bool{} // packages
	for _, t := range r.sorted() {
		switch r.tests[t] {
		case began:
			final = append(final, t.String()+" has no end")
			failed[t.pkg] = true
		case "fail":
			failed[t.pkg] = true
			if !r.failedBelow(t) {
				leaves = append(leaves, t)
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		if why := r.judgePackage(pkg, failed[pkg]); why != "" {
			final = append(final, why)
		}
	}
	for _, t := range leaves {
		if line := traceLine.FindString(r.outputs[t].String()); line != "" {
			final = append(final, fmt.Sprintf("%s: %s", t, line))
		}
	}
	if len(leaves) > most {
		final = append(final, fmt.Sprintf("%d tests failed, and at most %d are tried again", len(leaves), most))
	}
	return leaves, final
}

// judgePackage returns why a package has failed for good, if it has. testFailed says whether one of its tests did.
func (r *results) judgePackage(pkg string, testFailed bool) string {
	// A data race in a process that a test kills goes unnoticed by the test.
	for _, t := range slices.SortedFunc(maps.Keys(r.races), compareTests) {
		if t.pkg == pkg {
			return t.String() + ": a data race"
		}
	}
	switch r.packages[pkg] {
	case began:
		return pkg + " has no end"
	case "fail":
		for _, t := range slices.SortedFunc(maps.Keys(r.crashes), compareTests) {
			if t.pkg == pkg {
				return fmt.Sprintf("%s: %s", t, strings.TrimSpace(r.crashes[t]))
			}
		}
		if !testFailed {
			return pkg + " failed, and none of its tests did: a leaked goroutine, a timeout or an exit"
		}
	}
	return ""
}

// failedBelow reports whether a subtest of a test failed.
func (r *results) failedBelow(t test) bool {
	for other, action := range r.tests {
		if action == "fail" && other.pkg == t.pkg && strings.HasPrefix(other.name, t.name+"/") {
			return true
		}
	}
	return false
}

// sorted returns all tests in the order of their packages and names.
func (r *results) sorted() []test {
	return slices.SortedFunc(maps.Keys(r.tests), compareTests)
}

func compareTests(a, b test) int {
	return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
}
