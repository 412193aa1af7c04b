package main

import (
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

func TestMigrateWithoutTables(t *testing.T) {
	t.Parallel()
	got := start(t, "migrate", "status", "--data", "redis://user:secret@127.0.0.1:1").finish()
	if !strings.Contains(got, "no tables") || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
}
