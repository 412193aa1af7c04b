package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"regexp"
)

// maxOutput is how many bytes of what a test has written are kept: the first half of that, and the last.
const maxOutput = 256 << 10

// test names one test of a package. Without a name it is what the package does outside of its tests.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string

	Elapsed float64
}

// results is what became of the packages and tests of a run.
type results struct {
	tests    map[test]string    // pass, fail or skip; began if a test has no end
	packages map[string]string  // the same
	outputs  map[test]*output   // of tests that have not passed
	builds   map[string]*output // that failed
	races    map[test]bool      // whoever has reported a data race
	crashes  map[test]string    // the line that tells of a panic or the like
	passes   map[test]int       // how often a test passed
}

// watcher is told of packages as they end, and of lines that are no events.
type watcher interface {
	endPackage(e event)
	printLine(line string)
}

// What no busy machine explains. A test that starts a process repeats what the process has written, often indented.
var (
	raceLine  = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test`)
	crashLine = regexp.MustCompile(`^\s*(panic: |fatal error: |unexpected fault address |SIG[A-Z]+: )`)
	// These two are common in the log of a test that makes somebody else's code panic, and passes.
	traceLine = regexp.MustCompile(`goroutine \d+ (gp=\S+ m=\S+ )?\[running|found unexpected goroutines`)
)

// readEvents reads what go test -json prints, to its end.
func readEvents(in io.Reader, watch watcher) (*results, error) {
	r := newResults()
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				watch.printLine(string(line))
			} else {
				r.note(e, watch)
			}
		}
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func newResults() *results {
	return &results{
		tests: map[test]string{}, packages: map[string]string{}, outputs: map[test]*output{}, builds: map[string]*output{},
		races: map[test]bool{}, crashes: map[test]string{}, passes: map[test]int{},
	}
}

// add adds what became of other packages.
func (r *results) add(other *results) {
	maps.Copy(r.tests, other.tests)
	maps.Copy(r.packages, other.packages)
	maps.Copy(r.outputs, other.outputs)
	maps.Copy(r.builds, other.builds)
	maps.Copy(r.races, other.races)
	maps.Copy(r.crashes, other.crashes)
	maps.Copy(r.passes, other.passes)
}

func (r *results) note(e event, watch watcher) {
	at := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.build(e.ImportPath).write(e.Output)
	case "build-fail":
		r.build(e.ImportPath)
	case "start":
		r.packages[e.Package] = began
	case "run":
		r.tests[at] = worst(r.tests[at], began)
	case "output":
		r.addOutput(at, e.Output)
	case "pass", "fail", "skip":
		if e.FailedBuild != "" {
			r.build(e.FailedBuild)
		}
		if e.Action != "fail" && !r.races[at] {
			delete(r.outputs, at)
		}
		if e.Test == "" {
			r.packages[e.Package] = e.Action
			watch.endPackage(e)
		} else {
			r.tests[at] = worst(r.tests[at], e.Action)
			if e.Action == "pass" {
				r.passes[at]++
			}
		}
	}
}

const began = "began"

// worst is what became of a test that ran more than once: -count repeats its name.
func worst(before, now string) string {
	if before == "fail" {
		return before
	}
	return now
}

func (r *results) build(importPath string) *output {
	if r.builds[importPath] == nil {
		r.builds[importPath] = &output{}
	}
	return r.builds[importPath]
}

func (r *results) addOutput(at test, text string) {
	if raceLine.MatchString(text) {
		r.races[at] = true
	}
	if r.crashes[at] == "" && crashLine.MatchString(text) {
		r.crashes[at] = text
	}
	if r.outputs[at] == nil {
		r.outputs[at] = &output{}
	}
	r.outputs[at].write(text)
}

// count returns how many tests had this end.
func (r *results) count(end string) int {
	n := 0
	for _, action := range r.tests {
		if action == end {
			n++
		}
	}
	return n
}

// output is the beginning and the end of what somebody has written.
type output struct {
	head, tail []byte
	cut        bool
}

func (o *output) write(text string) {
	if len(o.head)+len(text) <= maxOutput/2 && len(o.tail) == 0 {
		o.head = append(o.head, text...)
		return
	}
	o.tail = append(o.tail, text...)
	if over := len(o.tail) - maxOutput/2; over > 0 {
		o.tail, o.cut = append([]byte(nil), o.tail[over:]...), true
	}
}

func (o *output) String() string {
	if o == nil {
		return ""
	}
	if o.cut {
		return string(o.head) + "\n[… cut …]\n" + string(o.tail)
	}
	return string(o.head) + string(o.tail)
}
