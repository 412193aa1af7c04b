package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// tier is a part of the tests. Tiers run one after the other: what is quick and certain first, what needs the machine for
// itself last.
type tier struct {
	name     string
	packages []string
	most     int // how many failed tests get a second try
}

const module = "github.com/helixagents/helix"

// table says in which tier a package is. A line holds for all packages below its own, but for those that have one of their
// own.
var table = []struct {
	tier int
	path string
}{
	// make lint tests these.
	{0, "internal/layering"},

	// Tier 1 has neither servers nor other processes to wait for, so that nothing in it may ever fail by chance.
	{1, ""},
	{1, "bench"},
	{1, "blob"},
	{1, "builtin"},
	{1, "docs"},
	{1, "engine"},
	{1, "examples/testing"},
	{1, "extension"},
	{1, "helixtest"},
	{1, "internal"},
	{1, "llm"},
	{1, "lock"},
	{1, "runtime"},
	{1, "session"},
	{1, "skill"},
	{1, "store/internal"},
	{1, "store/memory"},
	{1, "store/sqlite"},
	{1, "store/storetest"},
	{1, "stream"},
	{1, "usage"},

	// Tier 2 has the tests on servers, also on those that a test itself is.
	{2, "client"},
	{2, "config"},
	{2, "internal/faultproxy"},
	{2, "internal/onservers"},
	{2, "internal/testschema"},
	{2, "runtime/dbos"},
	{2, "runtime/temporal"},
	{2, "server"},
	{2, "store"},

	// Tier 3 has the tests that start processes, and pages in a browser.
	{3, "cmd"},
	{3, "examples"},
	{3, "internal/chaos"},
	{3, "internal/gotest"},
	{3, "internal/release"},
	{3, "internal/testserver"},
	{3, "internal/webtest"},
	{3, "llm/llmtest"},
	{3, "remote"},
	{3, "skill/bake"},
}

// tierOf returns the number of the tier of a package, 0 for one that no tier runs.
func tierOf(pkg string) (int, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	found, length := -1, -1
	for _, line := range table {
		exact := line.path == path
		below := line.path != "" && strings.HasPrefix(path, line.path+"/")
		if (exact || below) && len(line.path) > length {
			found, length = line.tier, len(line.path)
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("the package %s is in no tier: add it to the table in internal/gotest/tiers.go", pkg)
	}
	return found, nil
}

// longest are the packages that take longest, which begin first in their tier: one that begins last would run alone at the
// end.
var longest = []string{
	"runtime/local", "engine", "internal/simulation",
	"store/postgres", "runtime/temporal", "internal/onservers/engine", "runtime/dbos", "server", "internal/onservers/local", "store/redis",
	"internal/chaos", "cmd/helix", "internal/webtest",
}

// planTiers divides packages, which may be patterns, among the tiers. In the first nothing has a second try.
func planTiers(patterns []string, most int) ([]tier, error) {
	// It ends by itself, and with this process.
	out, err := exec.CommandContext(context.Background(), "go", append([]string{"list", "--"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	tiers := []tier{{name: "1"}, {name: "2", most: most}, {name: "3", most: most}}
	packages := strings.Fields(string(out))
	slices.SortStableFunc(packages, func(a, b string) int { return rank(a) - rank(b) })
	for _, pkg := range packages {
		n, err := tierOf(pkg)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		tiers[n-1].packages = append(tiers[n-1].packages, pkg)
	}
	return slices.DeleteFunc(tiers, func(t tier) bool { return len(t.packages) == 0 }), nil
}

func rank(pkg string) int {
	if at := slices.Index(longest, strings.TrimPrefix(pkg, module+"/")); at >= 0 {
		return at
	}
	return len(longest)
}
