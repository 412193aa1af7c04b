package webtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
)

// The example of a chat in React is built as its readers would build it, and used in
// Chromium.
func TestReactExample(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	example := os.DirFS("../../examples/react-chat")
	dir := filepath.Join(t.TempDir(), "app")
	if err := os.CopyFS(dir, example); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(testserver.NodePackages(t, "react-chat", example), "node_modules")
	if err := os.RemoveAll(filepath.Join(dir, "node_modules")); err != nil { // of somebody who tried it
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	ctx := eventually.Context(t)
	build := exec.CommandContext(ctx, node(t), filepath.Join(modules, "vite", "bin", "vite.js"), "build")
	build.Dir = dir
	build.Env = append(os.Environ(), "HOME="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("vite build: %v\n%s", err, out)
	}
	path, env := testserver.Chromium(t)
	play(t, "ai7", "react.mjs", append(env, "CHROMIUM="+path, "DIST="+filepath.Join(dir, "dist"))...)
}
