package gemini_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/internal/wiretest"
	"github.com/helixagents/helix/session"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model       string
		given, want int
	}{
		{"gemini-2.5-pro", 0, 1_048_576},
		{"models/gemini-2.0-flash-lite", 0, 1_048_576},
		{"gemini-2.5-pro", 7, 7},
		{"gemini-1.5-flash-002", 0, 1_048_576},
		{"gemini-1.5-flash-latest", 0, 1_048_576},
		{"gemini-2.0-flash-001", 0, 1_048_576},
		{"gemini-2.5-pro-preview-tts", 0, 0},
		{"gemini-2.0-flash-preview-image-generation", 0, 0},
		{"gemini-2.0-flash-thinking-exp", 0, 0},
		{"gemini-2.0-flash-live-001", 0, 0},
		{"gemini-9", 0, 0},
		{"tunedModels/mine", 0, 0},
		{"gemini-9", 5, 5},
	} {
		if got := gemini.New(gemini.Config{Model: c.model, Window: c.given, APIKey: "k"}).Window(); got != c.want {
			t.Errorf("the window of %s is %d, want %d", c.model, got, c.want)
		}
	}
	if err := gemini.New(gemini.Config{Model: "m", Window: -1, APIKey: "k"}).Check(); err == nil || !strings.Contains(err.Error(), "window") {
		t.Errorf("a negative window: %v", err)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	temperature := 0.5
	request := &llm.Request{
		Instructions: "Be brief.", Messages: []session.Message{session.UserText("hello")},
		Tools:    []llm.Tool{{Name: "look", Schema: json.RawMessage(`{"type":"object"}`)}},
		Settings: llm.Settings{MaxOutputTokens: 5, Temperature: &temperature, StopSequences: []string{"x"}, Headers: map[string]string{"X-Mine": "1"}},
	}
	var got string
	model := func(status int, answer string) *gemini.Model {
		return gemini.New(gemini.Config{Model: "gemini-2.5-pro", APIKey: "secret", BaseURL: "http://h/base", HTTPClient: &http.Client{
			Transport: wiretest.Answering(func(r *http.Request, body string) (int, string) {
				got = r.Method + " " + r.URL.String() + " " + r.Header.Get("X-Goog-Api-Key") + " " + r.Header.Get("X-Mine") + " " + strings.TrimSpace(body)
				return status, answer
			}),
		}})
	}
	n, err := model(200, `{"totalTokens":42,"promptTokensDetails":[]}`).Count(t.Context(), request)
	if n != 42 || err != nil {
		t.Errorf("counted %d: %v", n, err)
	}
	if want := `POST http://h/base/v1beta/models/gemini-2.5-pro:countTokens secret 1 {"generateContentRequest":{"contents":[{"role":"user","parts":[{"text":"hello"}]}],"generationConfig":{"maxOutputTokens":5,"stopSequences":["x"],"temperature":0.5},"systemInstruction":{"parts":[{"text":"Be brief."}]},"tools":[{"functionDeclarations":[{"name":"look","parametersJsonSchema":{"type":"object"}}]}],"model":"models/gemini-2.5-pro"}}`; got != want {
		t.Errorf("the request was\n%s\nwant\n%s", got, want)
	}
	_, err = model(429, `{"error":{"message":"slow down"}}`).Count(t.Context(), request)
	if !errors.Is(err, &session.Error{Code: session.CodeRateLimited}) {
		t.Errorf("a rate limit: %v", err)
	}
	if _, err = model(200, `no JSON`).Count(t.Context(), request); err == nil {
		t.Error("an answer that is no JSON was accepted")
	}
}
