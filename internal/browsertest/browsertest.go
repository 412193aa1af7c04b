// Package browsertest runs scripts that use the chat page in Chromium as a person does.
//
// A script is an ES module of the test's testdata directory. It imports harness.mjs, which
// is beside it when it runs: a browser, how to open the page and to talk to agents, and how
// to run cases. It prints a line per case, and "kill" when it wants its server killed and
// started again.
package browsertest

import (
	"bufio"
	"embed"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
)

// The harness, and the npm packages that scripts use.
//
//go:embed harness.mjs node
var files embed.FS

// Script is a script in Node.js, with a browser at hand.
type Script struct {
	t   *testing.T
	cmd *exec.Cmd
}

// New returns a script of testdata, with additions to its environment. HELIX_URL is the
// address of the page.
func New(t *testing.T, name string, env ...string) *Script {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	harness, err := files.ReadFile("harness.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "harness.mjs"), harness, 0o600); err != nil {
		t.Fatal(err)
	}
	node, err := fs.Sub(files, "node")
	if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(testserver.NodePackages(t, "browser", node), "node_modules")
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	chromium, chromiumEnv := testserver.Chromium(t)
	s := &Script{t, exec.CommandContext(eventually.Context(t), testserver.Node(t), name)}
	s.cmd.Dir = dir
	s.cmd.Env = append(append(append(os.Environ(), chromiumEnv...), "CHROMIUM="+chromium, "HOME="+dir), env...)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(os.Interrupt) } // so that it ends its browser
	s.cmd.WaitDelay = 10 * time.Second
	return s
}

// Run runs the script, and calls kill when the script says so; it is nil for a script that
// does not.
func (s *Script) Run(kill func()) {
	s.t.Helper()
	var complaints strings.Builder
	s.cmd.Stderr = &complaints
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	passed := 0
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "kill" {
			if kill == nil {
				s.t.Fatal("the script wants its server killed")
			}
			kill()
			if _, err := io.WriteString(in, "restarted\n"); err != nil {
				s.t.Error(err)
			}
			continue
		}
		s.t.Log(line)
		if strings.HasPrefix(line, "ok ") {
			passed++
		}
	}
	if err := lines.Err(); err != nil {
		s.t.Errorf("read what the script prints: %v", err)
	}
	if err := s.cmd.Wait(); err != nil || passed == 0 {
		s.t.Fatalf("%s: %d passed, %v\n%s", s.cmd.Args[1], passed, err, complaints.String())
	}
}

// SelectHalf says which half of its cases a script does, for HELIX_TEST_HALF, in one of four
// commits.
func SelectHalf(t *testing.T) string {
	t.Helper()
	if testshare.Soak() {
		return "both"
	}
	return strconv.Itoa(testshare.Part(t, 8) / 4)
}
