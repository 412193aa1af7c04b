package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/store/memory"
)

// A server is a handler like any other: here it is mounted below /api of an
// application that has pages of its own.
func Example() {
	agents := []*helix.Agent{{Name: "greeter", Model: scripted.New(scripted.Text("Good morning, Ada."))}}
	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	runtime, err := local.New(local.Config{Backend: db, Agents: agents})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runtime.Shutdown(ctx)
	authenticate, err := server.Tokens(server.Token{Token: "ada's token", Identity: server.Identity{User: "ada"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := server.New(server.Config{
		Executor: runtime, Backend: db, Agents: func() []*helix.Agent { return agents },
		Authenticate: authenticate, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", handler))
	web := httptest.NewServer(mux) // a program serves server.HTTPServer(addr, mux)
	defer web.Close()
	defer func() { _ = handler.Shutdown(ctx) }()

	ask := func(method, path, body string) string {
		r, _ := http.NewRequestWithContext(ctx, method, web.URL+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer ada's token")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		raw, _ := io.ReadAll(answer.Body)
		return string(raw)
	}
	ask(http.MethodPost, "/api/start", `{"sessionId":"s-1","agentType":"greeter","message":"Hello"}`)
	for event := range strings.SplitSeq(ask(http.MethodGet, "/api/sse?sessionId=s-1", ""), "\n\n") {
		if _, delta, found := strings.Cut(event, `"delta":`); found {
			fmt.Println(strings.TrimRight(delta, "}"))
		}
		if strings.HasPrefix(event, "event: end\n") {
			fmt.Println("the end")
		}
	}
	fmt.Print(ask(http.MethodGet, "/api/status?sessionId=someone-elses", ""))
	// Output:
	// "Good morning, Ada."
	// the end
	// {"error":"there is no session someone-elses","code":"state_not_found"}
}
