package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
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

// TestSecretsFromEnvironment gives the store to each command by a variable, where no
// other user of the machine sees it.
func TestSecretsFromEnvironment(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	kept := "sqlite:" + filepath.Join(dir, "kept.db")
	env := []string{storeVariable + "=" + kept}
	d := &daemon{program: startIn(t, dir, env, "serve", "--addr", "127.0.0.1:0", "--config", defaultConfig, "--allow-unauthenticated")}
	d.await(d.err, "\n  data: ")
	d.addr = serving.FindStringSubmatch(d.err.String())[1]
	d.Client = d.as("")
	begin(t, d.Client, "assistant", "tale", askStory)
	read(t, d.Client, "tale").toEnd(d.Client, session.Completed)
	d.stop()
	for _, args := range [][]string{
		{"sessions", "ls"},
		{"sessions", "show", "tale"},
	} {
		if out := startIn(t, dir, env, args...).finish(); !strings.Contains(out, "tale") {
			t.Errorf("helix %s prints:\n%s", strings.Join(args, " "), out)
		}
	}
	if out := startIn(t, dir, env, "migrate", "status").finish(); !strings.Contains(out, "0001_init") || strings.Contains(out, "pending") {
		t.Errorf("helix migrate status prints:\n%s", out)
	}
	// What the command line says goes first.
	other := startIn(t, dir, env, "sessions", "ls", "--data", filepath.Join(dir, "other.db"))
	if other.finishWith(exitFailure); !strings.Contains(other.err.String(), "there is no store at ") {
		t.Errorf("another store: %s", other.err)
	}
	help := start(t, "help", "environment").finish()
	for _, name := range []string{"HELIX_TOKEN", storeVariable, streamsVariable, dbosVariable, "HELIX_MODEL_KEY"} {
		if !strings.Contains(help, name) {
			t.Errorf("helix help environment says nothing of %s", name)
		}
	}
}
