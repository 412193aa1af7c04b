package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// printer prints a line for every package that has tests.
type printer struct{ out io.Writer }

func (p printer) endPackage(e event) {
	if e.Action == "skip" {
		return // it has no tests
	}
	fmt.Fprintf(p.out, "%-4s %s (%s)\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package,
		time.Duration(e.Elapsed*float64(time.Second)).Round(10*time.Millisecond))
}

func (p printer) printLine(line string) { fmt.Fprint(p.out, line) }

// printFailures prints what failed tests have written, and what failed packages have written outside of tests.
func (r *results) printFailures(out io.Writer) {
	for _, path := range slices.Sorted(maps.Keys(r.builds)) {
		fmt.Fprintf(out, "\n=== FAIL: build of %s\n%s", path, r.builds[path])
	}
	for _, t := range r.sorted() {
		if r.tests[t] == "fail" || r.tests[t] == began {
			fmt.Fprintf(out, "\n=== FAIL: %s\n%s", t, r.outputs[t])
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(r.packages)) {
		if r.packages[pkg] != "pass" && r.packages[pkg] != "skip" {
			fmt.Fprintf(out, "\n=== FAIL: %s\n%s", pkg, r.outputs[test{pkg: pkg}])
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(r.races), compareTests) {
		if r.tests[t] == "pass" || r.tests[t] == "skip" {
			fmt.Fprintf(out, "\n=== FAIL: %s, or a process that it started, has a data race\n%s", t, r.outputs[t])
		}
	}
}

// printSkipped prints how many tests of each function were skipped.
func (r *results) printSkipped(out io.Writer) {
	skipped := map[test]int{}
	for t, end := range r.tests {
		if end == "skip" {
			function, _, _ := strings.Cut(t.name, "/")
			skipped[test{t.pkg, function}]++
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(skipped), compareTests) {
		fmt.Fprintf(out, "skipped: %s %d\n", t, skipped[t])
	}
}

// printTiers prints how long each tier took, and whether one did not run.
func (r *runner) printTiers(ran []*outcome, start time.Time) {
	fmt.Fprintln(r.out)
	if before := start.Sub(r.began); before >= time.Second {
		fmt.Fprintf(r.out, "before the tests: %s\n", before.Round(time.Second))
	}
	for _, o := range ran {
		fmt.Fprintf(r.out, "tier %s: %s, %.0f seconds of processor time, %d tests, %d second tries\n",
			o.tier.name, o.took.Round(time.Second), o.used.Seconds(), o.passed+o.failed+o.skipped, len(o.tries))
	}
	for _, t := range r.tiers[len(ran):] {
		fmt.Fprintf(r.out, "tier %s: not run\n", t.name)
	}
}

// printTries prints the list of second tries.
func printTries(out io.Writer, tries []try) {
	if len(tries) == 0 {
		fmt.Fprintln(out, "second try: none")
		return
	}
	fmt.Fprintf(out, "second try: %d, each a fault of the test or of the product\n", len(tries))
	for _, t := range tries {
		verdict := fmt.Sprintf("passed %d of %d times alone", t.times, t.times)
		if t.failure != "" {
			verdict = "failed: " + t.failure
		}
		fmt.Fprintf(out, "  %s: %s (%s)\n", t.test, verdict, t.took.Round(100*time.Millisecond))
	}
}
