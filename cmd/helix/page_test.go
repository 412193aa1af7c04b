package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
)

// TestPage uses the page in a browser as a person does; testdata/page.mjs says how.
// With HELIX_TEST_SCREENSHOTS it leaves pictures in that directory. A commit does half of it.
func TestPage(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 0, 4)
	half := browsertest.SelectHalf(t)
	dir := writeDemo(t, "15ms", quick)
	// One that can be stopped in the middle, however slow the browser is.
	text := strings.Replace(readFile(t, dir), "models:\n", "models:\n  slow: {model: demo, pace: 200ms}\n", 1)
	text = strings.Replace(text, "agents:\n", "agents:\n  narrator: {model: slow}\n", 1)
	// One that asks for something that is hard to show.
	input, paid := hostileInput(t), make(chan string, 1)
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		paid <- string(body)
		_, _ = io.WriteString(w, "paid")
	}))
	t.Cleanup(bank.Close)
	text = strings.Replace(text, "agents:\n", "agents:\n  cashier: {model: openai-chat/cashier@"+fakeCashier(t, input)+", tools: [refund]}\n", 1)
	text = strings.Replace(text, "tools:\n  ", "tools:\n  refund: {type: http, method: POST, url: \""+bank.URL+"\", allowPrivate: true, approval: always, input: {type: object}}\n  ", 1)
	put(t, filepath.Join(dir, defaultConfig), text)
	d := serveDemo(t, dir)
	const token = "0123456789abcdef"
	locked := writeDemo(t, "1ms", "server: {tokens: [{token: "+token+", user: alice}]}\n")
	script := browsertest.New(t, "page.mjs",
		"HELIX_URL="+d.url(), "HELIX_TEST_HALF="+half, "HELIX_INPUT="+string(input), "HELIX_TOKEN="+token, "HELIX_LOCKED_URL="+serve(t, locked, "--config", defaultConfig, "--data", "data").url())
	script.Run(func() { // it wants the server killed
		d.kill()
		d = serveDemo(t, dir, "--addr", d.addr)
	})
	select {
	case body := <-paid:
		if session.Fingerprint("refund", json.RawMessage(body)) != session.Fingerprint("refund", input) {
			t.Errorf("the service was sent another input: %.500s", body)
		}
	default:
		if half != "1" { // which has not the case that pays
			t.Error("the service was sent nothing")
		}
	}
}

// TestPageTells uses the page where things go wrong, or happen elsewhere: for each,
// testdata/telling.mjs names what the page must say. A commit does half of them.
func TestPageTells(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 2, 4)
	half := browsertest.SelectHalf(t)
	dir := writeDemo(t, "15ms", "runtime: {leaseTTL: 3s, sweep: 100ms, modelRetries: 0}\n")
	models := failingModels(t)
	text := strings.Replace(readFile(t, dir), "models:\n", "models:\n  slow: {model: demo, pace: 200ms}\n", 1)
	text = strings.Replace(text, "agents:\n", "agents:\n  narrator: {model: slow}\n"+
		"  locked: {model: openai-chat/x@"+models+"/locked/v1}\n  broken: {model: openai-chat/x@"+models+"/broken/v1}\n"+
		"  absent: {model: openai-chat/x@http://127.0.0.1:1/v1}\n", 1)
	put(t, filepath.Join(dir, defaultConfig), text)
	d := serveDemo(t, dir)
	const token = "0123456789abcdef"
	locked := writeDemo(t, "1ms", "server: {tokens: [{token: "+token+", user: alice}]}\n")
	script := browsertest.New(t, "telling.mjs", "HELIX_URL="+d.url(), "HELIX_MODELS="+models, "HELIX_TEST_HALF="+half,
		"HELIX_TOKEN="+token, "HELIX_LOCKED_URL="+serve(t, locked, "--config", defaultConfig, "--data", "data").url())
	script.Run(func() { // it wants the server killed
		d.kill()
		d = serveDemo(t, dir, "--addr", d.addr)
	})
}

// failingModels is a server of models that fail: /locked refuses the key, /broken breaks
// off in mid-reply. A request to /mend/{name} ends that.
func failingModels(t *testing.T) string {
	t.Helper()
	var mended sync.Map
	say := func(w http.ResponseWriter, words string, reason any) {
		chunk, _ := json.Marshal(map[string]any{"id": "c", "object": "chat.completion.chunk", "model": "x", "choices": []any{
			map[string]any{"index": 0, "delta": map[string]any{"role": "assistant", "content": words}, "finish_reason": reason},
		}})
		fmt.Fprintf(w, "data: %s\n\n", chunk)
		_ = http.NewResponseController(w).Flush()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mend/{name}", func(_ http.ResponseWriter, r *http.Request) { mended.Store(r.PathValue("name"), true) })
	mux.HandleFunc("POST /{name}/v1/", func(w http.ResponseWriter, r *http.Request) {
		_, works := mended.Load(r.PathValue("name"))
		switch {
		case works:
			w.Header().Set("Content-Type", "text/event-stream")
			say(w, "Now it works.", "stop")
			fmt.Fprint(w, "data: [DONE]\n\n")
		case r.PathValue("name") == "locked":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			say(w, "Once upon a", nil)
			panic(http.ErrAbortHandler) // the connection is cut
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// fakeCashier is a server of a model that calls refund with an input, and then says so.
func fakeCashier(t *testing.T, input json.RawMessage) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		delta, reason := map[string]any{"role": "assistant", "content": "It is paid."}, "stop"
		if !strings.Contains(string(body), `"role":"tool"`) {
			delta, reason = map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
				"index": 0, "id": "call_1", "type": "function", "function": map[string]any{"name": "refund", "arguments": string(input)},
			}}}, "tool_calls"
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, choice := range []map[string]any{{"index": 0, "delta": delta}, {"index": 0, "delta": map[string]any{}, "finish_reason": reason}} {
			chunk, _ := json.Marshal(map[string]any{"id": "c", "object": "chat.completion.chunk", "model": "cashier", "choices": []any{choice}})
			fmt.Fprintf(w, "data: %s\n\n", chunk)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}
