package models_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/session"
)

// variables are all that the adapters look at.
var variables = []string{
	"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY",
	"GOOGLE_GEMINI_BASE_URL", models.ServerKey,
}

func clearEnv(t *testing.T) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, "")
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	clearEnv(t)
	const all = "the providers are openai, openai-chat, anthropic, gemini"
	for reference, want := range map[string]string{
		"openai/gpt-5":                                 "set the environment variable OPENAI_API_KEY",
		"openai-chat/gpt-5":                            "set the environment variable OPENAI_API_KEY",
		"anthropic/claude-sonnet-4-5":                  "set the environment variable ANTHROPIC_API_KEY",
		"gemini/gemini-2.5-pro":                        "set the environment variable GEMINI_API_KEY or GOOGLE_API_KEY",
		"openai-chat/a@http://127.0.0.1:1/v1,gemini/b": "model gemini/b: no API key",
		"gpt-5":              all,
		"":                   all,
		"openai/":            all,
		"/gpt-5":             all,
		"openai/m@http://h,": all,
		"mistral/large":      `there is no provider "mistral"; ` + all,
		"openai/a@http://":   "not a web address",
		"openai/a@http://user:hunter2secret@h/v1": "a key belongs in HELIX_MODEL_KEY",
		"openai/a@https://h/v1?key=hunter2secret": "a key belongs in HELIX_MODEL_KEY",
		"openai/a@http://h:hunter2secret/v1":      "not a web address",
		"gemini/a?b@http://h":                     "cannot be the name of a model",
	} {
		_, err := models.Open(reference)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2secret") {
			t.Errorf("%s: got %v, want %q", reference, err, want)
		}
	}
}

// server answers on every provider's wire, unless the model's name is "gone".
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // path and key
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key") + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	s.seen = append(s.seen, r.URL.Path+" "+key)
	s.mu.Unlock()
	if strings.Contains(string(body), `"gone"`) || strings.Contains(r.URL.Path, "/gone:") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","model":"m1","choices":[{"index":0,"delta":{"content":"chat"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	case strings.HasSuffix(r.URL.Path, "/responses"):
		fmt.Fprint(w, `event: response.completed`+"\n"+`data: {"type":"response.completed","response":{"id":"r","model":"m1","status":"completed",`+
			`"output":[{"type":"message","id":"i","role":"assistant","status":"completed","content":[{"type":"output_text","text":"responses","annotations":[]}]}]}}`+"\n\n")
	case strings.HasSuffix(r.URL.Path, "/messages"):
		for _, e := range []string{
			`{"type":"message_start","message":{"model":"m1","usage":{}}}`, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"messages"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}`, `{"type":"message_stop"}`,
		} {
			kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, e)
		}
	default:
		fmt.Fprint(w, `data: {"candidates":[{"content":{"parts":[{"text":"generate"}]},"finishReason":"STOP"}],"modelVersion":"m1"}`+"\n\n")
	}
}

func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

func ask(t *testing.T, reference string) (string, error) {
	t.Helper()
	m, err := models.Open(reference)
	if err != nil {
		t.Fatalf("%s: %v", reference, err)
	}
	request := &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
	got, err := m.Generate(context.Background(), request, func(llm.Delta) {})
	if err != nil {
		return "", err
	}
	return got.Parts[0].Text, nil
}

func TestEveryProviderIsAsked(t *testing.T) {
	clearEnv(t)
	s := serve(t)
	for _, name := range []string{"OPENAI", "ANTHROPIC", "GEMINI"} {
		t.Setenv(name+"_API_KEY", name+"-key")
	}
	t.Setenv("OPENAI_BASE_URL", s.URL+"/v1")
	t.Setenv("ANTHROPIC_BASE_URL", s.URL)
	t.Setenv("GOOGLE_GEMINI_BASE_URL", s.URL)
	for reference, want := range map[string][2]string{
		"openai/m":      {"responses", "/v1/responses OPENAI-key"},
		"openai-chat/m": {"chat", "/v1/chat/completions OPENAI-key"},
		"anthropic/m":   {"messages", "/v1/messages ANTHROPIC-key"},
		"gemini/m":      {"generate", "/v1beta/models/m:streamGenerateContent GEMINI-key"},
	} {
		text, err := ask(t, reference)
		if seen := s.take(); err != nil || text != want[0] || len(seen) != 1 || seen[0] != want[1] {
			t.Errorf("%s: got %q, %v; asked %q, want %v", reference, text, err, seen, want)
		}
	}
}

// TestOtherServersGetNoKey wants a provider's key sent to nobody else.
func TestOtherServersGetNoKey(t *testing.T) {
	clearEnv(t)
	s := serve(t)
	for _, name := range []string{"OPENAI", "ANTHROPIC", "GEMINI"} {
		t.Setenv(name+"_API_KEY", name+"-key")
	}
	for _, key := range []string{"none", "server-key"} {
		if key != "none" {
			t.Setenv(models.ServerKey, key)
		}
		for reference, want := range map[string]string{
			"openai/m@" + s.URL + "/v1/":              "/v1/responses " + key,
			"openai-chat/org/m:3b@x@" + s.URL + "/v1": "/v1/chat/completions " + key,
			"anthropic/m@" + s.URL:                    "/v1/messages " + key,
			"gemini/m@" + s.URL + "/proxy":            "/proxy/v1beta/models/m:streamGenerateContent " + key,
		} {
			_, err := ask(t, reference)
			if seen := s.take(); err != nil || len(seen) != 1 || seen[0] != want {
				t.Errorf("%s: got %v; asked %q, want %q", reference, err, seen, want)
			}
		}
	}
}

func TestFallback(t *testing.T) {
	clearEnv(t)
	s := serve(t)
	text, err := ask(t, "openai-chat/gone@"+s.URL+", gemini/gone@"+s.URL+", anthropic/m@"+s.URL)
	if seen := s.take(); err != nil || text != "messages" || len(seen) != 3 {
		t.Errorf("got %q, %v; asked %q", text, err, seen)
	}
	_, err = ask(t, "openai-chat/gone@"+s.URL+",gemini/gone@"+s.URL)
	if !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) {
		t.Errorf("got %v", err)
	}
}

func TestAKeyOfOnesOwn(t *testing.T) {
	clearEnv(t)
	s := serve(t)
	t.Setenv("OPENAI_API_KEY", "the environment's")
	t.Setenv("OPENAI_BASE_URL", s.URL+"/v1")
	t.Setenv(models.ServerKey, "the server's")
	for _, reference := range []string{"openai-chat/m", "openai-chat/m@" + s.URL + "/v1"} {
		m, err := models.OpenWithKey(reference, "mine")
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Generate(t.Context(), &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}, func(llm.Delta) {})
		if seen := s.take(); err != nil || len(seen) != 1 || seen[0] != "/v1/chat/completions mine" {
			t.Errorf("%s: %v; asked %q", reference, err, seen)
		}
	}
}

func TestSuggest(t *testing.T) {
	clearEnv(t)
	if reference, ok := models.Suggest(); ok {
		t.Errorf("without a key: %s", reference)
	}
	for name, want := range map[string]string{
		"GOOGLE_API_KEY": "gemini/", "GEMINI_API_KEY": "gemini/", "OPENAI_API_KEY": "openai/", "ANTHROPIC_API_KEY": "anthropic/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "key")
			reference, ok := models.Suggest()
			if !ok || !strings.HasPrefix(reference, want) {
				t.Errorf("%s, %t", reference, ok)
			}
			if _, err := models.Open(reference); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check needs no key.
func TestCheck(t *testing.T) {
	clearEnv(t)
	if err := models.Check("openai/gpt-5"); err != nil {
		t.Error(err)
	}
	if err := models.Check("gpt-5"); !errors.Is(err, session.ErrInvalid) {
		t.Error(err)
	}
}
