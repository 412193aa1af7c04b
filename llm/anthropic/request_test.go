package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/session"
)

// ask plays a body to one call and gives the reply and what was sent for it.
func ask(t *testing.T, cfg anthropic.Config, answer string, request *llm.Request) (*llm.Response, map[string]json.RawMessage) {
	t.Helper()
	sent := map[string]json.RawMessage{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &sent) != nil {
			t.Errorf("%v: %s", err, raw)
		}
		recording.Request(t, r, raw)
		sent["path"] = json.RawMessage(r.URL.Path)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	cfg.BaseURL = server.URL + cfg.BaseURL
	cfg.APIKey = "sk-ant-test"
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	if request.Messages == nil {
		request.Messages = []session.Message{session.UserText("Hello?")}
	}
	got, err := anthropic.New(cfg).Generate(t.Context(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got, sent
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var search = llm.Tool{Name: "search", Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`), Strict: true}

func TestThinkingGivesWay(t *testing.T) {
	t.Parallel()
	call := session.Part{Kind: session.PartToolCall, CallID: "c1", ProviderCallID: "toolu_1", Tool: "search", Input: json.RawMessage(`{}`)}
	thought := session.Part{Kind: session.PartReasoning, Text: "hm", Provider: json.RawMessage(`{"anthropic":{"signature":"abc"}}`)}
	turn := func(parts ...session.Part) []session.Message {
		return []session.Message{
			session.UserText("Hello?"), {Role: session.RoleAssistant, Parts: parts}, session.ToolResult(call, json.RawMessage(`"ok"`)),
		}
	}
	const budget, adaptive = `{"type":"enabled","budget_tokens":2048}`, `{"type":"adaptive"}`
	const off = `{"type":"disabled"}`
	for name, c := range map[string]struct {
		option   string
		choice   llm.ToolChoice
		messages []session.Message
		want     string
		sampled  bool
	}{
		"a budget":                    {option: budget, want: budget},
		"adaptive":                    {option: adaptive, want: adaptive},
		"off":                         {option: off, want: off, sampled: true},
		"a forced call":               {option: budget, choice: llm.ToolChoice{Mode: llm.ToolNamed, Name: "search"}, want: off, sampled: true},
		"any forced call":             {option: adaptive, choice: llm.ToolChoice{Mode: llm.ToolRequired}, want: off, sampled: true},
		"a turn begun by another":     {option: budget, messages: turn(call), want: off, sampled: true},
		"a turn begun in thought":     {option: budget, messages: turn(thought, call), want: budget},
		"adaptive continues anywhere": {option: adaptive, messages: turn(call), want: adaptive},
	} {
		_, sent := ask(t, anthropic.Config{}, recorded(t, "text-whole.sse"), &llm.Request{
			Messages: c.messages, ToolChoice: c.choice, Tools: []llm.Tool{search},
			Settings: llm.Settings{
				Temperature: new(0.5), TopK: new(5), TopP: new(0.5), ProviderOptions: json.RawMessage(`{"thinking":` + c.option + `}`),
			},
		})
		if got := string(sent["thinking"]); got != c.want {
			t.Errorf("%s: thinking is %s, want %s", name, got, c.want)
		}
		for _, setting := range []string{"temperature", "top_k", "top_p"} {
			if got := sent[setting] != nil; got != c.sampled {
				t.Errorf("%s: %s is sent: %v", name, setting, got)
			}
		}
	}
}

func TestRedactedThinkingIsSentBack(t *testing.T) {
	t.Parallel()
	answer := strings.Replace(recorded(t, "reasoning.sse"),
		`{"type":"thinking","thinking":"","signature":""}`, `{"type":"redacted_thinking","data":"b3BhcXVl"}`, 1)
	answer = strings.ReplaceAll(strings.ReplaceAll(answer, "thinking_delta", "x_delta"), "signature_delta", "y_delta")
	got, _ := ask(t, anthropic.Config{}, answer, &llm.Request{})
	if len(got.Parts) != 2 || got.Parts[0].Text != "" || got.Parts[0].Kind != session.PartReasoning {
		t.Fatalf("got %+v", got.Parts)
	}
	_, sent := ask(t, anthropic.Config{}, answer, &llm.Request{Messages: []session.Message{
		session.UserText("Hello?"), {Role: session.RoleAssistant, Parts: got.Parts}, session.UserText("And?"),
	}})
	if !bytes.Contains(sent["messages"], []byte(`{"data":"b3BhcXVl","type":"redacted_thinking"}`)) {
		t.Errorf("sent %s", sent["messages"])
	}
}

func TestInputThatComesAtOnce(t *testing.T) {
	t.Parallel()
	answer := strings.Replace(recorded(t, "no-arguments.sse"), `"input":{}`, `"input":{"query":"compass"}`, 1)
	if got, _ := ask(t, anthropic.Config{}, answer, &llm.Request{}); string(got.Parts[0].Input) != `{"query":"compass"}` {
		t.Errorf("got %s", got.Parts[0].Input)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	file := func(mediaType, url string) session.Part {
		return session.Part{Kind: session.PartFile, MediaType: mediaType, URL: url, Filename: "f"}
	}
	left := func(mediaType string) string {
		return `{"text":"[The file \"f\" of type \"` + mediaType + `\" was left out here: this model does not take such files, or it is empty or broken.]","type":"text"}`
	}
	for name, c := range map[string]struct {
		part session.Part
		want string
	}{
		"an image":           {file("image/png", "data:image/png;base64,AAEC"), `{"source":{"data":"AAEC","media_type":"image/png","type":"base64"},"type":"image"}`},
		"a linked image":     {file("image/webp", "https://x.example/a"), `{"source":{"url":"https://x.example/a","type":"url"},"type":"image"}`},
		"a PDF":              {file("application/pdf", "data:application/pdf;base64,AAEC"), `"media_type":"application/pdf","type":"base64"},"title":"f","type":"document"`},
		"a linked PDF":       {file("application/pdf", "https://x.example/a"), `{"source":{"url":"https://x.example/a","type":"url"},"title":"f","type":"document"}`},
		"text":               {file("text/csv", "data:text/csv,a%2Cb"), `"data":"a,b","media_type":"text/plain","type":"text"}`},
		"JSON":               {file("application/json", "data:application/json;base64,e30="), `"data":"{}","media_type":"text/plain","type":"text"}`},
		"linked text":        {file("text/csv", "https://x.example/a"), left("text/csv")},
		"an image like none": {file("image/heic", "data:image/heic;base64,AAEC"), left("image/heic")},
		"sound":              {file("audio/mpeg", "data:audio/mpeg;base64,AAEC"), left("audio/mpeg")},
		"a broken URL":       {file("application/pdf", "data:nothing"), left("application/pdf")},
	} {
		_, sent := ask(t, anthropic.Config{}, recorded(t, "text-whole.sse"), &llm.Request{Messages: []session.Message{
			{Role: session.RoleUser, Parts: []session.Part{session.Text("Look:"), c.part}},
		}})
		var messages []struct{ Content []json.RawMessage }
		if err := json.Unmarshal(sent["messages"], &messages); err != nil {
			t.Fatal(err)
		}
		blocks := messages[0].Content[1:]
		if len(blocks) != 1 || !sameMembers(blocks[0], c.want) {
			t.Errorf("%s: sent %s, want %s", name, blocks, c.want)
		}
	}
}

// sameMembers reports whether raw is the value or has the text in it.
func sameMembers(raw json.RawMessage, want string) bool {
	var a, b any
	if json.Unmarshal([]byte(want), &b) != nil {
		return strings.Contains(string(raw), want)
	}
	_ = json.Unmarshal(raw, &a)
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func TestSystemMessages(t *testing.T) {
	t.Parallel()
	say := func(role session.Role, text string) session.Message {
		return session.Message{Role: role, Parts: []session.Part{session.Text(text)}}
	}
	_, sent := ask(t, anthropic.Config{}, recorded(t, "text-whole.sse"), &llm.Request{
		Instructions: "one", Messages: []session.Message{
			say(session.RoleSystem, "two"), session.UserText("Hello?"), say(session.RoleAssistant, "Yes."),
			say(session.RoleSystem, "three"), session.UserText("And?"),
		},
	})
	if got := string(sent["system"]); !strings.Contains(got, "one") || !strings.Contains(got, "two") || strings.Contains(got, "three") {
		t.Errorf("the instructions are %s", got)
	}
	if got := string(sent["messages"]); strings.Contains(got, "system") || !strings.Contains(got, "three") {
		t.Errorf("the messages are %s", got)
	}
}

func TestLimitsOfOlderModels(t *testing.T) {
	t.Parallel()
	for model, c := range map[string]struct {
		tokens string
		strict bool
	}{
		"claude-3-haiku-20240307":    {"4096", false},
		"claude-3-5-sonnet-20241022": {"8192", false},
		"claude-sonnet-4-20250514":   {"32000", false},
		"claude-sonnet-4-5":          {"32000", true},
		"claude-of-tomorrow":         {"32000", true},
	} {
		_, sent := ask(t, anthropic.Config{Model: model}, recorded(t, "text-whole.sse"), &llm.Request{Tools: []llm.Tool{search}})
		if got := string(sent["max_tokens"]); got != c.tokens {
			t.Errorf("%s is asked for %s tokens, want %s", model, got, c.tokens)
		}
		if got := bytes.Contains(sent["tools"], []byte(`"strict":true`)); got != c.strict {
			t.Errorf("%s is asked to be strict: %v", model, got)
		}
	}
}

func TestBaseURLMayHaveAPath(t *testing.T) {
	t.Parallel()
	_, sent := ask(t, anthropic.Config{BaseURL: "/gateway/anthropic"}, recorded(t, "text-whole.sse"), &llm.Request{})
	if got := string(sent["path"]); got != "/gateway/anthropic/v1/messages" {
		t.Errorf("sent to %s", got)
	}
}

// A choice needs something to choose from.
func TestChoiceWithoutToolsIsLeftOut(t *testing.T) {
	t.Parallel()
	_, sent := ask(t, anthropic.Config{}, recorded(t, "text-whole.sse"), &llm.Request{ToolChoice: llm.ToolChoice{Mode: llm.ToolNone}})
	if sent["tool_choice"] != nil || sent["tools"] != nil {
		t.Errorf("sent %s and %s", sent["tool_choice"], sent["tools"])
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	for name, c := range map[string]struct {
		cfg  anthropic.Config
		want session.Code
	}{
		"good":         {anthropic.Config{Model: "m", APIKey: "k"}, ""},
		"a gateway":    {anthropic.Config{Model: "m", BaseURL: "http://127.0.0.1:1", Headers: map[string]string{"authorization": "Bearer x"}}, ""},
		"no model":     {anthropic.Config{APIKey: "k"}, session.CodeBadRequest},
		"no key":       {anthropic.Config{Model: "m"}, session.CodeAuth},
		"no web":       {anthropic.Config{Model: "m", APIKey: "k", BaseURL: "file:///etc"}, session.CodeBadRequest},
		"not even URL": {anthropic.Config{Model: "m", APIKey: "k", BaseURL: "http://a b"}, session.CodeBadRequest},
	} {
		m := anthropic.New(c.cfg)
		err := m.Check()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, &session.Error{Code: c.want}) || session.IsRetryable(err) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if _, asked := m.Generate(context.Background(), &llm.Request{}, nil); !errors.Is(asked, err) {
			t.Errorf("%s: a call says %v", name, asked)
		}
	}
	t.Setenv("ANTHROPIC_API_KEY", "from-the-environment")
	if err := anthropic.New(anthropic.Config{Model: "m"}).Check(); err != nil {
		t.Error(err)
	}
}

func TestBadOptionsAreTold(t *testing.T) {
	t.Parallel()
	m := anthropic.New(anthropic.Config{Model: "m", APIKey: "k", BaseURL: "http://127.0.0.1:1"})
	for _, options := range []string{`[]`, `{"betas":"x"}`} {
		_, err := m.Generate(t.Context(), &llm.Request{Settings: llm.Settings{ProviderOptions: json.RawMessage(options)}}, nil)
		if !errors.Is(err, &session.Error{Code: session.CodeBadRequest}) {
			t.Errorf("%s: got %v", options, err)
		}
	}
}
