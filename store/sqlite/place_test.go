package sqlite

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// place returns a directory with the given mode, regardless of the process's
// umask.
func place(t *testing.T, mode os.FileMode) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "place")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(directory, mode); err != nil {
		t.Fatal(err)
	}
	return directory
}

// openLogged opens a database and returns the log.
func openLogged(t *testing.T, config Config) (*Backend, string) {
	t.Helper()
	var log bytes.Buffer
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b, err := OpenConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := session.Create(t.Context(), b.Sessions(), &session.State{ID: session.NewID(), Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	return b, log.String()
}

func TestDiskWarnings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(place(t, 0o700), "helix.db")
	if _, log := openLogged(t, Config{Path: path}); log != "" {
		t.Errorf("a private database on a local disk causes a warning: %s", log)
	}
	if _, log := openLogged(t, Config{Path: path, networkDisk: func(p string) string {
		if p != path {
			t.Errorf("the file system of %s was asked for", p)
		}
		return "nfs"
	}}); !strings.Contains(log, "sqlite.network_disk") || !strings.Contains(log, "filesystem=nfs") {
		t.Errorf("a network disk causes no warning: %s", log)
	}
}
