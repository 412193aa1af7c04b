package testserver

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
)

// Chromium returns the path of a Chromium, and the environment that it runs in: an installed one, or else Debian packages.
func Chromium(tb testing.TB) (path string, env []string) {
	tb.Helper()
	inst, err := chromium(tb.Context())
	if err != nil {
		giveUp(tb, err)
	}
	return inst.path("chromium"), inst.environ()
}

func chromium(ctx context.Context) (*installation, error) {
	for _, dir := range pathDirs() {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if inst := findIn(dir, name); inst != nil {
				return &installation{programs: map[string]string{"chromium": inst.path(name)}}, nil
			}
		}
	}
	missing := &missingError{server: "chromium", install: "the Debian package chromium"}
	if skipServers() {
		missing.tried = append(missing.tried, envSkip+" keeps it from being fetched")
		return nil, missing
	}
	packages, err := newDebian()
	if err != nil {
		missing.tried = append(missing.tried, err.Error())
		return nil, missing
	}
	return packages.chromium(ctx)
}

// chromium returns Chromium from the cache, which is filled first if it has to be. The program itself is taken, and not
// the script that starts it, which expects to be installed.
func (d *debian) chromium(ctx context.Context) (*installation, error) {
	root, err := d.unpack(ctx, "chromium", func(context.Context, *apt) ([]string, error) { return []string{"chromium"}, nil })
	if err != nil {
		return nil, err
	}
	inst := findIn(filepath.Join(root, "usr", "lib", "chromium"), "chromium")
	if inst == nil {
		return nil, fmt.Errorf("the packages in %s hold no chromium", root)
	}
	inst.env = libraryPath(root)
	return inst, nil
}
