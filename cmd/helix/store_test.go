package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeKeepsPrivateFiles wants a new database to be its owner's alone whatever
// the umask, and one that others may read to be warned of.
func TestServeKeepsPrivateFiles(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	data := filepath.Join(dir, "data")
	d := serveDemo(t, dir)
	if strings.Contains(d.err.String(), "readable_by_others") {
		t.Errorf("a place that helix made is warned of:\n%s", d.err)
	}
	for _, name := range []string{"helix.db", "helix.db-wal", "helix.db-shm"} {
		info, err := os.Stat(filepath.Join(data, name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %s", name, mode)
		}
	}
	d.stop()
	if err := os.Chmod(filepath.Join(data, "helix.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	d = serveDemo(t, dir)
	d.await(d.err, "sqlite.readable_by_others")
	d.stop()
}

// TestUnitHasUmask reads what the systemd unit says of the files that a server makes.
func TestUnitHasUmask(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile(filepath.Join("..", "..", "deploy", "helix.service"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"\nUMask=0077\n", "\nStateDirectoryMode=0700\n"} {
		if !strings.Contains(string(unit), line) {
			t.Errorf("the unit does not say %s", strings.TrimSpace(line))
		}
	}
}
