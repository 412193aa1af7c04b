package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/stream"
)

// A turn over HTTP: start it, and read what it says as it comes.
func Example() {
	ctx := context.Background()
	agent := &helix.Agent{Name: "greeter", Model: scripted.New(scripted.Text("Hello, Ada."))}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)
	handler, err := server.New(server.Config{
		Executor: rt, Backend: db, Agents: func() []*helix.Agent { return []*helix.Agent{agent} }, AllowUnauthenticated: true,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	web := httptest.NewServer(handler)
	defer web.Close()

	c, err := client.New(client.Config{URL: web.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := c.Start(ctx, wire.Start{SessionID: "ada-1", AgentType: "greeter", Message: wire.Text("Hi, I am Ada.")})
	if err != nil {
		fmt.Println(err)
		return
	}
	for item, err := range c.Read(ctx, run.SessionID, run.StartSequence) {
		switch {
		case err != nil:
			fmt.Println(err)
		case item.Frame == stream.FrameChunk && item.Chunk.Kind == stream.TextDelta:
			fmt.Print(item.Chunk.Delta)
		case item.Frame == stream.FrameEnd:
			fmt.Println(" --", item.End.Status)
		}
	}
	// Output: Hello, Ada. -- completed
}
