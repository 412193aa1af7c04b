package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
)

func TestStress(t *testing.T) {
	t.Parallel()
	dir := writeModule(t, `
// run adds a byte to a file, and returns how many it has.
func run(t *testing.T) int {
	f, _ := os.OpenFile(strings.ReplaceAll(t.Name(), "/", "."), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	defer f.Close()
	f.WriteString("x")
	info, _ := f.Stat()
	return int(info.Size())
}

func TestOne(t *testing.T)     { run(t) }
func TestOneMore(t *testing.T) { run(t) }

func TestCases(t *testing.T) {
	for _, name := range []string{"a b", "a b c", "d"} {
		t.Run(name, func(t *testing.T) { run(t) })
	}
}

func TestFails(t *testing.T) {
	switch run(t) {
	case 1:
		panic("boom")
	case 3:
		t.Error("too slow")
	}
}

func TestExits(t *testing.T) { run(t); os.Exit(0) }
func TestSkips(t *testing.T) { t.Skip("for soak") }

func TestMain(m *testing.M) {
	code := m.Run()
	if _, err := os.Stat("TestOneMore"); err == nil {
		code = 1
	}
	os.Exit(code)
}
`)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("broken/broken_test.go", "package broken\n\nvar x = missing\n")
	write("empty/empty.go", "package empty\n")
	for _, c := range []struct { // one after the other: TestOneMore makes the next ones fail
		test, pkg string
		count     int
		loops     int
		code      int
		want      []string // in the output
		runs      int
	}{
		{"TestOne", ".", 3, 2, 0, []string{"3 of 3 runs of example.com/m TestOne passed, beside 2 busy loops"}, 3},
		{"TestCases/a_b", ".", 2, 0, 0, []string{"2 of 2 runs"}, 2},
		{"TestFails", ".", 4, 0, 1, []string{"run 1 of example.com/m TestFails", "panic: boom", "run 3 of", "too slow\n--- FAIL: TestFails", "2 of 4 runs"}, 4},
		{"TestExits", ".", 1, 0, 1, []string{"0 of 1 runs"}, 1},
		{"TestOn", ".", 3, 0, 2, []string{"example.com/m has no test TestOn;"}, 0},
		{"TestCases/e", ".", 3, 0, 2, []string{"example.com/m has no test TestCases/e;"}, 0},
		{"TestSkips", ".", 3, 0, 2, []string{"TestSkips is skipped", "for soak"}, 0},
		{"TestOne", "./x", 3, 0, 2, []string{"there is no package ./x"}, 3},
		{"TestOne", "./...", 3, 0, 2, []string{"./... is not one package"}, 3},
		{"TestOne", "./broken", 3, 0, 2, []string{"undefined: missing", "example.com/m/broken does not build"}, 3},
		{"TestOne", "./empty", 3, 0, 2, []string{"example.com/m/empty has no tests"}, 3},
		{"", ".", 3, 0, 2, []string{"it takes the name of a test"}, 0},
		{"TestOne", ".", 0, 0, 2, []string{"how often to run it"}, 3},
		{"TestOneMore", ".", 2, 0, 1, []string{"--- PASS: TestOneMore", "0 of 2 runs"}, 2},
	} {
		var out bytes.Buffer
		s := stress{test: c.test, pkg: c.pkg, flags: []string{"-vet=off"}, count: c.count, loops: c.loops, dir: dir, out: &out, errs: &out}
		if code := s.main(); code != c.code {
			t.Errorf("%s: exit code %d, want %d:\n%s", c.test, code, c.code, &out)
		}
		rest := out.String()
		for _, want := range c.want {
			var found bool
			if _, rest, found = strings.Cut(rest, want); !found {
				t.Errorf("%s: there is no %q after those before it:\n%s", c.test, want, &out)
			}
		}
		if runs, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.test, "/", "."))); c.runs > 0 && len(runs) != c.runs {
			t.Errorf("%s: %d runs, want %d: %v", c.test, len(runs), c.runs, err)
		}
	}
}

// A signal ends the run that goes on, also one that stands still.
func TestStressEnds(t *testing.T) {
	t.Parallel()
	dir := writeModule(t, `func TestOne(t *testing.T) { os.WriteFile("ran", nil, 0o600); select {} }`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		s := stress{test: "TestOne", pkg: ".", count: 3, loops: 1, dir: dir, out: t.Output(), errs: t.Output()}
		_, err := s.run(ctx)
		ended <- err
	}()
	eventually.Poll(t, "the test begins", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ran"))
		return err == nil
	})
	cancel()
	if err := eventually.Receive(t, "the end", ended); err == nil || !strings.Contains(err.Error(), "0 of 0 runs of example.com/m TestOne have passed") {
		t.Error(err)
	}
}
