package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var r runner
	most := flag.Int("most", 5, "how many failed tests of a tier get a second try; if more failed, none does")
	flag.IntVar(&r.times, "times", 3, "how often a test must pass in its second try")
	flag.DurationVar(&r.within, "within", 3*time.Minute, "how long the second tries of a tier together may take")
	flag.StringVar(&r.note, "note", "", "a `line` to print before the list of second tries")
	flag.DurationVar(&r.budget, "budget", 0, "how long the run may take; the last line says if it took longer")
	began := flag.Int64("began", 0, "when the run began, in `seconds` of Unix time, if not now")
	events := flag.String("events", "", "a `file` for what go test -json prints")
	quarantine := flag.String("quarantine", "", "a `file` with tests to pass over")
	count := flag.Int("stress", 0, "run one test of one package so `often`, beside busy loops")
	name := flag.String("test", "", "the `name` of the test for -stress")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: gotest [flags] PACKAGE... -- [flag of go test]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	packages, flags, ok := split(flag.Args())
	if !ok {
		flag.Usage()
		os.Exit(2)
	}
	if *name != "" {
		s := stress{
			test: *name, pkg: strings.Join(packages, " "), flags: flags, count: *count, loops: 2 * runtime.NumCPU(),
			out: os.Stdout, errs: os.Stderr,
		}
		os.Exit(s.main())
	}
	r.flags, r.began = flags, time.Now()
	if *began != 0 {
		r.began = time.Unix(*began, 0)
	}
	tiers, err := planTiers(packages, *most)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	r.tiers = tiers
	if *quarantine != "" {
		if r.quarantine, err = readQuarantine(*quarantine); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			os.Exit(2)
		}
	}
	r.out, r.errs, r.events = os.Stdout, os.Stderr, io.Discard
	if *events != "" {
		file, err := os.Create(*events)
		if err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			os.Exit(2)
		}
		r.events = file // the process ends with its use
	}
	os.Exit(r.run())
}

// split separates packages from the flags of go test.
func split(args []string) (packages, flags []string, ok bool) {
	at := slices.Index(args, "--")
	if at < 1 {
		return nil, nil, false
	}
	return args[:at], args[at+1:], true
}

// runner runs the tests of packages, tier by tier.
type runner struct {
	tiers      []tier
	flags      []string // of go test
	quarantine []quarantined
	dir        string // where go test runs; empty: here
	times      int
	within     time.Duration
	began      time.Time
	budget     time.Duration
	note       string
	out, errs  io.Writer
	events     io.Writer
}

// run returns the exit code. It ends at a tier that failed.
func (r *runner) run() int {
	start := time.Now()
	var ran []*outcome
	for i := range r.tiers {
		o, err := r.runTier(&r.tiers[i])
		if err != nil {
			fmt.Fprintln(r.errs, "gotest:", err)
			return 1
		}
		ran = append(ran, o)
		if o.bad() {
			break
		}
	}
	for _, o := range ran {
		o.results.printSkipped(r.out)
	}
	r.printTiers(ran, start)
	r.printQuarantine(r.out)
	if r.note != "" {
		fmt.Fprintln(r.out, r.note)
	}
	var sum outcome
	for _, o := range ran {
		sum.add(o)
	}
	if len(sum.final) == 0 && sum.passed+sum.failed+sum.skipped == 0 {
		sum.final = []string{"no test ran"}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped)
	for _, why := range sum.final {
		fmt.Fprintln(r.out, "no second try:", why)
	}
	printTries(r.out, sum.tries)
	if took := time.Since(r.began); r.budget > 0 && took > r.budget {
		fmt.Fprintf(r.out, "the run took %s, more than %s\n", took.Round(time.Second), r.budget)
	}
	if sum.bad() {
		return 1
	}
	return 0
}

// outcome is what became of a tier.
type outcome struct {
	tier                    *tier
	results                 *results
	took, used              time.Duration // used is processor time
	passed, failed, skipped int
	tries                   []try
	final                   []string // why it failed, whatever a second try would say
}

// bad reports whether the tier failed.
func (o *outcome) bad() bool { return o.failed+len(o.final) > 0 }

func (o *outcome) add(other *outcome) {
	o.passed, o.failed, o.skipped = o.passed+other.passed, o.failed+other.failed, o.skipped+other.skipped
	o.tries, o.final = append(o.tries, other.tries...), append(o.final, other.final...)
}

// runTier runs the tests of a tier, and those again that failed and may have a second try. There is an error if go test
// could not be run or was stopped.
func (r *runner) runTier(t *tier) (*outcome, error) {
	began := time.Now()
	said, used, err := r.goTestAll(t.packages)
	if said == nil {
		return nil, err
	}
	leaves, final := said.judge(t.most)
	if len(leaves)+len(final) == 0 && err != nil {
		final = append(final, fmt.Sprintf("go test failed: %v", err))
	}
	said.printFailures(r.out)
	o := &outcome{tier: t, results: said, used: used, skipped: said.count("skip"), final: final}
	if len(final) == 0 {
		o.tries = r.tryAgain(t, leaves)
	}
	o.failed = len(leaves)
	for _, again := range o.tries {
		if again.failure == "" {
			o.failed--
		}
	}
	o.passed = said.count("pass") + len(leaves) - o.failed
	o.took = time.Since(began)
	return o, nil
}

// goTestAll runs the tests of packages, and returns what goTest does for all of them.
func (r *runner) goTestAll(packages []string) (*results, time.Duration, error) {
	all, used := newResults(), time.Duration(0)
	var failed error
	for _, group := range r.divide(packages) {
		said, took, err := r.goTest(printer{r.out}, slices.Concat(r.flagsFor(group[0]), group)...)
		used += took
		if said == nil {
			return nil, used, err
		}
		all.add(said)
		failed = errors.Join(failed, err)
	}
	return all, used, failed
}

// goTest runs go test with these arguments and returns what it said and the processor time that it used. There is an error
// if a test failed, and no result if go test could not be run or a signal ended it.
func (r *runner) goTest(watch watcher, args ...string) (*results, time.Duration, error) {
	// Whoever ends this process ends go test, which has tests to end: no context.
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = r.dir
	cmd.Stderr = r.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	stopped := make(chan os.Signal, 1)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				_ = cmd.Process.Signal(sig) // it may have ended just now
				select {
				case stopped <- sig:
				default:
				}
			case <-done:
				return
			}
		}
	}()
	said, readErr := readEvents(io.TeeReader(out, r.events), watch)
	err = errors.Join(readErr, cmd.Wait())
	close(done)
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	select {
	case sig := <-stopped:
		return nil, used, fmt.Errorf("stopped by a signal: %v", sig)
	default:
	}
	if readErr != nil {
		return nil, used, err
	}
	return said, used, err
}
