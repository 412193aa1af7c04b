package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The race detector's words, put together: gotest must not take the output of this test for a report.
const raceReport = "WARNING: DATA" + " RACE"

// A module with one test that fails in its first run only, as on a busy machine.
const flaky = `
func TestFlaky(t *testing.T) {
	t.Run("some case", func(t *testing.T) {
		if _, err := os.Stat("ran"); err != nil {
			os.WriteFile("ran", nil, 0o600)
			t.Fatal("too slow")
		}
	})
}
`

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const passes = "func TestPasses(t *testing.T) {}\n"
	for name, c := range map[string]struct {
		source string
		flags  []string
		most   int
		code   int
		want   []string // in the output
		last   string
	}{
		"passes": {
			source: passes,
			want:   []string{"1 passed, 0 failed, 0 skipped", "ok   example.com/m"},
			last:   "second try: none",
		},
		"skipped": {
			source: passes + `func TestSkips(t *testing.T) { t.Run("a", func(t *testing.T) { t.Skip("soak") }) }`,
			want:   []string{"2 passed, 0 failed, 1 skipped", "skipped: example.com/m TestSkips 1"},
			last:   "second try: none",
		},
		"fails on a busy machine": {
			source: passes + flaky,
			want:   []string{"too slow", "2 passed, 0 failed, 0 skipped", "second try: 1, each a fault"},
			last:   "example.com/m TestFlaky/some_case: passed 3 of 3 times alone",
		},
		"no second try wanted": {
			source: flaky, most: -1, code: 1,
			want: []string{"0 passed, 1 failed, 0 skipped", "1 tests failed, and at most 0 are tried again"},
			last: "second try: none",
		},
		"too many failed": {
			source: `func TestMany(t *testing.T) {
				for _, name := range []string{"a", "b", "c"} {
					t.Run(name, func(t *testing.T) { t.Fail() })
				}
			}`,
			most: 2, code: 1,
			want: []string{"3 tests failed, and at most 2 are tried again"},
			last: "second try: none",
		},
		"wrong": {
			source: passes + `func TestWrong(t *testing.T) { t.Error("off by one") }`, code: 1,
			want: []string{"off by one", "1 passed, 1 failed, 0 skipped"},
			last: "example.com/m TestWrong: failed: TestWrong failed again",
		},
		"wrong every other time": {
			source: `var runs int
			func TestWrong(t *testing.T) { if runs++; runs%2 == 1 { t.Error("off by one") } }`, code: 1,
			last: "example.com/m TestWrong: failed: TestWrong failed again",
		},
		"skips when it is alone": {
			source: `func TestWrong(t *testing.T) {
				if _, err := os.Stat("ran"); err == nil {
					t.Skip()
				}
				os.WriteFile("ran", nil, 0o600)
				t.Error("off by one")
			}`, code: 1,
			last: "it was seen to pass 0 times, not 3",
		},
		"crashes in its second try": {
			source: `func TestWrong(t *testing.T) {
				if _, err := os.Stat("ran"); err == nil {
					panic("boom")
				}
				os.WriteFile("ran", nil, 0o600)
				t.Error("too slow")
			}`, code: 1,
			want: []string{"panic: boom"},
			last: "failed: ",
		},
		"hangs in its second try": {
			source: `func TestWrong(t *testing.T) {
				if _, err := os.Stat("ran"); err == nil {
					select {}
				}
				os.WriteFile("ran", nil, 0o600)
				t.Error("too slow")
			}`, code: 1,
			last: "failed: ",
		},
		"data race": {
			source: flaky + `func TestRace(t *testing.T) { t.Log("` + raceReport + `") }`, code: 1,
			want: []string{"no second try: example.com/m TestRace: a data race"},
			last: "second try: none",
		},
		"data race in a process that a test starts and kills": {
			source: `func TestKills(t *testing.T) {
				out, err := exec.Command("sh", "-c", "echo ` + raceReport + `; kill -9 $$").CombinedOutput()
				t.Logf("it was killed: %v\n%s", err, out)
			}`, code: 1,
			want: []string{"no second try: example.com/m TestKills: a data race"},
			last: "second try: none",
		},
		"panic": {
			source: passes + `func TestPanics(t *testing.T) { panic("boom") }`, code: 1,
			want: []string{"no second try: example.com/m TestPanics: panic: boom"},
			last: "second try: none",
		},
		"panic of a process that a test starts": {
			source: `func TestStarts(t *testing.T) {
				out, err := exec.Command("sh", "-c", "echo panic: boom; exit 2").CombinedOutput()
				t.Errorf("%v\n%s", err, out)
			}`, code: 1,
			want: []string{"no second try: example.com/m TestStarts: panic: boom"},
			last: "second try: none",
		},
		"leak": {
			source: passes + `func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`, code: 1,
			want: []string{"no second try: example.com/m failed, and none of its tests did"},
			last: "second try: none",
		},
		"leak that a test finds": {
			source: `func TestLeaks(t *testing.T) { t.Error("found unexpected goroutines") }`, code: 1,
			want: []string{"no second try: example.com/m TestLeaks: found unexpected goroutines"},
			last: "second try: none",
		},
		"never ends": {
			source: passes + `func TestHangs(t *testing.T) { select {} }`, flags: []string{"-timeout=100ms"}, code: 1,
			want: []string{"no second try: example.com/m TestHangs"},
			last: "second try: none",
		},
		"exits": {
			source: `func TestExits(t *testing.T) { os.Exit(0) }`, code: 1,
			want: []string{"no second try: "},
			last: "second try: none",
		},
		"does not build": {
			source: `func TestBuilds(t *testing.T) { missing() }`, code: 1,
			want: []string{"undefined: missing", "no second try: example.com/m [example.com/m.test] does not build"},
			last: "second try: none",
		},
		"wrong flag": {
			source: passes, flags: []string{"-unheard-of"}, code: 1,
			want: []string{"no second try: "},
			last: "second try: none",
		},
		"no test": {
			source: "", code: 1,
			want: []string{"0 passed, 0 failed, 0 skipped", "no second try: no test ran"},
			last: "second try: none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := writeModule(t, c.source)
			var out, errs bytes.Buffer // go test writes to both at once
			r := runner{
				tiers: []tier{{name: "2", packages: []string{"./..."}, most: 5}}, flags: slices.Concat([]string{"-count=1", "-vet=off"}, c.flags), dir: dir,
				times: 3, within: 5 * time.Minute, began: time.Now(), out: &out, errs: &errs, events: io.Discard,
			}
			if c.most != 0 {
				r.tiers[0].most = max(c.most, 0)
			}
			if strings.HasPrefix(name, "hangs") {
				r.within = 100 * time.Millisecond
			}
			if code := r.run(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output does not contain %q", want)
				}
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, c.last) {
				t.Errorf("the last line is %q, want %q", last, c.last)
			}
			if t.Failed() {
				t.Logf("output:\n%s\n%s", strings.ReplaceAll(out.String(), raceReport, "a data race"), &errs)
			}
		})
	}
}

// writeModule makes a module of one package, example.com/m, with these tests, and returns its directory.
func writeModule(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"m_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"os/exec\"\n\t\"strings\"\n\t\"testing\"\n)\n\nvar (\n\t_ = os.Exit\n\t_ = exec.Command\n\t_ = strings.Cut\n\t_ testing.TB\n)\n\n" +
			source,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	var o output
	line := strings.Repeat("x", 1000) + "\n"
	o.write("first\n")
	for range 1000 {
		o.write(line)
	}
	o.write("last\n")
	text := o.String()
	if len(text) > maxOutput+100 || !strings.HasPrefix(text, "first\n") || !strings.HasSuffix(text, "last\n") {
		t.Errorf("%d bytes, from %.10q to %q", len(text), text, text[len(text)-10:])
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	packages, flags, ok := split([]string{"./a", "./...", "--", "-race", "-run", "X"})
	if !ok || !slices.Equal(packages, []string{"./a", "./..."}) || !slices.Equal(flags, []string{"-race", "-run", "X"}) {
		t.Error(packages, flags, ok)
	}
	for _, args := range [][]string{nil, {"./..."}, {"--", "-race"}} {
		if _, _, ok := split(args); ok {
			t.Errorf("%q has packages and flags", args)
		}
	}
}
