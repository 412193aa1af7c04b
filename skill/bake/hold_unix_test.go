//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bake

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// Where directories cannot be locked, as on some network file systems, a file does the same.
func TestHoldWithoutLocks(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{syscall.EBADF, syscall.ENOLCK, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EINVAL} {
		dir := t.TempDir()
		interrupted := false
		refuse := func(int, int) error {
			if !interrupted {
				interrupted = true
				return syscall.EINTR
			}
			return refusal
		}
		release, err := holdWith(dir, refuse)
		if err != nil {
			t.Fatalf("%v: %v", refusal, err)
		}
		if _, err := holdWith(dir, refuse); !errors.Is(err, ErrBusy) {
			t.Errorf("%v: the second: %v", refusal, err)
		}
		release()
		if exists(filepath.Join(dir, heldName)) {
			t.Errorf("%v: the file is left", refusal)
		}
		release, err = holdWith(dir, refuse)
		if err != nil {
			t.Fatalf("%v: %v", refusal, err)
		}
		release()
	}
	if _, err := holdWith(t.TempDir(), func(int, int) error { return syscall.EIO }); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
}
