//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bake

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// detach starts a command in a session of its own. What git starts can be killed with it,
// and ssh finds no terminal to ask for a password on.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			err = os.ErrProcessDone
		}
		return err
	}
}
