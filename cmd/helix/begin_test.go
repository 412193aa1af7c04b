package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// TestBegin begins in an empty directory: what helix init writes works without a key and
// without a flag in every command.
func TestBegin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := startIn(t, dir, nil, "init").finish()
	if !strings.HasPrefix(out, "wrote helix.yaml\n") || !strings.Contains(out, "\n  helix serve ") || strings.Contains(out, "  cd ") {
		t.Errorf("init said\n%s", out)
	}
	text := readFile(t, dir)
	again := startIn(t, dir, nil, "init")
	if again.finishWith(exitFailure); !strings.Contains(again.err.String(), "helix.yaml is there already; nothing was written") || readFile(t, dir) != text {
		t.Errorf("a second time: %s", again.err)
	}
	if out := startIn(t, dir, nil, "check").finish(); out != "helix.yaml is valid: 1 agent, 3 tools\n" {
		t.Errorf("check said\n%s", out)
	}

	d := serve(t, dir)
	d.await(d.err, "  file:   helix.yaml\n")
	if _, _, body := fetch(t, d.url()+"/"); !strings.Contains(body, "page/app.js") {
		t.Errorf("the page is\n%.300s", body)
	}
	agents, err := d.Agents(t.Context())
	if err != nil || len(agents) != 1 || agents[0].Name != "shop" {
		t.Errorf("the agents are %+v, %v", agents, err)
	}
	d.stop()

	if out := startIn(t, dir, nil, "run", "shop", "What time is it?").finish(); !strings.Contains(out, "It is ") || strings.Contains(out, "clock") {
		t.Errorf("run said\n%s", out)
	}
	waits := startIn(t, dir, nil, "run", "shop", "Order ten pencils.", "--session", "order")
	waits.finishWith(exitWaits)
	said := waits.err.String()
	if !strings.HasPrefix(said, "helix: using helix.yaml of this directory\n") || !strings.Contains(said, "--approve --resume\n") {
		t.Errorf("an order: %s", said)
	}
	_, answer, _ := strings.Cut(said, "  helix ")
	answer, _, _ = strings.Cut(answer, "\n")
	if out := startIn(t, dir, nil, strings.Fields(answer)...).finish(); !strings.Contains(out, "It is ordered.") {
		t.Errorf("helix %s said\n%s", answer, out)
	}

	pipe := startIn(t, dir, nil, "chat")
	pipe.enter("What do you remember?")
	if out := pipe.finish(); !strings.Contains(out, "remember") || !strings.Contains(pipe.err.String(), "helix chat · helix.yaml · ") {
		t.Errorf("chat said\n%s%s", out, pipe.err)
	}
	if out := startIn(t, dir, nil, "agents", "ls", "--config", "demo").finish(); !strings.Contains(out, "\nassistant ") {
		t.Errorf("the demo beside the file:\n%s", out)
	}
	if out := startIn(t, dir, nil, "sessions", "ls").finish(); !strings.Contains(out, "\norder ") {
		t.Errorf("the sessions are\n%s", out)
	}
	if out := startIn(t, dir, nil, "migrate", "status").finish(); strings.Contains(out, "missing") || !strings.Contains(out, "applied") {
		t.Errorf("the migrations are\n%s", out)
	}
}

// TestBeginInGo writes a program, whose test passes.
func TestBeginInGo(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	out := startIn(t, dir, nil, "init", "--go", "--replace", source, "My Shop").finish()
	if !strings.Contains(out, "  cd 'My Shop'\n  go mod tidy\n  go test\n") {
		t.Errorf("init said\n%s", out)
	}
	project := filepath.Join(dir, "My Shop")
	sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(project, "go.sum"), string(sums)) // in place of what go mod tidy fetches
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-count=1", "./...")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok  \tmy-shop\t") {
		t.Errorf("go test: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"init --go --replace /":   "it has no go.mod of github.com/helixagents/helix",
		"init --replace x":        "add --go",
		"init a b":                "name one directory",
		"init /proc/none/project": "/proc/none",
	} {
		if _, said, code := (&operator{t: t}).run(strings.Fields(args)...); code == 0 || !strings.Contains(said, want) {
			t.Errorf("helix %s: %d, %s", args, code, said)
		}
	}
}

// TestRun checks what a script sees of one turn.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	helix := func(code int, args ...string) *program {
		p := startIn(t, dir, nil, append([]string{"run", "--config", defaultConfig, "--store", "data"}, args...)...)
		p.finishWith(code)
		return p
	}
	if p := helix(0, "assistant", "What is 6 * 7?", "--session", "sum"); p.out.String() != "Let me see. \n6 * 7 = 42\n" ||
		!strings.Contains(p.err.String(), "→ calculate") {
		t.Errorf("%q, %s", p.out.String(), p.err)
	}
	if p := helix(0, "ticket", "The printer is on fire. Urgent!"); !json.Valid([]byte(p.out.String())) || !strings.Contains(p.out.String(), `"urgent":true`) {
		t.Errorf("an output: %q, %s", p.out.String(), p.err)
	}
	var got turnResult
	p := helix(exitWaits, "assistant", "Forget everything.", "--json")
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil || len(got.Pending) != 1 || got.Activity != session.ActivityWaiting {
		t.Errorf("one that waits: %+v, %v\n%s", got, err, p.out)
	}
	helix(0, "ticket", "The roof leaks.", "--session", "leak")
	if p := helix(0, "ticket", "The cellar, too.", "--session", "leak"); strings.Count(p.out.String(), "\n") != 1 || !strings.Contains(p.out.String(), "cellar") {
		t.Errorf("a second output: %q", p.out.String())
	}
	piped := startIn(t, dir, nil, "run", "--config", defaultConfig, "--store", "data", "assistant", "--session", "sum")
	piped.enter("What is 2 + 2?")
	if out := piped.finish(); !strings.HasSuffix(out, "2 + 2 = 4\n") {
		t.Errorf("from a pipe: %q", out)
	}
	for _, c := range []struct {
		want string
		code int
		args []string
	}{
		{"name the agent", exitUsage, nil},
		{"put the prompt in quotes", exitUsage, []string{"assistant", "What", "is"}},
		{`there is no agent "nobody"; the agents are assistant, baker`, exitUsage, []string{"nobody", "Hello"}},
		{`there is no agent "What is 6 * 7?"; the agents are assistant, baker`, exitUsage, []string{"What is 6 * 7?"}},
		{"the prompt is empty", exitUsage, []string{"assistant", " "}},
		{"the prompt on standard input is empty", exitUsage, []string{"assistant"}},
	} {
		if p := helix(c.code, c.args...); !strings.Contains(p.err.String(), c.want) || p.out.String() != "" {
			t.Errorf("%v: %s%s", c.args, p.out, p.err)
		}
	}

	// A run that is interrupted stops, and can be continued.
	slow := writeDemo(t, "200ms", "")
	p = startIn(t, slow, nil, "run", "--config", defaultConfig, "--store", "data", "--session", "story", "assistant", askStory)
	o := &operator{t, []string{"--store", filepath.Join(slow, "data")}}
	eventually.Poll(t, "the run has begun", func() bool {
		out, _, _ := o.run("sessions", "show", "story")
		return strings.Contains(out, "running")
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitTerminated || !strings.Contains(p.err.String(), "helix: stopped; helix resume story --store data --config helix.yaml continues\n") {
		t.Errorf("interrupted: %d, %s", code, p.err)
	}
	var shown struct{ Status wire.Status }
	o.answers(&shown, "sessions", "show", "story")
	if shown.Status.Activity != session.ActivityStopped {
		t.Errorf("it is %s", shown.Status.Activity)
	}
}

// TestCompletion offers what can be typed next, and no files where none belong.
func TestCompletion(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	startIn(t, dir, nil, "run", "--store", "data", "assistant", "What is 6 * 7?", "--session", "sum").finish()
	for args, want := range map[string]string{
		"run ":                          "assistant\tStreams",
		"sessions show --store data ":   "sum\tassistant, done\n",
		"sessions show --store data x ": ":4\n",
		"sessions ls --activity ":       ":4\n",
		"serve --config ":               ":0\n",
		"serve ":                        ":4\n",
		"init ":                         ":16\n",
	} {
		words := strings.Split(args, " ")
		if out := startIn(t, dir, nil, append([]string{"__complete"}, words...)...).finish(); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
	}
}

// TestCompletionLeavesTheStoreOfAFileAlone: pressing a key must not reach what a file that
// somebody left in this directory names.
func TestCompletionLeavesTheStoreOfAFileAlone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	redis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := redis.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = conn.Close()
		}
	}()
	defer redis.Close()
	dir := writeDemo(t, "1ms", "")
	put(t, filepath.Join(dir, defaultConfig), "store: redis://"+redis.Addr().String()+"\n"+readFile(t, dir))
	for _, args := range []string{"sessions show ", "chat --session ", "run "} {
		startIn(t, dir, nil, append([]string{"__complete"}, strings.Split(args, " ")...)...).finish()
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the store was reached %d times", n)
	}
	start := startIn(t, dir, nil, "sessions", "ls") // the command itself reaches it
	<-start.done
	if asked.Load() == 0 {
		t.Error("no command reaches the store, so the test shows nothing")
	}
}

// TestCompletionOfAHostileServer: what a server says must not reach the terminal's own commands.
func TestCompletionOfAHostileServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(wire.HeaderVersion, "1")
		if strings.HasPrefix(r.URL.Path, "/agents") {
			_, _ = io.WriteString(w, `{"items":[{"name":"good","description":"Is\u001b[2Jgood.\u202e"},{"name":"$(touch x)"},{"name":"a\nb"},{"name":"\u001b]0;x"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"items":[{"sessionId":"one","agentType":"x\u001b[2J","activity":"done\u202e"},{"sessionId":"a\nb","agentType":"x"},{"sessionId":"\u001b[2J","agentType":"x"}]}`)
	}))
	defer server.Close()
	for args, want := range map[string]string{"run": "good\t", "sessions show": "one\t"} {
		words := append(append([]string{"__complete"}, strings.Split(args, " ")...), "--server", server.URL, "")
		out := startIn(t, t.TempDir(), nil, words...).finish()
		if !strings.Contains(out, want) || strings.Count(out, "\n") != 2 || strings.ContainsAny(out, "\x1b\u202e$") {
			t.Errorf("%s: got %q", args, out)
		}
	}
}
