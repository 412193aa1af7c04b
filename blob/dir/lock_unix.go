//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"errors"
	"os"
	"syscall"
)

// noFollow has an open fail if the file is a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// tryLock locks a file unless somebody else has. Closing the file releases the lock.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
