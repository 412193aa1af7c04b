package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// daemon is a running helix serve, and a client of it.
type daemon struct {
	*program
	*client.Client
	addr string
}

var serving = regexp.MustCompile(`(?m)^helix: serving on http://(\S+)$`)

// serve starts helix serve in a directory, on a free port unless the arguments name
// one, and returns once it can be reached.
func serve(t *testing.T, dir string, args ...string) *daemon {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return serveOther(t, self, dir, args...)
}

// serveOther is serve for a program in a file of its own.
func serveOther(t *testing.T, file, dir string, args ...string) *daemon {
	t.Helper()
	d := &daemon{program: startOther(t, file, dir, nil, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)}
	d.await(d.err, "\n  data: ")
	d.addr = serving.FindStringSubmatch(d.err.String())[1]
	d.Client = d.as("")
	return d
}

// as is a client with a token.
func (d *daemon) as(token string) *client.Client {
	d.t.Helper()
	c, err := client.New(client.Config{URL: d.url(), Token: token, Attempts: 100, Backoff: 20 * time.Millisecond})
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func (d *daemon) url() string { return "http://" + d.addr }

// stop ends the server as a service manager does.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		d.t.Errorf("exit code %d:\n%s", code, d.err)
	}
}

// kill ends the server at once.
func (d *daemon) kill() {
	d.t.Helper()
	d.signal(os.Kill)
	d.wait()
}

// quick makes another server take over what one left behind without a long wait. The
// lease is long enough for a machine that has much else to do.
const quick = "runtime: {leaseTTL: 3s, sweep: 100ms, temporal: {workerTimeout: 3s}}\n"

// unlimited lets a test make as many requests as it can: at ten in a second, which is the
// default, most of its time would be the client's wait for the next try.
const unlimited = "server: {rateLimit: {perSecond: unlimited}}\n"

// writeDemo writes the demo's file into a new directory, which it returns, on the
// scripted model at a pace, with more settings.
func writeDemo(t *testing.T, pace, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := string(demoYAML)
	for old, mine := range map[string]string{
		"  default: ${HELIX_MODEL:-auto}\n":                                   "  default: {model: demo, pace: " + pace + "}\n",
		"  small: {model: \"${HELIX_MODEL:-auto}\", ":                         "  small: {model: demo, pace: " + pace + ", ",
		"runtime: {leaseTTL: 5s, sweep: 1s, temporal: {workerTimeout: 5s}}\n": "",
	} {
		changed := strings.Replace(text, old, mine, 1)
		if changed == text {
			t.Fatalf("the demo's file has no %q", old)
		}
		text = changed
	}
	if !strings.Contains(more, "server:") { // at the top: tests add to what the file ends with
		text = strings.Replace(text, "version: 1\n", "version: 1\n"+unlimited, 1)
	}
	put(t, filepath.Join(dir, defaultConfig), text+more)
	return dir
}

// put writes a file in one go, as editors do.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serveDemo serves the file in a directory to everybody.
func serveDemo(t *testing.T, dir string, args ...string) *daemon {
	t.Helper()
	return serve(t, dir, append([]string{"--config", defaultConfig, "--data", "data", "--allow-unauthenticated"}, args...)...)
}

// begin starts a turn.
func begin(t *testing.T, c *client.Client, agent, id, words string) *wire.Started {
	t.Helper()
	started, err := c.Start(t.Context(), wire.Start{SessionID: id, AgentType: agent, Message: wire.Text(words)})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// reading is a stream that is being read, and what came of it so far.
type reading struct {
	t     *testing.T
	id    string
	items chan stream.Item
	seen  []stream.Chunk
	end   stream.Item
}

// read reads a session's stream from its beginning, over as many connections as it
// takes.
func read(t *testing.T, c *client.Client, id string) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	r := &reading{t: t, id: id, items: make(chan stream.Item)}
	failed := make(chan error, 1)
	go func() {
		defer close(r.items)
		for item, err := range c.Read(ctx, id, 0) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case r.items <- item:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range r.items { // until it has ended
		}
		select {
		case err := <-failed:
			if !t.Failed() && !errors.Is(err, context.Canceled) {
				t.Errorf("reading %s: %v", id, err)
			}
		default:
		}
	})
	return r
}

// next takes an item in. Chunks come one after the other, without a gap and never
// twice.
func (r *reading) next() bool {
	r.t.Helper()
	item, ok := <-r.items
	if !ok {
		return false
	}
	if item.Chunk != nil {
		if item.Sequence != int64(len(r.seen))+1 {
			r.t.Fatalf("sequence %d after %d", item.Sequence, len(r.seen))
		}
		r.seen = append(r.seen, *item.Chunk)
	}
	if item.Terminal() {
		r.end = item
	}
	return true
}

// words reads until so many words have arrived, including discarded ones.
func (r *reading) words(n int) {
	r.t.Helper()
	for {
		words := 0
		for i := range r.seen {
			if r.seen[i].Kind == stream.TextDelta {
				words += strings.Count(r.seen[i].Delta, " ")
			}
		}
		if words >= n {
			return
		}
		if !r.next() {
			r.t.Fatalf("the stream ended after %d words", words)
		}
	}
}

func (r *reading) count(kind stream.Kind) (n int) {
	for i := range r.seen {
		if r.seen[i].Kind == kind {
			n++
		}
	}
	return n
}

// toEnd reads to the end, and compares what was read with what is stored.
func (r *reading) toEnd(c *client.Client, want session.Status) {
	r.t.Helper()
	for r.next() {
	}
	if r.end.End == nil || session.Status(r.end.End.Status) != want {
		r.t.Fatalf("the stream of %s ended with %+v, want %s", r.id, r.end, want)
	}
	stored, err := allMessages(r.t.Context(), c, r.id)
	if err != nil {
		r.t.Fatal(err)
	}
	got, stands := transcript(stream.Fold(r.id, r.seen)), transcript(stored)
	if got != stands {
		r.t.Errorf("the stream tells\n%s\nand the store holds\n%s", got, stands)
	}
}

// transcript is what messages say, a line for each part.
func transcript(messages []session.Message) string {
	var b strings.Builder
	for i := range messages {
		for j := range messages[i].Parts {
			p := &messages[i].Parts[j]
			fmt.Fprintf(&b, "%s %s %s %s %s %s\n", messages[i].Role, p.Kind, p.Text, p.Tool, p.Input, p.ResultJSON())
		}
	}
	return b.String()
}

// story is what the demo tells when it is asked to.
const (
	askStory = "Tell me a story."
	story    = "Once there was a lighthouse keeper who wrote every ship that passed into a book. "
)

// tellsStory checks that the last reply is the whole story.
func tellsStory(t *testing.T, c *client.Client, id string) {
	t.Helper()
	status, err := c.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if status.Status != session.Completed || !strings.HasPrefix(status.Text, story) || !strings.HasSuffix(status.Text, "began the next.") {
		t.Errorf("%s: %q, %v", status.Status, status.Text, status.Error)
	}
}

func TestServeRefusals(t *testing.T) {
	t.Parallel()
	busy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	const valid = "version: 1\nagents: {a: {model: demo}}\n"
	const tokens = valid + "server: {tokens: [{token: 0123456789abcdef, user: alice}]}\n"
	for name, test := range map[string]struct {
		file string
		args string
		want string
		code int
	}{
		"nobody could use it":      {args: "", want: `"helix init" writes one`, code: exitUsage},
		"nobody, on all addresses": {args: "--config demo --addr :0", want: "the demo has no tokens", code: exitUsage},
		"anybody, on all addresses": {
			args: "--allow-unauthenticated --addr 0.0.0.0:0", want: "anybody on another machine could use a server on 0.0.0.0:0", code: exitUsage,
		},
		"anybody, on a name": {args: "--allow-unauthenticated --addr example.com:80", want: "anybody on another machine could use a server on", code: exitUsage},
		"anybody, by the file": {
			file: valid + "server: {allowUnauthenticated: true, addr: ':0'}\n", want: "anybody on another machine could use a server on", code: exitUsage,
		},
		"tokens, and anybody": {file: tokens, args: "--allow-unauthenticated", want: "choose one", code: exitUsage},
		"a flag":              {args: "--bogus", want: "unknown flag: --bogus (see helix serve --help)", code: exitUsage},
		"an argument":         {args: "here", want: `unknown argument "here"`, code: exitUsage},
		"a log format":        {args: "--log-format xml", want: `--log-format "xml" is invalid: use text or json`, code: exitUsage},
		"a log level":         {args: "--log-level loud", want: `--log-level "loud"`, code: exitUsage},
		"two places":          {args: "--data a --store memory:", want: "--data is the former name of --store", code: exitUsage},
		"a grace":             {args: "--grace -1s", want: "--grace", code: exitUsage},
		"no file":             {args: "--config none.yaml", want: "none.yaml", code: exitFailure},
		"a broken file":       {file: "version: 1\nagents:\n  a: {model: demo, modl: demo}\n", want: "helix.yaml:3:20: agents.a.modl: unknown key; did you mean model?", code: exitFailure},
		"no key": {
			file: "version: 1\nagents:\n  a: {model: openai/gpt-5}\n", args: "--allow-unauthenticated", want: "helix.yaml:3:14: agents.a.model: ", code: exitFailure,
		},
		"a runtime":            {args: "--runtime temporl", want: `--runtime "temporl" is invalid: use local, temporal or dbos`, code: exitUsage},
		"a runtime, in a file": {file: valid + "runtime:\n  kind: temporl\n", want: "helix.yaml:4:9: runtime.kind: expected local, temporal or dbos", code: exitFailure},
		"a queue for nobody":   {args: "--task-queue q", want: "--task-queue requires --runtime temporal, but the runtime is local", code: exitUsage},
		"work for nobody":      {args: "--worker=false", want: "--worker requires --runtime temporal, but the runtime is local", code: exitUsage},
		"a store that is forgotten": {
			file: valid + "runtime: {kind: temporal}\n", args: "--store memory:", want: "the store memory: exists only in this process", code: exitUsage,
		},
		"a database for nobody": {args: "--dbos-database sqlite:x.db", want: "--dbos-database requires --runtime dbos, but the runtime is local", code: exitUsage},
		"no database for DBOS": {
			args: "--allow-unauthenticated --runtime dbos --store " + testserver.Redis(t), want: "name a database with --dbos-database", code: exitUsage,
		},
		"no DBOS": {
			args: "--allow-unauthenticated --runtime dbos --dbos-database postgres://helix:secret@127.0.0.1:1/none",
			want: "cannot reach DBOS's database at postgres://helix:xxxxx@127.0.0.1:1/none: ", code: exitFailure,
		},
		"no Temporal": {
			args: "--allow-unauthenticated --runtime temporal --temporal-address 127.0.0.1:1", want: "cannot reach Temporal at 127.0.0.1:1: ", code: exitFailure,
		},
		"no Temporal, in a file": {
			file: valid + "runtime: {kind: temporal, temporal: {address: '127.0.0.1:1'}}\n", args: "--allow-unauthenticated",
			want: "cannot reach Temporal at 127.0.0.1:1: ", code: exitFailure,
		},
		"no namespace": {
			args: "--allow-unauthenticated --runtime temporal --temporal-namespace none --temporal-address " + testserver.Temporal(t),
			want: `no namespace "none" in Temporal at `, code: exitFailure,
		},
		"a store": {file: valid, args: "--allow-unauthenticated --store ftp://x", want: "ftp", code: exitFailure},
		"names for other machines": {
			args: "--allow-unauthenticated --expose-unauthenticated --addr :0", want: "set the names under which other machines reach the server: --host NAME", code: exitUsage,
		},
		"a name with a port":        {args: "--allow-unauthenticated --host a.example.com:80", want: "--host \"a.example.com:80\": expected a name or an address without a port", code: exitUsage},
		"an address without a port": {args: "--allow-unauthenticated --addr 4170", want: `the address "4170" is not HOST:PORT`, code: exitUsage},
		"a port that is taken": {
			args: "--allow-unauthenticated --addr " + busy.Addr().String(), want: "address already in use", code: exitFailure,
		},
	} {
		dir := t.TempDir()
		args := []string{"serve"}
		if !strings.Contains(test.file, "addr: ") { // which the flag would replace
			args = append(args, "--addr", "127.0.0.1:0") // not the default port; a later --addr replaces it
		}
		args = append(args, strings.Fields(test.args)...)
		if test.file != "" {
			put(t, filepath.Join(dir, defaultConfig), test.file)
			args = append(args, "--config", defaultConfig)
		}
		p := startIn(t, dir, nil, args...)
		code := p.wait()
		if text := p.err.String(); code != test.code || !strings.HasPrefix(text, "helix: ") || !strings.Contains(text, test.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d with %q in one line\n%s", name, code, test.code, test.want, text)
		}
		if _, err := os.Stat(filepath.Join(dir, "helix-data")); err == nil && code == exitUsage {
			t.Errorf("%s: it was refused, and has made a store", name)
		}
	}
}

// A server that everybody may use serves requests for this machine's names, wherever it
// may listen, unless it is told others: a page that has its own name point here is, for
// a browser, of the server's origin.
func TestServeHosts(t *testing.T) {
	t.Parallel()
	const open = "version: 1\nagents: {a: {model: demo}}\nserver: {allowUnauthenticated: true"
	for _, c := range []struct {
		file string
		args []string
		want map[string]int
	}{
		{"", []string{"--allow-unauthenticated"}, map[string]int{"localhost": 200, "evil.example": 421}},
		{"", []string{"--allow-unauthenticated", "--expose-unauthenticated"}, map[string]int{"127.0.0.1:4170": 200, "evil.example": 421}},
		{"", []string{"--allow-unauthenticated", "--host", "agents.example.com", "--host", "10.0.0.7"}, map[string]int{"Agents.example.com:80": 200, "10.0.0.7": 200, "localhost": 421, "evil.example": 421}},
		{"", []string{"--allow-unauthenticated", "--host", "*"}, map[string]int{"evil.example": 200}},
		{open + "}\n", nil, map[string]int{"localhost": 200, "evil.example": 421}},
		{open + ", hosts: [agents.example.com]}\n", nil, map[string]int{"agents.example.com": 200, "localhost": 421}},
		{open + ", hosts: [\"*\"]}\n", nil, map[string]int{"evil.example": 200}},
		{open + ", hosts: [\"*\"]}\n", []string{"--host", "localhost"}, map[string]int{"localhost": 200, "evil.example": 421}},
	} {
		dir, args := t.TempDir(), c.args
		if c.file != "" {
			put(t, filepath.Join(dir, defaultConfig), c.file)
			args = append(args, "--config", defaultConfig)
		}
		d := serve(t, dir, args...)
		for host, want := range c.want {
			if got := d.called(host); got != want {
				t.Errorf("%s %q: a request for %s is answered %d, want %d", c.file, args, host, got, want)
			}
		}
		d.stop()
	}
}

// A server that everybody may use listens for other machines only if it is told to
// twice, and one with tokens without being told.
func TestServeOnAllAddresses(t *testing.T) {
	t.Parallel()
	serve(t, t.TempDir(), "--allow-unauthenticated", "--expose-unauthenticated", "--addr", ":0", "--host", "*").stop()
	dir := t.TempDir()
	put(t, filepath.Join(dir, defaultConfig), "version: 1\nagents: {a: {model: demo}}\nserver: {tokens: [{token: 0123456789abcdef, user: alice}]}\n")
	d := serve(t, dir, "--config", defaultConfig, "--addr", ":0")
	_, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		t.Fatal(err)
	}
	d.addr = "127.0.0.1:" + port
	if _, err := d.as("").Agents(t.Context()); err == nil {
		t.Error("a caller without a token was served")
	}
	if _, err := d.as("0123456789abcdef").Agents(t.Context()); err != nil {
		t.Error(err)
	}
	d.stop()
}

// called asks the server for its agents by a name.
func (d *daemon) called(name string) int {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url()+"/agents", http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Host = name
	status, _, _ := do(d.t, request)
	return status
}

func TestServeAnswersAsItShould(t *testing.T) {
	t.Parallel()
	d := serve(t, t.TempDir(), "--allow-unauthenticated", "--log-format", "json")
	if !strings.Contains(d.err.String(), "agents: assistant, baker, planner, host, ticket, storyteller, writer, buyer, diary\n") {
		t.Errorf("it said\n%s", d.err)
	}
	for path, want := range map[string]struct {
		status int
		media  string
		text   string
	}{
		"/":               {http.StatusOK, "text/html", `<script type="module" src="page/app.js">`},
		"/page/app.js":    {http.StatusOK, "text/javascript", "../helix.js"},
		"/page/style.css": {http.StatusOK, "text/css", "color-scheme"},
		"/page/none":      {http.StatusNotFound, "text/plain", "not found"},
		"/helix.js":       {http.StatusOK, "text/javascript", "export class Conversation"},
		"/healthz":        {http.StatusOK, wire.ContentJSON, `"ok"`},
		"/readyz":         {http.StatusOK, wire.ContentJSON, `"ready"`},
		"/metrics":        {http.StatusOK, "text/plain", "helix_"},
		"/openapi.json":   {http.StatusOK, wire.ContentJSON, `"3.1.0"`},
		"/workspace":      {http.StatusNotFound, wire.ContentJSON, "workspace_not_configured"},
		"/nothing":        {http.StatusNotFound, wire.ContentJSON, "validation_no_such_route"},
	} {
		status, header, body := fetch(t, d.url()+path)
		if status != want.status || !strings.HasPrefix(header.Get("Content-Type"), want.media) || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s\n%.200s", path, status, header, body)
		}
		page := path == "/" || strings.HasPrefix(path, "/page/")
		if guarded := strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'"); guarded != page {
			t.Errorf("%s: the policy is %q", path, header.Get("Content-Security-Policy"))
		}
	}
	begin(t, d.Client, "assistant", "one", "hello")
	d.stop()
	for line := range strings.Lines(d.err.String()) {
		if strings.HasPrefix(line, "{") && !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}

// fetch gets something over HTTP.
func fetch(t *testing.T, url string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, request)
}

func do(t *testing.T, request *http.Request) (int, http.Header, string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

// SIGTERM ends the streams with a frame that says that they continue elsewhere, and the
// program soon after, however long the turn would take. The next start continues
// it, and whoever reads notices nothing.
func TestServeStopsAndContinues(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1s", quick)
	d := serveDemo(t, dir, "--grace", "300ms")
	begin(t, d.Client, "assistant", "tale", askStory)
	raw := make(chan string, 1)
	go func() {
		_, _, body := fetch(t, d.url()+"/sse?sessionId=tale")
		raw <- body
	}()
	reader := read(t, d.Client, "tale")
	reader.words(2)
	d.stop()
	if body := <-raw; !strings.Contains(body, "event: fail\n") || !strings.Contains(body, `"code":"framework_shutting_down"`) ||
		!strings.Contains(body, `"recoverable":true`) || !strings.HasSuffix(body, "\n\n") {
		t.Errorf("the stream ended with %q", body[max(0, len(body)-300):])
	}
	if !strings.Contains(d.err.String(), "helix: stopping; the next start continues unfinished turns\n") {
		t.Errorf("it said\n%s", d.err)
	}

	setPace(t, dir, "1s", "1ms")
	d = serveDemo(t, dir, "--addr", d.addr)
	reader.toEnd(d.Client, session.Completed)
	if n := reader.count(stream.StepStarted); n != 2 {
		t.Errorf("the reply was begun %d times: the first server did not leave it unfinished", n)
	}
	tellsStory(t, d.Client, "tale")
	d.stop()
}

// setPace lets the next start speak at another pace.
func setPace(t *testing.T, dir, old, pace string) {
	t.Helper()
	put(t, filepath.Join(dir, defaultConfig), strings.Replace(readFile(t, dir), "pace: "+old, "pace: "+pace, 1))
}

func readFile(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, defaultConfig))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A turn that can end within the grace does.
func TestServeWaitsForTurns(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "5ms", quick)
	d := serveDemo(t, dir, "--grace", "5m")
	begin(t, d.Client, "assistant", "tale", askStory)
	reader := read(t, d.Client, "tale")
	reader.words(3)
	d.stop()
	d = serveDemo(t, dir, "--addr", d.addr)
	tellsStory(t, d.Client, "tale") // at once: there is nothing left to do
	reader.toEnd(d.Client, session.Completed)
	if n := reader.count(stream.StepStarted); n != 1 {
		t.Errorf("the reply was begun %d times", n)
	}
}

// A second signal does not wait.
func TestServeStopsAtOnce(t *testing.T) {
	t.Parallel()
	d := serveDemo(t, writeDemo(t, "1s", quick), "--grace", "10m")
	begin(t, d.Client, "assistant", "tale", askStory)
	read(t, d.Client, "tale").words(1)
	d.signal(os.Interrupt)
	d.await(d.err, "helix: stopping")
	d.signal(os.Interrupt)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, d.err)
	}
}

// A server that is killed in the middle of a reply is replaced by the next: the
// reader gets every chunk once, the reply is complete, and a page that comes later
// sees it once. A commit does this on some runtimes, and TestServeKilledInMidWork on the
// others.
func TestServeKilledInMidReply(t *testing.T) {
	t.Parallel()
	has := testshare.Has(t, 2)
	for i, kind := range runtimes {
		if !has(i) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, flags := writeDemo(t, "10ms", quick), runsOn(t, kind)
			d := serveDemo(t, dir, flags...)
			begin(t, d.Client, "assistant", "tale", askStory)
			reader := read(t, d.Client, "tale")
			for _, words := range []int{10, 40} {
				reader.words(words)
				d.kill()
				d = serveDemo(t, dir, append(flags, "--addr", d.addr)...)
			}
			reader.toEnd(d.Client, session.Completed)
			tellsStory(t, d.Client, "tale")
			if n := reader.count(stream.StepDiscarded); n != 2 {
				t.Errorf("what the killed servers had shown was taken back %d times", n)
			}
			if _, _, page := fetch(t, d.url()+"/chat/tale/messages"); strings.Count(page, story) != 1 {
				t.Errorf("a page shows\n%s", page)
			}
		})
	}
}

// A server that is killed while an agent works leaves what was finished finished: the
// next one continues with the step that was cut off.
func TestServeKilledInMidWork(t *testing.T) {
	t.Parallel()
	has := testshare.Has(t, 2)
	for i, kind := range runtimes {
		if !has(i + 1) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, flags := writeDemo(t, "3ms", quick), runsOn(t, kind)
			d := serveDemo(t, dir, flags...)
			begin(t, d.Client, "baker", "bread", "Bake a loaf of bread.")
			reader := read(t, d.Client, "bread")
			for reader.count(stream.StepCommitted) < 3 {
				if !reader.next() {
					t.Fatal("the stream ended before three steps were done")
				}
			}
			before := finishedWork(t, d.Client, "bread")
			d.kill()
			d = serveDemo(t, dir, append(flags, "--addr", d.addr)...)
			reader.toEnd(d.Client, session.Completed)
			after := finishedWork(t, d.Client, "bread")
			if len(before) < 3 || len(after) != 6 || !slices.Equal(before, after[:len(before)]) {
				t.Errorf("finished before the kill: %q; in the end: %q", before, after)
			}
		})
	}
}

// finishedWork lists the results of a session's tools.
func finishedWork(t *testing.T, c *client.Client, id string) (done []string) {
	t.Helper()
	page, err := c.Messages(t.Context(), id, session.PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Items {
		for j := range page.Items[i].Parts {
			if p := &page.Items[i].Parts[j]; p.Kind == session.PartToolResult {
				done = append(done, string(p.ResultJSON()))
			}
		}
	}
	return done
}

// On DBOS, a server that is started under the id of one that was killed does not wait
// for leases to expire.
func TestServeKilledAndBackOnDBOS(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "10ms", "runtime: {kind: dbos, leaseTTL: 1h, dbos: {executorId: one}}\n")
	d := serveDemo(t, dir)
	begin(t, d.Client, "assistant", "tale", askStory)
	reader := read(t, d.Client, "tale")
	reader.words(10)
	d.kill()
	d = serveDemo(t, dir, "--addr", d.addr)
	reader.toEnd(d.Client, session.Completed)
	tellsStory(t, d.Client, "tale")
	d.stop()
}

// A session moves from one runtime to another: what one suspended is answered on the
// next.
func TestServeMoves(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", quick)
	var d *daemon
	k := &talkOver{t: t, id: "notes"}
	on := func(kind string) {
		t.Helper()
		if d != nil {
			d.stop()
		}
		d = serveDemo(t, dir, runsOn(t, kind)...)
		k.c = d.Client
	}
	on(runtimes[0])
	_, status := k.say("assistant", "Forget everything.")
	for _, kind := range runtimes[1:] {
		on(kind)
		_, status = k.answer(status, "forget", granting(true, ""))
		k.completes(status, "It is all forgotten.")
		_, status = k.say("assistant", "Forget everything.")
	}
	on(runtimes[0])
	_, status = k.answer(status, "forget", granting(true, ""))
	k.completes(status, "It is all forgotten.")
	runs, err := d.Runs(t.Context(), k.id, session.PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var went []string
	for i := range runs.Items {
		went = append(went, fmt.Sprint(runs.Items[i].Turn, runs.Items[i].Runtime))
	}
	slices.Sort(went)
	if want := []string{"1local", "2temporal", "3temporal", "4dbos", "5dbos", "6local"}; !slices.Equal(went, want) {
		t.Errorf("the runs were %v, want %v", went, want)
	}
	read(t, d.Client, k.id).toEnd(d.Client, session.Completed)
	d.stop()
}

func TestServeReloads(t *testing.T) {
	t.Parallel()
	for _, kind := range runtimes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testReloads(t, kind)
		})
	}
}

func testReloads(t *testing.T, kind string) {
	t.Helper()
	dir := writeDemo(t, "10ms", "")
	d := serveDemo(t, dir, runsOn(t, kind)...)
	first := readFile(t, dir)
	names := func() string {
		t.Helper()
		agents, err := d.Agents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range agents {
			names = append(names, agents[i].Name)
		}
		return strings.Join(names, " ")
	}
	before := names()

	path := filepath.Join(dir, defaultConfig)
	put(t, path, strings.Replace(first, "  diary:\n", "  dairy:\n", 1))
	d.await(d.err, "config.refused")
	d.await(d.err, `there is no agent \"diary\"`)
	d.await(d.err, "\nhelix: helix.yaml is refused, and the old settings stay in effect:\n  helix.yaml:") // for whoever edits it
	if got := names(); got != before {
		t.Errorf("after a file that was refused there are %s", got)
	}
	begin(t, d.Client, "host", "trip", "Tell the diary to remember that I planted a tree.")
	read(t, d.Client, "trip").toEnd(d.Client, session.Completed)

	// What runs while the file changes ends with the agent that it began with.
	begin(t, d.Client, "assistant", "tale", askStory)
	tale := read(t, d.Client, "tale")
	tale.words(3)
	put(t, path, first+"  late: {type: client}\n"+quick+"cleanup: {every: 1h}\n")
	d.await(d.err, "config.reloaded")
	put(t, path, strings.Replace(first, "agents:\n", "agents:\n  newcomer: {description: Is new.}\n", 1))
	d.await(d.err, "agents=10")
	if got := names(); got != "newcomer "+before {
		t.Errorf("after the change there are %s", got)
	}
	begin(t, d.Client, "newcomer", "new", "hello")
	read(t, d.Client, "new").toEnd(d.Client, session.Completed)
	tale.toEnd(d.Client, session.Completed)
	tellsStory(t, d.Client, "tale")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d.await(d.err, "no such file")
	if got := names(); got != "newcomer "+before {
		t.Errorf("without the file there are %s", got)
	}
	d.stop()
}

// Tokens of the file take effect when it is saved: a new one lets in, and one that is
// gone does not. What needs a restart is told.
func TestServeReloadsTokens(t *testing.T) {
	t.Parallel()
	const (
		ada, bob, eve = "token-of-ada-0123", "token-of-bob-0123", "token-of-eve-0123"
		tokens        = "server:\n  tokens:\n    - {token: %s, user: ada}\n    - {token: %s, user: %s}\n"
	)
	dir := writeDemo(t, "1ms", fmt.Sprintf(tokens, ada, bob, "bob"))
	path := filepath.Join(dir, defaultConfig)
	demo, _, _ := strings.Cut(readFile(t, dir), "server:\n")
	d := serve(t, dir, "--config", defaultConfig, "--data", "data")
	admits := func(want map[string]bool) {
		t.Helper()
		for token, let := range want {
			if _, err := d.as(token).Agents(t.Context()); let != (err == nil) {
				t.Errorf("%s: %v", token, err)
			}
		}
	}
	admits(map[string]bool{ada: true, bob: true, eve: false})

	put(t, path, demo+fmt.Sprintf(tokens, ada, eve, "eve"))
	d.await(d.err, "config.reloaded")
	admits(map[string]bool{ada: true, bob: false, eve: true})
	if strings.Contains(d.err.String(), "restart it") {
		t.Errorf("a restart is asked for:\n%s", d.err)
	}

	put(t, path, demo+fmt.Sprintf(tokens, bob, eve, "eve")+"  verbose: true\nstore: 'memory:'\n"+quick+"cleanup: {every: 1h}\n")
	d.await(d.err, `sections="server, runtime, cleanup"`)
	admits(map[string]bool{ada: false, bob: true, eve: true})

	// A file that is refused changes nothing.
	put(t, path, demo+"server: {tokens: [{token: "+ada+"}]}\n")
	d.await(d.err, "config.refused")
	admits(map[string]bool{ada: false, bob: true})

	put(t, path, demo+"streams: 'memory:'\n")
	d.await(d.err, "config.tokens_missing")
	d.await(d.err, "sections=streams")
	admits(map[string]bool{ada: false, bob: false, eve: false})
	d.stop()
}

// Sessions whose time is up are cleaned up, and the log says what that came to.
func TestServeCleansUp(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "runtime: {sweep: 1h}\ncleanup: {every: 1s}\n")
	d := serveDemo(t, dir)
	if _, err := d.Start(t.Context(), wire.Start{
		SessionID: "old", AgentType: "assistant", Message: wire.Text("Forget everything."), ExpiresAt: time.Now().Add(time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	d.await(d.err, "detected=1 marked=1")
	status, err := d.Status(t.Context(), "old")
	if err != nil || status.Status != session.Failed {
		t.Errorf("%+v, %v", status, err)
	}
	d.stop()
}

// SIGHUP does not end a server: it has the file read again.
func TestHangup(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	d := serveDemo(t, dir)
	d.signal(syscall.SIGHUP)
	d.await(d.err, `msg=config.reloaded`)
	path := filepath.Join(dir, defaultConfig)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, strings.Replace(string(text), "  baker:\n", "  cook:\n", 1))
	d.signal(syscall.SIGHUP)
	for {
		agents, err := d.Agents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(agents, func(a wire.Agent) bool { return a.Name == "cook" }) {
			break
		}
	}
	d.stop()

	bare := serve(t, t.TempDir(), "--allow-unauthenticated", "--store", "data")
	bare.signal(syscall.SIGHUP)
	bare.await(bare.err, "config.reload_skipped")
	if _, err := bare.Agents(t.Context()); err != nil {
		t.Error(err)
	}
	bare.stop()
}
