package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	maxQuarantined = 5
	maxQuarantine  = 14 // days
)

// TestQuarantine checks quarantine.txt. It is a part of make lint, and its result depends on the date, so that nobody can
// forget a test there.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	list, err := readQuarantine("quarantine.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkQuarantine(list, time.Now(), filepath.Join("..", "..")) {
		t.Error("internal/gotest/quarantine.txt: " + problem)
	}
}

// checkQuarantine returns what is wrong with a list of quarantined tests of the module in a directory. It cannot see the
// names of subtests.
func checkQuarantine(list []quarantined, now time.Time, root string) (problems []string) {
	if len(list) > maxQuarantined {
		problems = append(problems, fmt.Sprintf("%d tests are quarantined, and at most %d may be: mend some", len(list), maxQuarantined))
	}
	for i, q := range list {
		say := func(format string, args ...any) {
			problems = append(problems, q.String()+" "+fmt.Sprintf(format, args...))
		}
		if now.Before(q.since) {
			say("is quarantined from %s on, which is in the future", q.since.Format(time.DateOnly))
		}
		if end := q.since.AddDate(0, 0, maxQuarantine+1); !now.Before(end) {
			say("is quarantined since %s, and may be for %d days: mend it, or remove it with what it tests", q.since.Format(time.DateOnly), maxQuarantine)
		}
		if slices.ContainsFunc(list[:i], func(other quarantined) bool { return other.test == q.test }) {
			say("is quarantined twice")
		}
		if tier, err := tierOf(q.pkg); err != nil || tier == 1 {
			say("is not of the second or third tier; in the first nothing may fail by chance")
		}
		path, ok := strings.CutPrefix(q.pkg, module+"/")
		function, _, _ := strings.Cut(q.name, "/")
		if !ok || !hasTest(filepath.Join(root, path), function) {
			say("does not exist: remove the line")
		}
	}
	return problems
}

// hasTest reports whether the tests in a directory have a function.
func hasTest(dir, function string) bool {
	if !strings.HasPrefix(function, "Test") || function == "TestMain" {
		return false
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // it does not build, which others notice
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == function {
				return true
			}
		}
	}
	return false
}

func TestCheckQuarantine(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 18, 23, 0, 0, 0, time.UTC)
	const (
		one = "github.com/helixagents/helix/internal/gotest TestStress/passes slow"
		two = "github.com/helixagents/helix/internal/gotest TestVerdicts slow"
	)
	for name, c := range map[string]struct {
		lines []string
		want  string // the only problem; empty: none
	}{
		"empty":        {[]string{"# why", ""}, ""},
		"fresh":        {[]string{"2026-11-18 " + one, "2026-11-17 " + two}, ""},
		"14 days old":  {[]string{"2026-11-04 " + one}, ""},
		"15 days old":  {[]string{"2026-11-03 " + one}, "may be for 14 days: mend it"},
		"in future":    {[]string{"2026-11-19 " + one}, "in the future"},
		"twice":        {[]string{"2026-11-18 " + one, "2026-11-18 " + one}, "twice"},
		"no date":      {[]string{"yesterday " + one}, "quarantine.txt:1: parsing time"},
		"no reason":    {[]string{"", "2026-11-18 github.com/helixagents/helix/internal/gotest TestStress"}, "quarantine.txt:2: a line has a date, a package, a test and a reason"},
		"no test":      {[]string{"2026-11-18 github.com/helixagents/helix/internal/gotest TestStres slow"}, "TestStres does not exist"},
		"no function":  {[]string{"2026-11-18 github.com/helixagents/helix/internal/gotest writeModule slow"}, "writeModule does not exist"},
		"no test, too": {[]string{"2026-11-18 github.com/helixagents/helix/internal/faultproxy TestMain slow"}, "TestMain does not exist"},
		"no package":   {[]string{"2026-11-18 github.com/helixagents/helix/store/nowhere TestStress slow"}, "does not exist"},
		"first tier":   {[]string{"2026-11-18 github.com/helixagents/helix/internal/matrix TestMatrix slow"}, "nothing may fail by chance"},
		"one too many": {slices.Repeat([]string{"2026-11-18 " + one}, maxQuarantined+1), "6 tests are quarantined, and at most 5 may be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range c.lines {
				if name == "one too many" {
					c.lines[i] = strings.Replace(c.lines[i], "/passes", fmt.Sprint("/", i), 1)
				}
			}
			path := filepath.Join(t.TempDir(), "quarantine.txt")
			if err := os.WriteFile(path, []byte(strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := readQuarantine(path)
			problems := checkQuarantine(list, now, filepath.Join("..", ".."))
			if err != nil {
				problems = append(problems, err.Error())
			}
			if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)) {
				t.Errorf("the problems are %q, want %q", problems, c.want)
			}
		})
	}
}

// Quarantined tests are passed over, also in a second try, and those of the same names in other packages are not.
func TestPassOver(t *testing.T) {
	t.Parallel()
	dir := writeModule(t, "")
	const tests = `

import (
	"os"
	"testing"
)

func TestOne(t *testing.T) {
	for _, name := range []string{"bad", "bad too", "worse", "good"} {
		t.Run(name, func(t *testing.T) {
			if t.Name() == "TestOne/bad" || t.Name() == "TestOne/worse" {
				t.Error(t.Name(), "of", pkg)
			}
		})
	}
	if _, err := os.Stat("ran"); pkg == "a" && err != nil {
		os.WriteFile("ran", nil, 0o600)
		t.Error("too slow")
	}
}

func TestBad(t *testing.T)    { t.Error("TestBad of", pkg) }
func TestBadToo(t *testing.T) {}
`
	for _, pkg := range []string{"a", "b", "c"} {
		text := "package " + pkg + tests + "const pkg = \"" + pkg + "\"\n"
		if pkg == "c" {
			text = "package c\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) {}\n"
		}
		if err := os.Mkdir(filepath.Join(dir, pkg), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, pkg, pkg+"_test.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	since := time.Date(2026, 11, 18, 0, 0, 0, 0, time.UTC)
	run := func(list ...quarantined) (string, int) {
		var out bytes.Buffer
		r := runner{
			tiers: []tier{{name: "2", packages: []string{"example.com/m/a", "example.com/m/b", "example.com/m/c"}, most: 5}},
			flags: []string{"-count=1", "-vet=off"}, quarantine: list, dir: dir,
			times: 3, within: 5 * time.Minute, began: time.Now(), out: &out, errs: io.Discard, events: io.Discard,
		}
		code := r.run()
		return out.String(), code
	}
	var all []quarantined
	for _, pkg := range []string{"example.com/m/a", "example.com/m/b"} {
		for _, name := range []string{"TestOne/bad", "TestOne/worse", "TestBad"} {
			all = append(all, quarantined{test{pkg, name}, since, "slow"})
		}
	}
	out, code := run(all...)
	if code != 0 || !strings.Contains(out, "9 passed, 0 failed, 0 skipped") || strings.Count(out, "\nquarantined, not run: ") != 6 ||
		!strings.Contains(out, "\nquarantined, not run: example.com/m/b TestOne/worse, since 2026-11-18: slow\n") ||
		!strings.Contains(out, "example.com/m/a TestOne: passed 3 of 3 times alone") {
		t.Errorf("exit code %d, and:\n%s", code, out)
	}
	out, code = run(all[:3]...)
	if code == 0 || strings.Contains(out, "of a\n") {
		t.Errorf("with those of a, the exit code is %d, and:\n%s", code, out)
	}
	for _, want := range []string{"TestOne/bad of b", "TestOne/worse of b", "TestBad of b"} {
		if !strings.Contains(out, want) {
			t.Errorf("with those of a, %q is not in:\n%s", want, out)
		}
	}
}
