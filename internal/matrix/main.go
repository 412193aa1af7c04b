// Command matrix reads what `go test -json` says of the scenarios of several runtimes
// and prints, for each runtime and store, how many of each group it has passed:
//
//	go test -json -run TestScenarios ./runtime/... | matrix
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
	Action, Package, Test, Output string
}

// maxOutput is how many bytes of what a scenario has written are kept.
const maxOutput = 64 << 10

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

// run prints what failed scenarios have written, and the matrix. It reports whether a scenario failed or was skipped, or
// there is none.
func run(in io.Reader, out io.Writer) (bad bool, err error) {
	found := map[string]map[string]tally{} // by column and group
	var groups []string
	outputs := map[string][]byte{} // of scenarios that have not ended
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what the compiler says
		}
		name := strings.Split(e.Test, "/") // TestScenarios, store, group, scenario
		if len(name) < 4 || name[0] != "TestScenarios" {
			continue
		}
		scenario := e.Package + " " + strings.Join(name[:4], "/")
		if e.Action == "output" && len(outputs[scenario])+len(e.Output) <= maxOutput {
			outputs[scenario] = append(outputs[scenario], e.Output...)
		}
		if len(name) != 4 || (e.Action != "pass" && e.Action != "fail" && e.Action != "skip") {
			continue
		}
		if e.Action == "fail" {
			fmt.Fprintf(out, "%s\n%s\n", scenario, outputs[scenario])
		}
		delete(outputs, scenario)
		column, group := path.Base(e.Package)+"/"+name[1], name[2]
		if found[column] == nil {
			found[column] = map[string]tally{}
		}
		if found[column][group] == nil {
			found[column][group] = tally{}
		}
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		found[column][group][e.Action]++
	}
	slices.Sort(groups)
	columns := slices.Sorted(maps.Keys(found))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "scenarios\t%s\n", strings.Join(columns, "\t"))
	all := map[string]tally{}
	for _, group := range groups {
		fmt.Fprint(table, group)
		for _, column := range columns {
			if all[column] == nil {
				all[column] = tally{}
			}
			all[column].add(found[column][group])
			fmt.Fprintf(table, "\t%s", found[column][group])
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
	return bad, errors.Join(lines.Err(), table.Flush())
}
