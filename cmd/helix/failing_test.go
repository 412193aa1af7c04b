package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// moody is a model on the wire of OpenAI's chat completions. It refuses every key until
// it is told to answer.
type moody struct {
	*httptest.Server
	answers atomic.Bool
}

func newMoody(t *testing.T) *moody {
	t.Helper()
	m := &moody{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !m.answers.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"message":"the key has been revoked","type":"invalid_request_error","code":"invalid_api_key"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range []string{
			`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Here I am again."},"finish_reason":null}]}`,
			`{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			"[DONE]",
		} {
			fmt.Fprintf(w, "data: %s\n\n", chunk)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// file writes a file with one agent, clerk, on the model, and gives its directory.
func (m *moody) file(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, defaultConfig), "version: 1\nagents:\n  clerk: {description: Answers., instructions: Answer., model: 'openai-chat/m@"+m.URL+"/v1'}\n")
	return dir
}
