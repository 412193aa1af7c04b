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

func TestTierOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"": 1, "/session": 1, "/store": 2, "/store/memory": 1, "/store/internal/lite": 1, "/store/postgres": 2,
		"/internal/layering": 0, "/internal/testshare": 1, "/internal/testserver/with": 3, "/runtime/local": 1, "/runtime/dbos": 2,
	} {
		if got, err := tierOf(module + path); got != want || err != nil {
			t.Errorf("%s is in tier %d, want %d: %v", module+path, got, want, err)
		}
	}
	for _, path := range []string{"/unheard/of", "/storefront"} {
		if got, err := tierOf(module + path); err == nil || !strings.Contains(err.Error(), module+path) {
			t.Errorf("%s is in tier %d: %v", module+path, got, err)
		}
	}
}

func TestEveryPackageHasATier(t *testing.T) {
	t.Parallel()
	tiers, err := planTiers([]string{module + "/..."}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(tiers) != 3 || tiers[0].most != 0 || tiers[1].most != 5 || tiers[2].most != 5 {
		t.Fatalf("%d tiers: %+v", len(tiers), tiers)
	}
	for _, name := range longest {
		if tests, err := filepath.Glob(filepath.Join("..", "..", name, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s takes longest and has no tests: %v", name, err)
		}
	}
	var first []string
	for _, tier := range tiers {
		for _, pkg := range tier.packages {
			if name := strings.TrimPrefix(pkg, module+"/"); slices.Contains(longest, name) {
				first = append(first, name)
			} else {
				break
			}
		}
	}
	if !slices.Equal(first, longest) {
		t.Errorf("the tiers begin with %q, want the packages that take longest: %q", first, longest)
	}
}

// A tier runs after the one before it, and not at all if that failed.
func TestTiersInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(second string) (string, int) {
		write("go.mod", "module example.com/m\n\ngo 1.24\n")
		write("a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n")
		write("b/b_test.go", "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) {"+second+"}\n")
		write("c/c_test.go", "package c\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) {}\n")
		var out bytes.Buffer
		r := runner{
			tiers: []tier{{name: "1", packages: []string{"./a"}}, {name: "2", packages: []string{"./b"}}, {name: "3", packages: []string{"./c"}}},
			flags: []string{"-count=1", "-vet=off"}, dir: dir, began: time.Now().Add(-time.Hour), budget: time.Minute,
			out: &out, errs: io.Discard, events: io.Discard,
		}
		code := r.run()
		return out.String(), code
	}
	contains := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			before, after, found := strings.Cut(out, want)
			if !found {
				t.Fatalf("the rest of the output has no %q:\n%s", want, before)
			}
			out = after
		}
	}
	out, code := run("")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	contains(out, "ok   example.com/m/a", "ok   example.com/m/b", "ok   example.com/m/c", "before the tests: 1h0m", "tier 1: ", "tier 2: ", "1 tests, 0 second tries",
		"tier 3: ", "3 passed, 0 failed, 0 skipped", "second try: none", "the run took 1h0m", "more than 1m0s")
	out, code = run(`t.Fatal("broken")`)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	contains(out, "ok   example.com/m/a", "FAIL example.com/m/b", "broken", "tier 2: ", "tier 3: not run", "1 passed, 1 failed, 0 skipped", "at most 0 are tried again")
	if strings.Contains(out, "example.com/m/c") {
		t.Errorf("the third tier ran although the second failed:\n%s", out)
	}
}
