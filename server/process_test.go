package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
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
	models := httptest.NewServer(http.HandlerFunc(sendLargeEvent))
	defer models.Close()
	agents := []*helix.Agent{echo(), signer(), scribe(), listener(models.URL)}
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
		RateLimit: server.RateLimit{PerSecond: -1}, // tests poll
	})
	if err != nil {
		return err
	}
	at, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, at.Addr())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			fmt.Fprintln(os.Stdout, memory.HeapSys)
		}
		_ = at.Close()
	}()
	if err := server.HTTPServer("", srv).Serve(at); !strings.Contains(err.Error(), "closed") {
		return err
	}
	return nil
}

// signer is an agent that asks a person to approve a call with a large input of many values.
func signer() *helix.Agent {
	return &helix.Agent{
		Name: "signer", Model: scripted.New(scripted.Call("sign", string(padded(largeBody/5, `{"lists":[`, `[]`, `]}`)))),
		Tools: []helix.Tool{{Name: "sign", Description: "Signs.", Approval: helix.RequireApproval, Execute: noTool()}},
	}
}

func noTool() helix.Callable {
	return helix.Func(func(context.Context, *helix.Call, map[string]any) (string, error) {
		return "", errors.New("it was called")
	})
}

// scribe is an agent whose model calls a tool with an argument of 20 MB, of many values, and
// then repeats what it is told.
func scribe() *helix.Agent {
	return &helix.Agent{
		Name: "scribe", Tools: []helix.Tool{{Name: "write", Description: "Writes.", Execute: noTool()}},
		Model: speaker(func(request *llm.Request) scripted.Step {
			if last := request.Messages[len(request.Messages)-1]; last.Role == session.RoleTool {
				return scripted.Text(last.Parts[0].Error.Message)
			}
			return scripted.Call("write", string(padded(20_000_000, `{"lists":[`, `[]`, `]}`)))
		}),
	}
}

// listener is an agent whose model is that of sendLargeEvent.
func listener(url string) *helix.Agent {
	return &helix.Agent{Name: "listener", Model: openai.New(openai.Config{API: openai.ChatCompletions, BaseURL: url, Model: "large"})}
}

// sendLargeEvent answers a request for a reply with one event of 30 MB.
func sendLargeEvent(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", wire.ContentEvents)
	piece := strings.Repeat("{},", 10_000)
	_, _ = io.WriteString(w, `data: {"choices":[`)
	for range 1_000 {
		_, _ = io.WriteString(w, piece)
	}
	_, _ = io.WriteString(w, "{}]}\n\n")
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
