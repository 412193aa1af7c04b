//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPrivateFiles creates a database under the umask that most machines have. It
// does not run in parallel, because the umask belongs to the whole process.
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
	if strings.Contains(log, "_by_others") {
		t.Errorf("a directory that others may list, with private files: %s", log)
	}
}

// TestReplaceableDatabase requires a warning about a directory in which others may rename
// files, and none about one like /tmp.
func TestReplaceableDatabase(t *testing.T) {
	t.Parallel()
	for mode, warned := range map[os.FileMode]bool{0o777: true, 0o777 | os.ModeSticky: false, 0o770: false} {
		_, log := openLogged(t, Config{Path: filepath.Join(place(t, mode), "helix.db")})
		if strings.Contains(log, "sqlite.replaceable_by_others") != warned {
			t.Errorf("a directory of mode %s: %s", mode, log)
		}
	}
}

// TestExistingFileKeepsItsMode requires that an existing file keeps its mode and
// causes a warning.
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
			t.Errorf("a file of mode %s causes no warning: %s", mode, log)
		}
	}
}
