//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import (
	"os"
	"runtime"

	"github.com/helixagents/helix/session"
)

const noFollow = 0

// tryLock refuses platforms without file locks.
func tryLock(*os.File) (bool, error) {
	return false, session.ErrNotSupported.WithMessage("blobs in a directory are not supported on %s", runtime.GOOS)
}
