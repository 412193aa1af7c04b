package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/helixagents/helix/internal/eventually"
)

// tryLockFile locks a file, which is made if need be, against other processes. It returns nil if another has the lock.
// The lock ends when the file is closed, at the latest with the process.
func tryLockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := flock(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	if !ok {
		return nil, file.Close()
	}
	return file, nil
}

// lockFile waits until it has the lock.
func lockFile(ctx context.Context, path string) (file *os.File, err error) {
	late := eventually.PollContext(ctx, func() bool {
		file, err = tryLockFile(path)
		return file != nil || err != nil
	})
	if late != nil {
		return nil, fmt.Errorf("wait for the lock on %s: %w", path, late)
	}
	return file, err
}
