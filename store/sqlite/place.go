package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// makePrivate creates the database file, if it does not exist, with access for its
// owner alone, because it contains conversations in plain text. SQLite gives the
// files beside it the same mode. If it cannot be created, SQLite reports why when
// it tries.
//
// The file gets its name only after it was closed: closing it later would drop the
// locks that another backend of this process may already have on it.
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
		_ = os.Link(file.Name(), path) // it fails if another process has created it
	}
}

// warnOfPlace logs problems with the location of a database that was opened.
func (c *Config) warnOfPlace() {
	if kind := c.networkDisk(c.Path); kind != "" {
		c.Logger.Warn("sqlite.network_disk", "path", c.Path, "filesystem", kind,
			"meaning", "locks and shared memory may not work there, which can damage the database; keep it on a local disk")
	}
	if runtime.GOOS == "windows" {
		return // file modes have no meaning there
	}
	if info, err := os.Stat(c.Path); err == nil && info.Mode().Perm()&0o077 != 0 {
		c.Logger.Warn("sqlite.readable_by_others", "path", c.Path, "mode", info.Mode().Perm().String(),
			"meaning", "other users of this machine may read conversations; run chmod 600 on it and on the files beside it")
	}
	// Who may only list the directory learns nothing: the files are private.
	directory := filepath.Dir(c.Path)
	if info, err := os.Stat(directory); err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		c.Logger.Warn("sqlite.replaceable_by_others", "path", directory, "mode", info.Mode().Perm().String(),
			"meaning", "other users of this machine may replace the database; keep it in a directory in which only you may write")
	}
}
