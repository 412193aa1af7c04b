package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"github.com/helixagents/helix/internal/eventually"
)

// localProcess is a server that was started from a program on this machine.
type localProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
	// orderly is the signal that asks the server to shut down.
	orderly syscall.Signal
}

// startLocal starts cmd. If this process dies without stopping it, the system sends it the signal orphaned, where the system
// can do that.
func startLocal(cmd *exec.Cmd, orderly, orphaned syscall.Signal) (*localProcess, error) {
	p := &localProcess{cmd: cmd, ended: make(chan struct{}), orderly: orderly}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A group of its own: ^C in a terminal is for the tests, which then stop their servers.
	setProcessGroup(cmd.SysProcAttr)
	setDeathSignal(cmd.SysProcAttr, orphaned)

	started := make(chan error)
	go func() {
		// The death signal is sent when the thread ends that started the process. A goroutine that is locked to its
		// thread keeps it from ending, and waiting for the server is all that this one does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how a server ends is in its log
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *localProcess) done() <-chan struct{} { return p.ended }

func (p *localProcess) shutdown() error { return p.signal(p.cmd.Process.Pid, p.orderly) }

func (p *localProcess) kill() error {
	pid := p.cmd.Process.Pid
	// Stopped, it starts no more children while they are counted.
	if err := p.signal(pid, stopSignal); err != nil {
		return err
	}
	family, err := p.family()
	if err != nil {
		return err
	}
	// The parent first: it must not see its children die and clean up after them.
	for _, pid := range append([]int{pid}, family...) {
		if err := p.signal(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return p.awaitEnd(family)
}

// awaitEnd waits until the server and those of its processes are gone: a killed process lives until the system gets to it.
func (p *localProcess) awaitEnd(family []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return fmt.Errorf("process %d was killed and did not end", p.cmd.Process.Pid)
	}
	late := eventually.PollContext(ctx, func() bool {
		family = slices.DeleteFunc(family, func(pid int) bool { return !alive(pid) })
		return len(family) == 0
	})
	if late != nil {
		return fmt.Errorf("processes %v were killed and did not end", family)
	}
	return nil
}

func (p *localProcess) pause() error { return p.signalAll(stopSignal) }

func (p *localProcess) resume() error { return p.signalAll(continueSignal) }

// signalAll signals the server, so that it does nothing unseen, and then its children. Postgres gives each child a process
// group of its own, so one signal to the group would not reach them.
func (p *localProcess) signalAll(sig syscall.Signal) error {
	pid := p.cmd.Process.Pid
	if err := p.signal(pid, sig); err != nil {
		return err
	}
	family, err := p.family()
	if err != nil {
		return err
	}
	for _, child := range family {
		if err := p.signal(child, sig); err != nil {
			return err
		}
	}
	return nil
}

// family lists the processes that the server has started.
func (p *localProcess) family() ([]int, error) {
	family, err := descendants(p.cmd.Process.Pid)
	select {
	case <-p.ended:
		return nil, nil // its number may be another process's by now
	default:
		return family, err
	}
}

// signal is content if the process has ended.
func (p *localProcess) signal(pid int, sig syscall.Signal) error {
	var err error
	if pid == p.cmd.Process.Pid {
		err = p.cmd.Process.Signal(sig)
	} else {
		err = sendSignal(pid, sig)
	}
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
