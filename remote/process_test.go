package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/stream"
)

// serveEnv makes the test's binary a server.
const serveEnv = "HELIX_REMOTE_TEST_SERVER"

// service is what a process serves.
type service struct {
	File string
	// Clerk is where the clerk is; the process that serves the clerk has none.
	Clerk string
}

// The clerk's replies come slowly enough to be cut off.
const (
	pace       = 4 * time.Millisecond
	firstWords = "I read the lease, line by line, and then once more: "
	lastWords  = "I have signed it, on every page, and put it into the drawer."
)

// agent is what the process serves: the clerk, or a boss who calls the clerk.
func (s *service) agent() *helix.Agent {
	if s.Clerk != "" {
		away := &remote.Agent{URL: s.Clerk, Token: token, Agent: "clerk", Reach: time.Minute}
		return bossOf(away.SubAgent())
	}
	sign := helix.Tool{
		Name: "sign", Description: "sign", Approval: helix.RequireApproval, Idempotent: true,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in number) (int, error) { return 2 * in.N, nil }),
	}
	return &helix.Agent{Name: "clerk", Tools: []helix.Tool{sign}, Model: scripted.New(
		scripted.Reply(scripted.Say(strings.Repeat(firstWords, 3)), scripted.Calling("sign", number{3})).WithPieceSize(3).WithPace(pace),
		scripted.Text(strings.Repeat(lastWords, 3)).WithPieceSize(3).WithPace(pace)).ByPosition()}
}

// serveProcess serves until its standard input ends.
func serveProcess() int {
	var s service
	if err := json.Unmarshal([]byte(os.Getenv(serveEnv)), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := s.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (s *service) serve() error {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	db, err := sqlite.Open(s.File)
	if err != nil {
		return err
	}
	defer db.Close()
	agent := s.agent()
	rt, err := local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: 600 * time.Millisecond, Sweep: 100 * time.Millisecond, Logger: log,
	})
	if err != nil {
		return err
	}
	defer func() { _ = rt.Close() }() // the next start continues what runs
	authenticate, err := server.Tokens(server.Token{Token: token, Identity: server.Identity{User: "alice"}})
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{
		RateLimit: server.RateLimit{PerSecond: -1},
		Executor:  rt, Backend: db, Agents: func() []*helix.Agent { return []*helix.Agent{agent} }, Authenticate: authenticate, Logger: log,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	fmt.Println(listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test is over, or gone
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	err = errors.Join(handler.Shutdown(ctx), web.Shutdown(ctx))
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// process is a server in a process of its own. Its address is that of a proxy, because a port that a process has left may be
// taken by any other.
type process struct {
	*client.Client
	proxy   *faultproxy.Proxy
	t       *testing.T
	service service
	cmd     *exec.Cmd
	stdin   io.Closer
	log     *os.File
}

func newProcess(t *testing.T, name, clerk string) *process {
	t.Helper()
	proxy := faultproxy.New(t, "")
	proxy.Refuse()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: "http://" + proxy.Addr(), Token: token, Backoff: 20 * time.Millisecond, Attempts: 200})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Client: c, t: t, log: log, proxy: proxy, service: service{File: filepath.Join(dir, "db"), Clerk: clerk}}
	t.Cleanup(func() {
		p.stdin.Close()
		_ = p.cmd.Wait() // killed or not
		log.Close()
		if raw, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log of the %s:\n%s", name, raw)
		}
	})
	p.start()
	return p
}

func (p *process) url() string { return "http://" + p.proxy.Addr() }

// start starts the process and waits until it serves.
func (p *process) start() {
	p.t.Helper()
	given, err := json.Marshal(p.service)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), serveEnv+"="+string(given))
	p.cmd.Stderr = p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the server said %q, %v", line, err)
	}
	p.proxy.SetTarget(strings.TrimSpace(line))
	p.proxy.Pass()
}

// restart kills the process, with no chance to tidy up, and starts it again.
func (p *process) restart() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
	p.proxy.Refuse()
	p.stdin.Close()
	p.start()
}

// replace shuts the process down, and starts it again.
func (p *process) replace() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
	p.proxy.Refuse()
	p.start()
}

// watch reads a stream from a sequence to its end, and calls do in the middle of
// the clerk's words.
func (p *process) watch(id string, from int64, do func()) int64 {
	p.t.Helper()
	ctx := eventually.Context(p.t)
	words, done := 0, false
	for item, err := range p.Read(ctx, id, from) {
		if err != nil {
			p.t.Fatalf("after sequence %d: %v", from, err)
		}
		from = max(from, item.Sequence)
		if c := item.Chunk; c != nil && c.AgentID != id && c.Kind == stream.TextDelta {
			if words++; words == 3 && !done {
				done = true
				do()
			}
		}
		if item.Terminal() && item.Frame != stream.FrameEnd {
			p.t.Fatalf("the stream ended with %+v", item)
		}
	}
	if !done {
		p.t.Fatal("the clerk was not heard")
	}
	return from
}

// A remote agent, or its caller, is killed in mid-reply and started again, before
// and after an approval inside the remote, and while that waits: the caller's
// transcript and stream are what they are without that.
func TestKilled(t *testing.T) {
	t.Parallel()
	for who, kill := range map[string]func(here, there *process){
		"remote":              func(_, there *process) { there.restart() },
		"caller":              func(here, _ *process) { here.restart() },
		"both":                func(here, there *process) { there.restart(); here.restart() },
		"remote, by a deploy": func(_, there *process) { there.replace() },
		"caller, by a deploy": func(here, _ *process) { here.replace() },
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			there := newProcess(t, "clerk's server", "")
			here := newProcess(t, "boss's server", there.url())
			killed(t, here, there, func() { kill(here, there) })
		})
	}
}

func killed(t *testing.T, here, there *process, kill func()) {
	t.Helper()
	const id = "lease-1"
	if _, err := here.Start(t.Context(), wire.Start{SessionID: id, AgentType: "boss", Message: wire.Text("Hi!")}); err != nil {
		t.Fatal(err)
	}
	last := here.watch(id, 0, kill)
	kill() // while it waits
	pending, err := here.Pending(t.Context(), id)
	if err != nil || len(pending) != 1 || pending[0].Tool != "sign" || pending[0].Kind != session.PendingApproval {
		t.Fatalf("what waits is %+v, %v", pending, err)
	}
	done, err := here.Submit(t.Context(), wire.Submit{
		SessionID: id, ToolCallID: pending[0].CallID, Approval: &wire.Approval{ApprovalID: pending[0].ApprovalID, Approved: true}, Resume: true,
	})
	if err != nil || done.Outcome != session.SubmitAccepted || done.RunID == "" {
		t.Fatalf("the answer was %+v, %v", done, err)
	}
	here.watch(id, last, kill)

	page, err := here.Messages(t.Context(), id, session.PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told, _ := json.Marshal(strings.Repeat(lastWords, 3))
	if got, want := render(page.Items), "user Hi! | assistant subagent__clerk | tool "+string(told)+" | assistant Thanks."; got != want {
		t.Fatalf("the transcript is\n%s\nwant\n%s", got, want)
	}
	all := here.chunks(id)
	folded := render(stream.Fold(id, all))
	if want := render(page.Items); folded != want {
		t.Fatalf("the stream folds to\n%s\nwant\n%s", folded, want)
	}
	at := slices.IndexFunc(all, func(c stream.Chunk) bool { return c.Kind == stream.SubAgentStart })
	child := all[at].Child
	peers, err := there.Sessions(t.Context(), session.Query{Metadata: map[string]string{helix.MetaCallerSession: id}})
	if err != nil || len(peers.Items) != 1 || !strings.HasPrefix(peers.Items[0].ID, child+"@peer.") {
		t.Fatalf("the sessions there are %+v, %v", peers, err)
	}
	sameChunks(t, all, there.chunks(peers.Items[0].ID), child)
}

// chunks are all chunks of a stream that has ended.
func (p *process) chunks(id string) (out []stream.Chunk) {
	p.t.Helper()
	for item, err := range p.Read(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if item.Chunk != nil {
			out = append(out, *item.Chunk)
		}
	}
	return out
}

// render writes messages in one line.
func render(messages []session.Message) string {
	var out []string
	for i := range messages {
		m := &messages[i]
		line := string(m.Role)
		for _, p := range m.Parts {
			switch p.Kind {
			case session.PartText:
				line += " " + p.Text
			case session.PartToolCall:
				line += " " + p.Tool
			case session.PartToolResult:
				line += " " + string(p.ResultJSON())
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, " | ")
}
