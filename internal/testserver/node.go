package testserver

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

//go:embed npm/node/package.json npm/node/package-lock.json
var nodeFiles embed.FS

// oldestNode is the first version of Node.js that runs what the tests have for it. Distributions have older ones.
const oldestNode = 20

// Node returns the path of a Node.js: an installed one that is new enough, or else one that npm has.
func Node(tb testing.TB) string {
	tb.Helper()
	path, err := node(tb.Context())
	if err != nil {
		giveUp(tb, err)
	}
	return path
}

func node(ctx context.Context) (string, error) {
	installed, err := nodeProgram("node")
	if err != nil {
		return "", err
	}
	version := nodeVersion(ctx, installed)
	if version >= oldestNode {
		return installed, nil
	}
	arch, ok := map[string]string{"linux/amd64": "x64", "linux/arm64": "arm64"}[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return "", &missingError{
			server: "node", install: fmt.Sprintf("Node.js %d or later, with npm", oldestNode),
			tried: []string{fmt.Sprintf("%s is version %d", installed, version)},
		}
	}
	files, err := fs.Sub(nodeFiles, "npm/node")
	if err != nil {
		return "", err
	}
	root, err := nodePackages(ctx, "node", files)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "node_modules", "node-linux-"+arch, "bin", "node"), nil
}

// nodeVersion is the major version of a Node.js, or 0.
func nodeVersion(ctx context.Context, path string) (major int) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(out), "v%d", &major); err != nil {
		return 0
	}
	return major
}
