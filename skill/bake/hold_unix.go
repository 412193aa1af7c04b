//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bake

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// hold makes this the only sync in a directory until release. It locks the directory
// itself, so that no file is left behind; the lock ends with the process.
func hold(dir string) (release func(), err error) { return holdWith(dir, syscall.Flock) }

// holdWith is hold with the system call that locks. Some network file systems have no locks,
// or none for directories.
func holdWith(dir string, flock func(fd, how int) error) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return func() {
			// Closing alone would not do while a process that is being started has a copy of the file.
			_ = flock(int(f.Fd()), syscall.LOCK_UN)
			_ = f.Close()
		}, nil
	}
	_ = f.Close()
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, busy(dir)
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.EBADF), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.EINVAL):
		return holdFile(dir)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}
