package testserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// NodePackages returns a directory in whose node_modules are the packages of a package.json and its package-lock.json, both
// in files. They are fetched once per lock file; tests share them and change nothing there. The name is for people.
func NodePackages(tb testing.TB, name string, files fs.FS) string {
	tb.Helper()
	dir, err := nodePackages(tb.Context(), name, files)
	if err != nil {
		giveUp(tb, err)
	}
	return dir
}

func nodeProgram(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &missingError{server: program, install: "Node.js, with npm", tried: []string{err.Error()}}
	}
	return path, nil
}

// npmFiles are what npm is given: the lock file says what to fetch, to the byte.
var npmFiles = []string{"package.json", "package-lock.json"}

func nodePackages(ctx context.Context, name string, files fs.FS) (root string, err error) {
	texts := map[string][]byte{}
	sum := sha256.New()
	for _, file := range npmFiles {
		if texts[file], err = fs.ReadFile(files, file); err != nil {
			return "", err
		}
		sum.Write(texts[file])
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "npm")
	name += "-" + hex.EncodeToString(sum.Sum(nil)[:6])
	root = filepath.Join(dir, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	npm, err := nodeProgram("npm")
	if err != nil {
		return "", err
	}
	if skipServers() {
		return "", &missingError{server: name, install: "it with npm", tried: []string{envSkip + " keeps npm from fetching it"}}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout) // waits: longer than a test may take, once for each machine
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// The tests of several packages start at the same time.
	lock, err := lockFile(ctx, root+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	fmt.Fprintf(os.Stderr, "testserver: fetching npm packages for %s into %s\n", name, root)
	work, err := os.MkdirTemp(dir, name+"-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	partial := filepath.Join(work, "root")
	if err := npmInstall(ctx, npm, partial, texts); err != nil {
		return "", err
	}
	// Under its name only when it is complete.
	return root, os.Rename(partial, root)
}

func npmInstall(ctx context.Context, npm, dir string, texts map[string][]byte) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return err
		}
	}
	// No package runs anything while it is installed.
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
