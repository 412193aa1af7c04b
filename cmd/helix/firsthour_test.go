package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
)

// firstHour counts what a newcomer types.
type firstHour struct {
	t        *testing.T
	commands []string
	lines    int
}

// helix is a command that ends.
func (h *firstHour) helix(dir string, args ...string) {
	h.t.Helper()
	h.commands = append(h.commands, "helix "+strings.Join(args, " "))
	startIn(h.t, dir, nil, args...).finish()
}

// serve is helix serve, at the same address each time.
func (h *firstHour) serve(dir, addr string) *daemon {
	h.t.Helper()
	h.commands = append(h.commands, "helix serve")
	return serve(h.t, dir, "--addr", addr)
}

// write is a file as it is edited: the lines that are new count.
func (h *firstHour) write(path, text string) {
	h.t.Helper()
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	known := strings.Split(string(before), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if !slices.Contains(known, line) {
			h.lines++
		}
	}
	put(h.t, path, text)
}

// TestFirstHour does what a newcomer does in the first hour: an agent of a file on the page,
// an approval, an agent of one's own, a kill in the middle of its reply, and a program in
// Go. testdata/firsthour.mjs says what the page shows, and takes the pictures of docs
// (make pictures).
func TestFirstHour(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 2, 4)
	h := &firstHour{t: t}
	dir := t.TempDir()
	h.helix(dir, "init")
	d := h.serve(dir, "127.0.0.1:0")
	browsertest.New(t, "firsthour.mjs", "HELIX_URL="+d.url(), "HELIX_PART=file").Run(func() { t.Error("nobody is to be killed") })

	text := readFile(t, dir)
	text = strings.Replace(text, "agents:\n", "agents:\n  keeper:\n    description: Tells stories. Say \"Tell me a story.\"\n    model: slow\n", 1)
	h.write(filepath.Join(dir, defaultConfig), text+"\nmodels:\n  slow: {model: demo, pace: 60ms}\n")
	d.await(d.err, "config.reloaded")
	browsertest.New(t, "firsthour.mjs", "HELIX_URL="+d.url(), "HELIX_PART=own").Run(func() {
		h.commands = append(h.commands, "kill -9")
		d.kill()
		d = h.serve(dir, d.addr)
	})
	d.stop()

	program := h.buildProgram(dir)
	p := startOther(t, program, filepath.Dir(program), nil)
	p.await(p.err, "open http://")
	_, address, _ := strings.Cut(p.err.String(), "open ")
	browsertest.New(t, "firsthour.mjs", "HELIX_URL="+strings.TrimSpace(address), "HELIX_PART=go").Run(func() { t.Error("nobody is to be killed") })

	t.Logf("%d commands: %s; %d lines written", len(h.commands), strings.Join(h.commands, ", "), h.lines)
	if len(h.commands) > 8 || h.lines > 8 {
		t.Errorf("the first hour takes %d commands and %d lines", len(h.commands), h.lines)
	}
}

// buildProgram begins a program in Go, and builds it with another port: the usual one may be
// taken where tests run.
func (h *firstHour) buildProgram(dir string) string {
	h.t.Helper()
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		h.t.Fatal(err)
	}
	h.helix(dir, "init", "--go", "--replace", source, "shop")
	project := filepath.Join(dir, "shop")
	sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		h.t.Fatal(err)
	}
	put(h.t, filepath.Join(project, "go.sum"), string(sums)) // in place of go mod tidy, which may need a network
	code, err := os.ReadFile(filepath.Join(project, "main.go"))
	if err != nil {
		h.t.Fatal(err)
	}
	if !bytes.Contains(code, []byte(defaultAddr)) {
		h.t.Fatalf("the program does not name %s", defaultAddr)
	}
	put(h.t, filepath.Join(project, "main.go"), strings.Replace(string(code), defaultAddr, testserver.FreeAddress(h.t), 1))
	h.commands = append(h.commands, "go mod tidy", "go run .")
	cmd := exec.CommandContext(eventually.Context(h.t), "go", "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", "shop", ".")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(project, "shop")
}
