package testserver

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

//go:embed npm/aimock/package.json npm/aimock/package-lock.json
var aimockFiles embed.FS

// StartAIMock starts a server for one test that answers like OpenAI, Anthropic and Gemini, and fails where the fixtures say so. It
// was written by others, who read the providers' documentation for themselves. Fixtures are JSON: what it answers to what.
func StartAIMock(tb testing.TB, fixtures []byte) *Server {
	tb.Helper()
	return startPrivate(tb, func(ctx context.Context) (*server, error) { return startAIMock(ctx, fixtures) })
}

func startAIMock(ctx context.Context, fixtures []byte) (*server, error) {
	path, err := node(ctx)
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(aimockFiles, "npm/aimock")
	if err != nil {
		return nil, err
	}
	packages, err := nodePackages(ctx, "aimock", files)
	if err != nil {
		return nil, err
	}
	return newServer(ctx, &program{
		name: "aimock",
		prepare: func(_ context.Context, place *place) error {
			return os.WriteFile(aimockFixtures(place), fixtures, 0o644)
		},
		launch: func(place *place, log *os.File) (process, error) { return launchAIMock(path, packages, place, log) },
		ping:   pingAIMock,
		url:    func(addr string) string { return "http://" + addr },
	})
}

func aimockFixtures(place *place) string { return filepath.Join(place.dir, "fixtures.json") }

func launchAIMock(node, packages string, place *place, log *os.File) (process, error) {
	// A background context: the server lives until it is stopped.
	cmd := exec.CommandContext(context.Background(), node,
		filepath.Join(packages, "node_modules", "@copilotkit", "aimock", "dist", "cli.js"),
		"--host", "127.0.0.1", "--port", strconv.Itoa(place.port), "--fixtures", aimockFixtures(place),
		"--log-level", "warn", "--journal-max", "0")
	cmd.Dir, cmd.Env = place.dir, (&installation{}).environ()
	cmd.Stdout, cmd.Stderr = log, log
	// It has nothing to save, and would wait for answers that it was told to hold back.
	return startLocal(cmd, syscall.SIGKILL, syscall.SIGKILL)
}

func pingAIMock(ctx context.Context, addr string) error {
	return pingHTTP(ctx, "http://"+addr+"/health")
}
