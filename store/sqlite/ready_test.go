package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
)

// notReady requires that a backend is not ready and reports why.
func notReady(t *testing.T, b *Backend, why string) {
	t.Helper()
	if err := b.Ready(t.Context()); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want it to contain %q", err, why)
	}
}

func TestReadyNoticesDeletedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	b := openPath(t, path)
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	moved := path + ".moved"
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	notReady(t, b, "it was deleted")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	notReady(t, b, "another file has replaced it")
	if err := os.Rename(moved, path); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("the file is back: %v", err)
	}
}

// TestReadyNoticesFullDisk fills a file up to its limit.
func TestReadyNoticesFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	b, err := OpenConfig(Config{Path: path, MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	b.writes.Always()
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := session.Create(t.Context(), b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if _, err = session.AppendMessages(t.Context(), b.Sessions(), "a", []session.Message{session.UserText(strings.Repeat("x", 20_000))}); err != nil {
			break
		}
	}
	if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
		t.Fatalf("the file does not fill up: %v", err)
	}
	notReady(t, b, "full")
	if _, err := b.Sessions().Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// TestReadyNoticesFailingWrites makes the transaction fail that Ready uses to test
// writes.
func TestReadyNoticesFailingWrites(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	b.writes.Always()
	err := b.write(t.Context(), "spoil", func(t *lite.Tx) error {
		_, err := t.Exec("ALTER TABLE locks RENAME TO gone")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	notReady(t, b, "no such table")
}
