package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// quarantined is a test that make test passes over; see quarantine.txt. What makes a line valid is checked by make lint.
type quarantined struct {
	test
	since  time.Time
	reason string
}

// readQuarantine reads a file of quarantined tests.
func readQuarantine(path string) ([]quarantined, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []quarantined
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("%s:%d: a line has a date, a package, a test and a reason", path, i+1)
		}
		since, err := time.Parse(time.DateOnly, words[0])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		list = append(list, quarantined{test{words[1], words[2]}, since, strings.Join(words[3:], " ")})
	}
	return list, nil
}

// flagsFor returns the flags of go test for a package.
func (r *runner) flagsFor(pkg string) []string {
	var skip []string
	for _, q := range r.quarantine {
		if q.pkg == pkg {
			skip = append(skip, patternOf(q.name))
		}
	}
	if skip == nil {
		return r.flags
	}
	return append(slices.Clip(r.flags), "-skip="+strings.Join(skip, "|"))
}

// divide returns packages in groups that have the same flags of go test: first those without a quarantined test, then
// every other by itself, because the flag that passes a test over holds for all packages of a call.
func (r *runner) divide(packages []string) (groups [][]string) {
	var clean []string
	for _, pkg := range packages {
		if len(r.flagsFor(pkg)) == len(r.flags) {
			clean = append(clean, pkg)
		} else {
			groups = append(groups, []string{pkg})
		}
	}
	if clean != nil {
		groups = append([][]string{clean}, groups...)
	}
	return groups
}

// printQuarantine names the tests that were passed over.
func (r *runner) printQuarantine(out io.Writer) {
	for _, q := range r.quarantine {
		fmt.Fprintf(out, "quarantined, not run: %s, since %s: %s\n", q.test, q.since.Format(time.DateOnly), q.reason)
	}
}
