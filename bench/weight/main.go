//go:build unix

// Command weight measures what Helix weighs: for the program and for a small application of a user, the size of the stripped
// binary, how many modules are linked into it, the processor time of a build that finds nothing in the cache, and the memory
// of its largest process, which is a compiler or the linker. It fails above the ceilings of ceilings.json.
//
//	go run ./bench/weight          both programs
//	go run ./bench/weight user     one of them
//
// Measure when little else runs: processor time grows with the load, too.
package main

import (
	"context"
	"debug/buildinfo"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

//go:embed ceilings.json
var ceilings []byte

// weight is what a program weighs, or may weigh at most.
type weight struct {
	Program string `json:"program"`
	Package string `json:"package"`
	// Megabytes is the size of the stripped binary, and PeakMegabytes the memory of the largest process of a build.
	Megabytes     float64 `json:"megabytes"`
	Modules       int     `json:"modules"`
	CPUSeconds    float64 `json:"cpuSeconds"`
	PeakMegabytes float64 `json:"peakMegabytes"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "weight:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	limits, err := limits()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "program\tMB\tmodules\tCPU s\tpeak MB\t")
	var tooMuch []string
	for i := range limits {
		limit := &limits[i]
		if len(only) > 0 && !slices.Contains(only, limit.Program) {
			continue
		}
		fmt.Fprintf(os.Stderr, "building %s (%s) with an empty cache\n", limit.Program, limit.Package)
		got, err := weigh(ctx, limit)
		if err != nil {
			return err
		}
		fmt.Fprint(table, got.row(limit.Program))
		fmt.Fprint(table, limit.row("at most"))
		tooMuch = append(tooMuch, got.exceeds(limit)...)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(tooMuch) > 0 {
		return fmt.Errorf("above the ceiling in bench/weight/ceilings.json: %s", strings.Join(tooMuch, ", "))
	}
	return nil
}

func limits() ([]weight, error) {
	var out []weight
	err := json.Unmarshal(ceilings, &out)
	return out, err
}

// weigh builds a program with an empty cache. cgo is off, so that a C compiler makes no difference.
func weigh(ctx context.Context, of *weight) (*weight, error) {
	dir, err := os.MkdirTemp("", "helix-weight-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, of.Package)
	build.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache"), "CGO_ENABLED=0", "GOFLAGS=")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	build.Cancel = func() error { return build.Process.Signal(os.Interrupt) }
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", of.Package, err)
	}
	file, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	// What the kernel reports for a process that has been waited for includes those that it has waited for in turn.
	state := build.ProcessState
	return &weight{
		Program: of.Program, Package: of.Package, Megabytes: float64(file.Size()) / 1e6, Modules: len(info.Deps),
		CPUSeconds: (state.UserTime() + state.SystemTime()).Seconds(), PeakMegabytes: peak(state),
	}, nil
}

// peak returns the most memory that one process has had.
func peak(state *os.ProcessState) float64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return float64(usage.Maxrss) / 1e6 // it counts in bytes
	}
	return float64(usage.Maxrss) * 1024 / 1e6
}

func (w *weight) row(name string) string {
	return fmt.Sprintf("%s\t%.1f\t%d\t%.0f\t%.0f\t\n", name, w.Megabytes, w.Modules, w.CPUSeconds, w.PeakMegabytes)
}

// exceeds lists in what a program is heavier than it may be.
func (w *weight) exceeds(limit *weight) []string {
	var out []string
	for _, c := range []struct {
		what      string
		got, most float64
	}{
		{"MB", w.Megabytes, limit.Megabytes},
		{"modules", float64(w.Modules), float64(limit.Modules)},
		{"CPU seconds", w.CPUSeconds, limit.CPUSeconds},
		{"MB of memory to build", w.PeakMegabytes, limit.PeakMegabytes},
	} {
		if c.got > c.most {
			out = append(out, fmt.Sprintf("%s has %.1f %s, at most %.0f", limit.Program, c.got, c.what, c.most))
		}
	}
	return out
}
