package gemini_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/session"
)

// play serves a body and keeps the last request's.
type play struct {
	*httptest.Server
	answer string
	status int
	header http.Header
	body   []byte
}

func serve(t *testing.T, status int, answer string) *play {
	t.Helper()
	p := &play{answer: answer, status: status}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.header = r.Header
		p.body, _ = io.ReadAll(r.Body)
		recording.Request(t, r, p.body)
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *play) ask(t *testing.T, cfg gemini.Config, request *llm.Request) (*llm.Response, error) {
	t.Helper()
	cfg.BaseURL, cfg.HTTPClient = p.URL, p.Client()
	if cfg.Model == "" {
		cfg.Model = "gemini-2.5-pro"
	}
	if cfg.APIKey == "" && cfg.Headers == nil {
		cfg.APIKey = "AIza-test-0123456789"
	}
	if request == nil {
		request = &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
	}
	return gemini.New(cfg).Generate(t.Context(), request, nil)
}

// events makes a stream of candidates' first parts and the members after them.
func events(candidates ...string) string {
	var b strings.Builder
	for _, c := range candidates {
		fmt.Fprintf(&b, "data: {\"candidates\":[%s]}\n\n", c)
	}
	return b.String()
}

func parts(parts, finish string) string {
	return fmt.Sprintf(`{"content":{"role":"model","parts":[%s]},"finishReason":%q}`, parts, finish)
}

func TestSignaturesGoBackWhereTheyCame(t *testing.T) {
	t.Parallel()
	p := serve(t, 200, events(
		parts(`{"text":"Hm.","thought":true}`, ""),
		parts(`{"text":"Let me"}`, ""),
		parts(`{"text":" look."},{"text":"","thoughtSignature":"dGV4dA=="}`, ""),
		parts(`{"functionCall":{"name":"search","args":{"id":12345678901234567890,"x":1.10}},"thoughtSignature":"Y2FsbA=="}`, ""),
		parts(`{"functionCall":{"name":"search","args":{"q":"<b>"}}}`, "STOP"),
	))
	got, err := p.ask(t, gemini.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := []session.Part{}
	for i := range got.Parts {
		if got.Parts[i].Kind == session.PartToolCall {
			got.Parts[i].CallID = fmt.Sprintf("s:m:%d", i)
			calls = append(calls, got.Parts[i])
		}
	}
	if len(calls) != 2 || string(calls[0].Input) != `{"id":12345678901234567890,"x":1.10}` || calls[0].ProviderCallID != "" {
		t.Fatalf("got the calls %+v", calls)
	}
	_, err = p.ask(t, gemini.Config{}, &llm.Request{Messages: []session.Message{
		session.UserText("Hello?"),
		{Role: session.RoleAssistant, Parts: got.Parts},
		session.ToolResult(calls[0], json.RawMessage(`[1]`)),
		session.ToolFailure(calls[1], &session.Error{Code: session.CodeToolFailed, Message: "broken"}),
		{Role: session.RoleAssistant, Parts: []session.Part{session.Text("Well.")}},
		{Role: session.RoleAssistant, Parts: []session.Part{session.Text("So.")}},
		session.UserText("And?"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"contents":[` +
		`{"role":"user","parts":[{"text":"Hello?"}]},` +
		`{"role":"model","parts":[{"text":"Let me look.","thoughtSignature":"dGV4dA=="},` +
		`{"functionCall":{"name":"search","args":{"id":12345678901234567890,"x":1.10}},"thoughtSignature":"Y2FsbA=="},` +
		`{"functionCall":{"name":"search","args":{"q":"\u003cb\u003e"}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"search","response":{"output":[1]}}},` +
		`{"functionResponse":{"name":"search","response":{"code":"tool_execution_failed","error":"broken"}}}]},` +
		`{"role":"model","parts":[{"text":"Well."},{"text":"So."}]},` +
		`{"role":"user","parts":[{"text":"And?"}]}]}`
	if got := strings.TrimSpace(string(p.body)); got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
}

func TestCallsOfOthersAreSigned(t *testing.T) {
	t.Parallel()
	call := func(id string) session.Part {
		return session.Part{Kind: session.PartToolCall, CallID: id, ProviderCallID: id, Tool: "search", Input: json.RawMessage(`{}`)}
	}
	request := &llm.Request{Messages: []session.Message{
		session.UserText("Hello?"),
		{Role: session.RoleAssistant, Parts: []session.Part{call("a"), call("b")}},
		session.ToolResult(call("a"), json.RawMessage(`1`)),
		session.ToolResult(call("b"), json.RawMessage(`2`)),
	}}
	for model, want := range map[string]int{
		"gemini-2.5-pro": 0, "gemini-2.0-flash": 0, "gemma-3-27b": 0, "gemini-3-pro-preview": 1, "models/gemini-3.1-flash": 1, "gemini-10": 1,
		"gemini-flash-latest": 1, "gemini-1.5-pro-latest": 0, "gemini-pro": 0,
	} {
		p := serve(t, 200, events(parts(`{"text":"Yes."}`, "STOP")))
		if _, err := p.ask(t, gemini.Config{Model: model}, request); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(p.body, []byte("thoughtSignature")); n != want {
			t.Errorf("%s was sent %d signatures, want %d", model, n, want)
		}
	}
}

func TestFinishReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]llm.FinishReason{
		"STOP": llm.FinishStop, "MAX_TOKENS": llm.FinishLength, "SAFETY": llm.FinishContentFilter, "RECITATION": llm.FinishContentFilter,
		"BLOCKLIST": llm.FinishContentFilter, "PROHIBITED_CONTENT": llm.FinishContentFilter, "SPII": llm.FinishContentFilter,
		"LANGUAGE": llm.FinishOther, "OTHER": llm.FinishOther, "TOO_MANY_TOOL_CALLS": llm.FinishOther, "SOMETHING_NEW": llm.FinishOther,
	} {
		got, err := serve(t, 200, events(parts(`{"text":"Yes."}`, reason))).ask(t, gemini.Config{}, nil)
		if err != nil || got.Finish != want {
			t.Errorf("%s: got %+v, %v, want %s", reason, got, err, want)
		}
	}
	for reason, want := range map[string]session.Error{
		"MALFORMED_FUNCTION_CALL":   {Code: session.CodeMalformed, Retryable: true},
		"UNEXPECTED_TOOL_CALL":      {Code: session.CodeMalformed, Retryable: true},
		"MALFORMED_RESPONSE":        {Code: session.CodeMalformed, Retryable: true},
		"MISSING_THOUGHT_SIGNATURE": {Code: session.CodeBadRequest},
		"SAFETY":                    {Code: session.CodeContentFilter}, // without content
	} {
		stream := events(fmt.Sprintf(`{"finishReason":%q,"finishMessage":"call:search{"}`, reason))
		_, err := serve(t, 200, stream).ask(t, gemini.Config{}, nil)
		if e, ok := errors.AsType[*session.Error](err); !ok || e.Code != want.Code || e.Retryable != want.Retryable {
			t.Errorf("%s: got %v, want %s, retryable %v", reason, err, want.Code, want.Retryable)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	const info = `{"@type":"type.googleapis.com/google.rpc.`
	for name, c := range map[string]struct {
		status int
		body   string
		want   session.Error
		after  time.Duration
	}{
		"a day's quota": {
			429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[` + info + `QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},` +
				info + `RetryInfo","retryDelay":"13.5s"}]}}`, session.Error{Code: session.CodeQuota}, 0,
		},
		"a minute's quota, in a list": {
			429, `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[` + info + `RetryInfo","retryDelay":"13.5s"}]}}]`,
			session.Error{Code: session.CodeRateLimited, Retryable: true},
			13500 * time.Millisecond,
		},
		"permission":  {403, `{"error":{"code":403,"status":"PERMISSION_DENIED","message":"no"}}`, session.Error{Code: session.CodeAuth}, 0},
		"expired key": {400, `{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"API key expired. Please renew the API key."}}`, session.Error{Code: session.CodeAuth}, 0},
		"internal":    {500, `{"error":{"code":500,"status":"INTERNAL"}}`, session.Error{Code: session.CodeProviderDown, Retryable: true}, 0},
		"deadline":    {504, `{"error":{"code":504,"status":"DEADLINE_EXCEEDED"}}`, session.Error{Code: session.CodeProviderDown, Retryable: true}, 0},
		"high demand": {
			503, `{"error":{"code":503,"status":"UNAVAILABLE","message":"This model is currently experiencing high demand."}}`,
			session.Error{Code: session.CodeOverloaded, Retryable: true},
			0,
		},
		"a redirection": {302, ``, session.Error{Code: session.CodeBadRequest}, 0},
		"bare, within a stream": {
			200, events(parts(`{"text":"Hel"}`, "")) + "{\n  \"error\": {\n    \"code\": 500,\n    \"status\": \"INTERNAL\"\n  }\n}\n",
			session.Error{Code: session.CodeProviderDown, Retryable: true},
			0,
		},
	} {
		_, err := serve(t, c.status, c.body).ask(t, gemini.Config{}, nil)
		e, ok := errors.AsType[*session.Error](err)
		if !ok || e.Code != c.want.Code || e.Retryable != c.want.Retryable {
			t.Errorf("%s: got %v, want %s, retryable %v", name, err, c.want.Code, c.want.Retryable)
		}
		after, ok := errors.AsType[*llm.RetryAfterError](err)
		if ok != (c.after > 0) || ok && after.After != c.after {
			t.Errorf("%s: it says to wait %v, want %s", name, after, c.after)
		}
	}
}

func TestOptionsAreMerged(t *testing.T) {
	t.Parallel()
	p := serve(t, 200, events(parts(`{"text":"Yes."}`, "STOP")))
	_, err := p.ask(t, gemini.Config{}, &llm.Request{
		Messages:   []session.Message{{Role: session.RoleSystem, Parts: []session.Part{session.Text("Be kind.")}}, session.UserText("Hello?")},
		Tools:      []llm.Tool{{Name: "search", Schema: json.RawMessage(`{"type":"object"}`)}},
		ToolChoice: llm.ToolChoice{Mode: llm.ToolRequired},
		Settings: llm.Settings{MaxOutputTokens: 9, ProviderOptions: json.RawMessage(`{"gemini":{
			"generationConfig":{"thinkingConfig":{"thinkingBudget":12345678901234567}},
			"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}},
			"tools":[{"googleSearch":{}}]}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"contents":[{"role":"user","parts":[{"text":"Hello?"}]}],` +
		`"generationConfig":{"maxOutputTokens":9,"thinkingConfig":{"thinkingBudget":12345678901234567}},` +
		`"systemInstruction":{"parts":[{"text":"Be kind."}]},` +
		`"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"}},` +
		`"tools":[{"functionDeclarations":[{"name":"search","parametersJsonSchema":{"type":"object"}}]},{"googleSearch":{}}]}`
	if got := strings.TrimSpace(string(p.body)); got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
	_, err = p.ask(t, gemini.Config{}, &llm.Request{Settings: llm.Settings{ProviderOptions: json.RawMessage(`[1]`)}})
	if !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) {
		t.Errorf("options that are no object give %v", err)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	p := serve(t, 200, events(parts(`{"text":"Here."},{"inlineData":{"mimeType":"image/png","data":"AAEC"},"thoughtSignature":"c2ln"}`, "STOP")))
	got, err := p.ask(t, gemini.Config{}, nil)
	if err != nil || len(got.Parts) != 2 || got.Parts[1].URL != "data:image/png;base64,AAEC" || got.Parts[1].MediaType != "image/png" {
		t.Fatalf("got %+v, %v", got, err)
	}
	_, err = p.ask(t, gemini.Config{}, &llm.Request{Messages: []session.Message{
		{Role: session.RoleUser, Parts: []session.Part{
			{Kind: session.PartFile, URL: "https://example.com/v.mp4", MediaType: "video/mp4"},
			{Kind: session.PartFile, URL: "data:audio/wav;base64,AAEC", MediaType: "audio/wav"},
			{Kind: session.PartFile, URL: "data:application/yaml,a%3A%201", MediaType: "application/yaml", Filename: "a.yaml"},
			{Kind: session.PartFile, URL: "data:image/svg+xml,%3Csvg/%3E", MediaType: "image/svg+xml"},
			{Kind: session.PartFile, URL: "data:image/tiff;base64,AAEC", MediaType: "image/tiff", Filename: "b.tiff"},
		}},
		{Role: session.RoleAssistant, Parts: got.Parts},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"fileData":{"mimeType":"video/mp4","fileUri":"https://example.com/v.mp4"}}`,
		`{"inlineData":{"mimeType":"audio/wav","data":"AAEC"}}`,
		`{"text":"a.yaml:\n\na: 1"}`,
		`{"text":"\u003csvg/\u003e"}`,
		`{"text":"[The file \"b.tiff\" of type \"image/tiff\" was left out here: `,
		`{"inlineData":{"mimeType":"image/png","data":"AAEC"},"thoughtSignature":"c2ln"}`,
	} {
		if !bytes.Contains(p.body, []byte(want)) {
			t.Errorf("%s is not in %s", want, p.body)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, name := range []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"} {
		t.Setenv(name, "")
	}
	for want, cfg := range map[string]gemini.Config{
		"GEMINI_API_KEY":           {Model: "gemini-2.5-pro"},
		"no model":                 {APIKey: "k"},
		"cannot be the name":       {Model: "a?key=b", APIKey: "k"},
		"not a web address":        {Model: "m", APIKey: "k", BaseURL: "localhost"},
		"not a web address (file)": {Model: "m", APIKey: "k", BaseURL: "file:///etc"},
	} {
		m := gemini.New(cfg)
		want, _, _ = strings.Cut(want, " (")
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", cfg, err, want)
		}
		if _, err := m.Generate(t.Context(), &llm.Request{}, nil); session.AsError(err).Code == session.CodeInternal {
			t.Errorf("%+v: the call gives %v", cfg, err)
		}
	}
	t.Setenv("GOOGLE_API_KEY", "AIza-google-key")
	p := serve(t, 200, events(parts(`{"text":"Yes."}`, "STOP")))
	ask := func(cfg gemini.Config) http.Header {
		cfg.Model, cfg.BaseURL, cfg.HTTPClient = "m", p.URL, p.Client()
		if _, err := gemini.New(cfg).Generate(t.Context(), &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}, nil); err != nil {
			t.Fatal(err)
		}
		return p.header
	}
	if got := ask(gemini.Config{}).Get("X-Goog-Api-Key"); got != "AIza-google-key" {
		t.Errorf("sent the key %q", got)
	}
	t.Setenv("GOOGLE_API_KEY", "")
	if got := ask(gemini.Config{Headers: map[string]string{"authorization": "Bearer gateway"}}); got.Get("Authorization") != "Bearer gateway" || got.Get("X-Goog-Api-Key") != "" {
		t.Errorf("sent %v", got)
	}
}

// TestClientTimeout wants a client's own limit to hold for the whole stream, and
// nothing in the process's log.
func TestClientTimeout(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, events(parts(`{"text":"Hel"}`, "")))
		_ = http.NewResponseController(w).Flush()
		if r.Header.Get("X-Hang") != "" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, events(parts(`{"text":"lo"}`, "STOP")))
	}))
	defer slow.Close()
	generate := func(timeout time.Duration, headers map[string]string) (*llm.Response, error) {
		client := slow.Client()
		client.Timeout = timeout
		m := gemini.New(gemini.Config{Model: "m", APIKey: "AIza-test-0123456789", BaseURL: slow.URL, HTTPClient: client})
		request := &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
		request.Settings.Headers = headers
		return m.Generate(t.Context(), request, nil)
	}
	if got, err := generate(eventually.Patience, nil); err != nil || got.Parts[0].Text != "Hello" {
		t.Errorf("got %+v, %v", got, err)
	}
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		got, err := generate(timeout, map[string]string{"X-Hang": "1"})
		if !session.IsRetryable(err) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if got != nil && len(got.Parts) > 0 { // otherwise the time was over before anything had come
			if got.Parts[0].Text != "Hel" {
				t.Errorf("got %+v", got)
			}
			break
		}
		if timeout > eventually.Patience {
			t.Fatal("what had come is lost")
		}
	}
	if logged.Len() > 0 {
		t.Errorf("logged %q", logged.String())
	}
}
