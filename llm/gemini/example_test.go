package gemini_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/session"
)

func Example() {
	// A local server stands in for Google; leave BaseURL out to ask the true one.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"A short question.","thought":true}]}}]}`+"\n\n")
		fmt.Fprint(w, `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"About 8,849 "}]}}]}`+"\n\n")
		fmt.Fprint(w, `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"metres."}]},"finishReason":"STOP"}],`+
			`"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":6,"thoughtsTokenCount":20},"modelVersion":"gemini-2.5-pro"}`+"\n\n")
	}))
	defer server.Close()

	model := gemini.New(gemini.Config{Model: "gemini-2.5-pro", APIKey: "a key", BaseURL: server.URL})
	request := &llm.Request{
		Messages: []session.Message{session.UserText("How high is Mount Everest?")},
		Settings: llm.Settings{
			ProviderOptions: json.RawMessage(`{"generationConfig":{"thinkingConfig":{"includeThoughts":true}}}`),
		},
	}
	reply, err := model.Generate(context.Background(), request, func(d llm.Delta) {
		fmt.Printf("%s: %q\n", d.Kind, d.Text)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Finish, reply.Usage.OutputTokens, "tokens, of which", reply.Usage.ReasoningTokens, "for thinking")
	// Output:
	// reasoning: "A short question."
	// text: "About 8,849 "
	// text: "metres."
	// stop 26 tokens, of which 20 for thinking
}
