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
	"slices"
	"syscall"
	"time"
)

func main() {
	var r runner
	flag.IntVar(&r.most, "most", 5, "how many failed tests get a second try; if more failed, none does")
	flag.IntVar(&r.times, "times", 3, "how often a test must pass in its second try")
	flag.DurationVar(&r.within, "within", 3*time.Minute, "how long all second tries together may take")
	flag.StringVar(&r.note, "note", "", "a `line` to print before the list of second tries")
	events := flag.String("events", "", "a `file` for what go test -json prints")
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
	r.packages, r.flags = packages, flags
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

// runner runs the tests of packages.
type runner struct {
	packages, flags []string
	dir             string // where go test runs; empty: here
	most, times     int
	within          time.Duration
	note            string
	out, errs       io.Writer
	events          io.Writer
}

// run returns the exit code.
func (r *runner) run() int {
	began := time.Now()
	first, used, err := r.goTest(printer{r.out}, slices.Concat(r.flags, r.packages)...)
	if first == nil {
		fmt.Fprintln(r.errs, "gotest:", err)
		return 1
	}
	leaves, final := first.judge(r.most)
	if len(leaves)+len(final) == 0 {
		switch {
		case err != nil:
			final = append(final, fmt.Sprintf("go test failed: %v", err))
		case len(first.tests) == 0:
			final = append(final, "no test ran")
		}
	}
	first.printFailures(r.out)

	var tries []try
	if len(final) == 0 {
		tries = r.tryAgain(leaves)
	}
	failed := len(leaves)
	for _, t := range tries {
		if t.failure == "" {
			failed--
		}
	}
	first.printSkipped(r.out)
	fmt.Fprintf(r.out, "\ntests took %s and %.0f seconds of processor time\n", time.Since(began).Round(time.Second), used.Seconds())
	if r.note != "" {
		fmt.Fprintln(r.out, r.note)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", first.count("pass")+len(leaves)-failed, failed, first.count("skip"))
	for _, why := range final {
		fmt.Fprintln(r.out, "no second try:", why)
	}
	printTries(r.out, tries)
	if failed+len(final) > 0 {
		return 1
	}
	return 0
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
