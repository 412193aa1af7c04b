// Command with runs a command beside a Postgres, a Redis, a Redis Cluster and a Temporal, and stops them when it has ended:
//
//	with go test ./...
//
// The command finds the servers in its environment; see package testserver for the variables and for where the servers
// come from. Signals are passed on to the command, and its exit code is that of with.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/helixagents/helix/internal/testserver"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: with command [argument ...]")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command. It is at least 1 if there is an error.
func run(name string, args ...string) (code int, err error) {
	// From here on a signal ends the command, not this process, which has servers to stop.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	env, stop, err := start(signals)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := stop(); stopErr != nil {
			code, err = max(code, 1), errors.Join(err, stopErr)
		}
	}()

	// A background context: the signals decide how the command ends.
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	return wait(cmd, signals)
}

// start starts the servers, unless a signal arrives first.
func start(signals <-chan os.Signal) (env []string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan struct{})
	go func() {
		defer close(started)
		env, stop, err = testserver.Environment(ctx)
	}()
	select {
	case <-started:
		return env, stop, err
	case sig := <-signals:
		cancel()
		<-started
		if err == nil {
			err = stop()
		} else {
			err = nil // it was not given the time
		}
		return nil, nil, errors.Join(fmt.Errorf("%v", sig), err)
	}
}

func wait(cmd *exec.Cmd, signals <-chan os.Signal) (code int, err error) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			_ = cmd.Process.Signal(sig) // it may have ended just now
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case !errors.As(err, &exit):
				return 1, err
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal()), nil // as a shell says it
			}
			return exit.ExitCode(), nil
		}
	}
}
