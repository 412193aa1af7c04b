package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
)

// TestEmbed signs in to a program that has agents inside, and talks to them on its page
// below a prefix; testdata/embed.mjs says how.
func TestEmbed(t *testing.T) {
	t.Parallel()
	address := serve(t, filepath.Join(programs(t), "embed"), "-addr", "127.0.0.1:0")
	testshare.SkipUnless(t, 1, 4)
	browsertest.New(t, "embed.mjs", "HELIX_URL="+address+"/assistant").Run(nil)
}

// TestQuickstart talks to the agent of the README on its page; testdata/quickstart.mjs says
// how.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 3, 4)
	const usual = "127.0.0.1:4170"
	source, err := os.ReadFile(filepath.Join("quickstart", "main.go"))
	if err != nil || bytes.Count(source, []byte(usual)) != 2 {
		t.Fatalf("the source does not name %s twice: %v", usual, err)
	}
	program := buildInstead(t, "quickstart", bytes.ReplaceAll(source, []byte(usual), []byte(testserver.FreeAddress(t))))
	browsertest.New(t, "quickstart.mjs", "HELIX_URL="+serve(t, program)).Run(nil)
}

// buildInstead builds an example with another source of its main.go.
func buildInstead(t *testing.T, example string, source []byte) string {
	t.Helper()
	dir := t.TempDir()
	from, err := filepath.Abs(filepath.Join(example, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	instead, overlay, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, example)
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{from: instead}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{instead: source, overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./"+example)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// serve starts a program in an empty directory, and returns the address that it says is to
// be opened once it answers there. The program is stopped when the test ends.
func serve(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...) // it is stopped below
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	_, address, ok := strings.Cut(lines.Text(), "open ")
	if !ok {
		t.Fatalf("it says %q first", lines.Text())
	}
	rest := make(chan string)
	go func() {
		var all strings.Builder
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
		}
		rest <- all.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		said := <-rest
		err := cmd.Wait()
		if filepath.Base(program) == "quickstart" {
			err = nil // it has no calm end
		}
		if err != nil || strings.Contains(said, "level=ERROR") || strings.Contains(said, " ERROR ") {
			t.Errorf("%s: %v\n%s", program, err, said)
		}
	})
	eventually.Poll(t, "the program answers", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	return address
}
