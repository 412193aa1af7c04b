package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// makePrivate makes the database file, if there is none, for its owner alone: it holds
// conversations in the clear. SQLite gives the files beside it the same mode. Where
// it cannot be made, SQLite says why when it tries.
//
// The file comes under its name when nobody has it open: closing it would drop the
// locks that another backend of this process may have on it by then.
func makePrivate(path string) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if file.Close() == nil {
		_ = os.Link(file.Name(), path) // or somebody was faster
	}
}

// warnOfPlace tells the log what is wrong with the place of a database that was opened.
func (c *Config) warnOfPlace() {
	if kind := c.networkDisk(c.Path); kind != "" {
		c.Logger.Warn("sqlite.network_disk", "path", c.Path, "filesystem", kind,
			"meaning", "locks and shared memory may not work there, and the database may be damaged; keep it on a local disk")
	}
	if runtime.GOOS == "windows" {
		return // modes say nothing there
	}
	if info, err := os.Stat(c.Path); err == nil && info.Mode().Perm()&0o077 != 0 {
		c.Logger.Warn("sqlite.readable_by_others", "path", c.Path, "mode", info.Mode().Perm().String(),
			"meaning", "other users of this machine may read conversations; run chmod 600 on it and on the files beside it")
	}
	directory := filepath.Dir(c.Path)
	if info, err := os.Stat(directory); err == nil && info.Mode().Perm()&0o006 != 0 {
		c.Logger.Warn("sqlite.readable_by_others", "path", directory, "mode", info.Mode().Perm().String(),
			"meaning", "other users of this machine may look into the directory of the database; run chmod 700 on it")
	}
}
