package openai_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/session"
)

const answered = `{"status":"completed","output":[]}`

// Reasoning is sent only with what it led to, and with a name for itself.
func TestReasoningThatCannotBeSent(t *testing.T) {
	t.Parallel()
	sealed := session.Part{Kind: session.PartReasoning, Text: "Hm.", Provider: json.RawMessage(`{"openai":{"id":"rs_1","encrypted":"x"}}`)}
	remark := session.Part{Kind: session.PartText, Text: "Look.", Provider: json.RawMessage(`{"openai":{"phase":"commentary"}}`)}
	got := ask(t, openai.Config{}, play(answered), &llm.Request{Messages: []session.Message{
		session.UserText("Hello?"),
		{Role: session.RoleAssistant, Parts: []session.Part{sealed, remark, sealed}},
		session.UserText("And?"),
		{Role: session.RoleAssistant, Parts: []session.Part{sealed}},
		session.UserText("Well?"),
	}})
	const want = `[{"content":[{"text":"Hello?","type":"input_text"}],"role":"user"},` +
		`{"id":"rs_1","summary":[{"text":"Hm.","type":"summary_text"}],"encrypted_content":"x","type":"reasoning"},` +
		`{"content":"Look.","role":"assistant","phase":"commentary"},` +
		`{"content":[{"text":"And?","type":"input_text"}],"role":"user"},{"content":[{"text":"Well?","type":"input_text"}],"role":"user"}]`
	if input := string(got.sent["input"]); input != want {
		t.Errorf("sent\n%s, want\n%s", input, want)
	}
}

func TestWhatDependsOnTheModel(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"gpt-5-mini": `["reasoning.encrypted_content"]`, "openai/o4-mini": `["reasoning.encrypted_content"]`, "gpt-4.1": "", "gpt-5-chat-latest": "",
	} {
		got := ask(t, openai.Config{Model: model}, play(answered), &llm.Request{SessionID: strings.Repeat("s", 80)})
		if include := string(got.sent["include"]); include != want {
			t.Errorf("%s is asked for %q, want %q", model, include, want)
		}
		if string(got.sent["store"]) != "false" || len(got.sent["prompt_cache_key"]) != 66 {
			t.Errorf("store is %s, the cache key %s", got.sent["store"], got.sent["prompt_cache_key"])
		}
	}
	got := ask(t, openai.Config{}, play(answered), &llm.Request{Settings: llm.Settings{ProviderOptions: json.RawMessage(`{"reasoning":{"effort":"low"}}`)}})
	if got.sent["include"] == nil {
		t.Error("sealed reasoning is not asked for, but reasoning is")
	}
}

func TestOptionsAreMerged(t *testing.T) {
	t.Parallel()
	got := ask(t, chat, play(events(ending("stop"))), &llm.Request{
		SessionID: "s1",
		Settings: llm.Settings{
			Headers:         map[string]string{"X-Team": "blue"},
			ProviderOptions: json.RawMessage(`{"openai":{"stream_options":{"include_obfuscation":false},"temperature":null,"logit_bias":{"5":1}}}`),
			Temperature:     new(0.5),
		},
	})
	if s := string(got.sent["stream_options"]); s != `{"include_usage":true,"include_obfuscation":false}` {
		t.Errorf("the stream options are %s", s)
	}
	if got.sent["temperature"] != nil || string(got.sent["logit_bias"]) != `{"5":1}` {
		t.Errorf("sent %s", got.sent)
	}
	if got.sent["prompt_cache_key"] != nil { // others may refuse it
		t.Error("a server that is not OpenAI's is sent a cache key")
	}
	if got.header.Get("X-Team") != "blue" || got.header.Get("Authorization") != "" {
		t.Errorf("the headers are %v", got.header)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	file := func(mediaType, url, name string) session.Part {
		return session.Part{Kind: session.PartFile, MediaType: mediaType, URL: url, Filename: name}
	}
	request := &llm.Request{Messages: []session.Message{{Role: session.RoleUser, Parts: []session.Part{
		file("image/png", "https://example.com/a.png", ""),
		file("application/pdf", "https://example.com/a.pdf", ""),
		file("application/pdf", "data:application/pdf;base64,JVBERg==", ""),
		file("text/plain", "data:text/plain,a%20b", "note.txt"),
		file("audio/mpeg", "data:audio/mpeg;base64,AAAA", ""),
		file("video/mp4", "data:video/mp4;base64,AAAA", ""),
		file("image/png", "data:nonsense", ""),
	}}}}
	left := func(mediaType, kind string) string {
		return `{"text":"[The file \"\" of type \"` + mediaType + `\" was left out here: this model does not take such files, or it is empty or broken.]","type":"` + kind + `"}`
	}
	for name, c := range map[string]struct {
		cfg                openai.Config
		body, member, want string
	}{
		"responses": {openai.Config{}, answered, "input", `[{"content":[{"detail":"auto","image_url":"https://example.com/a.png","type":"input_image"},` +
			`{"file_url":"https://example.com/a.pdf","type":"input_file"},` +
			`{"file_data":"data:application/pdf;base64,JVBERg==","filename":"file.pdf","type":"input_file"},` +
			`{"text":"note.txt:\n\na b","type":"input_text"},` + strings.Join([]string{left("audio/mpeg", "input_text"), left("video/mp4", "input_text"), left("image/png", "input_text")}, ",") + `],"role":"user"}]`},
		"chat": {chat, events(ending("stop")), "messages", `[{"content":[{"image_url":{"url":"https://example.com/a.png"},"type":"image_url"},` + left("application/pdf", "text") + `,` +
			`{"file":{"file_data":"data:application/pdf;base64,JVBERg==","filename":"file.pdf"},"type":"file"},` +
			`{"text":"note.txt:\n\na b","type":"text"},{"input_audio":{"data":"AAAA","format":"mp3"},"type":"input_audio"},` +
			left("video/mp4", "text") + `,` + left("image/png", "text") + `],"role":"user"}]`},
	} {
		got := ask(t, c.cfg, play(c.body), request)
		if sent := string(got.sent[c.member]); sent != c.want {
			t.Errorf("%s sent\n%s, want\n%s", name, sent, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", "")
	for name, c := range map[string]struct {
		cfg  openai.Config
		code session.Code
	}{
		"no key":                {openai.Config{Model: "gpt-5"}, session.CodeAuth},
		"no model":              {openai.Config{APIKey: "k"}, session.CodeBadRequest},
		"no such API":           {openai.Config{Model: "gpt-5", APIKey: "k", API: "assistants"}, session.CodeBadRequest},
		"no address":            {openai.Config{Model: "gpt-5", APIKey: "k", BaseURL: "localhost:1"}, session.CodeBadRequest},
		"a server without":      {openai.Config{Model: "gpt-5", BaseURL: "http://localhost:1"}, ""},
		"a header in its place": {openai.Config{Model: "gpt-5", Headers: map[string]string{"api-key": "k"}}, ""},
	} {
		err := openai.New(c.cfg).Check()
		if e, _ := errors.AsType[*session.Error](err); (err != nil) != (c.code != "") || e != nil && e.Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
