package server_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
)

// serverEnv makes a copy of the test binary a server, until its input ends.
const serverEnv = "HELIX_SERVER_TEST_PROCESS"

// users is how many of them the server of another process knows.
const users = 20

func userToken(i int) string { return fmt.Sprintf("token-of-user-%d", i) }

// serveAlone is the main function of the server in another process. It says where it
// listens, and answers each line of its input with the largest size of its heap so far.
func serveAlone() error {
	debug.SetGCPercent(25) // so that the heap has little more than what is in use
	db, err := backend.Open("memory:", nil)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	agents := []*helix.Agent{echo()}
	rt, err := local.New(local.Config{Backend: db, Agents: agents, Logger: quiet})
	if err != nil {
		return err
	}
	var known []server.Token
	for i := range users {
		known = append(known, server.Token{Token: userToken(i), Identity: server.Identity{User: fmt.Sprint("user-", i)}})
	}
	authenticate, err := server.Tokens(known...)
	if err != nil {
		return err
	}
	srv, err := server.New(server.Config{
		Executor: rt, Backend: db, Agents: func() []*helix.Agent { return agents }, Authenticate: authenticate, Logger: quiet,
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, listener.Addr())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			fmt.Fprintln(os.Stdout, memory.HeapSys)
		}
		_ = listener.Close()
	}()
	if err := server.HTTPServer("", srv).Serve(listener); !strings.Contains(err.Error(), "closed") {
		return err
	}
	return nil
}

// process starts a server in a process of its own. heap asks it for the largest size that its
// heap has had so far: what the race detector keeps beside the heap is no part of that.
func process(t *testing.T) (url string, heap func() int64) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return "http://" + addr, func() (size int64) {
		t.Helper()
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(out, &size); err != nil {
			t.Fatalf("the server does not tell the size of its heap: %v", err)
		}
		return size
	}
}
