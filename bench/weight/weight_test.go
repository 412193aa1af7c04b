//go:build unix

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The number of modules is cheap to tell, so it is held at all times; the rest is for make weight.
func TestModulesAreFew(t *testing.T) {
	t.Parallel()
	all, err := limits()
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range all {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", limit.Package).Output()
		if err != nil {
			t.Fatalf("%s: %v", limit.Package, err)
		}
		modules := slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
		if len(modules) > limit.Modules {
			t.Errorf("%s links %d modules, at most %d: %s", limit.Program, len(modules), limit.Modules, strings.Join(modules, " "))
		}
		t.Logf("%s links %d modules", limit.Program, len(modules))
	}
}

func TestExceeds(t *testing.T) {
	t.Parallel()
	limit := weight{Program: "p", Megabytes: 12, Modules: 3, CPUSeconds: 85, PeakMegabytes: 1000}
	for _, c := range []struct {
		got  weight
		want []string
	}{
		{limit, nil},
		{weight{Megabytes: 12.04, Modules: 3}, []string{"p has 12.0 MB, at most 12"}},
		{weight{Modules: 4, CPUSeconds: 90, PeakMegabytes: 1001}, []string{
			"p has 4.0 modules, at most 3", "p has 90.0 CPU seconds, at most 85", "p has 1001.0 MB of memory to build, at most 1000",
		}},
	} {
		if got := c.got.exceeds(&limit); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
