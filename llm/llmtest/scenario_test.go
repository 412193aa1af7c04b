package llmtest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// TestSameTranscript runs one agent on each provider's wire: a rate limit, parallel
// tools, a stream that stops, reasoning, and a structured output. Who answers must
// not show in what the session holds.
func TestSameTranscript(t *testing.T) {
	t.Parallel()
	const want = `user: Find it.
assistant: search weather
tool search
tool weather
assistant: reasoning text
assistant: __finish__
tool __finish__`
	for _, adapter := range adapters {
		t.Run(adapter.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("..", filepath.FromSlash(adapter.testdata))
			server := playing(t, dir, "rate-limited.json", "tools.sse", "stopped-stream.sse", "reasoning.sse", "finish-tool.sse")
			if got := transcript(t, adapter.open(server.URL, "sk-test", nil)); got != want {
				t.Errorf("the transcript is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// delay is how long a provider that is asked too often wants to be left alone; the
// test does not have the time.
var delay = regexp.MustCompile(`\b\d+s\b`)

// playing is a provider that answers with one recording after the other.
func playing(t *testing.T, dir string, names ...string) *httptest.Server {
	t.Helper()
	var bodies [][]byte
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, delay.ReplaceAll(raw, []byte("0s")))
	}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1)) - 1
		if n >= len(names) {
			t.Errorf("it was asked %d times", n+1)
			n = len(names) - 1
		}
		status, kind := http.StatusOK, "text/event-stream"
		if filepath.Ext(names[n]) == ".json" {
			status, kind = http.StatusTooManyRequests, "application/json"
			w.Header().Set("Retry-After", "0")
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write(bodies[n])
	}))
	t.Cleanup(server.Close)
	return server
}

// transcript is the shape of what a session holds after a turn.
func transcript(t *testing.T, model llm.Model) string {
	t.Helper()
	found := func(name string) helix.Tool {
		return helix.Tool{
			Name: name, Description: name, ReadOnly: true,
			Execute: helix.RawFunc(json.RawMessage(`{"type":"object"}`),
				func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`"found"`), nil
				}),
		}
	}
	agent := &helix.Agent{
		Name: "tester", Instructions: "You are terse.", Model: model, Tools: []helix.Tool{found("search"), found("weather")},
		Output: helix.OutputOf[map[string]any](),
	}
	db := memory.New(memory.Config{})
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, RetryBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Shutdown(t.Context())
	run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Find it.")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != helix.Completed || len(res.Output) == 0 {
		t.Errorf("the run is %s: %v", res.Status, res.Error)
	}
	messages, err := db.Sessions().AllMessages(t.Context(), "s-1")
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(messages))
	for i := range messages {
		lines[i] = shape(&messages[i])
	}
	return strings.Join(lines, "\n")
}

// shape is a message without its words.
func shape(m *session.Message) string {
	if m.Role == session.RoleUser {
		return "user: " + m.Content()
	}
	var parts []string
	for _, p := range m.Parts {
		switch p.Kind {
		case session.PartToolCall, session.PartToolResult:
			parts = append(parts, p.Tool)
		default:
			parts = append(parts, string(p.Kind))
		}
	}
	if m.Role == session.RoleTool {
		return "tool " + strings.Join(parts, " ")
	}
	return "assistant: " + strings.Join(parts, " ")
}
