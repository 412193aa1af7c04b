package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// stress runs one test many times while the machine has too much to do: each time in a process of its own, beside busy
// loops, and with moments in which that process stands still.
type stress struct {
	test  string
	pkg   string   // a pattern that matches one package
	flags []string // of go test
	count int
	loops int
	dir   string // where go runs; empty: here

	out, errs io.Writer
}

// errUsage is the error of a test that cannot be run.
var errUsage = errors.New("cannot run the test")

// main returns the exit code: 1 if a run failed, 2 if there is no such test.
func (s *stress) main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	passed, err := s.run(ctx)
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(s.errs, "stress:", err)
		return 2
	case err != nil:
		fmt.Fprintln(s.errs, "stress:", err)
		return 1
	case passed != s.count:
		return 1
	}
	return 0
}

// run returns how many runs passed.
func (s *stress) run(ctx context.Context) (passed int, err error) {
	if s.test == "" || s.pkg == "" || s.count < 1 {
		return 0, fmt.Errorf("%w: it takes the name of a test, its package, and how often to run it", errUsage)
	}
	temp, err := os.MkdirTemp("", "stress")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	program := filepath.Join(temp, "stress.test")
	pkg, dir, err := s.build(ctx, program)
	if err != nil {
		return 0, err
	}
	defer burn(s.loops)()
	began, stalls := time.Now(), 0
	for n := 1; n <= s.count; n++ {
		run := s.runOnce(ctx, program, dir)
		stalls += run.stalls
		switch {
		case ctx.Err() != nil:
			return passed, fmt.Errorf("stopped by a signal: %d of %d runs of %s %s have passed", passed, n-1, pkg, s.test)
		case run.end == "SKIP":
			return passed, fmt.Errorf("%w: %s %s is skipped:\n%s", errUsage, pkg, s.test, run.output)
		case run.end == "" && run.err == nil:
			return passed, fmt.Errorf("%w: %s has no test %s; if it is of another share, HELIX_SOAK=1 selects all", errUsage, pkg, s.test)
		case run.end == "PASS" && run.err == nil:
			passed++
		default:
			fmt.Fprintf(s.out, "\n=== FAIL: run %d of %s %s, after %s: %v\n%s", n, pkg, s.test, run.took.Round(10*time.Millisecond), run.err, run.output)
		}
	}
	fmt.Fprintf(s.out, "\n%d of %d runs of %s %s passed, beside %d busy loops and with %d stalls, in %s\n",
		passed, s.count, pkg, s.test, s.loops, stalls, time.Since(began).Round(time.Second))
	return passed, nil
}

// build compiles the tests of the package, and returns its import path and its directory.
func (s *stress) build(ctx context.Context, program string) (pkg, dir string, err error) {
	list := s.command(ctx, "list", "-f", "{{.ImportPath}}\t{{.Dir}}", "--", s.pkg)
	out, err := list.Output()
	if err != nil {
		return "", "", fmt.Errorf("%w: there is no package %s", errUsage, s.pkg)
	}
	pkg, dir, _ = strings.Cut(strings.TrimSpace(string(out)), "\t")
	if pkg == "" || strings.Contains(dir, "\n") {
		return "", "", fmt.Errorf("%w: %s is not one package", errUsage, s.pkg)
	}
	compile := s.command(ctx, slices.Concat([]string{"test", "-c", "-o", program}, s.flags, []string{pkg})...)
	compile.Stdout = s.out
	if err := compile.Run(); err != nil {
		return "", "", fmt.Errorf("%w: %s does not build", errUsage, pkg)
	}
	if _, err := os.Stat(program); err != nil {
		return "", "", fmt.Errorf("%w: %s has no tests", errUsage, pkg)
	}
	return pkg, dir, nil
}

func (s *stress) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = s.dir, s.errs
	return cmd
}

// stressRun is what became of one run.
type stressRun struct {
	end    string // of the test: PASS, FAIL, SKIP, or empty if it did not end
	err    error  // of the process
	output string
	took   time.Duration
	stalls int
}

func (s *stress) runOnce(ctx context.Context, program, dir string) stressRun {
	began := time.Now()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-test.run="+patternOf(s.test), "-test.v=test2json", "-test.paniconexit0", "-test.timeout=10m")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.WaitDelay = time.Minute // for what it has started
	run := stressRun{}
	if run.err = cmd.Start(); run.err != nil {
		return run
	}
	ended, stalled := make(chan struct{}), make(chan int)
	go func() { stalled <- stall(cmd.Process, ended) }()
	run.err = cmd.Wait()
	close(ended)
	run.stalls, run.took = <-stalled, time.Since(began)
	ends := regexp.MustCompile(`(?m)^[ \x16]*--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(s.test) + ` \(`)
	if found := ends.FindStringSubmatch(strings.ReplaceAll(out.String(), "\x16", "\n")); found != nil {
		run.end = found[1]
	}
	run.output = strings.ReplaceAll(out.String(), "\x16", "")
	return run
}

// burn keeps as many processors busy as it has loops, until it is told to end. The loops belong to this process, so that none
// outlives it.
func burn(loops int) (end func()) {
	var done atomic.Bool
	before := runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + loops)
	for range loops {
		go func() {
			for !done.Load() {
			}
		}()
	}
	return func() {
		done.Store(true)
		runtime.GOMAXPROCS(before)
	}
}
