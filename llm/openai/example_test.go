package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// An agent on the Responses API. The example talks to a local server that plays a
// recorded answer; without BaseURL it would talk to OpenAI, with the key from
// OPENAI_API_KEY.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.ServeFile(w, r, "testdata/responses/reasoning.sse")
	}))
	defer server.Close()

	agent := &helix.Agent{
		Name:         "greeter",
		Instructions: "You greet people.",
		Model:        openai.New(openai.Config{Model: "gpt-5", APIKey: "sk-example", BaseURL: server.URL}),
		Settings: llm.Settings{
			MaxOutputTokens: 8000,
			ProviderOptions: json.RawMessage(`{"reasoning": {"effort": "low", "summary": "auto"}}`),
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

// A local server that speaks Chat Completions, here one that does not even stream.
func ExampleConfig_compatible() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices": [{"message": {"content": "Bonjour."}}]}`)
	}))
	defer server.Close()

	model := openai.New(openai.Config{Model: "qwen3", BaseURL: server.URL, API: openai.ChatCompletions})
	reply, err := model.Generate(context.Background(), &llm.Request{
		Instructions: "You greet people in French.",
		Messages:     []session.Message{session.UserText("Hi!")},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Parts[0].Text, reply.Finish)
	// Output: Bonjour. stop
}
