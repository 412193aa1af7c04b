package anthropic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/memory"
)

// An agent on Claude. The example talks to a local server that plays a recorded
// answer; without BaseURL it would talk to Anthropic, with the key from
// ANTHROPIC_API_KEY.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.ServeFile(w, r, "testdata/reasoning.sse")
	}))
	defer server.Close()

	agent := &helix.Agent{
		Name:         "greeter",
		Instructions: "You greet people.",
		Model: anthropic.New(anthropic.Config{
			Model:   "claude-sonnet-4-5",
			APIKey:  "sk-ant-example",
			BaseURL: server.URL,
		}),
		Settings: llm.Settings{
			MaxOutputTokens: 8000,
			Cache:           llm.Cache{Prefix: true, LatestTurn: true, TTL: time.Hour},
			ProviderOptions: json.RawMessage(`{"thinking": {"type": "enabled", "budget_tokens": 4000}}`),
		},
	}

	ctx := context.Background()
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: "s1", Message: helix.UserText("Hi!")})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, res.Text)

	messages, err := db.Sessions().AllMessages(ctx, "s1")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, part := range messages[1].Parts {
		fmt.Printf("%s: %s\n", part.Kind, part.Text)
	}
	// Output:
	// completed Hello.
	// reasoning: A greeting. I answer in kind.
	// text: Hello.
}
