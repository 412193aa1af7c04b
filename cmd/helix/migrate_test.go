package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/testbackend"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	places := map[string]string{"directory": "data"}
	for _, kind := range testbackend.Shared() {
		if kind.Name == "postgres" {
			places["postgres"] = kind.Address(t)
		}
	}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			helix := func(args ...string) string {
				t.Helper()
				return startIn(t, dir, nil, append(args, "--data", place)...).finish()
			}
			if got := helix("migrate", "status"); !strings.Contains(got, "0001_init") || !strings.Contains(got, "pending") {
				t.Errorf("the status of nothing is %q", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
				t.Error("asking for the status made the directory")
			}
			if got := helix("migrate", "up"); !strings.HasPrefix(got, "applied 0001_init") {
				t.Errorf("the first up said %q", got)
			}
			if got := helix("migrate", "up"); !strings.Contains(got, "up to date") {
				t.Errorf("the second up said %q", got)
			}
			if got := helix("migrate", "status"); !strings.Contains(got, "applied 20") || strings.Contains(got, "pending") {
				t.Errorf("the status is then %q", got)
			}
		})
	}
}

func TestMigrateStatusAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	status := func() (shown shownMigrations) {
		t.Helper()
		text := startIn(t, dir, nil, "migrate", "status", "--store", "data", "--json").finish()
		if err := json.Unmarshal([]byte(text), &shown); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		return shown
	}
	if got := status(); got.UpToDate || len(got.Steps) == 0 || got.Steps[0].Name != "0001_init" || got.Steps[0].Applied {
		t.Errorf("the status of nothing is %+v", got)
	}
	startIn(t, dir, nil, "migrate", "up", "--store", "data").finish()
	if got := status(); !got.UpToDate || !got.Steps[0].Applied || got.Steps[0].AppliedAt.IsZero() || got.Store != "data/helix.db" {
		t.Errorf("the status is then %+v", got)
	}
}

// A SQLite file of another program is named as such, and nothing is added to it.
func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "photos.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE photos (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"sessions ls", "waiting", "migrate status", "migrate up", "chat", "serve --allow-unauthenticated --addr 127.0.0.1:0",
	} {
		(&operator{t, []string{"--store", path}}).fails(exitFailure, `is a SQLite database, but not one of Helix: it has the table "photos"`, strings.Fields(args)...)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestMigrateWithoutTables(t *testing.T) {
	t.Parallel()
	got := start(t, "migrate", "status", "--data", "redis://user:secret@127.0.0.1:1").finish()
	if !strings.Contains(got, "no tables") || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
}
