package llmtest_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/llmtest"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/sqlite"
)

// adapters are the models of the providers, where their recordings are, and where
// below a server's address their API is. The client may be nil.
var adapters = []struct {
	name, testdata, path string
	open                 opener
}{
	{"anthropic", "anthropic/testdata", "", func(baseURL, key string, client *http.Client) llm.Model {
		return anthropic.New(anthropic.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, HTTPClient: client})
	}},
	{"gemini", "gemini/testdata", "", func(baseURL, key string, client *http.Client) llm.Model {
		return gemini.New(gemini.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, HTTPClient: client})
	}},
	{"openai-responses", "openai/testdata/responses", "/v1", func(baseURL, key string, client *http.Client) llm.Model {
		return openai.New(openai.Config{Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, HTTPClient: client})
	}},
	{"openai-chat", "openai/testdata/chat", "/v1", func(baseURL, key string, client *http.Client) llm.Model {
		return openai.New(openai.Config{
			Model: llmtest.AskedModel, APIKey: key, BaseURL: baseURL, HTTPClient: client, API: openai.ChatCompletions,
		})
	}},
}

type opener func(baseURL, key string, client *http.Client) llm.Model

// TestKeysStayOut runs an agent whose provider repeats the key in its errors, and
// looks for it in everything that is left: the log, the error, what was printed of
// the agent, and every byte of the database, chunks and rows.
func TestKeysStayOut(t *testing.T) {
	t.Parallel()
	for _, adapter := range adapters {
		t.Run(adapter.name, func(t *testing.T) {
			t.Parallel()
			keyStaysOut(t, filepath.Join("..", filepath.FromSlash(adapter.testdata)), adapter.open)
		})
	}
}

func keyStaysOut(t *testing.T, testdata string, open opener) {
	const key = "sk-secret-9876543210fedcba"
	server := echo(t, testdata, key)
	agent := &helix.Agent{Name: "tester", Instructions: "You are terse.", Model: open(server.URL, key, nil)}

	path := filepath.Join(t.TempDir(), "helix.db")
	db, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	rt, err := local.New(local.Config{
		Backend: db, RetryBackoff: time.Millisecond, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s1", Message: helix.UserText("Hello?")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	said := fmt.Sprintf("%+v %#v %v %+v", res, res, err, agent) + fmt.Sprintf("%v %+v %#v", agent.Model, agent.Model, agent.Model)
	if err := rt.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	left := map[string]string{"what was printed": said, "the log": log.String()}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		left[filepath.Base(file)] = string(raw)
	}
	for where, text := range left {
		if strings.Contains(text, key) {
			t.Errorf("the key is in %s", where)
		}
	}
	// What is looked through must hold the failures, or nothing was shown.
	for _, where := range []string{"the log", "helix.db"} {
		if !strings.Contains(left[where], "[redacted]") {
			t.Errorf("the provider's words are not in %s", where)
		}
	}
}

// echo is a provider that fails in the middle of a stream, and then refuses the
// key, repeating it both times.
func echo(t *testing.T, testdata, key string) *httptest.Server {
	t.Helper()
	recording := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(testdata, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(raw, []byte("{{key}}")) {
			t.Errorf("there is no key in %s", name)
		}
		return bytes.ReplaceAll(raw, []byte("{{key}}"), []byte(key))
	}
	midStream, refusal := recording("error-mid-stream.sse"), recording("auth.json")
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer, status, kind := refusal, http.StatusUnauthorized, "application/json"
		once.Do(func() { answer, status, kind = midStream, http.StatusOK, "text/event-stream" })
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	return server
}

// syncBuffer is a buffer that several goroutines may write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
