//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPrivateFiles makes a database under the umask that most machines have. It does
// not run beside others: a umask is the whole process's.
func TestPrivateFiles(t *testing.T) { //nolint:paralleltest // see above
	before := syscall.Umask(0o022)
	defer syscall.Umask(before)
	path := filepath.Join(place(t, 0o755), "helix.db")
	_, log := openLogged(t, Config{Path: path})
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %s", filepath.Base(name), mode)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if !strings.Contains(log, "sqlite.readable_by_others") || strings.Contains(log, "chmod 600") || !strings.Contains(log, "mode=-rwxr-xr-x") {
		t.Errorf("a directory that others may read: %s", log)
	}
}

// TestExistingFileKeepsItsMode wants a file that is there to be left as it is, and
// to be warned of.
func TestExistingFileKeepsItsMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(place(t, 0o700), "helix.db")
	b, _ := openLogged(t, Config{Path: path})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o644, 0o640} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		b, log := openLogged(t, Config{Path: path})
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("a file of mode %s now has %s", mode, info.Mode().Perm())
		}
		if !strings.Contains(log, "sqlite.readable_by_others") || !strings.Contains(log, "mode="+mode.String()) {
			t.Errorf("a file of mode %s is not warned of: %s", mode, log)
		}
	}
}
