package testserver

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

var npmProject = fstest.MapFS{
	"package.json":      {Data: []byte(`{"name":"x","private":true}`)},
	"package-lock.json": {Data: []byte(`{"name":"x","lockfileVersion":3,"packages":{}}`)},
}

func TestNodePackagesWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envCache, t.TempDir())
	t.Setenv(envSkip, "")
	_, err := nodePackages(t.Context(), "x", npmProject)
	if err == nil || !strings.Contains(err.Error(), "no npm can be had") || !strings.Contains(err.Error(), "install Node.js") {
		t.Errorf("got %v", err)
	}
}

// TestNodePackagesOnce wants packages that several tests need at the same time to be
// fetched once, and seen by nobody before they are complete.
func TestNodePackagesOnce(t *testing.T) {
	bin := t.TempDir()
	counter := filepath.Join(t.TempDir(), "installs")
	script := "#!/bin/sh\nset -e\necho once >>" + counter + "\ntest -f package-lock.json\nmkdir -p node_modules/x\n: >node_modules/x/index.js\n"
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(envCache, t.TempDir())
	t.Setenv(envSkip, "")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			dir, err := nodePackages(t.Context(), "x", npmProject)
			if err == nil {
				_, err = os.Stat(filepath.Join(dir, "node_modules", "x", "index.js"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if installs, err := os.ReadFile(counter); err != nil || string(installs) != "once\n" {
		t.Errorf("npm was run: %q, %v", installs, err)
	}
}
