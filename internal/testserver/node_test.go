package testserver

import (
	"os"
	"path/filepath"
	"testing"
)

// An installed Node.js that is too old is passed over for npm's; one that is not is
// taken, and asks nothing of npm.
func TestNodeVersions(t *testing.T) {
	t.Setenv(envCache, t.TempDir())
	t.Setenv(envSkip, "")
	bin := t.TempDir()
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	script := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("npm", "mkdir node_modules")
	for version, taken := range map[string]bool{"v18.20.4": false, "v20.0.0": true, "v24.1.0": true, "nonsense": false} {
		script("node", "echo "+version)
		path, err := node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (path == filepath.Join(bin, "node")) != taken {
			t.Errorf("with %s installed it is %s", version, path)
		}
	}
}
