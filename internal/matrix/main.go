// Command matrix reads what `go test -json` says of the scenarios of several runtimes
// and prints, for each runtime and store, how many of each group it has passed:
//
//	go test -json -run TestScenarios ./runtime/... | matrix
//
// Before that it names each scenario that failed or did not end, with what it has written.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	bad, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(2)
	}
	if bad {
		os.Exit(1)
	}
}

// event is one of `go test -json`.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// tally counts the scenarios of a group, by what became of them.
type tally map[string]int

func (t tally) String() string {
	switch {
	case len(t) == 0:
		return "-"
	case t["fail"]+t["skip"] == 0:
		return fmt.Sprint(t["pass"])
	}
	return fmt.Sprintf("%d, %d failed, %d skipped", t["pass"], t["fail"], t["skip"])
}

func (t tally) add(other tally) {
	for action, n := range other {
		t[action] += n
	}
}

// run prints what failed, with what it has written, and the matrix. It reports whether anything failed, a scenario was
// skipped, or there is none.
func run(in io.Reader, out io.Writer) (bad bool, err error) {
	m := &matrix{out: out, packages: map[string]*pkg{}, builds: map[string][]byte{}, found: map[string]map[string]tally{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		m.add(e)
	}
	for _, name := range slices.Sorted(maps.Keys(m.packages)) { // go test was killed
		m.endPackage(event{Package: name, Action: "fail"})
	}
	bad, err = m.print()
	return bad || m.failed, errors.Join(lines.Err(), err)
}

// matrix is what is known of all packages.
type matrix struct {
	out      io.Writer
	packages map[string]*pkg             // that have not ended
	builds   map[string][]byte           // what the compiler has written, by import path
	found    map[string]map[string]tally // scenarios by column and group
	failed   bool                        // a package
}

// pkg is a package whose tests run. A test below a scenario counts as the scenario.
type pkg struct {
	ends      map[string]string // by test: pass, fail or skip; empty if it has not ended
	outputs   map[string][]byte // of tests that have not passed; those of no test under ""
	scenarios int
}

// depth is how many parts a scenario's name has: TestScenarios, store, group, scenario.
const depth = 4

func (m *matrix) add(e event) {
	if e.Action == "build-output" {
		m.builds[e.ImportPath] = appendTail(m.builds[e.ImportPath], e.Output)
	}
	if e.Package == "" {
		return
	}
	p := m.packages[e.Package]
	if p == nil {
		p = &pkg{ends: map[string]string{}, outputs: map[string][]byte{}}
		m.packages[e.Package] = p
	}
	name := strings.Split(e.Test, "/")
	test := strings.Join(name[:min(len(name), depth)], "/")
	switch e.Action {
	case "run":
		if len(name) <= depth {
			p.ends[test] = ""
		}
	case "output":
		p.outputs[test] = appendTail(p.outputs[test], e.Output)
	case "pass", "fail", "skip":
		switch {
		case e.Test == "":
			m.endPackage(e)
		case len(name) <= depth:
			p.ends[test] = e.Action
			if e.Action != "fail" {
				delete(p.outputs, test)
			}
			if len(name) == depth && name[0] == "TestScenarios" {
				p.scenarios++
				m.count(path.Base(e.Package)+"/"+name[1], name[2], e.Action)
			}
		}
	}
}

func (m *matrix) count(column, group, action string) {
	if m.found[column] == nil {
		m.found[column] = map[string]tally{}
	}
	if m.found[column][group] == nil {
		m.found[column][group] = tally{}
	}
	m.found[column][group][action]++
}

// endPackage prints what failed in a package.
func (m *matrix) endPackage(e event) {
	p := m.packages[e.Package]
	if p == nil {
		p = &pkg{}
	}
	delete(m.packages, e.Package)
	if e.Action != "fail" && p.scenarios == 0 {
		m.failed = true
		fmt.Fprintf(m.out, "%s has no scenario\n%s\n", e.Package, p.outputs[""])
	}
	if e.Action != "fail" {
		return
	}
	m.failed = true
	var lost []string
	for name, end := range p.ends {
		if end == "fail" || end == "" {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	for _, name := range lost {
		if slices.ContainsFunc(lost, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			continue // it failed because of that one
		}
		did := ""
		if p.ends[name] == "" {
			did = " did not end"
		}
		fmt.Fprintf(m.out, "%s %s%s\n%s\n", e.Package, name, did, p.outputs[name])
	}
	fmt.Fprintf(m.out, "%s failed\n%s%s\n", e.Package, m.builds[e.FailedBuild], p.outputs[""])
}

// maxOutput is how many bytes of what a scenario has written are kept. They are the last: why it failed is at the end.
const maxOutput = 64 << 10

func appendTail(output []byte, text string) []byte {
	output = append(output, text...)
	return output[max(0, len(output)-maxOutput):]
}

// print prints the table. It reports whether it shows anything but the same number of passed scenarios everywhere.
func (m *matrix) print() (bad bool, err error) {
	columns := slices.Sorted(maps.Keys(m.found))
	groups := map[string]bool{}
	for _, of := range m.found {
		for group := range of {
			groups[group] = true
		}
	}
	table := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "scenarios\t%s\n", strings.Join(columns, "\t"))
	all := map[string]tally{}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprint(table, group)
		for _, column := range columns {
			if all[column] == nil {
				all[column] = tally{}
			}
			all[column].add(m.found[column][group])
			fmt.Fprintf(table, "\t%s", m.found[column][group])
		}
		fmt.Fprintln(table)
	}
	fmt.Fprint(table, "all")
	bad = len(columns) == 0
	for _, column := range columns {
		fmt.Fprintf(table, "\t%s", all[column])
		bad = bad || all[column]["fail"]+all[column]["skip"] > 0 || all[column]["pass"] != all[columns[0]]["pass"]
	}
	fmt.Fprintln(table)
	return bad, table.Flush()
}
