//go:build unix

package testserver

import (
	"errors"
	"os"
	"syscall"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// attr makes a process run as the account.
func (a *account) attr() *syscall.SysProcAttr {
	if a == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
}

func setProcessGroup(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func sendSignal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// flock locks an open file against other processes, or reports that another has the lock.
func flock(file *os.File) (ok bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
