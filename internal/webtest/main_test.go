package webtest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
)

// serverEnv makes a copy of the test binary the server; its arguments are an
// address and a directory.
const serverEnv = "HELIX_WEBTEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) == "" {
		os.Exit(m.Run())
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lease is how long a run stays with a server that was killed.
const lease = time.Second

// serve is the main function of the server, which runs until it is killed.
func serve(addr, dir string) error {
	db, err := backend.Open("sqlite:"+filepath.Join(dir, "helix.db"), nil)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	agents := []*helix.Agent{desk()}
	rt, err := local.New(local.Config{
		Backend: db, Agents: agents, Logger: quiet, LeaseTTL: lease, Sweep: lease / 10,
	})
	if err != nil {
		return err
	}
	handler, err := server.New(server.Config{
		RateLimit: server.RateLimit{PerSecond: -1},
		Executor:  rt, Backend: db, Agents: func() []*helix.Agent { return agents }, AllowUnauthenticated: true, Logger: quiet,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	return server.HTTPServer(addr, handler).Serve(listener)
}

// process is a server that can be killed and started again, with the same address
// and data.
type process struct {
	t    *testing.T
	addr string
	dir  string
	cmd  *exec.Cmd
}

func startServer(t *testing.T) *process {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, addr: listener.Addr().String(), dir: t.TempDir()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) url() string { return "http://" + p.addr }

// start starts the server and returns once it can be reached.
func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.CommandContext(context.WithoutCancel(p.t.Context()), os.Args[0], p.addr, p.dir)
	p.cmd.Env = append(os.Environ(), serverEnv+"=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	var said string
	if _, err := fmt.Fscanln(out, &said); err != nil || said != "ready" {
		p.t.Fatalf("the server does not start: %q, %v", said, err)
	}
}

// kill sends SIGKILL and waits until the process is gone.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // so it says
	}
}
